"""Faults laid over a recorded answer: cut, broken, silent, in other pieces, with frames missing, twice, or wrong

    cut@frame:3       an orderly FIN there, without the last chunk    drop@done     without a frame: done, finish,
    reset@tool:x      a TCP reset there                                             usage, frame:3
    stall@byte:120    silence there, until the client leaves          duplicate@frame:3   a frame twice
    eof@text          a proper end of HTTP there                      rechunk=1     in pieces of so many bytes, or
    garbage@start     something that is no HTTP there                               one a `frame`, or `all` in one
    error@finish      the dialect's error frame there, and the end    slow=0.2      so many seconds before each piece
    status=429/7      this answer instead, with a Retry-After         attempts=503,reset,ok   the first ones, in order

Behind a `#` the number of the one stream that is meant. Places are those of marks.py. Faults are functions of the bytes
alone: the same at every speed, in the order in which they are given, and the file stays as it is.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Final

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import as_object, dumps

from ..playback.script import Fault, Script, Step, json_answer
from .dialect_words import error_frame, without_finish
from .places import Marked, Marks, Place, PlaceError, place_of

__all__ = ["KINDS", "FaultError", "Faults", "Overlay", "overlay"]

#: The script with the fault in it; None where it has no such place.
_Over = Callable[[Script], Script | None]

KINDS: Final = (
    "cut", "reset", "stall", "eof", "garbage", "error", "drop", "duplicate", "rechunk", "slow", "status", "attempts",
)  # fmt: skip
_ENDS: Final[Mapping[str, Fault | None]] = MappingProxyType(
    {"cut": Fault.CUT, "reset": Fault.RESET, "stall": Fault.STALL, "garbage": Fault.GARBAGE, "eof": None}
)
#: What is an error whatever it leaves of the answer.
_FAILING: Final = frozenset({"error", "status"})
_WORDS: Final = re.compile(r"([a-z]+)(?:@([^=]*))?(?:=(.*))?", re.DOTALL)
_STATUS: Final = re.compile(r"([2-5]\d\d)(?:/(\d{1,6}))?")
#: Longer than any client waits, and still a number of seconds that a clock can add.
_SLOW_S_MAX: Final = 86_400.0


class FaultError(WiretapeError):
    """What is no fault; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """One fault, read."""

    #: As it was written.
    text: str
    #: The number of the stream that is meant, from 1; None is all of them.
    stream: int | None
    over: _Over
    #: Whatever is left of the answer is none: an error stands in its place, or behind it.
    fails: bool = False
    #: Of `attempts`: what each of the first ones gets; None is the recorded answer.
    attempts: Sequence[_Over | None] = ()


@dataclass(slots=True)
class Faults:
    """All that are to be laid over the answers of one replay, in order."""

    overlays: Sequence[Overlay] = ()
    _asked: dict[int, int] = field(default_factory=dict[int, int])
    _applied: set[str] = field(default_factory=set[str])
    #: Places of streams that were asked for, also before these faults were laid over them.
    asked: set[int] = field(default_factory=set[int])

    @staticmethod
    def of(texts: Iterable[str]) -> "Faults":
        """Raises FaultError."""
        return Faults([overlay(text) for text in texts])

    def after(self, before: "Faults") -> "Faults":
        """Laid over the answers instead of those: what had its place there has had it."""
        self._applied |= before._applied  # noqa: SLF001 - of its own kind
        self.asked |= before.asked
        return self

    @property
    def unapplied(self) -> list[str]:
        """Those that no answer had a place for."""
        return [each.text for each in self.overlays if each.text not in self._applied]

    def over(self, script: Script, place: int) -> tuple[Script, bool]:
        """What the stream at this place (from 0) is to say this time, and whether that was its answer: who was given a
        broken one asks again.
        """
        asked = self._asked[place] = self._asked.get(place, 0) + 1
        self.asked.add(place)
        recorded, failed = script, False
        for each in self.overlays:
            if each.stream not in (None, place + 1):
                continue
            attempt = each.attempts[asked - 1] if asked <= len(each.attempts) else None
            changed = (attempt or each.over)(script)
            if changed is None:
                continue
            self._applied.add(each.text)
            script, failed = changed, failed or each.fails
            if attempt is not None:
                return script, False
        return script, not failed and (script is recorded or _is_answer(recorded, script))


def _is_answer(recorded: Script, script: Script) -> bool:
    """It ends as the recorded one did, and still has its finish, or its last word: who was given it need not know that
    anything is wrong, and goes on. Other pieces, a frame less or one twice are no end.
    """
    if _end_of(script) != _end_of(recorded):
        return False
    before, after = _Body(recorded).marks, _Body(script).marks
    if before.body == after.body:
        return True
    if not before.frames:
        return len(after.body) >= len(before.body)
    return not (before.finish or before.done) or bool(after.finish or after.done)


