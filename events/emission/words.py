"""What a client gets to read about calls that were lost, the same in every dialect."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ..core.lifecycle import State
from ..core.limits import NAME_CHARS_MAX, PREVIEW_BYTES_MAX
from ..core.settings import Facts
from ..folds.wire import SIBLING, Call

__all__ = ["KEEPALIVE", "NOTE", "PROGRESS_EVENT", "WARNING", "failure", "preview", "warning"]

#: A comment, which no client takes for an event.
KEEPALIVE: Final = b": keepalive\n\n"
#: The SSE event name of a lifecycle frame.
PROGRESS_EVENT: Final = b"hermes.tool.progress"

#: How a warning begins, by finish reason or ending. A stall and a cut read differently, because the cure differs.
_OPENINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "length": "Output limit reached",
        "content_filter": "Content filter stopped the answer",
        "stalled": "Stream stalled",
        "truncated": "Connection dropped",
        "reset": "Connection dropped",
        "upstream_error": "The provider failed",
        "limit": "Size limit reached",
        "client_gone": "The client left",
        "shutdown": "The proxy was shut down",
        "crashed": "The proxy crashed",
    }
)
_ENDED: Final = "Stream ended early"

#: The texts of `warning`, anywhere in a text, and nothing else: no sentence that only begins and ends so. Each
#: part ends where it first can (`?>`) and no name has the sign in it, so a long line is read once.
_CAUSE: Final = f"(?:{'|'.join(sorted((*_OPENINGS.values(), _ENDED)))})"
_NAMES: Final = "[^\r\n⚠]+?"
#: What may be wrong with a call, in the order of a warning.
_CUT: Final = "{} {} cut short"
_WRONG: Final = (
    "the arguments of {} are not valid JSON",
    "a call has no name",
    "a part of {} could not be read",
    "the call of {} came after the finish",
)
_BESIDE: Final = "so {} {} not completed either"
_FAULTS: Final = (_CUT, *_WRONG, _BESIDE)
#: How a warning ends. No tool is said not to have run: a client that has half a call may run it all the same.
_UNKNOWN: Final = "Not completed; no result seen."
_ANY: Final = f"(?>{'|'.join(_WRONG).format(_NAMES, _NAMES, _NAMES)})"
#: Emitter versions before 3 said "not run either" and "Nothing was executed".
WARNING: Final = (
    f"⚠ (?:{_CAUSE}: the answer is incomplete\\.|(?:{_CAUSE} mid tool-call: (?>{_CUT.format(_NAMES, '(?:was|were)')})"
    f"|Malformed tool call: {_ANY})(?:, {_ANY})*"
    f"(?:, (?>so {_NAMES} (?:was|were) not (?:completed|run) either))?\\. "
    f"(?:{_UNKNOWN[:-1]}|(?:Nothing was|None of these was) executed)\\.)"
)
#: What hermes-agent writes when it asks its model again, and its last words when it gives up, as a client keeps them.
NOTE: Final = (
    r"⚠ (?:Connection dropped mid tool-call; reconnecting(?:…|\.\.\.)"
    r"|Stream stalled mid tool-call \([^()\r\n]{1,4000}\); the action was not executed\."
    r"(?: Ask me to retry if you want to continue\.)?)"
)


def preview(text: str) -> str:
    """Return as much of a text as a lifecycle frame may show."""
    encoded = text[:PREVIEW_BYTES_MAX].encode("utf-8", "replace")
    if len(text) <= PREVIEW_BYTES_MAX and len(encoded) <= PREVIEW_BYTES_MAX:
        return text
    return encoded[:PREVIEW_BYTES_MAX].decode("utf-8", "ignore")


def warning(code: str, calls: Sequence[Call], facts: Facts) -> str:
    """Return what happened, to which tools, and what is known of them."""
    opening, said = _OPENINGS.get(code, _ENDED), list[str]()
    if not calls:
        return f"⚠ {opening}: the answer is incomplete."
    for text in _FAULTS:
        if some := [call for call in calls if _fault(call) == text]:
            said.append(text.format(_names(some, facts), "was" if len(some) == 1 else "were"))
    what = f"{opening} mid tool-call" if any(_fault(call) == _CUT for call in calls) else "Malformed tool call"
    return f"⚠ {what}: {', '.join(said)}. {_UNKNOWN}"


def _fault(call: Call) -> str:
    if call.state is not State.MALFORMED:
        return _BESIDE if call.reason == SIBLING else _CUT
    bad, unnamed, torn, late = _WRONG
    return late if call.late else torn if call.damaged else bad if call.name else unnamed


def _names(calls: Sequence[Call], facts: Facts) -> str:
    """Return the names; those of internal tools are the upstream's own business."""
    names = ("an internal tool" if facts.internal(call.name) else _named(call) for call in calls)
    return ", ".join(name or "a tool without a name" for name in names)


def _named(call: Call) -> str:
    """Return as much of a name as a card shows, in one line: a warning in a history is found by its line."""
    return " ".join(call.name[:NAME_CHARS_MAX].splitlines())


def failure(code: str, lost: Sequence[Call], late: Sequence[Call], facts: Facts) -> dict[str, Any]:
    """Return the error that ends a stream which must not be taken for whole.

    It is about lost calls, and about those that went on after they were handed over.
    """
    text = warning(code, lost, facts) if lost or not late else ""
    if late:
        what = f"arguments of {_names(late, facts)} came after its finish, as if there were none"
        text = f"⚠ Malformed tool call: {what}. {text}".rstrip()
    shown = (call for call in (*late, *lost) if (call.id or call.name) and not facts.internal(call.name))
    dropped = [{"id": call.id, "name": _named(call)} for call in shown]
    return {"message": text, "code": code if code == "malformed_call" else "stream_truncated", "dropped_tools": dropped}
