"""Export recordings as OpenTelemetry traces, in OTLP's JSON."""

from collections import Counter
from collections.abc import Sequence

from wiretape.events.core.json_text import as_text
from wiretape.events.tape.record import Record
from wiretape.proxy.config.otel import RESOURCE
from wiretape.proxy.security.trace import Trace
from wiretape.proxy.telemetry.otlp import encoded, joined
from wiretape.proxy.telemetry.spans import SpanFold

__all__ = ["to_otlp"]


def to_otlp(streams: Sequence[Sequence[Record]]) -> tuple[bytes, Counter[str]]:
    """Return the spans of these streams as one request on one line. It is no recording, which could lack anything."""
    named = [(as_text(records[0].keys.get("stream")), records) for records in streams]
    traces = {stream: Trace.on_tape(stream, records[0].keys.get("trace")) for stream, records in named}
    parts: list[bytes] = []
    for stream, records in named:
        fold = SpanFold(stream)
        for record in records:
            fold.take(record)
        parts.append(encoded(fold.spans(traces), RESOURCE, is_json=True))
    return joined(parts, is_json=True) + b"\n", Counter()
