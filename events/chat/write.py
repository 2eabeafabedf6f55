"""Write chat completions frames: chunks from events, and the frames that we add to a stream.

All that we add is chunk-shaped with an empty delta, because no client honours the SSE event name on a chat stream and
each parses every `data` (clients.md 1); an error is `{"error": ...}`, which every one of them raises or shows.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, assert_never

from ..core.json_text import ABSENT, dumps, is_list, is_object, parse
from ..core.lifecycle import State
from ..core.limits import LABEL_CHARS_MAX, NAME_CHARS_MAX, PREVIEW_BYTES_MAX
from ..core.model import (
    AttemptStarted,
    Ended,
    Event,
    Finish,
    ForeignFrame,
    HandedOver,
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
from ..emission.dialect import Closing, Context, Held, Split, Step
from ..emission.edits import Edit, Styles
from ..emission.emoji import emoji_of
from ..emission.frames import Out
from ..folds.wire import SIBLING, Call, Wire
from .read import says_content
from .results import preview

__all__ = [
    "CALLS",
    "CHUNK",
    "DONE",
    "PROGRESS_EVENT",
    "WARNING",
    "ChatWriter",
    "Envelope",
    "call_said",
    "chunk",
    "error_frame",
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

#: The texts of `warning`, anywhere in a text, and nothing else: no sentence that only begins and ends so. Each
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
    """What every chunk of one stream repeats; settled once, by the first frame that contains it."""

    __slots__ = ("created", "id", "model")

    def __init__(self, id: str = "", model: str = "", created: int = 0) -> None:  # noqa: A002 - the field's name
        self.id = id
        self.model = model
        self.created = created

    def members(self) -> dict[str, Any]:
        """Return the members of a chunk without its choices."""
        return {"id": self.id, "object": CHUNK, "created": self.created, "model": self.model}


def chunk(envelope: Envelope, choice: int, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Return a chunk of one choice."""
    return {**envelope.members(), "choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}


def payloads(events: Iterable[Event], envelope: Envelope) -> Iterator[bytes]:
    """Yield a payload for each event that has a form in this dialect: a whole stream made from events."""
    roles: set[int] = set()
    custom: set[tuple[int, int]] = set()
    for event in events:
        match event:
            case TextDelta() | ReasoningDelta() | RefusalDelta() | ToolCallStarted():
                role = {} if event.choice in roles else {"role": "assistant"}
                roles.add(event.choice)
                if isinstance(event, ToolCallStarted):
                    (custom.add if event.custom else custom.discard)((event.choice, event.call))
                yield dumps(chunk(envelope, event.choice, role | _delta(event)))
            case ToolNameDelta() | ToolArgumentsDelta():
                entry = {"index": event.call, **_more(event, custom=(event.choice, event.call) in custom)}
                yield dumps(chunk(envelope, event.choice, {"tool_calls": [entry]}))
            case Finish():
                role = {} if event.choice in roles else {"role": "assistant"}
                roles.add(event.choice)
                yield dumps(chunk(envelope, event.choice, role, event.reason))
            case Usage():
                yield dumps({**envelope.members(), "choices": [], "usage": event.counts})
            case Terminator():
                yield b"[DONE]"
            case UpstreamError():
                yield dumps({"error": {"message": event.message, "type": "upstream_error", "code": event.code}})
            case (
                AttemptStarted()
                | ResponseStarted()
                | ToolArgumentsComplete()
                | HandedOver()
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
    """Return the type and the members of a call: a function takes arguments, a custom tool free text."""
    if custom:
        return {"type": "custom", "custom": {"name": name, "input": text}}
    return {"type": "function", "function": {"name": name, "arguments": text}}


class ChatWriter:
    """Writes the frames of one emitted stream: those that came, and ours in the stream's own envelope."""

    def __init__(self, context: Context) -> None:
        self._settings = context.settings
        self._asked_for_usage = context.facts.usage
        self._ledger = context.ledger
        self._styles = Styles()
        #: What our chunks repeat until the stream's first frame contains it.
        self._ours = Envelope(f"chatcmpl-{context.stream_id}", context.facts.model, context.created)
        self._roles: set[int] = set()
        self._usage: Out | None = None
        self._texted = False

    # -- frames that came ---------------------------------------------------------------------------------------------

    def write(self, step: Step) -> Out | None:
        """Return the frame of a step; a chunk with nothing but usage waits for the end, where one is enough."""
        out = step.out
        if out is None or out.value is None:
            return out
        self._settle(out.value)
        if step.choices:
            self._roles.update(step.choices)
            self._texted = self._texted or any(choice["delta"].get("content") for choice in out.value["choices"])
        if out.value["choices"]:
            return out
        if not self._asked_for_usage:
            out.withhold("usage_not_asked", self._ledger)
        else:
            if self._usage is not None:
                self._usage.withhold("usage_repeated", self._ledger)
            self._usage = out
        return None

    def _settle(self, value: dict[str, Any]) -> None:
        ours = self._ours
        ours.id, ours.model, ours.created = (
            value.get("id") or ours.id,
            value.get("model") or ours.model,
            value.get("created") or ours.created,
        )

    def split(self, out: Out, live: Wire) -> Split:
        """Divide a chunk: calls of choices without a finish wait, those of choices with a lost call never go out."""
        edits: list[Edit] = []
        waiting: dict[int, dict[str, Any]] = {}
        delivers = False
        for place, choice in enumerate(out.value["choices"]):
            index, delta = choice["index"], choice["delta"]
            state = live.choice(index)
            lost = any(call.state is not State.RUNNING for call in state.calls.values())
            shown = bool(state.finish) and not lost
            calls = {} if shown else {key: delta[key] for key in ("tool_calls", "function_call") if key in delta}
            edits += [Edit("held_call", ("choices", place, "delta"), key, ABSENT) for key in calls]
            delivers |= says_content({key: part for key, part in delta.items() if key not in calls})
            delivers |= bool(choice.get("finish_reason"))
            if calls and not state.finish:
                _join(waiting.setdefault(index, {}), calls)
        first = out.value["choices"][0]
        silent = not delivers and not out.value.get("usage") and "role" not in first["delta"]
        if waiting and silent and len(out.value["choices"]) == 1:
            return Split(None, [Held(first["index"], None, out)], delivers=False)
        later = [
            Held(index, None, Out(out.n, chunk(self._ours, index, calls), repair="held_call"))
            for index, calls in waiting.items()
        ]
        out.edit(edits)
        return Split(out, later, delivers)

    def withhold_finish(self, out: Out, choices: set[int]) -> None:
        """Set the finish of these choices to null."""
        out.edit(
            [
                Edit("malformed_claim", ("choices", place), "finish_reason", None)
                for place, choice in enumerate(out.value["choices"] if choices else ())
                if choice["index"] in choices and choice.get("finish_reason")
            ]
        )

    def encode(self, out: Out) -> bytes:
        """Return the bytes of a frame, in the style of the frames before it."""
        return out.encode(self._styles, self._ledger)

    # -- frames of ours -----------------------------------------------------------------------------------------------

    def call_card(self, n: int, call: Call, status: str) -> Out:
        """Return the frame for `running` or `dropped`."""
        picture = emoji_of(call.name) if self._settings.emoji else ""
        arguments = call.arguments
        label = short(" ".join(arguments[:PREVIEW_BYTES_MAX].split())) if call.custom else _label(arguments)
        fields = {"label": label, "emoji": picture, "input": preview(arguments)}
        if status == "dropped":
            fields["reason"] = call.reason
        return self._card(n, call.choice, call.name, call.id, status, fields)

    def result_card(self, n: int, result: ToolResultSeen) -> Out:
        """Return the frame for `completed` or `failed`."""
        picture = emoji_of(result.name) if self._settings.emoji else ""
        fields = {"emoji": picture, "output": preview(result.output), "duration_ms": result.duration_ms}
        return self._card(n, 0, result.name, result.id, "failed" if result.failed else "completed", fields)

    def _card(self, n: int, choice: int, tool: str, call_id: str, status: str, fields: Mapping[str, Any]) -> Out:
        present = {key: value for key, value in fields.items() if value is not None and value != ""}
        said = {"tool": tool[:NAME_CHARS_MAX], "toolCallId": call_id, "status": status, **present}
        return Out(n, {**chunk(self._ours, choice, {}), **said}, repair="lifecycle", event=PROGRESS_EVENT)

    def warning(self, n: int, code: str, lost: Sequence[Call], *, idle: bool, before: Out | None = None) -> list[Out]:
        """Return a chunk with the warning as text; it takes over the role of the chunk that follows."""
        index = lost[0].choice
        if before is not None:
            moved = [
                place
                for place, choice in enumerate(before.value["choices"])
                if choice["index"] == index and "role" in choice["delta"]
            ]
            before.edit([Edit("role_repeated", ("choices", place, "delta"), "role", ABSENT) for place in moved])
            if moved:
                self._roles.discard(index)
        text = ("\n\n" if self._texted else "") + warning(code, lost, alone=idle)
        return [self._chunk(n, "warning_text", index, {"content": text})]

    def tail(self) -> list[Out]:
        """Return the chunk with the usage, once."""
        usage, self._usage = self._usage, None
        return [] if usage is None else [usage]

    def done(self, n: int) -> Out:
        """Return a `[DONE]`."""
        return Out(n, raw=DONE, repair="done_supplied")

    def close(self, n: int, closing: Closing) -> list[Out]:
        """Return a finish of `length` and a `[DONE]`, or an error frame.

        It is an error in every mode if more came of a call that was handed over: nothing else keeps a client from
        running it.
        """
        if closing.late:
            return [Out(n, _late(closing), repair="error_frame")]
        if closing.on_partial == "warn":
            choices = sorted((closing.choices or {0}) - closing.finished)
            finishes = [self._chunk(n, "warn_finish", index, {}, "length") for index in choices]
            return [*finishes, Out(n, raw=DONE, repair="warn_done")]
        text = warning(closing.code, closing.lost, alone=closing.idle)
        return [Out(n, error_frame(closing.code, text, closing.lost), repair="error_frame")]

    def _chunk(self, n: int, repair: str, index: int, delta: dict[str, Any], finish: str | None = None) -> Out:
        role = {} if index in self._roles else {"role": "assistant"}
        self._roles.add(index)
        return Out(n, chunk(self._ours, index, role | delta, finish), repair=repair)


def _join(waiting: dict[str, Any], calls: dict[str, Any]) -> None:
    """Join the calls of one choice that come in two entries of one chunk (Q27)."""
    for key, part in calls.items():
        waiting[key] = [*waiting[key], *part] if key in waiting and is_list(part) else part


def _label(arguments: str) -> str:
    """Return a short preview of the main argument: the first string in the arguments."""
    value: Any = parse(arguments.encode("utf-8", "replace"))
    texts = [text for text in value.values() if isinstance(text, str)] if is_object(value) else []
    return short(" ".join(texts[0].split())) if texts else ""


def short(label: str) -> str:
    """Return as much of a label as one line of a tool card shows."""
    return label if len(label) <= LABEL_CHARS_MAX else label[: LABEL_CHARS_MAX - 1] + "…"


def warning(code: str, calls: Sequence[Call], *, alone: bool = True) -> str:
    """Return what happened, to which tools, and that none of them ran; with `alone`, that nothing at all ran."""
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
    """Return the names; those of internal tools are the upstream's own business."""
    return ", ".join("an internal tool" if call.internal else _named(call) or "a tool without a name" for call in calls)


def _named(call: Call) -> str:
    """Return as much of a name as a card shows, in one line: history.py finds a warning by its line."""
    return " ".join(call.name[:NAME_CHARS_MAX].splitlines())


def _were(calls: Sequence[Call]) -> str:
    return "was" if len(calls) == 1 else "were"


def _late(closing: Closing) -> dict[str, Any]:
    text = f"⚠ Malformed tool call: arguments of {_names(closing.late)} came behind its finish, as if there were none."
    if closing.lost:
        text += f" {warning(closing.code, closing.lost, alone=False)}"
    return error_frame(closing.code, text, [*closing.late, *closing.lost])


def error_frame(code: str, message: str, calls: Sequence[Call]) -> dict[str, Any]:
    """Return the payload that ends a stream which must not be taken for whole."""
    dropped = [{"id": call.id, "name": _named(call)} for call in calls if (call.id or call.name) and not call.internal]
    kind = "malformed_call" if code == "malformed_call" else "stream_truncated"
    return {"error": {"message": message, "type": kind, "code": code, "dropped_tools": dropped}}
