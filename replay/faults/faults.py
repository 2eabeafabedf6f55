"""Faults laid over a recorded response: cut, broken, silent, in other chunks, with frames missing, twice or wrong.

docs/replay.md lists them and the places where they happen. Faults depend only on bytes, so they are the same at every
speed; they apply in the order given.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import ABSENT, as_object, dumps, parse
from wiretape.events.wire.sse import Decoder

from ..normalize.dialect_words import (
    Dialect,
    call_pieces,
    dialect_of,
    error_frame,
    finishes,
    has_text,
    shortened,
    terminates,
    without_finish,
)
from ..playback.script import Fault, Script, Step, cut_at, json_answer, spliced

__all__ = ["KINDS", "PLACES", "FaultError", "Faults", "Overlay", "overlay"]

#: Returns the script with the fault in it; None if the response does not have the place.
_Apply = Callable[[Script], Script | None]

_ENDS: Final[Mapping[str, Fault | None]] = MappingProxyType(
    {"cut": Fault.CUT, "reset": Fault.RESET, "stall": Fault.STALL, "garbage": Fault.GARBAGE, "eof": None}
)
#: The frames that a kind takes.
_FRAMES: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {"drop": ("done", "finish", "usage", "frame"), "duplicate": ("done", "finish", "frame")}
)
#: By kind that takes a value: examples.
_VALUES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "rechunk": "1, frame or all",
        "slow": "0.2",
        "status": "503, or 429/7 for a Retry-After of 7",
        "attempts": "503,reset,ok",
    }
)
KINDS: Final = (*_ENDS, "error", *_FRAMES, *_VALUES)
#: Places by what follows the colon: nothing, a number, a number that is 1 if it is left out, or a name.
_BARE: Final = ("start", "end", "finish", "done")
_NUMBERED: Final = ("frame", "byte")
_COUNTED: Final = ("char", "text")
PLACES: Final = (*_BARE, *_NUMBERED, *_COUNTED, "tool")
_FAULT: Final = re.compile(r"([a-z]+)(?:@([^=]*))?(?:=(.*))?", re.DOTALL)
_PLACE: Final = re.compile(r"([a-z]+)(?:_call)?(?::(.*?))?(?:\+(\d{1,9}))?")
_STATUS: Final = re.compile(r"([2-5]\d\d)(?:/(\d{1,6}))?")
#: The first byte of a character of several bytes.
_LEAD: Final = re.compile(rb"[\xc2-\xf4](?=[\x80-\xbf])")
#: Longer than any client waits.
_SLOW_S_MAX: Final = 86_400.0


class FaultError(WiretapeError):
    """A fault that cannot be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """One parsed fault."""

    text: str
    #: The number of one stream, from 1; None for all.
    stream: int | None
    apply: _Apply
    #: The fault adds an error, so the response never counts as answered.
    fails: bool = False
    #: What replaces each of the first responses; None is the recorded response.
    attempts: Sequence[_Apply | None] = ()


@dataclass(slots=True)
class Faults:
    """The faults of one replay, in order."""

    overlays: Sequence[Overlay] = ()
    _requests: dict[int, int] = field(default_factory=dict[int, int])
    _applied: set[str] = field(default_factory=set[str])
    #: The streams that were requested, also under earlier faults.
    requested: set[int] = field(default_factory=set[int])

    @staticmethod
    def of(texts: Iterable[str]) -> "Faults":
        """Parse faults; raise FaultError."""
        return Faults([overlay(text) for text in texts])

    def after(self, before: "Faults") -> "Faults":
        """Take over what earlier faults have applied to."""
        self._applied |= before._applied  # noqa: SLF001 - of the same class
        self.requested |= before.requested
        return self

    @property
    def unapplied(self) -> list[str]:
        """The faults that had no place in any response."""
        return [each.text for each in self.overlays if each.text not in self._applied]

    def over(self, script: Script, place: int) -> tuple[Script, bool]:
        """Return the response of a stream this time, and whether it answers: after a broken one, clients retry."""
        number = self._requests[place] = self._requests.get(place, 0) + 1
        self.requested.add(place)
        recorded, failed = script, False
        for each in self.overlays:
            if each.stream not in (None, place + 1):
                continue
            attempt = each.attempts[number - 1] if number <= len(each.attempts) else None
            changed = (attempt or each.apply)(script)
            if changed is None:
                continue
            self._applied.add(each.text)
            script, failed = changed, failed or each.fails
            if attempt is not None:
                return script, False
        return script, not failed and (script is recorded or _is_answer(recorded, script))


