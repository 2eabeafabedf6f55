"""Wiretape's own HTTP endpoints: control, streams, event feed and metrics.

`control` is the Quart app with health and metrics, `streams` the API of recorded streams, `event_feed` follows and
resumes one stream.
"""
