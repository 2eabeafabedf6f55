"""Compose a chat completions stream from the events of an upstream that speaks another dialect."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..core import model
from ..core.json_text import as_object
from ..core.lifecycle import CUT_FINISHES
from ..core.model import Event
from ..crossing.composing import CHOICE, CROSSED, Composing
from ..crossing.names import WayBack
from ..emission.dialect import Context, Counts, Step
from ..emission.frames import Out
from .chunk import DONE, call_delta, chunk, envelope

__all__ = ["ChatComposer", "counts_of"]

_KEYS: Final[Mapping[type[model.TextPiece], str]] = {model.TextDelta: "content", model.RefusalDelta: "refusal"}


class ChatComposer(Composing):
    """The frames of one answer."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._head = envelope(f"chatcmpl-{context.stream_id}", context.facts.model, context.created)
        self._thought = "reasoning" if context.settings.reasoning == "reasoning" else "reasoning_content"
        #: The places of the calls that the client has seen.
        self._places: dict[int, int] = {}
        #: How many entries of `reasoning_details` it has.
        self._details = 0

    def _opening(self, n: int) -> list[Step]:
        self._head["model"] = self._model
        return [self._step(n, {"role": "assistant", "content": ""})]

    def close(self, n: int, counts: Counts | None, at: int | None) -> list[Step]:  # noqa: ARG002 - no member says when
        usage = _usage(counts)
        steps: list[Step] = []
        if usage and (self._context.facts.usage or not self._context.facts.stream):
            out = Out(n, {**self._head, "choices": [], "usage": usage}, repair=CROSSED)
            steps = [Step(n, (model.Usage(n=n, counts=usage),), out)]
        return [*steps, Step(n, (model.Terminator(n=n),), Out(n, raw=DONE, repair=CROSSED))]

    def fail(self, n: int, error: model.UpstreamError) -> Step:
        failed = {"message": error.message, "type": "upstream_error", "code": error.code}
        return Step(n, (error,), Out(n, {"error": failed}, repair=CROSSED))

    def _step(
        self, n: int, delta: Mapping[str, Any], *events: Event, finish: str | None = None, delivers: bool = False
    ) -> Step:
        return Step(n, events, Out(n, chunk(self._head, 0, delta, finish), repair=CROSSED), delivers, CHOICE)

    def _say(self, n: int, event: model.TextPiece) -> list[Step]:
        key = _KEYS.get(type(event), self._thought)
        return [*self.open(n), self._step(n, {key: event.text}, event, delivers=True)]

    def _prove(self, n: int, event: model.Proof) -> list[Step]:
        """Return a proof in the form in which chat clients return one: an encrypted reasoning detail."""
        super()._prove(n, event)
        sealed = self._sealed(n)
        if not sealed:
            return []
        detail = {"type": "reasoning.encrypted", "data": sealed, "index": self._details}
        self._details += 1
        return [*self.open(n), self._step(n, {"reasoning_details": [detail]}, event, delivers=True)]

    def _begin(self, n: int, event: model.ToolCallStarted, tool: WayBack) -> list[Step]:  # noqa: ARG002 - its name says it
        place = self._places[event.call] = len(self._places)
        delta = call_delta(place, event.id, custom=event.custom, name=event.name, arguments="")
        return [*self.open(n), self._step(n, delta, event, delivers=True)]

    def _argue(self, n: int, event: model.ToolArgumentsDelta) -> list[Step]:
        custom = self._calls[event.call].custom
        delta = call_delta(self._places[event.call], custom=custom, arguments=event.text)
        return [self._step(n, delta, event, delivers=True)]

    def _complete(self, n: int, event: model.ToolArgumentsComplete) -> list[Step]:
        return [Step(n, (event,))]

    def _finish(self, n: int, event: model.Finish) -> list[Step]:
        """Return the finish: clients run calls, or go on, by its word alone."""
        word = event.reason if event.reason in CUT_FINISHES else "tool_calls" if self._places else "stop"
        return [self._step(n, {}, replace(event, reason=word), finish=word, delivers=True)]


# -- usage ------------------------------------------------------------------------------------------------------------


def _usage(counts: Counts | None) -> dict[str, Any]:
    """Return usage as chat counts it, nothing if input or output is unknown."""
    if counts is None or counts.input is None or counts.output is None:
        return {}
    asked = {"cached_tokens": counts.cached, "cache_write_tokens": counts.cache_write}
    asked = {key: count for key, count in asked.items() if count is not None}
    return {
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "total_tokens": counts.input + counts.output,
        **({"prompt_tokens_details": asked} if asked else {}),
        **({} if counts.reasoning is None else {"completion_tokens_details": {"reasoning_tokens": counts.reasoning}}),
    }


def counts_of(usage: Mapping[str, Any]) -> Counts:
    """Return what the usage of a chat upstream counts."""
    asked, answered = as_object(usage.get("prompt_tokens_details")), as_object(usage.get("completion_tokens_details"))

    def first(*given: Any) -> int | None:
        return next((count for count in given if type(count) is int and count >= 0), None)

    return Counts(
        input=first(usage.get("prompt_tokens")),
        output=first(usage.get("completion_tokens")),
        cached=first(asked.get("cached_tokens"), usage.get("prompt_cache_hit_tokens")),
        cache_write=first(asked.get("cache_write_tokens"), asked.get("cache_creation_tokens")),
        reasoning=first(answered.get("reasoning_tokens")),
    )
