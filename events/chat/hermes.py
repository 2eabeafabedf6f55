"""What hermes-agent says beyond chat completions, believed on routes that are declared as one: tools, endings, retries

Its tools run on its own side, and `event: hermes.tool.progress` tells of them in a form that most clients fail on, as
they take every `data` for a chunk (clients.md 3 and 7). So it becomes the frame that tells the life of any other call.
"""

import re
from collections.abc import Container
from typing import Any, Final, NamedTuple

from ..core.json_text import dumps, is_object, members
from ..core.lifecycle import STATUS_ON_WIRE, State
from ..core.limits import (
    CALL_ID_CHARS_MAX,
    EMOJI_CHARS_MAX,
    NAME_CHARS_MAX,
    PREVIEW_BYTES_MAX,
    RETOLD_CHARS_MAX,
    RETOLD_CHARS_MIN,
    RETOLD_PLACES_MAX,
)
from ..core.model import ToolProgress
from ..folds.wire import Wire
from ..wire.sse import encode
from .answers import Failure, choices_of
from .write import PROGRESS_EVENT, Envelope, chunk, short

__all__ = ["NOTE", "AgentTools", "Progress", "Retold", "ended_by_length", "failure_of_agent", "frame_of"]

_STATUSES: Final = frozenset({"running", "completed", "failed"})
#: Members of a chunk that mean something to clients, and those that we write.
_OURS: Final = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "error", "base_resp", "tool", "toolCallId", "status"}
)
#: Its own words, each a delta of its own, when the stream of its model broke inside a call and it asks again (0.19.0,
#: `agent/chat_completion_helpers.py`).
_RETRIES: Final = re.compile(r"\s*⚠ (?:Connection dropped mid tool-call; reconnecting|Stream stalled mid tool-call \()")
#: The same and the one that it leaves behind when it gives up, whole: as they stand in what a client kept of its text.
NOTE: Final = re.compile(
    r"⚠ (?:Connection dropped mid tool-call; reconnecting(?:…|\.\.\.)"
    r"|Stream stalled mid tool-call \([^()\r\n]{1,4000}\); the action was not executed\."
    r"(?: Ask me to retry if you want to continue\.)?)"
)


class Progress(NamedTuple):
    """A frame of its own about a tool that it runs."""

    n: int
    #: As it came.
    frame: bytes
    #: In one line.
    payload: bytes
    value: dict[str, Any]


class AgentTools:
    """Which of its frames are news: of each call one `running` and one end, in this order (law L7)."""

    def __init__(self, stream_id: str) -> None:
        self._stream_id = stream_id
        #: Its id of a call to ours: for one answer an agent asks its model many times, and some providers count their
        #: calls from 0 each time.
        self._ids: dict[str, str] = {}

    def event(self, progress: Progress, wire: Wire, answered: Container[str]) -> ToolProgress | None:
        """What it means, if anything; `answered` are the ids whose results the client brought and is told of here."""
        ran = wire.ran
        given, name, status = (_text(progress.value.get(key)) for key in ("toolCallId", "tool", "status"))
        known = ran.get(self._ids.get(given, ""))
        runs = known is not None and known.state is State.RUNNING
        if not given or not name or status not in _STATUSES or runs is (status == "running"):
            return None
        if len(given) > CALL_ID_CHARS_MAX or len(name) > NAME_CHARS_MAX:
            return None
        if known is not None and runs:
            return ToolProgress(n=progress.n, id=known.id, name=known.name, status=status)
        if any(call.id == given and call.state in STATUS_ON_WIRE for call in wire.calls()):
            return None  # the client was told of it as a call of its own
        taken = given in ran or given in answered
        self._ids[given] = f"call_{self._stream_id}_ran_{len(ran)}" if taken else given
        return ToolProgress(n=progress.n, id=self._ids[given], name=name, status=status)


def frame_of(progress: Progress, event: ToolProgress, envelope: Envelope) -> bytes:
    """The frame for it: chunk-shaped with an empty delta; what else it says keeps its bytes, if a card can show it."""
    payload = progress.payload
    given = {member.key: member for member in members(payload, payload.index(b"{"))}
    said = {"tool": event.name, "toolCallId": event.id, "status": event.status}
    parts = [chunk(envelope, 0, {})[:-1], dumps(said)[1:-1]]
    for member in given.values():
        value = progress.value[member.key]
        if member.key == "label" and isinstance(value, str) and short(value) != value:
            parts.append(dumps({"label": short(value)})[1:-1])
        elif member.key not in _OURS and member.end - member.value <= PREVIEW_BYTES_MAX and _shown(member.key, value):
            parts.append(payload[member.start : member.end])
    return encode(b",".join(parts) + b"}", event=PROGRESS_EVENT)


def _shown(key: str, value: Any) -> bool:
    """Whether it is what its name says."""
    if key in ("label", "emoji"):
        return isinstance(value, str) and (key == "label" or len(value) <= EMOJI_CHARS_MAX)
    return True


def failure_of_agent(failure: Failure, payload: bytes, value: dict[str, Any]) -> Failure:
    """Its error, with its own account of it beside: whether it was partial, and the code that its `error` lacks."""
    account = value.get("hermes")
    if not is_object(account):
        return failure
    member = next(member for member in reversed(members(payload, payload.index(b"{"))) if member.key == "hermes")
    told = failure.frame[len(b"data: ") : -len(b"}\n\n")]
    frame = encode(b"%b,%b}" % (told, payload[member.start : member.end]))
    return failure._replace(frame=frame, code=_text(account.get("error_code")) or failure.code)


def ended_by_length(value: dict[str, Any]) -> bool:
    """Whether a chunk with an error on it says `length`: its answer ends there, and that is no failure."""
    return any(is_object(choice) and choice.get("finish_reason") == "length" for choice in choices_of(value))


class Retold:
    """Notices text that begins anew, as the agent has asked its model again (clients.md 4: "It is It is It is ...")."""

    def __init__(self) -> None:
        self.turn()

    def turn(self) -> None:
        """The next text is an answer of its own: a tool has run in between."""
        self._text = ""
        #: Where in it the text may have begun anew, by all that came since.
        self._places: list[int] = []

    def says_again(self, piece: str) -> bool:
        """Whether with this piece all text of the turn has come a second time, or the agent says that it will."""
        if _RETRIES.match(piece):
            self.turn()
            return True
        begins = len(self._text)
        if begins > RETOLD_CHARS_MAX or not piece:
            return False
        self._text += piece if begins else piece.lstrip("\n")
        places = [*self._places, begins] if begins >= RETOLD_CHARS_MIN else []
        same = [at for at in places if self._text.startswith(piece[: 2 * at - begins], begins - at)]
        self._places = same[:RETOLD_PLACES_MAX]
        again = next((at for at in self._places if len(self._text) >= 2 * at), 0)
        if again:
            self._text = self._text[again:]
            self._places = []
        return bool(again)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
