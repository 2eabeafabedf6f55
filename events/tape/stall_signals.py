"""Which records are a sign of life of the upstream: what the stall clock hears, and what a summary calls no silence."""

from ..core.json_text import as_object
from .record import Record

__all__ = ["lives", "speaks"]


def speaks(record: Record) -> bool:
    """Return a data frame that is no ping: comments and pings never reset the stall clock (U26)."""
    payload, event = record.payload, b""
    if payload is None or record.keys:
        frame = record.frame()
        payload, event = frame.payload, frame.event
    if payload is None or event == b"ping" or payload.lstrip()[:1] in (b"", b":"):
        return False
    return b'"ping"' not in payload or as_object(record.read().value).get("type") != "ping"


def lives(record: Record) -> bool:
    """Return the same for hermes-agent, which sends only keepalives while a tool of its own runs."""
    return speaks(record) or (record.raw or b"").strip() == b": keepalive"
