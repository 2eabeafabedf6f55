"""The chat completions dialect: repair, then read; write for the way back.

`repair` turns what an upstream sent into canonical chunks with `tool_calls`, `content` and `errors`; nothing
else knows a provider's quirks. `read` turns canonical chunks into events, `write` makes frames of our own.
"""
