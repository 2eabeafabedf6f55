"""Compose a Responses stream from the events of an upstream that speaks another dialect.

One item is open at a time, each with its parts and their ends, in the order that the strictest reader wants
(openai-node 7). Ids are made from the stream's own; the client's request is echoed in every response object.
"""

from collections.abc import Mapping
from io import StringIO
from types import MappingProxyType
from typing import Any, Final

from ..core import model
from ..core.json_text import as_object, joined_surrogates, parse
from ..core.lifecycle import CUT_FINISHES
from ..core.limits import COMPOSED_CHARS_MAX
from ..core.model import Event
from ..crossing.composing import CHOICE, CROSSED, Composing, Known
from ..emission.dialect import Context, Counts, Step
from ..emission.frames import Out
from .frames import ADDED, DONE, PARTS, PREFIXES, RESPONSE_DEFAULTS, frame_value, named, response_object

__all__ = ["ResponsesComposer"]

#: A finish that cuts the answer, and its reason in `incomplete_details`.
_INCOMPLETE: Final = MappingProxyType({"length": "max_output_tokens", "content_filter": "content_filter"})
#: The kinds of text: the part, the events about its text, and the member of the `done` event with the whole text.
_TEXTS: Final[Mapping[type[model.TextPiece], tuple[str, str, str]]] = MappingProxyType(
    {
        model.TextDelta: ("output_text", "response.output_text", "text"),
        model.RefusalDelta: ("refusal", "response.refusal", "refusal"),
        model.ReasoningDelta: ("summary_text", "response.reasoning_summary_text", "text"),
    }
)
#: Calls: the events about their arguments, and the member that holds these.
_CALLS: Final = MappingProxyType(
    {
        "function_call": ("response.function_call_arguments", "arguments"),
        "custom_tool_call": ("response.custom_tool_call_input", "input"),
        "tool_search_call": ("", "arguments"),
    }
)


