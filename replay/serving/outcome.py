"""What a client sent, and the outcome of the response: events, timing and accumulated message."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from wiretape.events.core.json_text import ABSENT, as_list, as_object, parse
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Event
from wiretape.events.emit import events, summarise
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads

from ..playback.player import as_played, attempts_of
from ..playback.script import Request, Script
from ..redaction.plain_text import plain_body
from ..redaction.redact import shown_path

__all__ = ["Call", "Fold", "Outcome", "Sent"]

#: States of calls that a client may run.
_HANDED_OVER: Final = frozenset({State.READY, State.RUNNING, State.COMPLETED, State.FAILED, State.ABANDONED})


@dataclass(frozen=True)
class Sent:
    """A request as the client sent it; nothing in it comes from the tape."""

    method: str
    #: As the provider would have received it.
    path: str
    #: By lower-case name; the last of several with one name.
    headers: Mapping[str, str]
    body: bytes

    @staticmethod
    def of(request: Request) -> "Sent":
        """Return a request from its bytes."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers}
        return Sent(request.method.decode("latin-1"), request.target.decode("latin-1"), headers, request.body)

    @cached_property
    def json(self) -> Any:
        """The body, decompressed and parsed; None if it is not JSON."""
        value = parse(plain_body(self.headers.items(), self.body))
        return None if value is ABSENT else value

    def __str__(self) -> str:
        body: dict[str, Any] = as_object(self.json)
        model, messages = body.get("model"), as_list(body.get("messages"))
        of_model = f", model {model}" if isinstance(model, str) else ""
        with_messages = f", {len(messages)} messages" if messages else ""
        path = shown_path(self.path.encode("latin-1", "replace"))
        return f"{self.method} {path} ({len(self.body)} bytes{of_model}{with_messages})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call as far as the client received it."""

    id: str
    name: str
    arguments: str
    #: See docs/lifecycle.md.
    state: str
    #: The call is complete and its arguments are valid, so a client may run it.
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """The accumulated message; other exchanges than chat completions have only an ending."""

    ending: str
    flags: Sequence[str]
    text: str
    reasoning: str
    refusal: str
    finish: str
    calls: Sequence[Call]
    usage: Mapping[str, int] | None
    #: What a person should know: a code, and the names of the tools concerned.
    warnings: Sequence[tuple[str, Sequence[str]]]


class Outcome:
    """One response as its client received it, with any fault."""

    def __init__(self, recorded: Sequence[Record], played: Script | None = None) -> None:
        """`played` is the script that was played, unless it was the recorded one."""
        self._recorded = recorded
        self._played = played

    @cached_property
    def records(self) -> Sequence[Record]:
        """The tape of this response."""
        return self._recorded if self._played is None else as_played(self._recorded, self._played)

    @cached_property
    def events(self) -> list[Event]:
        """The events in order."""
        return list(events(self.records))

    @cached_property
    def timing(self) -> list[tuple[float, int]]:
        """The time of each read in seconds since the request, and its size in bytes."""
        began = self.records[0].t
        return [((t - began) / 1_000_000, len(data)) for t, data in reads(attempts_of(self.records)[-1])]

    @cached_property
    def fold(self) -> Fold:
        """The accumulated message."""
        summary = summarise(self.records)
        message, ended = summary.message, summary.wire.ended
        ending, flags = (ended.ending, ended.flags) if ended is not None else ("", ())
        if not summary.chat:
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
            warnings=[(code, [name for _, name in calls]) for code, calls in summary.warnings if summary.chat],
        )
