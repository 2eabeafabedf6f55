"""Faults laid over a recorded response: cut, broken, silent, in other chunks, with frames missing, twice or wrong.

docs/replay.md lists them. Faults depend only on bytes, so they are the same at every speed; they apply in the order
given.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Final

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import as_object, dumps

from ..normalize.dialect_words import error_frame, without_finish
from ..playback.script import Fault, Script, Step, json_answer
from .places import Place, PlacedFrame, PlaceError, Places, place_of

__all__ = ["KINDS", "FaultError", "Faults", "Overlay", "overlay"]

#: Returns the script with the fault in it; None if the response does not have the place.
_Apply = Callable[[Script], Script | None]

_ENDS: Final[Mapping[str, Fault | None]] = MappingProxyType(
    {"cut": Fault.CUT, "reset": Fault.RESET, "stall": Fault.STALL, "garbage": Fault.GARBAGE, "eof": None}
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
KINDS: Final = (*_ENDS, "error", "drop", "duplicate", *_VALUES)
_FAULT: Final = re.compile(r"([a-z]+)(?:@([^=]*))?(?:=(.*))?", re.DOTALL)
_STATUS: Final = re.compile(r"([2-5]\d\d)(?:/(\d{1,6}))?")
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
    if _end_of(script) != _end_of(recorded):
        return False
    before, after = _Body(recorded).places, _Body(script).places
    if before.body == after.body:
        return True
    if not before.frames:
        return len(after.body) >= len(before.body)
    return not (before.finish or before.done) or bool(after.finish or after.done)


def _end_of(script: Script) -> tuple[object, ...]:
    fault = next((what for _, what in script.steps if isinstance(what, Fault)), None)
    return script.unanswered, script.status, fault


# -- parsing ----------------------------------------------------------------------------------------------------------


def overlay(text: str) -> Overlay:
    """Parse a fault; raise FaultError with the way to write it."""
    fault, mark, number = text.rpartition("#")
    stream = int(number) if mark and re.fullmatch(r"[1-9]\d{0,5}", number) else None
    found = _FAULT.fullmatch(fault if stream is not None else text)
    kind, place, value = (found[1], found[2], found[3]) if found is not None else ("", None, None)
    try:
        if kind == "attempts":
            attempts = [_attempt(word.strip()) for word in _required_value(kind, place, value).split(",")]
            return Overlay(text=text, stream=stream, apply=lambda _: None, attempts=attempts)
        takes_value = kind in _VALUES
        apply = _valued(kind, _required_value(kind, place, value)) if takes_value else _placed(kind, place, value)
    except (PlaceError, FaultError) as error:
        raise FaultError(f"fault {text!r}: {error}") from None
    return Overlay(text=text, stream=stream, apply=apply, fails=kind in ("error", "status"))


def _required_value(kind: str, place: str | None, value: str | None) -> str:
    if place is not None or not value:
        raise FaultError(f"{kind} takes a value, as in {kind}={_VALUES[kind]}")
    return value


def _placed(kind: str, place: str | None, value: str | None) -> _Apply:
    if kind in _ENDS:
        at = _required_place(kind, place, value)
        return lambda script: _ended(script, at, _ENDS[kind])
    match kind:
        case "error":
            at, message = _required_place(kind, place, None), value or "The server is overloaded"
            return lambda script: _with_error(script, at, message)
        case "drop":
            at = _required_place(kind, place, value, "done", "finish", "usage", "frame")
            return lambda script: _without_frame(script, at)
        case "duplicate":
            at = _required_place(kind, place, value, "done", "finish", "frame")
            return lambda script: _with_frame_twice(script, at)
        case _:
            raise FaultError(f"no such fault; there are {', '.join(KINDS)}")


def _required_place(kind: str, place: str | None, value: str | None, *words: str) -> Place:
    """Parse a place; `words` are those of the frames that a kind takes."""
    if value is not None:
        raise FaultError(f"{kind} takes no value")
    if not place:
        raise FaultError(f"{kind} takes a place, as in {kind}@{words[0] if words else 'frame:3'}")
    at = Place("usage") if place == "usage" and "usage" in words else place_of(place)
    if words and (at.word not in words or at.further):
        raise FaultError(f"{kind} takes a frame: {', '.join(words).replace('frame', 'frame:N')}")
    return at


def _valued(kind: str, value: str) -> _Apply:
    if kind == "rechunk":
        if value not in ("frame", "all") and not re.fullmatch(r"[1-9]\d{0,8}", value):
            raise FaultError("rechunk takes a number of bytes, frame or all")
        return lambda script: _rechunked(script, value)
    if kind == "slow":
        if not re.fullmatch(r"\d{1,5}(?:\.\d{1,6})?", value) or not 0 < float(value) <= _SLOW_S_MAX:
            raise FaultError("slow takes seconds, as in slow=0.2")
        return lambda script: _slowed(script, float(value))
    return _status(value)


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


# -- applying ---------------------------------------------------------------------------------------------------------


class _Body:
    """The chunks of a response, to change and to turn into a script again."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.chunks = [(delay_s, what) for delay_s, what in script.steps if isinstance(what, bytes)]
        self._end = next((step for step in script.steps if isinstance(step.what, Fault)), None)
        self.places = Places(b"".join(data for _, data in self.chunks))

    def replace(self, start: int, end: int, new: bytes) -> Script:
        """Replace bytes; the new ones arrive when the first of the old ones did."""
        chunks: list[tuple[float, bytes]] = []
        at, placed = 0, False
        for delay_s, data in self.chunks:
            after = at + len(data)
            kept = data[: max(0, start - at)] if start < after else data
            if not placed and start < after:
                kept, placed = kept + new, True
            kept += data[max(0, end - at) :] if start < after else b""
            chunks.append((delay_s, kept))
            at = after
        self.chunks = chunks if placed or not new else [*chunks, (0.0, new)]
        return self.script()

    def end_at(self, kept: int, tail: bytes, fault: Fault | None) -> None:
        """Keep so many bytes, then add a tail and an end without delay."""
        chunks: list[tuple[float, bytes]] = []
        at = 0
        for delay_s, data in self.chunks:
            if at >= kept and not tail:
                break
            kept_here = data[: max(0, kept - at)]
            at += len(data)
            if at > kept:  # a shortened frame arrives with the read that it is from
                kept_here, tail = kept_here + tail, b""
            chunks.append((delay_s, kept_here))
        self.chunks = [*chunks, (0.0, tail)] if tail else chunks
        self._end = Step(0.0, fault) if fault is not None else None

    def script(self) -> Script:
        """Return the script, with a content length that the body reaches or, with a fault, falls short of."""
        size = sum(len(data) for _, data in self.chunks)
        steps = [Step(delay_s, data) for delay_s, data in self.chunks]
        headers: list[tuple[bytes, bytes]] = []
        for name, value in self._script.headers:
            length = size
            if self._end is not None:
                length = max(int(value) if value.isdigit() else 0, size + 1)
            headers.append((name, b"%d" % length if name.lower() == b"content-length" else value))
        return replace(self._script, steps=[*steps, self._end] if self._end else steps, headers=headers)

    def frame(self, place: Place) -> PlacedFrame | None:
        """Return the frame that a place names."""
        frames = self.places.frames
        match place.word:
            case "frame":
                return frames[place.number - 1] if 1 <= place.number <= len(frames) else None
            case "usage":
                return next((frame for frame in frames if as_object(frame.value).get("usage")), None)
            case "finish":
                return self.places.finish
            case _:
                return self.places.done


