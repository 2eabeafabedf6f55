"""Records to a sealed tape: what is kept, what is redacted, what is renamed; pure"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from wiretape.events.record import Record

from .sealed import encode

__all__ = ["seal"]


def seal(streams: Sequence[Sequence[Record]]) -> bytes:
    """The same streams give the same bytes."""
    return encode(_header(streams), streams)


def _header(streams: Sequence[Sequence[Record]]) -> dict[str, Any]:
    created = next((records[0].keys.get("created") for records in streams if records), None)
    day = datetime.fromtimestamp(created, UTC).date().isoformat() if type(created) is int else None
    return {"exact": True, "recorded": day, "streams": len(streams)}
