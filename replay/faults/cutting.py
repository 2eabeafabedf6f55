"""A failing tape made of a good one: cut at a place, with an ending, and the name of its parent in the header"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

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

#: What it is in the words of faults.py.
_FAULTS: Final = frozenset({"reset", "eof", "stall", "cut"})


def cut(data: bytes, place: str, ending: CutEnding, *, stream: int | None = None, name: str = "") -> bytes:
    """The sealed tape that is left of these bytes of a file: the streams before the one that is cut, and that one.

    A live tape is sealed first, so its places are those of the sealed one. Without a number it is the last stream that
    has such a place. Raises FaultError for what is no place, TapeError where no stream has it.
    """
    assert ending in _FAULTS, f"no such ending: {ending}"
    fault = overlay(f"{ending}@{place}")
    header, streams = parse(_sealed(data))
    if stream is not None and not 1 <= stream <= len(streams):
        raise TapeError(f"there is no stream {stream}, but {len(streams)}")
    numbers = [stream] if stream is not None else range(len(streams), 0, -1)
    for number in numbers:
        script = fault.over(script_of(streams[number - 1], speed=ORIGINAL))
        if script is not None:
            left = [*streams[: number - 1], as_played(streams[number - 1], script)]
            parent = {"sha256": hashlib.sha256(data).hexdigest(), "stream": number, "cut": place, "ending": ending}
            return _left(header, left, {"parent": {"name": name, **parent} if name else parent})
    where = f"stream {stream} has" if stream is not None else "none of its streams has"
    raise TapeError(f"{where} no {place}" if stream is not None else f"{where} a {place}")


def _sealed(data: bytes) -> bytes:
    """Before it is cut: of a secret that the place is inside of nobody could tell any more that it was one."""
    return data if data.startswith(MARK) else seal(parse(data).streams)


def _left(header: Mapping[str, Any], streams: Sequence[Sequence[Record]], more: dict[str, Any]) -> bytes:
    """With the header of the file it is of; where that is redacted, what only its end makes a secret is gone too."""
    if header.get("redacted"):
        streams = redact(streams)
    kept = {name: value for name, value in header.items() if name not in ("wiretape", "format")}
    return encode({**kept, "streams": len(streams), **more}, streams)
