"""The chat completions dialect: repair, then read; write for the way back.

`repair` turns what an upstream sent into canonical chunks: `content` repairs the choices of a `chunk`, `tool_calls`
their calls; nothing else knows a provider's quirks. `chunk` also turns canonical chunks into events and builds ours,
`write` makes frames, and `request` reads what a client sends.
"""
