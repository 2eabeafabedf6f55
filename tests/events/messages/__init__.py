"""The Messages dialect. The streams in these tests are ours and synthetic, but for those read from the corpus."""
