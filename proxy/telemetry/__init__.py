"""Spans for OpenTelemetry: a pure fold from a tape, its encodings, and the task that exports ended streams."""
