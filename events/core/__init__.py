"""What a stream is: events, tool lifecycle, endings, settings, limits and the JSON codec.

Start with `model`, the closed union of events. `lifecycle` is the state table of a tool call.
"""