class ResponsesComposer(Composing):
    """The frames of one answer."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._echo = as_object(context.crossing.get("echo"))
        #: The items whose end was sent.
        self._output: list[dict[str, Any]] = []
        self._items = 0
        #: The open item, the kind of text of its open part, and what has been said in that.
        self._item: dict[str, Any] = {}
        self._kind: type[model.TextPiece] | None = None
        self._text = StringIO()
        self._chars_left = COMPOSED_CHARS_MAX
        #: What the frames of the open part repeat.
        self._place: dict[str, Any] = {}

    def _opening(self, n: int) -> list[Step]:
        frames = ("response.created", "response.in_progress")
        return [_step(n, type_, response=self._response("in_progress")) for type_ in frames]

    def close(self, n: int, counts: Counts | None, at: int | None) -> list[Step]:
        reason = _INCOMPLETE.get(self._reason)
        status = "incomplete" if reason else "completed"
        usage = _usage(counts or Counts())
        members = {"incomplete_details": {"reason": reason} if reason else None, "usage": usage, "completed_at": at}
        counted = () if counts is None else (model.Usage(n=n, counts=usage),)
        steps = self._close_item(n)  # of what came after the finish
        response = self._response(status, **members)
        return [*steps, _step(n, f"response.{status}", *counted, model.Terminator(n=n), response=response)]

    def fail(self, n: int, error: model.UpstreamError) -> Step:
        failed = {"code": error.code or "upstream_error", "message": error.message}
        return _step(n, "response.failed", error, response=self._response("failed", error=failed))

    def _response(self, status: str, **members: Any) -> dict[str, Any]:
        """Return the response object as it is known so far."""
        known = {"status": status, "output": [*self._output], **members}
        made = response_object(f"resp_{self._context.stream_id}", self._context.created, self._model, **known)
        return {**made, **{key: echoed for key, echoed in self._echo.items() if key in RESPONSE_DEFAULTS}}

    # -- items --------------------------------------------------------------------------------------------------------

    def _add_item(self, n: int, type_: str, **members: Any) -> list[Step]:
        steps = [*self.open(n), *self._close_item(n)]
        if type_ != "reasoning":
            steps += self._proof_item(n)
        self._item = {"id": f"{PREFIXES.get(type_, 'tsc')}_{self._context.stream_id}_{self._items}", "type": type_}
        self._item |= members
        self._place = {"item_id": self._item["id"], "output_index": self._items}
        self._text = StringIO()
        self._items += 1
        return [*steps, _step(n, ADDED, output_index=self._items - 1, item=dict(self._item))]

    def _end_item(self, n: int, *events: Event, **members: Any) -> Step:
        """End the open item with these members."""
        done = {**self._item, **members}
        self._output.append(done)
        self._item, self._kind = {}, None
        return _step(n, DONE, *events, delivers=True, output_index=self._place["output_index"], item=done)

    def _close_item(self, n: int, status: str = "completed") -> list[Step]:
        """End the open message or thought; a call ends by its own event, or never."""
        if self._kind is None:
            return []
        steps = self._close_part(n, self._kind)
        thought = self._item["type"] == "reasoning"
        return [*steps, self._end_item(n, **(self._proof(n) if thought else {"status": status}))]

    def _proof(self, n: int) -> dict[str, str]:
        sealed = self._sealed(n)
        return {"encrypted_content": sealed} if sealed else {}

    def _proof_item(self, n: int) -> list[Step]:
        """Return an item without a visible thought for the proofs that wait."""
        if not self._proven:
            return []
        return [*self._add_item(n, "reasoning", summary=[]), self._end_item(n, **self._proof(n))]

    # -- text, refusals and thoughts ----------------------------------------------------------------------------------

    def _say(self, n: int, event: model.TextPiece) -> list[Step]:
        kind = type(event)
        steps = [] if kind is self._kind else self._begin_part(n, kind)
        return [*steps, self._delta(n, event, _TEXTS[kind][1], event.text)]

    def _begin_part(self, n: int, kind: type[model.TextPiece]) -> list[Step]:
        part, parts = _TEXTS[kind][0], "summary" if kind is model.ReasoningDelta else "content"
        if self._kind is not None and parts == "content" and self._item["type"] == "message":
            steps = self._close_part(n, self._kind)
        elif parts == "summary":
            steps = self._add_item(n, "reasoning", summary=[])
        else:
            steps = self._add_item(n, "message", status="in_progress", role="assistant", content=[])
        self._kind, self._text = kind, StringIO()
        self._place[f"{parts}_index"] = len(self._item[parts])
        steps.append(_step(n, f"{PARTS[parts]}.added", **self._place, part=_part(kind, "")))
        if part == "output_text":
            self._place["logprobs"] = list[Any]()
        return steps

    def _close_part(self, n: int, kind: type[model.TextPiece]) -> list[Step]:
        text, parts = joined_surrogates(self._text.getvalue()), "summary" if "summary" in self._item else "content"
        said: dict[str, Any] = {**self._place, _TEXTS[kind][2]: text}
        self._place.pop("logprobs", None)
        self._item = {**self._item, parts: [*self._item[parts], _part(kind, text)]}
        done = _step(n, f"{_TEXTS[kind][1]}.done", **said)
        return [done, _step(n, f"{PARTS[parts]}.done", **self._place, part=_part(kind, text))]

    def _delta(self, n: int, event: Event, prefix: str, text: str) -> Step:
        self.repeated(text)
        return Step(n, (event,), _frame(n, prefix + ".delta", **self._place, delta=text), True, CHOICE)

    @property
    def room(self) -> int:
        return self._chars_left

    def repeated(self, text: str) -> None:
        self._text.write(text)
        self._chars_left -= len(text)
        self._context.live.overflow |= self._chars_left < 0

    # -- calls --------------------------------------------------------------------------------------------------------

    def _begin(self, n: int, known: Known, event: model.ToolCallStarted) -> list[Step]:
        tool, members = known.tool, {"status": "in_progress", "call_id": known.id}
        named_ = {"name": tool.name, **({"namespace": tool.namespace} if tool.namespace else {})}
        if known.custom:
            steps = self._add_item(n, "custom_tool_call", **members, **named_, input="")
        elif tool.kind == "tool_search":
            steps = self._add_item(n, "tool_search_call", **members, execution="client", arguments={})
        else:
            steps = self._add_item(n, "function_call", **members, **named_, arguments="")
        return [*steps[:-1], steps[-1]._replace(events=(event,), delivers=True)]

    def _argue(self, n: int, event: model.ToolArgumentsDelta) -> list[Step]:
        prefix = _CALLS[self._item["type"]][0]
        if prefix:
            return [self._delta(n, event, prefix, event.text)]
        self.repeated(event.text)
        return [Step(n, (event,))]

    def _complete(self, n: int, event: model.ToolArgumentsComplete) -> list[Step]:
        prefix, member = _CALLS[self._item["type"]]
        text = joined_surrogates(self._text.getvalue())
        ended: dict[str, Any] = {member: text if prefix else as_object(parse(text.encode()))}
        steps: list[Step] = []
        if prefix:
            name = {"name": self._item["name"]} if member == "arguments" else {}
            steps.append(_step(n, prefix + ".done", **self._place, **name, **ended))
        handed = model.HandedOver(n=n, choice=0, call=event.call)
        return [*steps, self._end_item(n, event, handed, status="completed", **ended)]

    def _finish(self, n: int, event: model.Finish) -> list[Step]:
        """End what is open but for a call, which a cut leaves open."""
        steps = self._close_item(n, "incomplete" if event.reason in CUT_FINISHES else "completed")
        if not self._item:
            steps += self._proof_item(n)
        return [*steps, Step(n, (event,), choices=CHOICE)]


def _frame(n: int, type_: str, **members: Any) -> Out:
    """Return a frame; the writer numbers it."""
    return named(n, frame_value(type_, **members), CROSSED)


def _step(n: int, type_: str, *events: Event, delivers: bool = False, **members: Any) -> Step:
    return Step(n, events, _frame(n, type_, **members), delivers, CHOICE)


def _part(kind: type[model.TextPiece], text: str) -> dict[str, Any]:
    part, _, member = _TEXTS[kind]
    more: dict[str, Any] = {"annotations": [], "logprobs": []} if part == "output_text" else {}
    return {"type": part, member: text, **more}


def _usage(known: Counts) -> dict[str, Any]:
    """Return usage as Responses counts it. Unknown counts are 0: without usage, opencode asks again without end."""
    asked, answered = known.input or 0, known.output or 0
    return {
        "input_tokens": asked,
        "input_tokens_details": {
            "cached_tokens": known.cached or 0,
            "cache_write_tokens": known.cache_write or 0,
        },
        "output_tokens": answered,
        "output_tokens_details": {"reasoning_tokens": known.reasoning or 0},
        "total_tokens": asked + answered,
    }
