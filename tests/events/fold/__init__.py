"""One file a fold."""