def _end_of(script: Script) -> tuple[object, ...]:
    fault = next((what for _, what in script.steps if isinstance(what, Fault)), None)
    return script.unanswered, script.status, fault


def overlay(text: str) -> Overlay:
    """Raises FaultError, which says what is wrong and how it is written."""
    words, mark, number = text.rpartition("#")
    stream = int(number) if mark and re.fullmatch(r"[1-9]\d{0,5}", number) else None
    found = _WORDS.fullmatch(words if stream is not None else text)
    kind, place, value = (found[1], found[2], found[3]) if found is not None else ("", None, None)
    try:
        if kind == "attempts":
            return Overlay(text=text, stream=stream, over=_nothing, attempts=_attempts(place, value))
        return Overlay(text=text, stream=stream, over=_of(kind, place, value), fails=kind in _FAILING)
    except (PlaceError, FaultError) as error:
        raise FaultError(f"fault {text!r}: {error}") from None


def _of(kind: str, place: str | None, value: str | None) -> _Over:
    match kind:
        case "cut" | "reset" | "stall" | "garbage" | "eof":
            there = _required(kind, place, value)
            return lambda script: _ended(script, there, _ENDS[kind])
        case "error":
            there, message = _required(kind, place, None), value or "The server is overloaded"
            return lambda script: _failing(script, there, message)
        case "drop":
            return _dropping(_required(kind, place, value, "done", "finish", "usage", "frame"))
        case "duplicate":
            there = _required(kind, place, value, "done", "finish", "frame")
            return lambda script: _twice(script, there)
        case "rechunk":
            return _rechunking(_wanted(kind, place, value, "1, frame or all"))
        case "slow":
            return _slowing(_wanted(kind, place, value, "0.2"))
        case "status":
            return _answering(_wanted(kind, place, value, "503, or 429/7 for a Retry-After of 7"))
        case _:
            raise FaultError(f"no such fault; there are {', '.join(KINDS)}")


def _required(kind: str, place: str | None, value: str | None, *words: str) -> Place:
    if value is not None:
        raise FaultError(f"{kind} takes no value")
    if not place:
        raise FaultError(f"{kind} takes a place, as in {kind}@{f'{words[0]}' if words else 'frame:3'}")
    there = Place("usage") if place == "usage" and "usage" in words else place_of(place)
    if (words and there.word not in words) or (words and there.further):
        raise FaultError(f"{kind} takes a frame: {', '.join(words).replace('frame', 'frame:N')}")
    return there


def _wanted(kind: str, place: str | None, value: str | None, example: str) -> str:
    if place is not None or not value:
        raise FaultError(f"{kind} takes a value, as in {kind}={example}")
    return value


# -- the script as bytes with their times -----------------------------------------------------------------------------


