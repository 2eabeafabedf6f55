"""Folds over events: the live state and the summary of a stream."""
