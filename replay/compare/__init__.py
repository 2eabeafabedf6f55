"""Compare recordings: content, or bytes and times.

`verify` sends recorded requests to a live upstream, and `recheck` compares old tapes with what today's code makes of
them.
"""
