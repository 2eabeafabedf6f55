"""The inspect feed: one line of JSON for each record, with its events and what the client was sent for it."""

import base64
import codecs
import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from wiretape.events.core import model
from wiretape.events.core.json_text import ABSENT, dumps
from wiretape.events.core.model import Event, Repaired
from wiretape.events.emit import Emitter
from wiretape.events.folds.wire import Call, Wire
from wiretape.events.tape.record import Record

from ..api.streams import Following
from ..limits import INSPECTED_AT_ONCE, INSPECTED_BYTES_MAX, SLICE_RECORDS
from ..store.store import Store
from .explanations import about_repair
from .marks import marks

__all__ = ["ALIVE", "Feed", "Inspector"]

ALIVE: Final = b'{"alive":true}\n'
#: Events that change the state of no call.
_STILL: Final = model.TextPiece | model.AudioDelta | model.ToolArgumentsDelta | model.Usage | Repaired
_FIELDS: Final = {
    kind: tuple(field.name for field in dataclasses.fields(kind) if field.name != "n")
    for kind in Event.__args__
    if kind is not Repaired
}


class Inspector:
    """A fold from the records of one tape, in order, to the lines of the feed."""

    def __init__(self, *, repairs: bool) -> None:
        self._seen, self.repairs, self._wire = list[Event](), repairs, Wire()
        self._emitter = Emitter(sink=self._seen.append, repairs=repairs)
        #: How many changes of state of each call were reported.
        self._moved: dict[Call, int] = {}

    def line(self, record: Record) -> bytes:
        """Return the line of the next record."""
        seen = self._seen
        seen.clear()
        frames, raw = self._emitter.feed(record), record.raw
        shown, kept = (None, {}) if raw is None else _text(raw)
        line: dict[str, Any] = {"n": record.n, "t": record.t, "k": record.kind, **kept}
        if record.keys:
            line["keys"] = record.keys
        if events := [_event(event, record.n) for event in seen if type(event) is not Repaired]:
            line["events"] = events
        if moves := self._moves(record):
            line["moves"] = moves
        if frames:
            line["out"] = 1 if frames == [raw] else [_text(frame)[0] for frame in frames]
        if self.repairs:
            if repairs := [self._repair(event, record.n) for event in seen if type(event) is Repaired]:
                line["repairs"] = repairs
            if frames and line["out"] != 1 and shown is not None:
                line["marks"] = marks(shown, line["out"])
        return dumps(line) + b"\n"

    def _moves(self, record: Record) -> list[dict[str, Any]]:
        wire = self._emitter.wire
        if wire is not self._wire:  # another attempt
            self._wire, self._moved = wire, {}
        still = all(isinstance(event, _STILL) for event in self._seen) and record.kind != "end" and not wire.overflow
        found: list[dict[str, Any]] = []
        for call in () if still else wire.all_calls():
            known = self._moved.get(call, 0)
            if known < len(call.moves):
                self._moved[call] = len(call.moves)
                about = {"choice": call.choice, "call": call.number, "id": call.id, "name": call.name}
                reason = {"reason": call.reason} if call.reason else {}
                found += [{**about, "state": state.value, **reason} for _, state in call.moves[known:]]
        return found

    def _repair(self, event: Repaired, n: int) -> dict[str, Any]:
        found: dict[str, Any] = {"repair": event.repair} | ({"n": event.n} if event.n != n else {})
        if event.key is not None:
            found |= {"path": event.path, "key": event.key}
        for name, value in (("before", event.before), ("after", event.after)):
            if value is not ABSENT:
                data = value if isinstance(value, bytes) else dumps(value)
                found[name] = _text(data)[0] if data is value or len(data) > INSPECTED_BYTES_MAX else value
        return found | {"about": about_repair(event.repair)}


def _event(event: Event, n: int) -> dict[str, Any]:
    members = {name: getattr(event, name) for name in _FIELDS[type(event)]}
    return {"type": type(event).__name__, **({"n": event.n} if event.n != n else {}), **members}


def _text(raw: bytes) -> tuple[str, dict[str, Any]]:
    """Return the beginning of bytes as text, and the members of a line that hold it."""
    kept = raw[:INSPECTED_BYTES_MAX]
    more: dict[str, Any] = {"more": len(raw) - len(kept)} if len(kept) < len(raw) else {}
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(kept, final=not more)
    except UnicodeDecodeError:
        return kept.decode("utf-8", "replace"), {"bytes": len(raw), "in64": base64.b64encode(kept).decode(), **more}
    return text, {"bytes": len(raw), "in": text, **more}


class Feed(Following):
    """The inspect feed of one stream for one reader."""

    keepalive = ALIVE

    def __init__(self, store: Store, stream: str, inspector: Inspector, first_n: int = 0) -> None:
        """Raise StreamMissingError if there is no such stream."""
        super().__init__(store, stream)
        self.at_once = INSPECTED_AT_ONCE if inspector.repairs else SLICE_RECORDS
        self._inspector = inspector
        self._first_n = first_n

    def shown(self, records: list[Record]) -> Iterator[bytes]:
        """Yield the lines of these records; those before the first wanted are read all the same."""
        for record in records:
            line = self._inspector.line(record)
            if record.n >= self._first_n:
                yield line

    def notice(self, kind: str, value: Any) -> bytes:
        """Return the last line of a damaged tape."""
        return dumps({"damage": value if kind == "damage" else [{"at": None, "reason": value["message"]}]}) + b"\n"
