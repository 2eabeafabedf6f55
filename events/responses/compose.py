"""Compose a Responses stream from the events of an upstream that speaks another dialect.

One item is open at a time, each with its parts and their ends, in the order that the strictest reader wants
(openai-node 7). Ids are made from the stream's own; the client's request is echoed in every response object.
"""

from collections.abc import Mapping
from typing import Any, Final

from ..core import model
from ..core.json_text import as_object, joined_surrogates, parse
from ..core.lifecycle import CUT_FINISHES
from ..core.limits import COMPOSED_CHARS_MAX
from ..core.model import Event
from ..crossing.composing import CHOICE, Composing, framed
from ..crossing.names import WayBack
from ..emission.dialect import Context, Counts, Step
from .frames import ADDED, DONE, OF_PART, PREFIXES, TEXTS, Item, Kind, Level, frame_value, response_object

__all__ = ["ResponsesComposer"]

#: A finish that cuts the answer, and its reason in `incomplete_details`.
_INCOMPLETE: Final[Mapping[str, str]] = {"length": "max_output_tokens", "content_filter": "content_filter"}
_KINDS: Final[Mapping[type[model.TextPiece], Kind]] = {
    model.TextDelta: OF_PART["output_text"],
    model.RefusalDelta: OF_PART["refusal"],
    model.ReasoningDelta: OF_PART["summary_text"],
}


