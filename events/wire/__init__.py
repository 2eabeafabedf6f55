"""SSE bytes to frames and frames to bytes."""
