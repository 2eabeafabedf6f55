"""Answer requests from recordings: matching and faults, for the command line and for tests.

`Serving` chooses each response, and reports it or keeps its `outcome` for assertions.
"""
