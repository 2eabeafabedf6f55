"""A recording that answers: what was asked of it, what each answer told, and what nothing recorded answers"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

from wiretape.events.errors import WiretapeError
from wiretape.events.json_text import ABSENT, as_list, as_object, dumps, parse
from wiretape.events.record import Record

from .match import Deck, How, Miss, Taken, asked_of
from .player import INSTANT, Speed, script_of
from .script import Request, Script, json_answer
from .told import Told, as_played

__all__ = ["Overlay", "Playback", "Sent"]

#: Changes what an answer says; told the stream's place, and which answer of all this is (both from 0).
Overlay = Callable[[Script, int, int], Script]


@dataclass(frozen=True)
class Sent:
    """A request as the client sent it now; nothing of it is from a file."""

    method: str
    #: As it would have come to the provider.
    path: str
    #: By lower-case name; of several of one name the last.
    headers: Mapping[str, str]
    body: bytes

    @staticmethod
    def of(request: Request) -> "Sent":
        """From its bytes."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers}
        return Sent(request.method.decode("latin-1"), request.target.decode("latin-1"), headers, request.body)

    @cached_property
    def json(self) -> Any:
        """The body; None where it is no JSON."""
        value = parse(self.body)
        return None if value is ABSENT else value

    def __str__(self) -> str:
        said: dict[str, Any] = as_object(self.json)
        model, messages = said.get("model"), as_list(said.get("messages"))
        of_model = f", model {model}" if isinstance(model, str) else ""
        with_messages = f", {len(messages)} messages" if messages else ""
        return f"{self.method} {self.path} ({len(self.body)} bytes{of_model}{with_messages})"


class Playback:
    """`choose` answers, from any thread; the rest is what came of it, in order."""

    def __init__(
        self,
        streams: Sequence[Sequence[Record]],
        *,
        how: How = "key",
        repeat: bool = False,
        speed: Speed = INSTANT,
    ) -> None:
        self.streams = streams
        self.speed = speed
        self.overlays: list[Overlay] = []
        self.sent: list[Sent] = []
        self.answers: list[Told] = []
        self.misses: list[Miss] = []
        #: One line for each request.
        self.lines: list[str] = []
        #: A fault of ours, or of the tape: nothing else may be believed.
        self.broken: Exception | None = None
        self._deck = Deck(streams, how, repeat=repeat)
        self._lock = Lock()

    @property
    def unused(self) -> list[Sent]:
        """What is on the tape and was not asked for."""
        return [Sent.of(asked_of(self.streams[place])) for place in self._deck.unused]

    def choose(self, request: Request) -> Script:
        """The answer to a request; a fault of ours is an answer too, since the server has others to serve."""
        with self._lock:
            self.sent.append(Sent.of(request))
            try:
                return self._answer(request)
            except (WiretapeError, AssertionError, LookupError, TypeError, ValueError) as error:
                self.broken = self.broken or error
                return json_answer(dumps({"error": {"message": repr(error), "type": "wiretape_error"}}), 500)

    def _answer(self, request: Request) -> Script:
        taken = self._deck.take(request)
        if isinstance(taken, Miss):
            self.misses.append(taken)
            self.lines.append("nothing recorded answers this")
            return taken.script()
        script, told = self._played(taken)
        self.answers.append(told)
        self.lines.append(f"stream {taken.place + 1} of {len(self.streams)}: {told.fold.ending}")
        return script

    def _played(self, taken: Taken) -> tuple[Script, Told]:
        recorded = script = script_of(taken.records, speed=self.speed)
        for overlay in self.overlays:
            script = overlay(script, taken.place, len(self.answers))
        return script, Told(taken.records if script == recorded else as_played(taken.records, script))