def _is_answer(recorded: Script, script: Script) -> bool:
    """Return whether a client sees a proper response: it ends as recorded, with its finish or its last frame."""
    ends = [(each.unanswered, each.status, each.fault) for each in (recorded, script)]
    if ends[0] != ends[1]:
        return False
    before, after = _Places(recorded.body), _Places(script.body)
    if not before.frames:
        return len(after.body) >= len(before.body)
    ended = [bool(each.first("finish") or each.first("done")) for each in (before, after)]
    return before.body == after.body or not ended[0] or ended[1]


# -- parsing ----------------------------------------------------------------------------------------------------------


def overlay(text: str) -> Overlay:
    """Parse a fault; raise FaultError with the way to write it."""
    fault, mark, number = text.rpartition("#")
    stream = int(number) if mark and re.fullmatch(r"[1-9]\d{0,5}", number) else None
    found = _FAULT.fullmatch(fault if stream is not None else text)
    kind, place, value = (found[1], found[2], found[3]) if found is not None else ("", None, None)
    attempts: Sequence[_Apply | None] = ()
    try:
        if kind in _VALUES:
            apply, attempts = _with_value(kind, place, value)
        else:
            apply = _at_place(kind, place, value)
    except FaultError as error:
        raise FaultError(f"fault {text!r}: {error}") from None
    return Overlay(text=text, stream=stream, apply=apply, fails=kind in ("error", "status"), attempts=attempts)


def _with_value(kind: str, place: str | None, value: str | None) -> tuple[_Apply, Sequence[_Apply | None]]:
    """Return what a fault without a place does, and what it does to the first responses."""
    if place is not None or not value:
        raise FaultError(f"{kind} takes a value, as in {kind}={_VALUES[kind]}")
    match kind:
        case "rechunk":
            if value not in ("frame", "all") and not re.fullmatch(r"[1-9]\d{0,8}", value):
                raise FaultError("rechunk takes a number of bytes, frame or all")
            return lambda script: _rechunked(script, value), ()
        case "slow":
            if not re.fullmatch(r"\d{1,5}(?:\.\d{1,6})?", value) or not 0 < float(value) <= _SLOW_S_MAX:
                raise FaultError("slow takes seconds, as in slow=0.2")
            return lambda script: _slowed(script, float(value)), ()
        case "status":
            return _status(value), ()
        case _:
            return lambda _: None, [_attempt(word.strip()) for word in value.split(",")]


def _at_place(kind: str, place: str | None, value: str | None) -> _Apply:
    if kind not in KINDS:
        raise FaultError(f"no such fault; there are {', '.join(KINDS)}")
    if value is not None and kind != "error":
        raise FaultError(f"{kind} takes no value")
    words = _FRAMES.get(kind, ())
    if not place:
        raise FaultError(f"{kind} takes a place, as in {kind}@{words[0] if words else 'frame:3'}")
    at = _Place("usage") if place == "usage" and "usage" in words else _place_of(place)
    if words and (at.word not in words or at.further):
        raise FaultError(f"{kind} takes a frame: {', '.join(words).replace('frame', 'frame:N')}")
    match kind:
        case "error":
            return lambda script: _with_error(script, at, value or "The server is overloaded")
        case "drop":
            return lambda script: _without_frame(script, at)
        case "duplicate":
            return lambda script: _with_frame_twice(script, at)
        case _:
            return lambda script: _ended(script, at, _ENDS[kind])


