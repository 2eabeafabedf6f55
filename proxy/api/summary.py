"""One stream as JSON, from its tape: what was asked, every attempt, how it ended, when, at what cost, with which tools.

A fold over the records, whole at every one of them: of a live stream it says what is there so far.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from wiretape.events.core.json_text import as_list, as_object
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Event, Repaired
from wiretape.events.core.settings import Settings
from wiretape.events.emission.emit import Emitter
from wiretape.events.folds.message import Message
from wiretape.events.folds.timing import Timing
from wiretape.events.folds.tools import Tools
from wiretape.events.folds.usage import UsageFold
from wiretape.events.folds.warnings import Warned, Warnings
from wiretape.events.folds.wire import UPSTREAM_CALL
from wiretape.events.tape.record import Record
from wiretape.events.tape.stall_signals import lives, speaks
from wiretape.events.tape.tape import Damage

from ..store.linking import NO_FATES, Fate

__all__ = ["Summary", "summary_of"]

_UNKNOWN: Final = Fate(State.RUNNING)
#: A call waits for what tells that it is one: mostly for the next frame.
_LAG_RECORDS: Final = 1_000


def summary_of(stream: str, records: Iterable[Record], *, whole: bool = False) -> dict[str, Any]:
    """Of a tape, or of as much of it as there is."""
    summary = Summary(stream)
    for record in records:
        summary.feed(record)
    return summary.to_json(whole=whole)


class Summary:
    """`feed` every record in order, ask `to_json` whenever."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._seen: list[Event] = []
        self._emitter = Emitter(sink=self._seen.append)
        self._message = Message()
        self._timing = Timing()
        self._tools = Tools()
        self._usage = UsageFold()
        self._warnings = Warnings()
        self._open: dict[str, Any] = {}
        self._hermes = False
        self._facts: dict[str, Any] = {}
        self._results: list[Any] = []
        self._history: list[Any] = []
        self._attempts: list[dict[str, Any]] = []
        self._status: Any = None
        self._first_frame_us: int | None = None
        self._end: Record | None = None
        self._records = self._frames = self._bytes = 0
        self._t = 0
        #: When the latest records came: an event may be known only a few records after the one that it is about.
        self._times_of: dict[int, int] = {}

    def feed(self, record: Record) -> None:
        """The next record."""
        self._records += 1
        self._t = self._times_of[record.n] = record.t
        if len(self._times_of) > 2 * _LAG_RECORDS:
            self._times_of = dict(list(self._times_of.items())[_LAG_RECORDS:])
        self._note(record)
        if self._is_life(record):
            self._timing.alive(record.t)
        self._emitter.feed(record)
        for event in self._seen:
            if not isinstance(event, Repaired):
                self._message.apply(event)
                self._timing.apply(event, self._times_of.get(event.n, record.t))
                self._tools.apply(event)
                self._usage.apply(event)
                self._warnings.apply(event)
        self._seen.clear()

    def _is_life(self, record: Record) -> bool:
        """As the stall clock hears it."""
        if record.kind == "frame":
            return lives(record) if self._hermes else speaks(record)
        return record.kind == "body"

    @property
    def waits(self) -> bool:
        """Whether a call was handed over: what became of it, later streams know (`fates` of the store)."""
        return any(call.state is State.RUNNING for call in self._tools.wire.calls())

    def to_json(
        self, *, whole: bool = False, damage: Sequence[Damage] = (), fates: Mapping[str, Fate] = NO_FATES
    ) -> dict[str, Any]:
        """All there is to say; with `whole`, the texts themselves and not only how long they are."""
        ending, flags = self._ending()
        chat = self._open.get("dialect") == "chat"
        return {
            "id": self._stream,
            "created": self._open.get("created"),
            "route": self._open.get("route"),
            "dialect": self._open.get("dialect"),
            "profile": self._open.get("profile"),
            "model": self._facts.get("model") or self._message.model or None,
            "live": self._end is None,
            "status": self._status,
            "ending": ending,
            "flags": flags,
            "cause": None if self._end is None else self._end.keys.get("cause"),
            "attempts": self._attempts,
            "timing": self._times(),
            "usage": self._usage.counts,
            "message": {"id": self._message.id, "answers": list(self._choices(whole))} if chat else None,
            "tools": list(self._calls(whole, fates)) if chat else [],
            "results": self._results,
            "history": self._history,
            "warnings": self._warned(ending, flags, chat=chat),
            "repairs": dict(self._emitter.ledger.counts),
            "received": self._received(),
            "records": self._records,
            "damage": [{"at": at, "reason": reason} for at, reason in damage],
        }

    # -- records ------------------------------------------------------------------------------------------------------

    def _note(self, record: Record) -> None:
        match record.kind:
            case "open":
                self._open = dict(record.keys)
                self._hermes = Settings.of(record.keys).hermes
            case "request":
                self._facts = as_object(record.keys.get("facts"))
            case "history":
                self._history = as_list(record.keys.get("marks"))
            case "results":
                self._results = as_list(record.keys.get("results"))
            case "attempt":
                self._attempts.append({"n": record.n, "at_us": record.t, **record.keys})
                self._frames = self._bytes = 0
                self._first_frame_us = None
            case "head":
                if self._attempts:
                    self._attempts[-1]["status"] = record.keys.get("status")
            case "failed":
                if self._attempts:
                    said = {key: value for key, value in record.keys.items() if key != "attempt"}
                    self._attempts[-1]["failure"] = {"n": record.n, "at_us": record.t, **said}
            case "commit":
                self._status = record.keys.get("status")
            case "end":
                self._end = record
            case _:
                self._came(record)

    def _came(self, record: Record) -> None:
        if record.kind in ("frame", "rest", "body"):
            self._bytes += len(record.raw or b"")
        if record.kind == "frame":
            self._frames += 1
            if self._first_frame_us is None:
                self._first_frame_us = record.t

    # -- parts --------------------------------------------------------------------------------------------------------

    def _ending(self) -> tuple[str | None, list[Any]]:
        """The tape's own word; what the folds find where it has none."""
        if self._end is None:
            return None, list(self._emitter.wire.all_flags())
        ending, flags = self._end.keys.get("ending"), self._end.keys.get("flags")
        if isinstance(ending, str):
            return ending, as_list(flags)
        ended = self._emitter.wire.ended
        return (ended.ending, list(ended.flags)) if ended is not None else ("internal", [])

    def _times(self) -> dict[str, Any]:
        timing = self._timing
        return {
            "first_frame_us": self._first_frame_us,
            "first_content_us": timing.first_content_us,
            "last_content_us": timing.last_content_us,
            "longest_silence_us": timing.longest_silence_us,
            "longest_pause_us": timing.longest_pause_us,
            "duration_us": self._t,
        }

    def _choices(self, whole: bool) -> Iterator[dict[str, Any]]:
        for index, said in sorted(self._message.choices.items()):
            texts = {
                "text": self._message.text(index),
                "reasoning": self._message.reasoning(index),
                "refusal": self._message.refusal(index),
            }
            said_of = {f"{name}_chars": len(text) for name, text in texts.items()} | (texts if whole else {})
            yield {"index": index, "finish": said.finish or None, **said_of}

    def _calls(self, whole: bool, fates: Mapping[str, Fate]) -> Iterator[dict[str, Any]]:
        moves: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for n, choice, number, state in self._tools.moves:
            moves.setdefault((choice, number), []).append({"n": n, "state": state.value})
        for call in self._tools.wire.all_calls():
            arguments = call.arguments
            handed = call.state is State.RUNNING and call.number > UPSTREAM_CALL
            fate = fates.get(call.id, _UNKNOWN) if handed else _UNKNOWN
            yield {
                "id": call.id,
                "name": call.name,
                "choice": call.choice,
                "run_by": "upstream" if call.number <= UPSTREAM_CALL else "client",
                "state": (fate.state if fate.state is not State.RUNNING else call.state).value,
                "reason": call.reason or None,
                "answered_by": fate.answered_by or None,
                "duration_ms": fate.duration_ms,
                "moves": moves.get((call.choice, call.number), []),
                "arguments_chars": len(arguments),
                **({"arguments": arguments} if whole else {}),
            }

    def _warned(self, ending: str | None, flags: list[Any], *, chat: bool) -> list[dict[str, Any]]:
        found = self._warnings.found
        if not chat:  # the folds speak of a dialect that this is not
            words = [ending] if ending not in (None, "completed") else []
            found = [Warned(str(word), ()) for word in [*words, *flags]]
        return [
            {"code": code, "calls": [{"id": call, "name": name} for call, name in islice(calls, 1_000)]}
            for code, calls in found
        ]

    def _received(self) -> dict[str, Any]:
        """Of the last attempt; once it has ended, in the tape's own words."""
        if self._end is not None and "sha256" in self._end.keys:
            return {key: self._end.keys.get(key) for key in ("bytes", "frames", "sha256")}
        return {"bytes": self._bytes, "frames": self._frames}
