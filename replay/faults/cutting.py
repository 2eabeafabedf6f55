"""Make a failing tape from a good one: cut at a place, with an ending, and its parent in the header."""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record

from ..playback.played import as_played
from ..playback.player import ORIGINAL, script_of
from ..redaction.redact import redact
from ..seal import seal
from ..sealed.load import parse
from ..sealed.sealed import MARK, encode
from .faults import overlay

__all__ = ["CutEnding", "cut"]

CutEnding = Literal["reset", "eof", "stall", "cut"]


def cut(data: bytes, place: str, ending: CutEnding, *, stream: int | None = None, name: str = "") -> bytes:
    """Return the sealed tape of the streams up to the cut one, without a number the last stream with the place.

    A live tape is sealed first, because half a secret could no longer be found. Raise FaultError for an invalid place,
    TapeError if no stream has it.
    """
    fault = overlay(f"{ending}@{place}")
    header, streams = parse(data if data.startswith(MARK) else seal(parse(data).streams))
    if stream is not None and not 1 <= stream <= len(streams):
        raise TapeError(f"there is no stream {stream}, the tape has {len(streams)}")
    for number in [stream] if stream is not None else range(len(streams), 0, -1):
        script = fault.apply(script_of(streams[number - 1], speed=ORIGINAL))
        if script is None:
            continue
        left: Sequence[Sequence[Record]] = [*streams[: number - 1], as_played(streams[number - 1], script)]
        if header.get("redacted"):  # the end of a stream may make something a secret
            left = redact(left)
        kept: dict[str, Any] = {key: value for key, value in header.items() if key not in ("wiretape", "format")}
        parent = {"sha256": hashlib.sha256(data).hexdigest(), "stream": number, "cut": place, "ending": ending}
        kept |= {"streams": len(left), "parent": {"name": name, **parent} if name else parent}
        return encode(kept, left)
    raise TapeError(f"stream {stream} has no {place}" if stream is not None else f"no stream has a {place}")