def _status(value: str) -> Callable[[Script], Script]:
    found = _STATUS.fullmatch(value)
    if found is None:
        raise FaultError(f"{value!r} is not a status: as in 503, or 429/7 for a Retry-After of 7")
    status, seconds = int(found[1]), found[2]
    error = {"message": f"fault: {status}", "type": "server_error", "param": None, "code": None}
    answer = json_answer(dumps({"type": "error", "error": error}), status)
    headers = [*answer.headers, *([(b"Retry-After", seconds.encode())] if seconds else [])]
    return lambda script: replace(answer, headers=headers, head_delay_s=script.head_delay_s)


def _attempt(word: str) -> _Apply | None:
    if word == "ok":
        return None
    if fault := _ENDS.get(word):
        return lambda script: replace(script, unanswered=fault)
    return _status(word)


class _Place(NamedTuple):
    """A parsed place."""

    word: str
    number: int = 0
    name: str = ""
    #: Bytes, or characters of arguments, further on.
    further: int = 0


def _place_of(text: str) -> _Place:
    """Parse a place; raise FaultError."""
    found = _PLACE.fullmatch(text)
    if found is None or found[1] not in PLACES:
        raise FaultError(f"{text!r} is not a place: {', '.join(PLACES)} (as in frame:3, byte:120, tool:write_file)")
    word, value, further = found[1], found[2], int(found[3] or 0)
    if further and word not in ("frame", "tool"):
        raise FaultError(f"{text!r}: only frame and tool take +N")
    if word in _BARE:
        if value is not None:
            raise FaultError(f"{text!r}: {word} takes no value")
        return _Place(word)
    if word == "tool":
        if not value:
            raise FaultError(f"{text!r}: tool takes a name, as in tool:write_file, or tool:*")
        return _Place(word, name=value, further=further or 1)
    value = "1" if value is None and word in _COUNTED else value
    if value is None or not re.fullmatch(r"\d{1,12}", value) or (word in _COUNTED and int(value) == 0):
        raise FaultError(f"{text!r}: {word} takes a number, as in {word}:3")
    return _Place(word, int(value), further=further)


# -- places -----------------------------------------------------------------------------------------------------------


class _PlacedFrame(NamedTuple):
    """One frame and its position in the body."""

    start: int
    end: int
    payload: bytes | None
    value: Any
    event: bytes

    def with_value(self, value: Any) -> bytes:
        """Return the frame with another value."""
        head = b"event: %b\n" % self.event if self.event else b""
        return b"%bdata: %b\n\n" % (head, dumps(value))


class _Places:
    """The places of one body in any dialect. What is not an event stream has only bytes and characters."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.frames: list[_PlacedFrame] = []
        start, decoder = 0, Decoder()
        for frame in [*decoder.feed(body), *decoder.close()]:
            end = start + len(frame.raw)
            value = ABSENT if frame.payload is None else parse(frame.payload)
            self.frames.append(_PlacedFrame(start, end, frame.payload, value, frame.event))
            start = end
        self.dialect: Dialect = dialect_of(frame.value for frame in self.frames)

    def point(self, place: _Place) -> tuple[int, bytes] | None:
        """Return how many bytes precede a place, and the shortened frame that follows them; None if it is absent."""
        number, ends = place.number, [0, *(frame.end for frame in self.frames)]
        found: int | None = None
        match place.word:
            case "start":
                found = 0
            case "end":
                found = len(self.body)
            case "byte":
                found = number
            case "char":
                leads = [lead.end() for lead in _LEAD.finditer(self.body)]
                found = leads[number - 1] if number <= len(leads) else None
            case "frame":
                found = ends[number] + place.further if number < len(ends) else None
            case "text":
                texts = [frame.end for frame in self.frames if has_text(self.dialect, frame.value)]
                found = texts[number - 1] if number <= len(texts) else None
            case "tool":
                return self._in_arguments(place)
            case _:
                frame = self.first(place.word)
                found = frame.start if frame is not None else None
        return None if found is None or found > len(self.body) else (found, b"")

    def frame(self, place: _Place) -> _PlacedFrame | None:
        """Return the frame that a place names."""
        if place.word != "frame":
            return self.first(place.word)
        return self.frames[place.number - 1] if 1 <= place.number <= len(self.frames) else None

    def first(self, word: str) -> _PlacedFrame | None:
        """Return the first frame with the usage or the finish reason, or that ends the protocol."""
        for frame in self.frames:
            if (
                (word == "usage" and as_object(frame.value).get("usage"))
                or (word == "finish" and finishes(self.dialect, frame.value))
                or (word == "done" and terminates(self.dialect, frame.value, frame.payload))
            ):
                return frame
        return None

    def _in_arguments(self, place: _Place) -> tuple[int, bytes] | None:
        """Return the place after so many characters of one call's arguments."""
        names: dict[Any, str] = {}
        wanted: Any = ABSENT
        left = place.further
        for frame in self.frames:
            for piece in call_pieces(self.dialect, frame.value):
                names[piece.call] = names.get(piece.call, "") + piece.name
                if wanted is ABSENT and piece.text and place.name in ("*", names[piece.call]):
                    wanted = piece.call
                if piece.call != wanted:
                    continue
                if len(piece.text) >= left:
                    return frame.start, frame.with_value(shortened(self.dialect, frame.value, piece, left))
                left -= len(piece.text)
        return None


