"""Tape records, their lines on disk, and the way back to the upstream's reads.

`record` is one line. `tape` has the recorder (reads to records) and the reader (lines to records).
"""
