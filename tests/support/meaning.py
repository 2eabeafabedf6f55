"""What a tape means in any dialect: the one form in which streams of several dialects are compared."""

from collections.abc import Iterable
from dataclasses import dataclass

from wiretape.events.core import model
from wiretape.events.core.json_text import joined_surrogates
from wiretape.events.core.lifecycle import State
from wiretape.events.dialects import DIALECTS
from wiretape.events.emission.dialect import Counts
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record

__all__ = ["Meaning", "meaning"]


@dataclass(frozen=True)
class Meaning:
    """The choice of an answer that is mentioned first."""

    text: str
    reasoning: str
    refusal: str
    #: Id, name, arguments, whether they are free text, and whether the client may run it.
    calls: tuple[tuple[str, str, str, bool, bool], ...]
    finish: str
    #: It ended as a whole answer that may be trusted.
    whole: bool
    #: Unknown counts are 0.
    counts: Counts


def meaning(records: Iterable[Record], dialect: str) -> tuple[Meaning, bytes]:
    """Return what a client understands, and the bytes that it gets. `dialect` is the client's."""
    texts: dict[tuple[int, str], list[str]] = {}

    def take(event: model.Event) -> None:
        if isinstance(event, model.TextPiece):
            texts.setdefault((event.choice, type(event).__name__), []).append(event.text)

    emitter = Emitter(sink=take, repairs=False)
    sent = b"".join(frame for record in records for frame in emitter.feed(record))
    wire = emitter.wire
    choice = next(iter(wire.choices), 0)
    first = wire.choices.get(choice)
    calls = [] if first is None else list(first.calls.values())
    kinds = ("TextDelta", "ReasoningDelta", "RefusalDelta")
    said = {kind: joined_surrogates("".join(texts.get((choice, kind), ()))) for kind in kinds}
    assert wire.ended is not None
    return Meaning(
        text=said["TextDelta"],
        reasoning=said["ReasoningDelta"],
        refusal=said["RefusalDelta"],
        calls=tuple((call.id, call.name, call.arguments, call.custom, call.state is State.RUNNING) for call in calls),
        finish="" if first is None else first.finish,
        whole=wire.ended.ending == "completed" and "malformed_call" not in wire.ended.flags,
        counts=Counts(*(count or 0 for count in DIALECTS[dialect].counts(wire.usage or {}))),
    ), sent
