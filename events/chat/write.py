"""Events to chat completions frames, and the frames that we add: lifecycle, dropped, warning, error, closing.

All that we add is chunk-shaped with an empty delta, because no client honours the SSE event name on a chat stream and
each parses every `data` (clients.md 1); an error is `{"error": ...}`, which every one of them raises or shows.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, assert_never

from ..core.json_text import dumps, is_object, parse
from ..core.lifecycle import State
from ..core.limits import LABEL_CHARS_MAX, NAME_CHARS_MAX, PREVIEW_BYTES_MAX
from ..core.model import (
    AttemptStarted,
    Ended,
    Event,
    Finish,
    ForeignFrame,
    ReasoningDelta,
    RefusalDelta,
    Repaired,
    ResponseStarted,
    Terminator,
    TextDelta,
    ToolArgumentsComplete,
    ToolArgumentsDelta,
    ToolCallDamaged,
    ToolCallStarted,
    ToolNameDelta,
    ToolProgress,
    ToolResultSeen,
    UpstreamError,
    Usage,
)
from ..folds.wire import SIBLING, Call
from ..wire.sse import encode
from .emoji import emoji_of
from .results import preview

__all__ = [
    "CALLS",
    "CHUNK",
    "DONE",
    "PROGRESS_EVENT",
    "WARNING",
    "Envelope",
    "call_said",
    "chunk",
    "error",
    "late",
    "lifecycle_of_call",
    "lifecycle_of_result",
    "payloads",
    "short",
    "warning",
]

#: The finish of an answer that calls tools.
CALLS: Final = "tool_calls"
CHUNK: Final = "chat.completion.chunk"
DONE: Final = b"data: [DONE]\n\n"
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

#: What `warning` says, wherever it stands in a text, and nothing else: no sentence that only begins and ends so. Each
#: part ends where it first can (`?>`) and no name has the sign in it, so a long line is read once.
_CAUSE: Final = f"(?:{'|'.join(sorted((*_OPENINGS.values(), _ENDED)))})"
_NAMES: Final = "[^\r\n⚠]+?"
_BAD: Final = f"(?>the arguments of {_NAMES} are not valid JSON)"
_TORN: Final = f"(?>a part of {_NAMES} could not be read)"
WARNING: Final = re.compile(
    f"⚠ (?:{_CAUSE}: the answer is incomplete\\.|(?:{_CAUSE} mid tool-call: (?>{_NAMES} (?:was|were) cut short)"
    f"(?:, {_BAD})?(?:, {_TORN})?|Malformed tool call: (?:{_BAD}(?:, {_TORN})?|{_TORN}))"
    f"(?:, (?>so {_NAMES} (?:was|were) not run either))?\\. (?:Nothing was|None of these was) executed\\.)"
)


class Envelope:
    """What every chunk of one stream repeats; settled once, by the first frame that says it."""

    __slots__ = ("created", "id", "model")

    def __init__(self, id: str = "", model: str = "", created: int = 0) -> None:  # noqa: A002 - the field's name
        self.id = id
        self.model = model
        self.created = created

    def settled(self, other: "Envelope") -> "Envelope":
        """Itself, which the other one says from now on too."""
        other.id, other.model, other.created = self.id, self.model, self.created
        return self


def chunk(envelope: Envelope, choice: int, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    """The payload of one chunk."""
    return _payload(envelope, [{"index": choice, "delta": delta, "finish_reason": finish}])


def _payload(envelope: Envelope, choices: Sequence[Any], **extra: Any) -> bytes:
    head = {"id": envelope.id, "object": CHUNK, "created": envelope.created, "model": envelope.model}
    return dumps({**head, "choices": choices, **extra})


def payloads(events: Iterable[Event], envelope: Envelope) -> Iterator[bytes]:
    """A whole stream made from events: one payload an event that has a form in this dialect."""
    roles: set[int] = set()
    custom: set[tuple[int, int]] = set()
    for event in events:
        match event:
            case TextDelta() | ReasoningDelta() | RefusalDelta() | ToolCallStarted():
                role = {} if event.choice in roles else {"role": "assistant"}
                roles.add(event.choice)
                if isinstance(event, ToolCallStarted):
                    (custom.add if event.custom else custom.discard)((event.choice, event.call))
                yield chunk(envelope, event.choice, role | _delta(event))
            case ToolNameDelta() | ToolArgumentsDelta():
                entry = {"index": event.call, **_more(event, custom=(event.choice, event.call) in custom)}
                yield chunk(envelope, event.choice, {"tool_calls": [entry]})
            case Finish():
                role = {} if event.choice in roles else {"role": "assistant"}
                roles.add(event.choice)
                yield chunk(envelope, event.choice, role, event.reason)
            case Usage():
                yield _payload(envelope, [], usage=event.counts)
            case Terminator():
                yield b"[DONE]"
            case UpstreamError():
                yield dumps({"error": {"message": event.message, "type": "upstream_error", "code": event.code}})
            case (
                AttemptStarted()
                | ResponseStarted()
                | ToolArgumentsComplete()
                | ToolCallDamaged()
                | ToolResultSeen()
                | ToolProgress()
                | ForeignFrame()
                | Repaired()
                | Ended()
            ):
                pass
            case _:
                assert_never(event)


def _delta(event: TextDelta | ReasoningDelta | RefusalDelta | ToolCallStarted) -> dict[str, Any]:
    match event:
        case TextDelta():
            return {"content": event.text}
        case ReasoningDelta():
            return {"reasoning_content": event.text}
        case RefusalDelta():
            return {"refusal": event.text}
        case ToolCallStarted():
            said = call_said(event.name, "", custom=event.custom)
            return {"tool_calls": [{"index": event.call, "id": event.id, **said}]}
        case _:
            assert_never(event)


def _more(event: ToolNameDelta | ToolArgumentsDelta, *, custom: bool) -> dict[str, Any]:
    match event:
        case ToolNameDelta():
            return {"custom" if custom else "function": {"name": event.name}}
        case ToolArgumentsDelta():
            return {"custom": {"input": event.text}} if custom else {"function": {"arguments": event.text}}
        case _:
            assert_never(event)


def call_said(name: str, text: str, *, custom: bool) -> dict[str, Any]:
    """What a call is and says: a function takes arguments, a custom tool free text."""
    if custom:
        return {"type": "custom", "custom": {"name": name, "input": text}}
    return {"type": "function", "function": {"name": name, "arguments": text}}


def lifecycle_of_call(envelope: Envelope, call: Call, status: str, *, emoji: bool = False) -> bytes:
    """The frame for `running` or `dropped`."""
    picture = emoji_of(call.name) if emoji else ""
    arguments = call.arguments
    label = short(" ".join(arguments[:PREVIEW_BYTES_MAX].split())) if call.custom else _label(arguments)
    fields: dict[str, Any] = {"label": label, "emoji": picture, "input": preview(arguments)}
    if status == "dropped":
        fields["reason"] = call.reason
    return _lifecycle(envelope, call.choice, call.name, call.id, status, fields)


def lifecycle_of_result(envelope: Envelope, event: ToolResultSeen, *, emoji: bool = False) -> bytes:
    """The frame for `completed` or `failed`."""
    picture = emoji_of(event.name) if emoji else ""
    fields: dict[str, Any] = {"emoji": picture, "output": preview(event.output), "duration_ms": event.duration_ms}
    return _lifecycle(envelope, 0, event.name, event.id, "failed" if event.failed else "completed", fields)


def _lifecycle(
    envelope: Envelope, choice: int, tool: str, call_id: str, status: str, fields: Mapping[str, Any]
) -> bytes:
    present = {key: value for key, value in fields.items() if value is not None and value != ""}
    choices: list[dict[str, Any]] = [{"index": choice, "delta": {}, "finish_reason": None}]
    shown = tool[:NAME_CHARS_MAX]
    payload = _payload(envelope, choices, tool=shown, toolCallId=call_id, status=status, **present)
    return encode(payload, event=PROGRESS_EVENT)


def _label(arguments: str) -> str:
    """A short preview of the main argument: the first string in the arguments."""
    value: Any = parse(arguments.encode("utf-8", "replace"))
    texts = [text for text in value.values() if isinstance(text, str)] if is_object(value) else []
    return short(" ".join(texts[0].split())) if texts else ""


def short(label: str) -> str:
    """As much of it as one line of a tool card shows."""
    return label if len(label) <= LABEL_CHARS_MAX else label[: LABEL_CHARS_MAX - 1] + "…"


def warning(code: str, calls: Sequence[Call], *, alone: bool = True) -> str:
    """What happened, which tools it hit, and that none of them ran; nothing at all did if they are `alone`."""
    if not calls:
        return f"⚠ {_OPENINGS.get(code, _ENDED)}: the answer is incomplete."
    bad = [call for call in calls if call.state is State.MALFORMED and not call.damaged]
    torn = [call for call in calls if call.state is State.MALFORMED and call.damaged]
    beside = [call for call in calls if call.reason == SIBLING]
    cut = [call for call in calls if call.state is not State.MALFORMED and call not in beside]
    said: list[str] = []
    if cut:
        said.append(f"{_OPENINGS.get(code, _ENDED)} mid tool-call: {_names(cut)} {_were(cut)} cut short")
    if bad:
        said.append(f"{'' if cut else 'Malformed tool call: '}the arguments of {_names(bad)} are not valid JSON")
    if torn:
        said.append(f"{'' if cut or bad else 'Malformed tool call: '}a part of {_names(torn)} could not be read")
    if beside:
        said.append(f"so {_names(beside)} {_were(beside)} not run either")
    return f"⚠ {', '.join(said)}. {'Nothing' if alone else 'None of these'} was executed."


def _names(calls: Sequence[Call]) -> str:
    """Of an internal tool nobody needs the name: it is the upstream's own housekeeping."""
    return ", ".join("an internal tool" if call.internal else _named(call) or "a tool without a name" for call in calls)


