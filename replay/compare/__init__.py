"""Compare recordings: content, or bytes and times.

`compare` is the door; `content` and `bytes` are its two levels. `verify` sends recorded requests to a live upstream,
`recheck` compares old tapes with what today's code makes of them.
"""
