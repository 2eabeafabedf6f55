"""Choose the response to a request: which stream, with which fault, and under which ids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record

from ..faults.faults import Faults
from ..matching.compared_request import Prepare, prepare_of
from ..matching.match import Deck, How, Miss, Taken
from ..playback.player import INSTANT, Side, Speed, each_attempt, script_of
from ..playback.script import Request, Script
from ..sealed.load import Recording, load
from .fresh_ids import FreshIds

__all__ = ["Answer", "Answers", "Attempts", "Ids", "deck_of", "load_deck"]

Ids = Literal["recorded", "fresh"]
Attempts = Literal["answered", "recorded"]


def load_deck(paths: Sequence[Path], how: How, *, attempts: Attempts = "answered", repeat: bool = False) -> Deck:
    """Return the streams of these files. Raise TapeError if one of them contains none."""
    named = [(str(path), load(path)) for path in paths]
    for name, recording in named:
        if not recording.streams:
            raise TapeError(f"{name}: it contains no stream")
    record = f"wiretape record --upstream URL -o {paths[0]} -- COMMAND"
    return deck_of(named, how, attempts=attempts, repeat=repeat, record=record)


def deck_of(
    named: Iterable[tuple[str, Recording]],
    how: How,
    *,
    attempts: Attempts = "answered",
    repeat: bool = False,
    record: str = "",
) -> Deck:
    """Return the streams of recordings, each a conversation with its name, which may be empty.

    With `recorded`, each attempt is a stream of its own. `record` is the command that records a missing stream.
    """
    streams: list[Sequence[Record]] = []
    names: list[str] = []
    conversations: list[int] = []
    prepares: list[Prepare] = []
    for conversation, (name, (header, recorded)) in enumerate(named):
        prepare = prepare_of(header)
        for number, records in enumerate(recorded, 1):
            words = [name] * bool(name) + [f"stream {number}"] * (not name or len(recorded) > 1)
            each = each_attempt(records) if attempts == "recorded" else [records]
            streams += each
            attempts_words = [[f"attempt {at}"] if len(each) > 1 else [] for at in range(1, len(each) + 1)]
            names += [", ".join(words + more) for more in attempts_words]
            conversations += [conversation] * len(each)
            prepares += [prepare] * len(each)
    return Deck(streams, how, repeat=repeat, names=names, conversations=conversations, prepares=prepares, record=record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response to one request."""

    taken: Taken
    script: Script
    #: A fault changed status, bytes or ending.
    faulty: bool
    #: Some ids are new.
    fresh: bool
    #: The script is played exactly as it was recorded.
    recorded: bool


class Answers:
    """Responses from a deck, for as long as a server lives."""

    def __init__(
        self, deck: Deck, faults: Faults, *, speed: Speed = INSTANT, side: Side = "upstream", ids: Ids = "recorded"
    ) -> None:
        self.deck = deck
        self.faults = faults
        self._speed = speed
        self._side: Side = side
        self._fresh = FreshIds() if ids == "fresh" else None

    def take(self, request: Request) -> Answer | Miss:
        """Return the response; raise TapeError if the stream cannot be played."""
        sent: dict[bytes, bytes] = {}
        if self._fresh is not None:
            request, sent = self._fresh.with_recorded_ids(request)
        taken = self.deck.take(request)
        if isinstance(taken, Miss):
            return taken
        recorded = script_of(taken.records, speed=self._speed, side=self._side)
        faulty, answered = self.faults.over(recorded, taken.place)
        if not answered:
            self.deck.broke(request, taken)
        script = faulty
        if self._fresh is not None:
            conversation = self.deck.conversations[taken.place]
            script = self._fresh.over(faulty, taken.place, conversation, sent, makes=request.method != b"GET")
        return Answer(
            taken=taken,
            script=taken.over(script),
            faulty=_content(faulty) != _content(recorded),
            fresh=script != faulty,
            recorded=script == recorded,
        )


def _content(script: Script) -> tuple[object, ...]:
    """Return what a client can tell apart, without read boundaries and delays."""
    return script.status, script.body, script.fault, script.unanswered
