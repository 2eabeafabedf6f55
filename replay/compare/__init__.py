"""Compare recordings: content, bytes and timing."""