# -- applying ---------------------------------------------------------------------------------------------------------


def _ended(script: Script, place: _Place, fault: Fault | None) -> Script | None:
    if script.unanswered is not None:
        return None
    if place.word == "start" and fault is not None:  # not even a head
        return replace(script, unanswered=fault)
    point = _Places(script.body).point(place)
    return None if point is None else cut_at(script, *point, fault)


def _with_error(script: Script, place: _Place, message: str) -> Script | None:
    places = _Places(script.body)
    point = places.point(place) if script.unanswered is None and places.dialect else None
    if point is None:
        return None
    kept, tail = point
    if not tail:  # after half a line, another frame could not be read
        kept = max((frame.end for frame in places.frames if frame.end <= kept), default=0)
    cut, frame = cut_at(script, kept, tail), error_frame(places.dialect, message, len(places.frames))
    return spliced(replace(cut, steps=[*cut.steps, Step(0.0, frame)]), [])


def _without_frame(script: Script, place: _Place) -> Script | None:
    places = _Places(script.body)
    frame = places.frame(place)
    if frame is None:
        return None
    left = without_finish(places.dialect, frame.value) if place.word == "finish" else None
    return spliced(script, [(frame.start, frame.end, b"" if left is None else frame.with_value(left))])


def _with_frame_twice(script: Script, place: _Place) -> Script | None:
    body = script.body
    frame = _Places(body).frame(place)
    if frame is None:
        return None
    last = frame.end - 1  # the copy arrives with the last byte of the frame
    return spliced(script, [(last, frame.end, body[last : frame.end] + body[frame.start : frame.end])])


def _rechunked(script: Script, value: str) -> Script | None:
    """Return the same bytes in other chunks, each at the time of its last byte."""
    body = script.body
    if not body:
        return None
    by_frame = [frame.end for frame in _Places(body).frames] if value == "frame" else []
    ends = range(int(value), len(body), int(value)) if value.isdigit() else by_frame
    old = [(delay_s, len(what)) for delay_s, what in script.steps if isinstance(what, bytes)]
    times, sizes = (list(accumulate(column)) for column in zip(*old, strict=True))
    steps: list[Step] = []
    start, last, number = 0, 0.0, 0
    for end in sorted({*ends, len(body)}):
        while sizes[number] < end:
            number += 1
        steps.append(Step(times[number] - last, body[start:end]))
        start, last = end, times[number]
    if times[-1] > last:
        steps.append(Step(times[-1] - last, b""))
    return replace(script, steps=[*steps, *(step for step in script.steps if isinstance(step.what, Fault))], apart=True)


def _slowed(script: Script, seconds: float) -> Script | None:
    if script.unanswered is not None:
        return None
    steps = [Step(step.delay_s + seconds if step.what else step.delay_s, step.what) for step in script.steps]
    return replace(script, steps=steps)
