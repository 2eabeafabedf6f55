"""Recordings that answer requests: which stream, with which fault, under which ids; and what nobody asked for"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.client import INTERNAL_SERVER_ERROR
from pathlib import Path
from typing import Final, Literal, NamedTuple

from wiretape.events.core.errors import TapeError, WiretapeError
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record

from ..faults.faults import Faults
from ..matching.compared_request import Prepare, prepare_of
from ..matching.fresh_ids import Asked, FreshIds
from ..matching.match import MISS_STATUS, NO_RETRY, Deck, How, Miss
from ..redaction.redact import shown_path
from ..sealed.load import load
from .player import INSTANT, Side, Speed, each_attempt, script_of
from .script import Fault, Request, Script, json_answer
from .server import Outcome, place_of_fault

__all__ = ["Attempts", "Ids", "Serving", "deck_of"]

Ids = Literal["recorded", "fresh"]
Attempts = Literal["answered", "recorded"]

#: Of streams that nobody asked for.
_LISTED_MAX: Final = 20


def deck_of(paths: Sequence[Path], how: How, *, attempts: Attempts = "answered", repeat: bool = False) -> Deck:
    """The streams of these files, each named after its own; with `recorded` each attempt is an answer of its own.

    Raises TapeError, also where no stream could answer anything.
    """
    rows = list(_named(paths, attempts))
    return Deck(
        [row.records for row in rows],
        how,
        repeat=repeat,
        names=[row.name for row in rows],
        conversations=[row.conversation for row in rows],
        prepares=[row.prepare for row in rows],
        record=f"wiretape record --upstream URL -o {paths[0]} -- COMMAND",
    )


class _Row(NamedTuple):
    records: Sequence[Record]
    name: str
    conversation: int
    prepare: Prepare


def _named(paths: Sequence[Path], attempts: Attempts) -> Iterator[_Row]:
    for conversation, path in enumerate(paths):
        header, streams = load(path)
        if not streams:
            raise TapeError(f"{path}: it holds no stream")
        prepare = prepare_of(header)
        for number, records in enumerate(streams, 1):
            name = f"{path}, stream {number}" if len(streams) > 1 else str(path)
            each = each_attempt(records) if attempts == "recorded" else [records]
            for attempt, these in enumerate(each, 1):
                yield _Row(these, f"{name}, attempt {attempt}" if len(each) > 1 else name, conversation, prepare)


@dataclass(slots=True)
class Serving:
    """`choose` answers each request; `say` is told a line of each, and `ended` adds one where the client went first."""

    deck: Deck
    say: Callable[[str], None]
    faults: Faults = field(default_factory=Faults)
    speed: Speed = INSTANT
    side: Side = "upstream"
    ids: Ids = "recorded"
    asked: int = 0
    misses: int = 0
    _fresh: FreshIds | None = field(init=False)

    def __post_init__(self) -> None:
        self._fresh = FreshIds() if self.ids == "fresh" else None

    def choose(self, request: Request) -> Script:
        """What the server is to play. A tape that cannot be played is an answer, too: there are others to serve."""
        self.asked += 1
        try:
            return self._answer(request)
        except WiretapeError as error:
            self.misses += 1
            self.say(f"{_what(request)} -> cannot be played: {error}")
            value = {"error": {"message": str(error), "type": "wiretape_error", "code": "not_playable"}}
            return json_answer(dumps(value), MISS_STATUS)
        except Exception as error:  # noqa: BLE001 - a fault of ours ends one answer, not the server that others are asking
            self.misses += 1
            self.say(f"{_what(request)} -> a fault of ours: {place_of_fault(error)}")
            value = {"error": {"message": place_of_fault(error), "type": "wiretape_error", "code": "internal"}}
            answer = json_answer(dumps(value), INTERNAL_SERVER_ERROR)
            return Script(status=answer.status, headers=[*answer.headers, NO_RETRY], steps=answer.steps)

    def _answer(self, request: Request) -> Script:
        what = _what(request)
        asked = self._fresh.asked(request) if self._fresh is not None else Asked(request, {})
        request = asked.request
        taken = self.deck.take(request)
        if isinstance(taken, Miss):
            self.misses += 1
            self.say(f"{what} -> miss: {'; '.join(line.strip() for line in taken.lines())}")
            return taken.script()
        recorded = script_of(taken.records, speed=self.speed, side=self.side)
        faulty, answered = self.faults.over(recorded, taken.place)
        if not answered:
            self.deck.broke(request, taken)
        notes = ["faulty"] if faulty != recorded and _said(faulty) != _said(recorded) else []
        script = faulty
        if self._fresh is not None:
            script = self._fresh.over(faulty, taken.place, self.deck.conversation(taken.place), asked)
            notes += ["fresh ids"] if script != faulty else []
        notes += [taken.note()] if taken.drift else []
        beside = f" ({'; '.join(notes)})" if notes else ""
        self.say(f"{what} -> {self.deck.name(taken.place)}: {_said(script)}{beside}")
        return taken.over(script)

    def ended(self, outcome: Outcome) -> None:
        """What its line promised was not sent where the client went first."""
        if outcome.ended == "left" and outcome.pieces < outcome.due:
            sent = f"{outcome.pieces} of {outcome.due} pieces, {outcome.bytes} bytes"
            self.say(f"{_what(outcome.request)}: the client left behind {sent}")

    def behind(self) -> list[str]:
        """What is to be said at the end."""
        unused = [place for place in self.deck.unused if place not in self.faults.asked]
        lines = [f"{self.deck.name(place)} was not asked for" for place in unused[:_LISTED_MAX]]
        if len(unused) > _LISTED_MAX:
            lines.append(f"nor were {len(unused) - _LISTED_MAX} more")
        return [*lines, *(f"fault {text} had no place in any answer" for text in self.faults.unapplied)]


def _what(request: Request) -> str:
    """One line, whatever came: the server has let nothing in that is no request line."""
    return f"{request.method.decode('latin-1')} {shown_path(request.target)}"


def _said(script: Script) -> str:
    if script.unanswered is not None:
        return f"no answer, {script.unanswered.value}"
    pieces = [what for _, what in script.steps if isinstance(what, bytes) and what]
    faults = [what.value for _, what in script.steps if isinstance(what, Fault)]
    end = faults[0] if faults else "to its end"
    return f"{script.status}, {sum(map(len, pieces))} bytes in {len(pieces)} pieces, {end}"
