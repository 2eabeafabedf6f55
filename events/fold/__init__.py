"""Folds over events: `(state, event) -> state`, pure from outside, one question a file."""
