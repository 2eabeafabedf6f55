"""Wiretape's own HTTP endpoints: control, streams, event feed and metrics; the OpenAPI document."""
