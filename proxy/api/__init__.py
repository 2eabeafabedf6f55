"""Wiretape's own HTTP endpoints: control, streams, event feed and metrics.

`control` is the Quart app with health and metrics. `streams` is the API of recorded streams: pages, the JSON of one
stream, and its events.
"""