def _ended(script: Script, place: Place, fault: Fault | None) -> Script | None:
    if script.unanswered is not None:
        return None
    if place.word == "start" and fault is not None:  # not even a head
        return replace(script, unanswered=fault)
    body = _Body(script)
    point = body.places.point(place)
    if point is None:
        return None
    body.end_at(point.kept, point.tail, fault)
    return body.script()


def _with_error(script: Script, place: Place, message: str) -> Script | None:
    body = _Body(script)
    point = body.places.point(place) if script.unanswered is None and body.places.dialect else None
    if point is None:
        return None
    body.end_at(point.kept if point.tail else body.places.whole_frames(point.kept), point.tail, None)
    body.chunks.append((0.0, error_frame(body.places.dialect, message, len(body.places.frames))))
    return body.script()


def _without_frame(script: Script, place: Place) -> Script | None:
    body = _Body(script)
    frame = body.frame(place)
    if frame is None:
        return None
    left = without_finish(body.places.dialect, frame.value) if place.word == "finish" else None
    return body.replace(frame.start, frame.end, b"" if left is None else frame.with_value(left))


def _with_frame_twice(script: Script, place: Place) -> Script | None:
    body = _Body(script)
    frame = body.frame(place)
    if frame is None:
        return None
    data = body.places.body
    return body.replace(frame.end - 1, frame.end, data[frame.end - 1 : frame.end] + data[frame.start : frame.end])


def _rechunked(script: Script, value: str) -> Script | None:
    """Return the same bytes in other chunks, each at the time of its last byte."""
    body = _Body(script)
    data, size = body.places.body, len(body.places.body)
    if not size:
        return None
    by_frame = [frame.end for frame in body.places.frames] if value == "frame" else []
    ends = range(int(value), size, int(value)) if value.isdigit() else by_frame
    times = list(accumulate(delay_s for delay_s, _ in body.chunks))
    sizes = list(accumulate(len(chunk) for _, chunk in body.chunks))
    chunks: list[tuple[float, bytes]] = []
    start, last, number = 0, 0.0, 0
    for end in sorted({*ends, size}):
        while sizes[number] < end:
            number += 1
        chunks.append((times[number] - last, data[start:end]))
        start, last = end, times[number]
    rest = times[-1] - last
    body.chunks = [*chunks, (rest, b"")] if rest > 0 else chunks
    return replace(body.script(), apart=True)


def _slowed(script: Script, seconds: float) -> Script | None:
    if script.unanswered is not None:
        return None
    steps = [Step(step.delay_s + seconds if step.what else step.delay_s, step.what) for step in script.steps]
    return replace(script, steps=steps)
