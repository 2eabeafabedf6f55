"""Make the tape that a recorder would make of a script."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder

from .player import attempts_of
from .script import Fault, Script

__all__ = ["as_played"]

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
