"""Tape storage: memory and files, durability, recovery, retention and the catalogue.

`store` is the interface. `files` and `memory` implement it; everything else serves `files`. A tape is written to
`live/`, ends, and is moved to the folder of its day by the next commit round (`tape_file`). `catalogue` is an index of
the ended tapes that can be deleted at any time. Every reader of a tape file uses `tape_file.TapeReader`.
"""
