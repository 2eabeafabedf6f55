"""Turn the records of a stream into the script of its upstream, and a script that was played into its tape.

Where the proxy or the client left first, the rest is silence, because nothing says what would have come. Older tapes
without `framing` and `framed` leave the ending to a guess, as docs/replay.md describes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import Recorder, reads

from ..redaction.plain_text import headers_to_send
from .script import Fault, Script, Step

__all__ = [
    "INSTANT",
    "ORIGINAL",
    "Speed",
    "as_played",
    "attempts_of",
    "each_attempt",
    "head_of",
    "keys_of",
    "script_of",
    "status_of",
    "steps_of",
]

_SECOND_US: Final = 1_000_000
#: By `broke`, or by the ending of a failed attempt: how the connection broke.
_BROKE: Final[Mapping[str, Fault | None]] = MappingProxyType(
    {"closed": None, "truncated": Fault.CUT, "reset": Fault.RESET, "protocol": Fault.GARBAGE}
)
#: By the cause of `end`, for tapes that do not say how the body ended.
_CAUSES: Final[Mapping[str, Fault | None]] = MappingProxyType(
    {**_BROKE, "framed": None, "status": None, "upstream_error": None, "eof": Fault.CUT}
)

#: By the way a response ends: its cause and ending in the `end` record, and what broke the connection.
_ENDS: Final[Mapping[Fault | None, tuple[str, str, str]]] = MappingProxyType(
    {
        None: ("framed", "completed", ""),
        Fault.CUT: ("eof", "truncated", "truncated"),
        Fault.RESET: ("reset", "reset", "reset"),
        Fault.STALL: ("stalled", "stalled", ""),
        Fault.GARBAGE: ("protocol", "protocol", "protocol"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How recorded delays are played: first bounded, then divided."""

    times: float = inf
    gap_s_max: float = inf

    def __post_init__(self) -> None:
        if not self.times > 0 or self.gap_s_max < 0:
            raise ValueError("a speed is positive, and a gap is not negative")

    def delay(self, recorded_s: float) -> float:
        """Return the seconds to wait."""
        return 0.0 if self.times == inf else min(recorded_s, self.gap_s_max) / self.times

    @staticmethod
    def of(text: str, gap_s_max: float = inf) -> "Speed":
        """Parse `instant`, `original` or a factor; raise ValueError."""
        times = {"instant": inf, "original": 1.0}.get(text) or float(text)
        if times == inf and text != "instant":
            raise ValueError("not a finite number")
        return Speed(times=times, gap_s_max=gap_s_max)


INSTANT: Final = Speed()
ORIGINAL: Final = Speed(times=1)


def each_attempt(records: Sequence[Record]) -> list[Sequence[Record]]:
    """Return a stream for each attempt, all with the same request."""
    begun = next((at for at, record in enumerate(records) if record.kind == "attempt"), 0)
    return [[*records[:begun], *attempt] for attempt in attempts_of(records)] if begun else [records]


def attempts_of(records: Sequence[Record]) -> list[Sequence[Record]]:
    """Return the records of each attempt; all records if there is no attempt."""
    starts = [at for at, record in enumerate(records) if record.kind == "attempt"]
    ends = [*starts[1:], len(records)] if starts else []
    return [records[start:end] for start, end in zip(starts, ends, strict=True)] or [records]


def keys_of(records: Sequence[Record], kind: str) -> Mapping[str, Any]:
    """Return the keys of the first record of a kind, or no keys."""
    return next((record.keys for record in records if record.kind == kind), NO_KEYS)


