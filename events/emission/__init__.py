"""The engine that turns a tape into the frames a client gets, in any dialect.

`engine` keeps attempts, frames that wait, held calls and the one ending. `dialect` is the protocol that a dialect
implements. `frames` has the edits of parsed values and the ledger of every difference between what came and what is
sent. `cards` reports tool calls and their results.
"""
