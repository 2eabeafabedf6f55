"""What endings, causes and retries mean, in sentences: one table for the command line, the inspector and the docs."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from wiretape.events.core.model import Ending

__all__ = ["CAUSES", "ENDINGS", "FOLLOWED", "Explanation", "attempt_of", "sentence_of"]


class Explanation(NamedTuple):
    """An ending: its title, what happened, and what the client of a stream that had begun was sent."""

    title: str
    sentence: str
    what_the_client_got: str


_CUT: Final = "Your client received what had arrived."
_TOLD: Final = "Your client received what had arrived, and an error that says the rest is missing."
_WHOLE: Final = "Your client received the whole response."
_ERROR: Final = "Your client received an error."
_SILENT: Final = "The upstream was silent for too long (first_byte_s, idle_s), so Wiretape stopped waiting."
_FOREIGN: Final = "The upstream did not answer in the dialect that was expected (check the setting `speaks`)."
_LEFT: Final = "Your client disconnected before the response was complete, so Wiretape stopped it."
_KILLED: Final = "Wiretape was killed before the response was complete. The next start completes the tape."
_FAULT: Final = "A fault of Wiretape ended the stream. Report it, with the tape if you can."

ENDINGS: Final[Mapping[Ending, Explanation]] = {
    "completed": Explanation("Completed", "The upstream ended its response properly.", _WHOLE),
    "truncated": Explanation("Truncated", "The upstream ended its response before it was complete.", _TOLD),
    "reset": Explanation("Reset", "The connection to the upstream broke in the middle of the response.", _TOLD),
    "stalled": Explanation("Stalled", _SILENT, _TOLD),
    "upstream_error": Explanation("Upstream error", "The upstream reported an error.", _ERROR),
    "refused": Explanation("Refused", "No upstream accepted the request.", _ERROR),
    "protocol": Explanation("Protocol error", _FOREIGN, _TOLD),
    "limit": Explanation("Limit", "The response or the request exceeded a limit of Wiretape.", _TOLD),
    "client_gone": Explanation("Client left", _LEFT, _CUT),
    "shutdown": Explanation("Shutdown", "Wiretape was stopped before the response was complete.", _TOLD),
    "crashed": Explanation("Crashed", _KILLED, _CUT),
    "internal": Explanation("Internal error", _FAULT, _TOLD),
}

#: The causes of an `end` record that are no endings.
CAUSES: Final[Mapping[str, str]] = {
    "eof": "the upstream's bytes ended before the answer was whole",
    "closed": "Wiretape closed the connection, after an error or an end that came too early",
    "status": "the upstream answered with an error status",
    "upload": "the request body was longer than the limit",
    "slow_upload": "the request body stopped arriving",
}

#: What followed a failed attempt: the `next` of its record.
FOLLOWED: Final[Mapping[str, str]] = {
    "again": "tried again",
    "elsewhere": "tried the next upstream",
    "unstreamed": "asked again without streaming",
    "crossed": "asked again in the chat dialect",
    "uncounted": "asked again without asking for usage",
    "give_up": "gave up",
}


def sentence_of(summary: Mapping[str, Any]) -> str:
    """Return how a stream ended and what its client got, from its summary as JSON."""
    ending, status = summary["ending"], summary["status"]
    if ending is None:
        return "The tape is damaged: its end is missing." if summary["damage"] else "The stream is still running."
    if (told := ENDINGS.get(ending)) is None:  # a later version wrote the tape
        return ""
    client = told.what_the_client_got
    if type(status) is not int:
        client = "Your client received no response." if ending not in ("client_gone", "crashed") else ""
    elif status >= 400:
        client = f"Your client received status {status}."
    elif client == _TOLD and (summary["profile"] == "transparent" or not summary["dialect"]):
        client = f"{_CUT} Its connection was closed too." if summary["answer"] == "broken" else _CUT
    lost = [call["name"] or "a tool" for call in summary["tools"] if call["state"] in ("dropped", "malformed")]
    names = ", ".join(dict.fromkeys(lost))
    calls = f"The calls to {names} are not complete." if len(lost) > 1 else f"The call to {names} is not complete."
    return " ".join(filter(None, [told.sentence, calls if lost else "", client]))


def attempt_of(keys: Mapping[str, Any]) -> str:
    """Return how an attempt went and what followed, what crossing lost, and the upstream's error, each in a line."""
    head = ", ".join(str(keys[name]) for name in ("upstream", "dialect", "model") if keys.get(name)) or "the upstream"
    failure, status = keys.get("failure"), keys.get("status")
    went = "no answer" if status is None else f"status {status}"
    if failure is not None:
        followed = str(failure.get("next"))
        pause = f" after {failure['after_ms'] / 1e3:g} s" if failure.get("after_ms") else ""
        why = str(failure.get("message") or failure.get("ending")).rstrip(".")
        went = f"{why}; {FOLLOWED.get(followed, followed)}{pause}"
    lost = f"lost by crossing: {', '.join(map(str, keys['lost']))}" if keys.get("lost") else ""
    return "\n".join(filter(None, [f"{head}: {went}", lost, " ".join((keys.get("error") or "").split())]))
