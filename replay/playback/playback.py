"""A recording that answers: what was asked of it, what each answer told, and what nothing recorded answers"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, parse
from wiretape.events.tape.record import Record

from ..faults.faults import Faults
from ..matching.compared_request import request_of
from ..matching.fresh_ids import Asked, FreshIds
from ..matching.match import Deck, Miss, Taken
from ..redaction.body_codec import plain_body
from ..redaction.redact import shown_path
from .outcome import Told, as_played
from .player import INSTANT, Speed, script_of
from .script import Request, Script, json_answer
from .serving import Ids

__all__ = ["Playback", "Sent"]


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
        """The body, also where it came compressed; None where it is no JSON."""
        value = parse(plain_body(self.headers.items(), self.body))
        return None if value is ABSENT else value

    def __str__(self) -> str:
        said: dict[str, Any] = as_object(self.json)
        model, messages = said.get("model"), as_list(said.get("messages"))
        of_model = f", model {model}" if isinstance(model, str) else ""
        with_messages = f", {len(messages)} messages" if messages else ""
        path = shown_path(self.path.encode("latin-1", "replace"))
        return f"{self.method} {path} ({len(self.body)} bytes{of_model}{with_messages})"


class Playback:
    """`choose` answers, from any thread; the rest is what came of it, in order."""

    def __init__(
        self,
        deck: Deck,
        streams: Sequence[Sequence[Record]],
        *,
        speed: Speed = INSTANT,
        faults: Faults,
        ids: Ids = "recorded",
    ) -> None:
        self.streams = streams
        self.speed = speed
        self.faults = faults
        self._fresh = FreshIds() if ids == "fresh" else None
        #: Some answer was another than the recorded one, so who asked may have gone another way.
        self.changed = False
        self.sent: list[Sent] = []
        self.answers: list[Told] = []
        self.misses: list[Miss] = []
        #: Of each answer that was found loosely, in what its request differs.
        self.loose: list[str] = []
        #: Of each request what answered it, if anything did.
        self._log: list[tuple[Taken, Told] | None] = []
        #: A fault of ours, or of the tape: nothing else may be believed.
        self.broken: Exception | None = None
        self._deck = deck
        self._lock = Lock()

    @property
    def unused(self) -> list[str]:
        """What is on the tape and was not asked for, as a line each."""
        return [f"{self._deck.name(place)}: {Sent.of(request_of(self.streams[place]))}" for place in self._deck.unused]

    @property
    def lines(self) -> list[str]:
        """What was asked, and what answered, as a line each."""
        return [f"{number}. {sent} -> {self._line(one)}" for number, (sent, one) in enumerate(self._asked(), 1)]

    def _asked(self) -> "zip[tuple[Sent, tuple[Taken, Told] | None]]":
        return zip(self.sent, self._log, strict=False)

    def _line(self, answered: tuple[Taken, Told] | None) -> str:
        if answered is None:
            return "nothing recorded answers this"
        taken, told = answered
        return ", ".join([self._deck.name(taken.place), told.fold.ending, *map(str, taken.drift)])

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
        asked = self._fresh.asked(request) if self._fresh is not None else Asked(request, {})
        request = asked.request
        taken = self._deck.take(request)
        if isinstance(taken, Miss):
            self.misses.append(taken)
            self._log.append(None)
            return taken.script()
        recorded = script_of(taken.records, speed=self.speed)
        faulty, answered = self.faults.over(recorded, taken.place)
        script = faulty
        if self._fresh is not None:
            script = self._fresh.over(faulty, taken.place, self._deck.conversation(taken.place), asked)
        told = Told(taken.records if script == recorded else as_played(taken.records, script))
        if _says(faulty) != _says(recorded):
            self.changed = True
        if not answered:
            self._deck.broke(request, taken)
        self.answers.append(told)
        self._log.append((taken, told))
        if taken.loosely:
            self.loose.append(f"request {len(self.sent)} is {self._deck.name(taken.place)}, {taken.note()}")
        return taken.over(script)


def _says(script: Script) -> tuple[object, ...]:
    """Whatever its pieces and delays are."""
    body = b"".join(what for _, what in script.steps if isinstance(what, bytes))
    ends = [what for _, what in script.steps if not isinstance(what, bytes)]
    return script.status, body, ends[:1], script.unanswered
