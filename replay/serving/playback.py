"""A recording that answers requests in a test, and what the test can ask about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, parse
from wiretape.events.tape.record import Record

from ..matching.compared_request import request_of
from ..matching.match import Miss, Taken
from ..playback.player import as_played
from ..playback.script import Request, Script, json_answer
from ..redaction.body_codec import plain_body
from ..redaction.redact import shown_path
from .answers import Answers
from .outcome import Outcome

__all__ = ["Playback", "Sent"]


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


class Playback:
    """`choose` answers from any thread; the attributes keep what happened, in order."""

    def __init__(self, responses: Answers, streams: Sequence[Sequence[Record]]) -> None:
        #: Its faults may be replaced between requests.
        self.responses = responses
        self.streams = streams
        #: Some response differed from the recorded one, so the client may have taken another path.
        self.changed = False
        self.sent: list[Sent] = []
        self.answers: list[Outcome] = []
        self.misses: list[Miss] = []
        #: A line for each response that was found loosely.
        self.loose: list[str] = []
        #: The first internal error or unplayable stream: nothing else can be trusted then.
        self.broken: Exception | None = None
        self._log: list[tuple[Taken, Outcome] | None] = []
        self._deck = responses.deck
        self._lock = Lock()

    @property
    def unused(self) -> list[str]:
        """A line for each stream that was not requested."""
        return [f"{self._deck.names[place]}: {Sent.of(request_of(self.streams[place]))}" for place in self._deck.unused]

    @property
    def lines(self) -> list[str]:
        """A line for each request with its response."""
        lines: list[str] = []
        for number, (sent, answered) in enumerate(zip(self.sent, self._log, strict=False), 1):
            answer = "no recorded response"
            if answered is not None:
                taken, outcome = answered
                answer = ", ".join([self._deck.names[taken.place], outcome.fold.ending, *map(str, taken.drift)])
            lines.append(f"{number}. {sent} -> {answer}")
        return lines

    def choose(self, request: Request) -> Script:
        """Return the response; an internal error is a response too, since the server has other tests to serve."""
        with self._lock:
            self.sent.append(Sent.of(request))
            try:
                return self._answer(request)
            except (WiretapeError, AssertionError, LookupError, TypeError, ValueError) as error:
                self.broken = self.broken or error
                return json_answer(dumps({"error": {"message": repr(error), "type": "wiretape_error"}}), 500)

    def _answer(self, request: Request) -> Script:
        answer = self.responses.take(request)
        if isinstance(answer, Miss):
            self.misses.append(answer)
            self._log.append(None)
            return answer.script()
        taken = answer.taken
        outcome = Outcome(taken.records if answer.recorded else as_played(taken.records, answer.script))
        self.changed = self.changed or answer.faulty
        self.answers.append(outcome)
        self._log.append((taken, outcome))
        if taken.loosely:
            self.loose.append(f"request {len(self.sent)} is {self._deck.names[taken.place]}, {taken.note()}")
        return answer.script
