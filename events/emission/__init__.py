"""The engine that turns a tape into the frames a client gets, in any dialect.

`engine` keeps attempts, frames that wait, held calls and the one ending. `dialect` is the protocol that a dialect
implements. `ledger` records every difference between what came and what is sent, as `edits` of parsed values.
"""