class _Body:
    """The pieces of an answer, to be changed; then it is a script again."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.pieces = [(delay_s, what) for delay_s, what in script.steps if isinstance(what, bytes)]
        self.end = next((step for step in script.steps if isinstance(step.what, Fault)), None)
        self.marks = Marks(b"".join(data for _, data in self.pieces))

    def replaced(self, start: int, end: int, new: bytes) -> None:
        """These bytes instead of those; they come when the first of those did, and nothing else moves."""
        pieces: list[tuple[float, bytes]] = []
        at, placed = 0, False
        for delay_s, data in self.pieces:
            behind = at + len(data)
            kept = data[: max(0, start - at)] if start < behind else data
            if not placed and start < behind:
                kept, placed = kept + new, True
            kept += data[max(0, end - at) :] if start < behind else b""
            pieces.append((delay_s, kept))
            at = behind
        self.pieces = pieces if placed or not new else [*pieces, (0.0, new)]

    def until(self, kept: int, tail: bytes, fault: Fault | None) -> None:
        """So many bytes, these, and this end, at once."""
        pieces: list[tuple[float, bytes]] = []
        at = 0
        for delay_s, data in self.pieces:
            if at >= kept and not tail:
                break
            kept_here = data[: max(0, kept - at)]
            at += len(data)
            if at > kept:  # what was shortened comes with the read that it was cut from
                kept_here, tail = kept_here + tail, b""
            pieces.append((delay_s, kept_here))
        self.pieces = [*pieces, (0.0, tail)] if tail else pieces
        self.end = Step(0.0, fault) if fault is not None else None

    def script(self) -> Script:
        """With the length that its end needs."""
        size = sum(len(data) for _, data in self.pieces)
        steps = [Step(delay_s, data) for delay_s, data in self.pieces]
        headers = [
            (name, _length(value, size, self.end) if name.lower() == b"content-length" else value)
            for name, value in self._script.headers
        ]
        return replace(self._script, steps=[*steps, self.end] if self.end else steps, headers=headers)


def _length(said: bytes, size: int, end: Step | None) -> bytes:
    if end is None:
        return b"%d" % size
    return b"%d" % max(int(said) if said.isdigit() else 0, size + 1)


# -- one fault each ---------------------------------------------------------------------------------------------------


def _nothing(_: Script) -> Script | None:
    return None


def _ended(script: Script, place: Place, fault: Fault | None) -> Script | None:
    if script.unanswered is not None:
        return None
    if place.word == "start" and fault is not None:  # nothing of the answer, not even its head
        return replace(script, unanswered=fault)
    body = _Body(script)
    point = body.marks.point(place)
    if point is None:
        return None
    body.until(point.kept, point.tail, fault)
    return body.script()


def _failing(script: Script, place: Place, message: str) -> Script | None:
    if script.unanswered is not None:
        return None
    body = _Body(script)
    point = body.marks.point(place)
    if point is None or not body.marks.dialect:
        return None
    body.until(point.kept if point.tail else body.marks.whole(point.kept), point.tail, None)
    body.pieces.append((0.0, error_frame(body.marks.dialect, message, len(body.marks.frames))))
    return body.script()


def _dropping(place: Place) -> _Over:
    def over(script: Script) -> Script | None:
        body = _Body(script)
        found = _frame_at(body.marks, place)
        if found is None:
            return None
        left = without_finish(body.marks.dialect, found.value) if place.word == "finish" else None
        body.replaced(found.start, found.end, b"" if left is None else found.with_value(left))
        return body.script()

    return over


def _twice(script: Script, place: Place) -> Script | None:
    body = _Body(script)
    found = _frame_at(body.marks, place)
    if found is None:
        return None
    body.replaced(found.end - 1, found.end, body.marks.body[found.end - 1 : found.end] + _bytes(body.marks, found))
    return body.script()


def _bytes(marks: Marks, frame: Marked) -> bytes:
    return marks.body[frame.start : frame.end]


def _frame_at(marks: Marks, place: Place) -> Marked | None:
    match place.word:
        case "frame":
            return marks.frame(place.number)
        case "usage":
            return next((frame for frame in marks.frames if as_object(frame.value).get("usage")), None)
        case "finish":
            return marks.finish
        case _:
            return marks.done


def _rechunking(value: str) -> _Over:
    if value not in ("frame", "all") and not re.fullmatch(r"[1-9]\d{0,8}", value):
        raise FaultError("rechunk takes a number of bytes, frame or all")

    def over(script: Script) -> Script | None:
        body = _Body(script)
        size = len(body.marks.body)
        if not size:
            return None
        if value == "all":
            ends = [size]
        elif value == "frame":
            ends = [*(frame.end for frame in body.marks.frames)]
        else:
            ends = list(range(int(value), size, int(value)))
        body.pieces = _cut_at(body.pieces, sorted({*ends, size}))
        return replace(body.script(), apart=True)

    return over


def _cut_at(pieces: Sequence[tuple[float, bytes]], ends: Iterable[int]) -> list[tuple[float, bytes]]:
    """The same bytes in other pieces, each when its last byte came."""
    whole = b"".join(data for _, data in pieces)
    times, sizes = list(accumulate(delay_s for delay_s, _ in pieces)), list(accumulate(len(data) for _, data in pieces))
    made: list[tuple[float, bytes]] = []
    start, last, number = 0, 0.0, 0
    for end in ends:
        while sizes[number] < end:
            number += 1
        made.append((times[number] - last, whole[start:end]))
        start, last = end, times[number]
    rest = times[-1] - last
    return [*made, (rest, b"")] if rest > 0 else made


def _slowing(value: str) -> _Over:
    if not re.fullmatch(r"\d{1,5}(?:\.\d{1,6})?", value) or not 0 < float(value) <= _SLOW_S_MAX:
        raise FaultError("slow takes seconds, as in slow=0.2")

    def over(script: Script) -> Script | None:
        if script.unanswered is not None:
            return None
        steps = [Step(step.delay_s + float(value) if step.what else step.delay_s, step.what) for step in script.steps]
        return replace(script, steps=steps)

    return over


def _answering(value: str) -> _Over:
    found = _STATUS.fullmatch(value)
    if found is None:
        raise FaultError(f"{value!r} is no status: as in 503, or 429/7 for a Retry-After of 7")
    status, seconds = int(found[1]), found[2]

    def over(script: Script) -> Script:
        error = {"message": f"fault: {status}", "type": "server_error", "param": None, "code": None}
        answer = json_answer(dumps({"type": "error", "error": error}), status)
        headers = [*answer.headers, *([(b"Retry-After", seconds.encode())] if seconds else [])]
        return replace(answer, headers=headers, head_delay_s=script.head_delay_s)

    return over


def _attempts(place: str | None, value: str | None) -> list[_Over | None]:
    words = _wanted("attempts", place, value, "503,reset,ok").split(",")
    return [_attempt(word.strip()) for word in words]


def _attempt(word: str) -> _Over | None:
    if word == "ok":
        return None
    if word in ("cut", "reset", "stall", "garbage"):
        return lambda script: replace(script, unanswered=_ENDS[word])
    return _answering(word)