def head_of(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the keys of the last attempt's head; empty if none came."""
    return keys_of(attempts_of(records)[-1], "head")


def script_of(records: Sequence[Record], *, speed: Speed = INSTANT) -> Script:
    """Return what the upstream sent in the last attempt."""
    attempt = attempts_of(records)[-1]
    head = next((record for record in attempt if record.kind == "head"), None)
    end = next((record for record in attempt if record.kind in ("failed", "end")), None)
    keys = end.keys if end is not None else NO_KEYS
    if head is None:
        return _unanswered(attempt, end, keys, speed)
    received = list(reads(attempt))
    fault = _fault(keys)
    framing, length = head.keys.get("framing"), head.keys.get("length")
    headers = headers_to_send(head.keys)
    if framing == "length" and type(length) is int:
        if keys_of(records, "request").get("method") != "HEAD":  # a decoded or redacted body has another length
            size = sum(len(data) for _, data in received)
            length = size if fault is None else max(length, size + 1)
        headers.append((b"content-length", b"%d" % length))
    return Script(
        status=status_of(head.keys),
        headers=headers,
        steps=list(steps_of(head.t, received, end, fault, speed)),
        head_delay_s=speed.delay((head.t - attempt[0].t) / _SECOND_US),
        closes=framing == "close",
    )


def _unanswered(attempt: Sequence[Record], end: Record | None, keys: Mapping[str, Any], speed: Speed) -> Script:
    """Return the script of an attempt without a head; a listening server can only reset what was refused."""
    ending = str(keys.get("ending", ""))
    fault = Fault.RESET if ending == "refused" else _BROKE.get(ending, Fault.STALL)
    delay_s = (end.t - attempt[0].t) / _SECOND_US if end is not None and fault is not Fault.STALL else 0
    return Script(head_delay_s=speed.delay(delay_s), unanswered=fault)


def _fault(end: Mapping[str, Any]) -> Fault | None:
    """Return how the body broke; None if it ended properly, silence if the proxy did not wait for its end."""
    framed = end.get("framed")
    if isinstance(framed, bool):
        return None if framed else _BROKE.get(str(end.get("broke")), Fault.STALL)
    if end.get("ending") == "completed" or "unframed" in as_list(end.get("flags")):
        return None
    return _CAUSES.get(str(end.get("cause", end.get("ending"))), Fault.STALL)


def status_of(head: Mapping[str, Any]) -> int:
    """Return the status of a head; raise TapeError if it cannot be sent."""
    status = head.get("status")
    if type(status) is not int or not 200 <= status <= 999:
        raise TapeError(f"its head has no status that can be sent: {status!r}")
    return status


def steps_of(
    began: int, received: Sequence[tuple[int, bytes]], end: Record | None, fault: Fault | None, speed: Speed
) -> Iterator[Step]:
    """Yield a step for each read, and one for the end."""
    last = began
    for t, data in received:
        yield Step(speed.delay((t - last) / _SECOND_US), data)
        last = t
    delay_s = speed.delay((end.t - last) / _SECOND_US) if end is not None and fault is not Fault.STALL else 0.0
    if fault is not None:
        yield Step(delay_s, fault)
    elif delay_s:
        yield Step(delay_s, b"")


# -- the tape of a script that was played ------------------------------------------------------------------------------


def as_played(records: Sequence[Record], script: Script) -> list[Record]:
    """Return the tape of a script that was played for the request of these records."""
    asked = next((at for at, record in enumerate(records) if record.kind == "attempt"), len(records))
    attempt = attempts_of(records)[-1][0]
    recorder = Recorder()
    played = [recorder.record(record.kind, record.t, record.keys, record.raw) for record in records[:asked]]
    played += recorder.attempt(attempt.t, attempt.keys)
    t = attempt.t + _microseconds(script.head_delay_s)
    fault = script.unanswered
    if fault is None:
        t, fault = _play(script, recorder, t, played)
    played += recorder.rest(t)
    cause, ending, broke = _ENDS[fault]
    flags: Sequence[str] = ()
    if records[0].keys.get("dialect") == "chat":
        cause = "eof" if cause == "framed" else cause  # the end of HTTP is not the end of a chat stream
        emitter = Emitter()
        for record in played:
            emitter.feed(record)
        ending, flags = emitter.ending(cause)
    keys: dict[str, object] = {"cause": cause, "ending": ending, "flags": list(flags)}
    if script.unanswered is None:
        closed = fault is None and script.closes
        keys["framed"] = fault is None and not closed
        keys |= {"broke": "closed"} if closed else {"broke": broke} if broke else {}
    return [*played, recorder.end(t, keys)]


def _play(script: Script, recorder: Recorder, t: int, played: list[Record]) -> tuple[int, Fault | None]:
    """Record head and body; return when the response ended, and with which fault."""
    headers = [[name.decode("latin-1").lower(), value.decode("latin-1")] for name, value in script.headers]
    lengths = [int(value) for name, value in headers if name == "content-length"]
    framing: dict[str, object] = {"framing": "close" if script.closes else "chunked"}
    if lengths:
        framing = {"framing": "length", "length": lengths[-1]}
    headers = [header for header in headers if header[0] != "content-length"]
    played.append(recorder.record("head", t, {"status": script.status, "headers": headers, **framing}))
    streams = any(name == "content-type" and value.startswith("text/event-stream") for name, value in headers)
    for delay_s, what in script.steps:
        t += _microseconds(delay_s)
        if isinstance(what, Fault):
            return t, what
        if what:
            played += recorder.read(t, what) if streams else [recorder.body(t, what)]
    return t, None


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
