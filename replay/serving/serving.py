"""Serve recordings on the command line, with a line for each request."""

from collections.abc import Callable
from dataclasses import replace
from http.client import INTERNAL_SERVER_ERROR
from typing import Final

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import dumps

from ..matching.match import MISS_STATUS, NO_RETRY, Miss
from ..playback.script import Request, Script, json_answer
from ..playback.server import Served, place_of_fault
from ..redaction.redact import shown_path
from .answers import Answers

__all__ = ["Serving"]

#: Unused streams that are listed by name.
_LISTED_MAX: Final = 20


class Serving:
    """Answers requests and passes a line about each to `say`."""

    def __init__(self, answers: Answers, say: Callable[[str], None]) -> None:
        self.requests = 0
        self.misses = 0
        self._answers = answers
        self._say = say

    def choose(self, request: Request) -> Script:
        """Return the response. A tape that cannot be played, and our own bugs, end one response and not the server."""
        self.requests += 1
        try:
            return self._answer(request)
        except WiretapeError as error:
            return self._failed(request, MISS_STATUS, "not_playable", str(error), f"cannot be played: {error}")
        except Exception as error:  # noqa: BLE001 - see above
            place = place_of_fault(error)
            return self._failed(request, INTERNAL_SERVER_ERROR, "internal", place, f"internal error: {place}")

    def _failed(self, request: Request, status: int, code: str, message: str, line: str) -> Script:
        self.misses += 1
        self._say(f"{_shown(request)} -> {line}")
        script = json_answer(dumps({"error": {"message": message, "type": "wiretape_error", "code": code}}), status)
        return replace(script, headers=[*script.headers, NO_RETRY])

    def _answer(self, request: Request) -> Script:
        answer = self._answers.take(request)
        if isinstance(answer, Miss):
            self.misses += 1
            self._say(f"{_shown(request)} -> miss: {'; '.join(line.strip() for line in answer.lines())}")
            return answer.script()
        notes = ["faulty"] * answer.faulty + ["fresh ids"] * answer.fresh + [answer.taken.note()]
        noted = f" ({'; '.join(filter(None, notes))})" if any(notes) else ""
        self._say(
            f"{_shown(request)} -> {self._answers.deck.names[answer.taken.place]}: {_described(answer.script)}{noted}"
        )
        return answer.script

    def ended(self, served: Served) -> None:
        """Report a client that left before all of its response was sent."""
        if served.ended == "left" and served.pieces < served.due:
            sent = f"{served.pieces} of {served.due} chunks, {served.bytes} bytes"
            self._say(f"{_shown(served.request)}: the client left after {sent}")

    def remaining(self) -> list[str]:
        """Return lines about streams that were never requested and faults that never applied."""
        unused = [place for place in self._answers.deck.unused if place not in self._answers.faults.requested]
        lines = [f"{self._answers.deck.names[place]} was not requested" for place in unused[:_LISTED_MAX]]
        if len(unused) > _LISTED_MAX:
            lines.append(f"nor were {len(unused) - _LISTED_MAX} more")
        return [*lines, *(f"fault {text} had no place in any response" for text in self._answers.faults.unapplied)]


def _shown(request: Request) -> str:
    return f"{request.method.decode('latin-1')} {shown_path(request.target)}"


def _described(script: Script) -> str:
    if script.unanswered is not None:
        return f"no response, {script.unanswered.value}"
    chunks = [what for _, what in script.steps if isinstance(what, bytes) and what]
    end = script.fault.value if script.fault is not None else "complete"
    return f"{script.status}, {sum(map(len, chunks))} bytes in {len(chunks)} chunks, {end}"
