"""The official SDKs over the bytes that a client gets: what they accumulate must be what our own folds hold."""
