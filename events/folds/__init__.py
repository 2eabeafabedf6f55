"""Folds over events: the live state and the summary of a stream.

The live state (`wire`) is kept while a stream runs and decides its ending. The summary adds what the catalogue, the
API, the command line and sealed tapes show; it takes the live state as it is and never changes it.
"""
