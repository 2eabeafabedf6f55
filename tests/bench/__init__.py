"""The speed of the core, of the proxy beside others, and of the upstream side; docs/benchmarks.md is written here."""