def _named(call: Call) -> str:
    """As much of its name as a card shows, in one line: hygiene finds a warning by its line."""
    return " ".join(call.name[:NAME_CHARS_MAX].splitlines())


def _were(calls: Sequence[Call]) -> str:
    return "was" if len(calls) == 1 else "were"


def late(code: str, calls: Sequence[Call], lost: Sequence[Call]) -> bytes:
    """The frame that ends a stream in which more was said of calls that had been handed over already: whoever runs
    what it was asked to at the end runs nothing, and of others nobody can say so.
    """
    said = f"⚠ Malformed tool call: arguments of {_names(calls)} came behind its finish, as if there were none."
    beside = f" {warning(code, lost, alone=False)}" if lost else ""
    return _error(code, said + beside, [*calls, *lost])


def error(code: str, calls: Sequence[Call], *, alone: bool = True) -> bytes:
    """The frame that ends a stream which must not be taken for whole."""
    return _error(code, warning(code, calls, alone=alone), calls)


def _error(code: str, said: str, calls: Sequence[Call]) -> bytes:
    dropped = [{"id": call.id, "name": _named(call)} for call in calls if (call.id or call.name) and not call.internal]
    kind = "malformed_call" if code == "malformed_call" else "stream_truncated"
    body = {"message": said, "type": kind, "code": code, "dropped_tools": dropped}
    return encode(dumps({"error": body}))
