"""Faults laid over a recorded response: cut, broken, silent, in other chunks, with frames missing, twice or wrong.

docs/reference/replay.md lists them and the places where they happen. Faults depend only on bytes, so they are the same
at every speed; they apply in the order given.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Final

from wiretape.events.core.json_text import dumps

from ..playback.script import Fault, Script, Step, cut_at, json_answer, spliced
from .places import FaultError, Place, Places, place_of

__all__ = ["KINDS", "Faults", "Overlay", "overlay"]

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
_FAULT: Final = re.compile(r"([a-z]+)(?:@([^=]*))?(?:=(.*))?", re.DOTALL)
_STATUS: Final = re.compile(r"([2-5]\d\d)(?:/(\d{1,6}))?")
#: Longer than any client waits.
_SLOW_S_MAX: Final = 86_400.0


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
    before, after = Places(recorded.body), Places(script.body)
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
    at = Place("usage") if place == "usage" and "usage" in words else place_of(place)
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


# -- applying ---------------------------------------------------------------------------------------------------------


def _ended(script: Script, place: Place, fault: Fault | None) -> Script | None:
    if script.unanswered is not None:
        return None
    if place.word == "start" and fault is not None:  # not even a head
        return replace(script, unanswered=fault)
    point = Places(script.body).point(place)
    return None if point is None else cut_at(script, *point, fault)


def _with_error(script: Script, place: Place, message: str) -> Script | None:
    places = Places(script.body)
    frame = places.error(message) if script.unanswered is None else None
    point = places.point(place)
    if frame is None or point is None:
        return None
    kept, tail = point
    if not tail:  # after half a line, another frame could not be read
        kept = max((frame.end for frame in places.frames if frame.end <= kept), default=0)
    cut = cut_at(script, kept, tail)
    return spliced(replace(cut, steps=[*cut.steps, Step(0.0, frame)]), [])


def _without_frame(script: Script, place: Place) -> Script | None:
    places = Places(script.body)
    frame = places.frame(place)
    if frame is None:
        return None
    return spliced(script, [(frame.start, frame.end, places.without(frame, place.word))])


def _with_frame_twice(script: Script, place: Place) -> Script | None:
    body = script.body
    frame = Places(body).frame(place)
    if frame is None:
        return None
    last = frame.end - 1  # the copy arrives with the last byte of the frame
    return spliced(script, [(last, frame.end, body[last : frame.end] + body[frame.start : frame.end])])


def _rechunked(script: Script, value: str) -> Script | None:
    """Return the same bytes in other chunks, each at the time of its last byte."""
    body = script.body
    if not body:
        return None
    by_frame = [frame.end for frame in Places(body).frames] if value == "frame" else []
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
    steps += [step for step in script.steps if isinstance(step.what, Fault)]
    return replace(script, steps=steps, gates={}, apart=True)


def _slowed(script: Script, seconds: float) -> Script | None:
    if script.unanswered is not None:
        return None
    steps = [Step(step.delay_s + seconds if step.what else step.delay_s, step.what) for step in script.steps]
    return replace(script, steps=steps)
