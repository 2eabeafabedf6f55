"""Folds over events: the live state and the summary of a stream, the state and events of a run.

The live state (`wire`) is kept while a stream runs and decides its ending. The summary adds what the catalogue, the
API, the command line and sealed tapes show; it takes the live state as it is and never changes it. A run is a fold over
all of its tapes: what its viewers get is decided here alone.
"""
