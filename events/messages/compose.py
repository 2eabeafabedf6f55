"""Compose a Messages stream from the events of an upstream that speaks another dialect.

One block is open at a time; input travels only in `input_json_delta`, and a thought has exactly one signature, which
carries the proofs of the upstream.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..core import model
from ..core.json_text import dumps
from ..core.model import Event
from ..crossing.composing import CHOICE, Composing, framed
from ..crossing.names import WayBack
from ..emission.dialect import Context, Counts, Step
from .frames import BLOCKS, ERRORS, block_delta, block_frame, message_start

__all__ = ["MessagesComposer"]

_STOP_REASONS: Final[Mapping[str, str]] = {"length": "max_tokens", "content_filter": "refusal"}
#: Other dialects' words for them.
_ERROR_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("429", "rate_limit_exceeded", "slow_down"), "rate_limit_error"),
    **dict.fromkeys(("503", "529", "server_is_overloaded", "overloaded"), "overloaded_error"),
    **dict.fromkeys(("400", "context_length_exceeded", "invalid_prompt"), "invalid_request_error"),
    **dict.fromkeys(("insufficient_quota", "usage_not_included"), "billing_error"),
}
_TEXT: Final[Mapping[str, Any]] = {"type": "text", **BLOCKS["text"]}
_THOUGHT: Final[Mapping[str, Any]] = {"type": "thinking", **BLOCKS["thinking"]}


class MessagesComposer(Composing):
    """The frames of one answer; the writer numbers the blocks."""

    prefix = "toolu_"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: The type of the open block, or none.
        self._block = ""
        #: Arguments that may not be an object, which the input of a block must be, and how they begin.
        self._held: list[str] = []
        self._head = ""
        self._called = self._refused = False

    def _opening(self, n: int) -> list[Step]:
        value = message_start(f"msg_{self._context.stream_id}", self._model)
        value["message"]["usage"] = _usage(Counts())
        return [framed(n, value)]

    def close(self, n: int, counts: Counts | None, at: int | None) -> list[Step]:  # noqa: ARG002 - no member says when
        usage = _usage(counts or Counts())
        otherwise = "tool_use" if self._called else "refusal" if self._refused else "end_turn"
        delta = {"stop_reason": _STOP_REASONS.get(self._reason, otherwise), "stop_sequence": None}
        counted = () if counts is None else (model.Usage(n=n, counts=usage),)
        ended = framed(n, {"type": "message_delta", "delta": delta, "usage": usage}, *counted)
        late = [] if self._block == "tool_use" else self._end(n)  # of what came after the finish
        return [*late, ended, framed(n, {"type": "message_stop"}, model.Terminator(n=n))]

    def fail(self, n: int, error: model.UpstreamError) -> Step:
        type_ = _ERROR_WORDS.get(error.code, error.code)
        failed = {
            "type": type_ if type_ in ERRORS.values() else "api_error",
            "message": error.message,
            "code": error.code,
        }
        return framed(n, {"type": "error", "error": failed}, error)

    def _begin_block(self, n: int, block: Mapping[str, Any]) -> list[Step]:
        steps = [*self.open(n), *self._end(n)]
        if block is not _THOUGHT:
            steps += self._proof_block(n)
        self._block = block["type"]
        return [*steps, framed(n, block_frame("start", content_block=dict(block)))]

    def _proof_block(self, n: int) -> list[Step]:
        """Return a block without a visible thought for the proofs that wait."""
        return [*self._begin_block(n, _THOUGHT), *self._end(n)] if self._proven else []

    def _end(self, n: int, *events: Event) -> list[Step]:
        """End the open block, a thought with its signature: no upstream gets an empty one back."""
        if not self._block:
            return []
        signed = self._block == "thinking"
        steps = [framed(n, block_delta("signature_delta", self._sealed(n)), delivers=True)] if signed else []
        self._block = ""
        return [*steps, framed(n, block_frame("stop"), *events, delivers=True)]

    def _say(self, n: int, event: model.TextPiece) -> list[Step]:
        block, kind = (_THOUGHT, "thinking_delta") if type(event) is model.ReasoningDelta else (_TEXT, "text_delta")
        if isinstance(event, model.RefusalDelta):  # a text, and a stop reason
            self._refused = True
            event = model.TextDelta(n=event.n, choice=0, text=event.text)
        steps = [] if self._block == block["type"] else self._begin_block(n, block)
        return [*steps, framed(n, block_delta(kind, event.text), event, delivers=True)]

    def _begin(self, n: int, event: model.ToolCallStarted, tool: WayBack) -> list[Step]:  # noqa: ARG002 - its name says it
        self._held, self._head = [], ""
        block = {"type": "tool_use", "id": event.id, "name": event.name, "input": dict[str, Any]()}
        *steps, start = self._begin_block(n, block)
        steps.append(start._replace(events=(replace(event, custom=False),), delivers=True))
        if event.custom:  # it takes its text as the one string of an object
            steps.append(self._input(n, event.call, '{"input":"'))
        return steps

    def _input(self, n: int, number: int, text: str) -> Step:
        event = model.ToolArgumentsDelta(n=n, choice=0, call=number, text=text)
        return framed(n, block_delta("input_json_delta", text), event, delivers=True)

    def _argue(self, n: int, event: model.ToolArgumentsDelta) -> list[Step]:
        if self._calls[event.call].custom:
            return [self._input(n, event.call, dumps(event.text).decode()[1:-1])]
        if self._head and not self._held:
            return [self._input(n, event.call, event.text)]
        self._held.append(event.text)
        self._head = (self._head + (event.text if self._head else event.text.lstrip()))[:5]
        if "null".startswith(self._head):
            return []
        odd = () if self._head[0] == "{" else (model.ToolCallDamaged(n=n, choice=0, call=event.call),)
        text, self._held = "".join(self._held), []
        return [Step(n, odd), self._input(n, event.call, text)]

    def _complete(self, n: int, event: model.ToolArgumentsComplete) -> list[Step]:
        steps: list[Step] = []
        if self._calls[event.call].custom:
            steps = [self._input(n, event.call, '"}')]
        elif self._held:
            if self._head == "null":  # some servers' word for no arguments
                self._context.ledger.enter(n, "arguments_null")
                self._held = ["{}"]
            steps = [self._input(n, event.call, "".join(self._held))]
        self._called = True
        return [*steps, *self._end(n, event, model.HandedOver(n=n, choice=0, call=event.call))]

    def _finish(self, n: int, event: model.Finish) -> list[Step]:
        """End what is open but for a call, which a cut leaves open."""
        open_call = self._block == "tool_use"
        steps = [] if open_call else [*self._end(n), *self._proof_block(n)]
        return [*steps, Step(n, (event,), choices=CHOICE)]


def _usage(known: Counts) -> dict[str, Any]:
    """Return usage as Messages counts it: what the cache served and took is not in the input. Unknown counts are 0."""
    read, written = known.cached or 0, known.cache_write or 0
    return {
        "input_tokens": max((known.input or 0) - read - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": known.output or 0,
        **({} if known.reasoning is None else {"output_tokens_details": {"thinking_tokens": known.reasoning}}),
    }
