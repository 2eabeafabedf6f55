"""Cut recordings: list every prefix of a conversation, and make a failing tape from a good one."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple, get_args

from wiretape.events.core import model
from wiretape.events.core.errors import TapeError
from wiretape.events.emit import events
from wiretape.events.tape.record import RECEIVED, Record

from ..playback.script import ORIGINAL, as_played, attempts_of, script_of, uncrossed
from ..redaction.redact import redact
from ..seal import seal
from ..sealed.files import parse
from ..sealed.sealed import MARK, encode
from .faults import overlay

__all__ = ["CutEnding", "Prefix", "Unit", "cut", "prefixes_of"]

CutEnding = Literal["reset", "eof", "stall", "cut"]
Unit = Literal["frames", "bytes"]


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
        parent = {"sha256": hashlib.sha256(data).hexdigest(), "stream": number, "cut": place, "ending": ending}
        facts = {"streams": len(left), "parent": {"name": name, **parent} if name else parent}
        return encode({**header, **facts}, left)
    raise TapeError(f"stream {stream} has no {place}" if stream is not None else f"no stream has a {place}")


class Prefix(NamedTuple):
    """The first bytes of one stream of a conversation; the streams before it are complete."""

    #: Its position, from 0.
    stream: int
    bytes: int
    #: Complete frames in these bytes.
    frames: int
    #: What has come by then, such as `write_file+48`; of the second stream `write_file+48#2`.
    name: str

    def __str__(self) -> str:
        return self.name

    def fault(self, end: str) -> str:
        """Return the fault that cuts here; `end` is one of its kinds."""
        return f"{end}@byte:{self.bytes}#{self.stream + 1}"


def prefixes_of(streams: Sequence[Sequence[Record]], unit: Unit) -> list[Prefix]:
    """Return all prefixes in order; raise ValueError for an unknown unit."""
    if unit not in get_args(Unit):
        raise ValueError(f"prefixes are of {' or '.join(get_args(Unit))}, not {unit!r}")
    found: list[Prefix] = []
    for stream, records in enumerate(map(uncrossed, streams)):
        received = [record for record in attempts_of(records)[-1] if record.kind in RECEIVED]
        ends = [0, *accumulate(len(record.raw or b"") for record in received)]
        names = _names(records, [record.n for record in received])
        number = f"#{stream + 1}" * bool(stream)
        for frames, (end, following) in enumerate(zip(ends, [*ends[1:], ends[-1] + 1], strict=True)):
            for at in range(end, following if unit == "bytes" else end + 1):
                name = f"{names[frames]}-byte{at}" if unit == "bytes" else names[frames]
                found.append(Prefix(stream, at, frames, name + number))
    return found


def _names(records: Sequence[Record], numbers: Sequence[int]) -> list[str]:
    """Return what a client has before the first of these records, and after each, in different words."""
    places, calls, sizes = dict[int, str](), dict[tuple[int, int], str](), Counter[object]()
    for event in events(records, repairs=False):
        match event:
            case model.TextDelta(text=text) | model.ReasoningDelta(text=text) | model.RefusalDelta(text=text):
                word = type(event).__name__.removesuffix("Delta").lower()
                sizes[word] += len(text)
                places[event.n] = f"{word}+{sizes[word]}"
            case model.ToolCallStarted(choice=choice, call=call, name=name):
                calls[choice, call] = name
                places[event.n] = f"{name}+0"
            case model.ToolArgumentsDelta(choice=choice, call=call, text=text):
                sizes[choice, call] += len(text)
                places[event.n] = f"{calls.get((choice, call), 'call')}+{sizes[choice, call]}"
            case model.Finish() | model.Terminator():
                places[event.n] = "finish" if isinstance(event, model.Finish) else "done"
            case _:
                pass
    names = ["start"]
    for frames, n in enumerate(numbers, 1):
        place = places.get(n, names[-1].partition("@")[0])
        names.append(f"{place}@frame{frames}" if place in names else place)
    return names
