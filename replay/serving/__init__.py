"""Answer requests from recordings: matching, faults and fresh ids, for the command line and for tests.

`Answers` chooses the response. `Serving` prints a line for each request; `Playback` keeps the outcomes for assertions.
"""