class ResponsesComposer(Composing):
    """The frames of one answer."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._echo = as_object(context.crossing.get("echo"))
        #: The items whose end was sent.
        self._output: list[dict[str, Any]] = []
        self._items = 0
        self._item: Item | None = None
        #: The arguments of a tool search, which are sent with the end of its item.
        self._search: list[str] = []
        self._chars_left = COMPOSED_CHARS_MAX

    def _opening(self, n: int) -> list[Step]:
        frames = ("response.created", "response.in_progress")
        return [framed(n, frame_value(type_, response=self._response("in_progress"))) for type_ in frames]

    def close(self, n: int, counts: Counts | None, at: int | None) -> list[Step]:
        reason = _INCOMPLETE.get(self._reason)
        status = "incomplete" if reason else "completed"
        usage = _usage(counts or Counts())
        members = {"incomplete_details": {"reason": reason} if reason else None, "usage": usage, "completed_at": at}
        counted = () if counts is None else (model.Usage(n=n, counts=usage),)
        steps = self._close_item(n)  # of what came after the finish
        value = frame_value(f"response.{status}", response=self._response(status, **members))
        return [*steps, framed(n, value, *counted, model.Terminator(n=n))]

    def fail(self, n: int, error: model.UpstreamError) -> Step:
        failed = {"code": error.code or "upstream_error", "message": error.message}
        return framed(n, frame_value("response.failed", response=self._response("failed", error=failed)), error)

    def _response(self, status: str, **members: Any) -> dict[str, Any]:
        """Return the response object as it is known so far."""
        known = {"status": status, "output": [*self._output], **members}
        made = response_object(f"resp_{self._context.stream_id}", self._context.created, self._model, **known)
        return {**made, **{key: echoed for key, echoed in self._echo.items() if key in made}}

    def _add_item(self, n: int, type_: str, **members: Any) -> list[Step]:
        steps = [*self.open(n), *self._close_item(n)]
        if type_ != "reasoning":
            steps += self._proof_item(n)
        value = {"id": f"{PREFIXES[type_]}_{self._context.stream_id}_{self._items}", "type": type_, **members}
        self._item = Item(self._items, value)
        self._items += 1
        return [*steps, framed(n, frame_value(ADDED, output_index=self._item.place, item=value))]

    def _end_item(self, n: int, item: Item, *events: Event, **members: Any) -> Step:
        """End the open item with these members."""
        done = {**item.whole("completed"), **members}
        self._output.append(done)
        self._item = None
        return framed(n, frame_value(DONE, output_index=item.place, item=done), *events, delivers=True)

    def _close_item(self, n: int, status: str = "completed") -> list[Step]:
        """End the open message or thought; a call ends by its own event, or never."""
        item = self._item
        if item is None or item.type not in TEXTS:
            return []
        members = {"status": status}
        if item.type == "reasoning":
            members = {"encrypted_content": sealed} if (sealed := self._sealed(n)) else {}
        return [*(framed(n, value) for value in item.closing_part()), self._end_item(n, item, **members)]

    def _proof_item(self, n: int) -> list[Step]:
        """Return an item without a visible thought for the proofs that wait."""
        return [*self._add_item(n, "reasoning", summary=[]), *self._close_item(n)] if self._proven else []

    def _say(self, n: int, event: model.TextPiece) -> list[Step]:
        kind, item, steps = _KINDS[type(event)], self._item, list[Step]()
        if item is None or item.type != kind.item:
            begun = {"status": "in_progress", "role": "assistant", "content": list[Any]()}
            steps = self._add_item(n, kind.item, **({"summary": []} if kind.item == "reasoning" else begun))
            item = self._item
            assert item is not None, "it was added"
        elif item.part is not None and item.part.kind is not kind:
            steps = [framed(n, value) for value in item.closing_part()]
            item.part = None
        if item.part is None:
            part = {"type": kind.part, **({"logprobs": list[Any]()} if kind.part == "output_text" else {})}
            opening = item.frames(kind, part)[Level.OPENED]
            item.take(opening)
            steps.append(framed(n, opening))
        return [*steps, self._delta(n, item, event)]

    def _delta(self, n: int, item: Item, event: model.TextPiece | model.ToolArgumentsDelta) -> Step:
        part = item.part
        assert part is not None, "a text is inside its part"
        self.repeated(event.text)
        value = item.frames(part.kind, {part.kind.member: event.text}, part.index)[Level.PIECE]
        return framed(n, value, event, delivers=True)

    @property
    def room(self) -> int:
        return self._chars_left

    def repeated(self, text: str) -> None:
        assert self._item is not None, "a text repeats in an open item"
        pieces = self._search if self._item.part is None else self._item.part.pieces
        pieces.append(text)
        self._chars_left -= len(text)
        self._context.live.overflow |= self._chars_left < 0

    def _begin(self, n: int, event: model.ToolCallStarted, tool: WayBack) -> list[Step]:
        members = {"status": "in_progress", "call_id": event.id}
        named_ = {"name": event.name, **({"namespace": tool.namespace} if tool.namespace else {})}
        self._search = []
        if event.custom:
            *steps, added = self._add_item(n, "custom_tool_call", **members, **named_, input="")
        elif tool.kind == "tool_search":
            *steps, added = self._add_item(n, "tool_search_call", **members, execution="client", arguments={})
        else:
            *steps, added = self._add_item(n, "function_call", **members, **named_, arguments="")
        return [*steps, added._replace(events=(event,), delivers=True)]

    def _argue(self, n: int, event: model.ToolArgumentsDelta) -> list[Step]:
        assert self._item is not None, "arguments are of an open call"
        if self._item.part is not None:
            return [self._delta(n, self._item, event)]
        self.repeated(event.text)
        return [Step(n, (event,))]

    def _complete(self, n: int, event: model.ToolArgumentsComplete) -> list[Step]:
        item, ended = self._item, dict[str, Any]()
        assert item is not None, "a call that ends is open"
        name = {"name": item.value["name"]} if item.type == "function_call" else {}
        steps = [framed(n, {**value, **name}) for value in item.closing_part()]
        if item.part is None:
            text = joined_surrogates("".join(self._search))
            ended = {"arguments": as_object(parse(text.encode("utf-8", "replace")))}
        handed = model.HandedOver(n=n, choice=0, call=event.call)
        return [*steps, self._end_item(n, item, event, handed, **ended)]

    def _finish(self, n: int, event: model.Finish) -> list[Step]:
        """End what is open but for a call, which a cut leaves open."""
        steps = self._close_item(n, "incomplete" if event.reason in CUT_FINISHES else "completed")
        if self._item is None:
            steps += self._proof_item(n)
        return [*steps, Step(n, (event,), choices=CHOICE)]


def _usage(known: Counts) -> dict[str, Any]:
    """Return usage as Responses counts it. Unknown counts are 0: without usage, opencode asks again without end."""
    asked, answered = known.input or 0, known.output or 0
    return {
        "input_tokens": asked,
        "input_tokens_details": {"cached_tokens": known.cached or 0, "cache_write_tokens": known.cache_write or 0},
        "output_tokens": answered,
        "output_tokens_details": {"reasoning_tokens": known.reasoning or 0},
        "total_tokens": asked + answered,
    }
