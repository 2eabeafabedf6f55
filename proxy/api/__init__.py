"""Wiretape's own HTTP endpoints: control, streams, event feed and metrics.

`front` is the ASGI app: it decides access once and passes every other path to the relay. `control` is the Quart app
with health and metrics, `streams` the API of recorded streams, `event_feed` follows and resumes one stream.
"""
