"""What one answer told its client: its records as they were played, faults included, and what they come to"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Event
from wiretape.events.emission.emit import Emitter, events
from wiretape.events.emission.summarise import summarise
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder, reads

from .player import attempts_of
from .script import Fault, Script

__all__ = ["Call", "Fold", "Told", "as_played"]

#: What `end` says of an answer that ended like this, and how an exchange that is no dialect's is then called.
_CAUSES: Final[Mapping[Fault | None, tuple[str, str]]] = MappingProxyType(
    {
        None: ("framed", "completed"),
        Fault.CUT: ("eof", "truncated"),
        Fault.RESET: ("reset", "reset"),
        Fault.STALL: ("stalled", "stalled"),
        Fault.GARBAGE: ("protocol", "protocol"),
    }
)
#: What broke its connection.
_BROKE: Final[Mapping[Fault, str]] = MappingProxyType(
    {Fault.CUT: "truncated", Fault.RESET: "reset", Fault.GARBAGE: "protocol"}
)
#: Calls in these states were handed over: a client may run them.
_HANDED_OVER: Final = frozenset({State.READY, State.RUNNING, State.COMPLETED, State.FAILED, State.ABANDONED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call, as far as it was told."""

    id: str
    name: str
    arguments: str
    #: Of the life of a call (docs/lifecycle.md).
    state: str
    #: It was told to its end, and its arguments are JSON: a client may run it, and none but such a one.
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """What an answer comes to. Of what is no chat completion there is only the ending."""

    ending: str
    flags: Sequence[str]
    text: str
    reasoning: str
    refusal: str
    finish: str
    calls: Sequence[Call]
    usage: Mapping[str, int] | None
    #: What a person must be told: a code, and the names of the tools that it is about.
    warnings: Sequence[tuple[str, Sequence[str]]]


class Told:
    """One answer."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records

    @cached_property
    def events(self) -> list[Event]:
        """In order."""
        return list(events(self.records))

    @cached_property
    def timing(self) -> list[tuple[float, int]]:
        """Of each read when it came, in seconds since the request, and how many bytes it was."""
        began = self.records[0].t
        return [((t - began) / 1_000_000, len(data)) for t, data in reads(attempts_of(self.records)[-1])]

    @cached_property
    def fold(self) -> Fold:
        """What it comes to."""
        summary = summarise(self.records)
        message, ended = summary.message, summary.wire.ended
        ending, flags = (ended.ending, ended.flags) if ended is not None else ("", ())
        if not summary.chat:  # which only its tape can tell
            ending, flags = summary.ending or "", tuple(summary.flags)
        return Fold(
            ending=ending,
            flags=flags,
            text=message.text(),
            reasoning=message.reasoning(),
            refusal=message.refusal(),
            finish=message.choices[0].finish if 0 in message.choices else "",
            calls=[
                Call(
                    id=call.id,
                    name=call.name,
                    arguments=call.arguments,
                    state=call.state.value,
                    whole=call.state in _HANDED_OVER,
                )
                for call in summary.wire.all_calls()
            ],
            usage=summary.wire.usage,
            warnings=[(code, [name for _, name in found]) for code, found in summary.warnings if summary.chat],
        )


def as_played(records: Sequence[Record], script: Script) -> list[Record]:
    """The tape that a recorder would have made of this script, whose stream was recorded as `records`."""
    asked = next((at for at, record in enumerate(records) if record.kind == "attempt"), len(records))
    attempt = attempts_of(records)[-1]
    recorder, emitter = Recorder(), Emitter()
    played = [recorder.record(record.kind, record.t, record.keys, record.raw) for record in records[:asked]]
    t = attempt[0].t
    played += recorder.attempt(t, attempt[0].keys)
    t, fault = _play(script, recorder, t, played)
    played += recorder.rest(t)
    for record in played:
        emitter.feed(record)
    cause, ending = _CAUSES[fault]
    flags: Sequence[str] = ()
    if records[0].keys.get("dialect") == "chat":
        cause = "eof" if cause == "framed" else cause  # in a chat stream it is no end
        ending, flags = emitter.ending(cause)
    keys = {"cause": cause, "ending": ending, "flags": list(flags)}
    return [*played, recorder.end(t, {**keys, **_framed(script, fault)})]


def _framed(script: Script, fault: Fault | None) -> dict[str, object]:
    """Whether its body ended by its own framing, as `end` says it (docs/tape.md)."""
    if script.unanswered is not None:
        return {}
    if fault is None:
        return {"framed": False, "broke": "closed"} if script.closes else {"framed": True}
    return {"framed": False, "broke": _BROKE[fault]} if fault in _BROKE else {"framed": False}


def _play(script: Script, recorder: Recorder, t: int, played: list[Record]) -> tuple[int, Fault | None]:
    """Head and body onto the tape; when the end came, and which."""
    t += _microseconds(script.head_delay_s)
    if script.unanswered is not None:
        return t, script.unanswered
    headers = [[name.decode("latin-1").lower(), value.decode("latin-1")] for name, value in script.headers]
    framing: dict[str, object] = {"framing": "close" if script.closes else "chunked"}
    for name, value in headers:
        if name == "content-length":
            framing = {"framing": "length", "length": int(value)}
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
