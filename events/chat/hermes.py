"""Extensions of hermes-agent to chat completions, trusted only on routes that are declared as one.

Its tools run on its own side, and `event: hermes.tool.progress` reports them in a form that most clients fail on, as
they take every `data` for a chunk (clients.md 3 and 7). So it becomes the frame that reports any other call.
"""

import re
from collections.abc import Container, Mapping
from typing import Any, Final

from ..core.json_text import dumps
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
from .chunk import chunk
from .write import short

__all__ = ["NOTE", "AgentTools", "Retold", "card_of"]

_STATUSES: Final = frozenset({"running", "completed", "failed"})
#: Members of a chunk that mean something to clients, and those that we write.
_OURS: Final = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "error", "base_resp", "tool", "toolCallId", "status"}
)
#: Its own words, each a delta of its own, when the stream of its model broke inside a call and it asks again (0.19.0,
#: `agent/chat_completion_helpers.py`).
_RETRIES: Final = re.compile(r"\s*⚠ (?:Connection dropped mid tool-call; reconnecting|Stream stalled mid tool-call \()")
#: The same, and its last words when it gives up, as a client keeps them in its text.
NOTE: Final = (
    r"⚠ (?:Connection dropped mid tool-call; reconnecting(?:…|\.\.\.)"
    r"|Stream stalled mid tool-call \([^()\r\n]{1,4000}\); the action was not executed\."
    r"(?: Ask me to retry if you want to continue\.)?)"
)


class AgentTools:
    """A filter of the agent's progress frames: one `running` and one end for each call, in this order (law L7)."""

    def __init__(self, stream_id: str) -> None:
        self._stream_id = stream_id
        #: Its id of a call to ours: for one answer an agent asks its model many times, and some providers count their
        #: calls from 0 each time.
        self._ids: dict[str, str] = {}

    def event(self, n: int, value: dict[str, Any], wire: Wire, answered: Container[str]) -> ToolProgress | None:
        """Return the event of a progress frame, if it is news; `answered` are ids whose results this stream reports."""
        ran = wire.ran
        given, name, status = value.get("toolCallId"), value.get("tool"), value.get("status")
        if not (isinstance(given, str) and given and isinstance(name, str) and name and status in _STATUSES):
            return None
        known = ran.get(self._ids.get(given, ""))
        runs = known is not None and known.state is State.RUNNING
        if runs is (status == "running") or len(given) > CALL_ID_CHARS_MAX or len(name) > NAME_CHARS_MAX:
            return None
        if known is not None and runs:
            return ToolProgress(n=n, id=known.id, name=known.name, status=status)
        if any(call.id == given and call.state in STATUS_ON_WIRE for call in wire.calls()):
            return None  # the client knows it as a call of its own
        taken = given in ran or given in answered
        self._ids[given] = f"call_{self._stream_id}_ran_{len(ran)}" if taken else given
        return ToolProgress(n=n, id=self._ids[given], name=name, status=status)


def card_of(value: dict[str, Any], event: ToolProgress, head: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chunk for a progress frame: an empty delta, and every other member that a card can show."""
    card = {**chunk(head, 0, {}), "tool": event.name, "toolCallId": event.id, "status": event.status}
    for key, member in value.items():
        if key in _OURS or (key in ("label", "emoji") and not isinstance(member, str)):
            continue
        shown = short(member) if key == "label" else member
        if len(dumps(shown)) <= PREVIEW_BYTES_MAX and not (key == "emoji" and len(member) > EMOJI_CHARS_MAX):
            card[key] = shown
    return card


class Retold:
    """A detector of text that begins again, because the agent asked its model again (clients.md 4)."""

    def __init__(self) -> None:
        self.turn()

    def turn(self) -> None:
        """Start a new answer: a tool has run in between."""
        self._text = ""
        #: The places where the text may have begun again.
        self._places: list[int] = []

    def says_again(self, piece: str) -> bool:
        """Return whether all text of the turn has come again with this piece, or the agent announces that."""
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
