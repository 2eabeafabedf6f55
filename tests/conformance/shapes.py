"""Answers made by hand (synthetic) in the shapes of upstreams that the corpus lacks. Each answer is its own truth."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from tests.support.chat import DONE, HEAD, call_entry, frame, sse

#: Two, because a usage that is sent twice is added up by some clients.
_USAGE: Final = {"prompt_tokens": 31, "completion_tokens": 17, "total_tokens": 48}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an upstream says, before it is cut into chunks."""

    text: str = ""
    reasoning: str = ""
    #: Id, name and arguments of each.
    calls: Sequence[tuple[str, str, str]] = ()
    #: What a client must hold, also where the upstream gives none.
    finish: str = "stop"
    usage: dict[str, int] | None = None

    @property
    def says(self) -> bool:
        """Return whether it has any content."""
        return bool(self.text or self.reasoning or self.calls)

    @property
    def delta(self) -> dict[str, Any]:
        """Return all content in one delta, without the role."""
        thinking = {"reasoning_content": self.reasoning} if self.reasoning else {}
        calls = {"tool_calls": self.entries} if self.calls else {}
        return {**thinking, "content": self.text or (None if self.calls else ""), **calls}

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Return its calls, each whole."""
        return [call_entry(*call, index) for index, call in enumerate(self.calls)]

    @property
    def counts(self) -> dict[str, Any]:
        """Return the member of a chunk that holds the usage, if it has one."""
        return {"usage": self.usage} if self.usage else {}


_CALLS: Final = [("call_a1", "get_weather", '{"city": "Paris"}'), ("call_b2", "get_time", '{"zone": "CET", "days": 2}')]


def answers() -> Iterator[Answer]:
    """Yield text or none, reasoning or none, up to two calls, with and without usage; and a text cut by the limit."""
    for text, reasoning, calls, usage in product(("", "Hello there"), ("", "Let me see"), range(3), (None, _USAGE)):
        finish = "tool_calls" if calls else "stop"
        yield Answer(text=text, reasoning=reasoning, calls=_CALLS[:calls], finish=finish, usage=usage)
    yield Answer(text="Hello", finish="length", usage=_USAGE)


def _pieces(answer: Answer, reasoning: str = "reasoning_content") -> list[dict[str, Any]]:
    """Return small deltas, the first with the role."""
    half = len(answer.text) // 2
    deltas: list[dict[str, Any]] = [
        {reasoning: piece} for piece in (answer.reasoning[:4], answer.reasoning[4:]) if piece
    ]
    deltas += [{"content": piece} for piece in (answer.text[:half], answer.text[half:]) if piece]
    for index, (call_id, name, arguments) in enumerate(answer.calls):
        deltas.append({"tool_calls": [call_entry(call_id, name, "", index)]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in (arguments[:5], arguments[5:])
        ]
    return [{"role": "assistant", "content": ""}, *deltas]


def _counts_alone(answer: Answer) -> list[bytes]:
    return [sse({**HEAD, "choices": [], **answer.counts})] if answer.usage else []


def streamed(answer: Answer, **named: str) -> list[bytes]:
    """Return the answer as OpenAI sends it."""
    frames = [frame(delta) for delta in _pieces(answer, **named)]
    return [*frames, frame({}, answer.finish), *_counts_alone(answer), DONE]


def whole(answer: Answer, *, role: bool = True, alone: bool = False) -> list[bytes]:
    """Return all in the first chunk, with its finish; `alone` sends the usage in a chunk of its own."""
    first = {"role": "assistant"} if role else {}
    counts = {} if alone else answer.counts
    return [frame({**first, **answer.delta}, answer.finish, **counts), *(_counts_alone(answer) if alone else []), DONE]


def _thinks_then_whole(answer: Answer) -> list[bytes]:
    delta = {**answer.delta, "reasoning_content": ""}
    return [
        *([frame({"role": "assistant", "reasoning_content": answer.reasoning})] if answer.reasoning else []),
        frame({"role": "assistant", **delta}, answer.finish),
        frame({"role": "assistant", "content": ""}, None, **answer.counts),
        DONE,
    ]


def _finish_for_each_call(answer: Answer) -> list[bytes]:
    said = frame({"role": "assistant", **replace(answer, calls=()).delta})
    calls = [frame({"role": "assistant", "tool_calls": [entry]}, answer.finish) for entry in answer.entries]
    return [said, *(calls or [frame({}, answer.finish)]), *_counts_alone(answer), DONE]


def _finish_and_usage_for_each_call(answer: Answer) -> list[bytes]:
    said = frame({"role": "assistant", **replace(answer, calls=()).delta})
    calls = [frame({"tool_calls": [entry]}, answer.finish, **answer.counts) for entry in answer.entries]
    return [said, *(calls or [frame({}, answer.finish, **answer.counts)]), DONE]


def _finish_after_each_call(answer: Answer) -> list[bytes]:
    """Return each call in two pieces, then a chunk that only finishes."""
    frames = [frame({"role": "assistant", **replace(answer, calls=()).delta})]
    for index, (call_id, name, arguments) in enumerate(answer.calls):
        frames.append(frame({"tool_calls": [call_entry(call_id, name, arguments[:5], index)]}))
        frames.append(frame({"tool_calls": [{"index": index, "function": {"arguments": arguments[5:]}}]}))
        frames.append(frame({}, answer.finish))
    return [*frames, frame({}, answer.finish, **answer.counts), DONE]


def _without_finish(answer: Answer) -> list[bytes]:
    return [*(frame(delta) for delta in _pieces(answer)), *_counts_alone(answer), DONE]


def _without_finish_usage_with_last_piece(answer: Answer) -> list[bytes]:
    *deltas, last = _pieces(answer)
    return [*map(frame, deltas), frame(last, **answer.counts), DONE]


def _usage_then_empty(answer: Answer) -> list[bytes]:
    """Return it as LiteLLM does: the usage comes on a chunk that says nothing, and another of those follows."""
    frames = [frame(delta) for delta in _pieces(answer)]
    return [*frames, frame({}, answer.finish), frame({}, **answer.counts), frame({}), DONE]


def _usage_grows(answer: Answer, *, again: bool = False) -> list[bytes]:
    """Return usage on every chunk, each the count so far."""
    deltas: list[tuple[dict[str, Any], str | None]] = [(delta, None) for delta in _pieces(answer)]
    deltas.append(({}, answer.finish))
    frames: list[bytes] = []
    for number, (delta, reason) in enumerate(deltas, 1):
        counts: dict[str, Any] = {}
        if answer.usage:
            so_far = answer.usage["completion_tokens"] * number // len(deltas)
            total = answer.usage["prompt_tokens"] + so_far
            counts = {"usage": {**answer.usage, "completion_tokens": so_far, "total_tokens": total}}
        frames.append(frame(delta, reason, **counts))
    return [*frames, *(_counts_alone(answer) if again else []), DONE]


def _usage_first(answer: Answer) -> list[bytes]:
    """Return the usage on the chunk with the finish, and once more alone."""
    frames = [frame(delta) for delta in _pieces(answer)]
    return [*frames, frame({}, answer.finish, **answer.counts), *_counts_alone(answer), DONE]


def _usage_before_finish(answer: Answer) -> list[bytes]:
    return [*(frame(delta) for delta in _pieces(answer)), *_counts_alone(answer), frame({}, answer.finish), DONE]


def _as_groq(answer: Answer) -> list[bytes]:
    """Return the usage on the last chunk twice, and alone."""
    vendor: dict[str, Any] = {"x_groq": {"id": "req_1", **answer.counts}}
    frames = [frame(delta) for delta in _pieces(answer)]
    return [*frames, frame({}, answer.finish, **answer.counts, **vendor), *_counts_alone(answer), DONE]


def _numeric_logprobs(answer: Answer) -> list[bytes]:
    deltas: list[tuple[dict[str, Any], str | None]] = [(delta, None) for delta in _pieces(answer)]
    choices = [
        {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": -0.25}
        for delta, reason in [*deltas, ({}, answer.finish)]
    ]
    return [*(sse({**HEAD, "choices": [choice]}) for choice in choices), *_counts_alone(answer), DONE]


def _without_role(answer: Answer) -> list[bytes]:
    deltas = [{name: value for name, value in delta.items() if name != "role"} for delta in _pieces(answer)]
    return [*(frame(delta) for delta in deltas), frame({}, answer.finish), *_counts_alone(answer), DONE]


def _sound() -> list[bytes]:
    pieces = [{"id": "audio_1", "data": "AAAA"}, {"transcript": "Hi"}, {"expires_at": 9}]
    return [frame({"role": "assistant", "content": None}), *(frame({"audio": piece}) for piece in pieces)]


def _sound_alone(answer: Answer) -> list[bytes]:
    return [*_sound(), *_counts_alone(answer), DONE]


def _finish_with_last_piece(answer: Answer) -> list[bytes]:
    *deltas, last = _pieces(answer)
    return [*map(frame, deltas), frame(last, answer.finish, **answer.counts), DONE]


SHAPES: Final[dict[str, Callable[[Answer], list[bytes]]]] = {
    "as OpenAI sends it": streamed,
    "whole in the first chunk": whole,
    "whole in the first chunk, without a role": lambda answer: whole(answer, role=False),
    "whole in the first chunk, usage alone": lambda answer: whole(answer, alone=True),
    "reasoning, then whole, then usage": _thinks_then_whole,
    "finish for each call": _finish_for_each_call,
    "finish and usage for each call": _finish_and_usage_for_each_call,
    "finish after each call": _finish_after_each_call,
    "no finish": _without_finish,
    "no finish, usage with the last piece": _without_finish_usage_with_last_piece,
    "usage, then an empty chunk": _usage_then_empty,
    "usage on every chunk": _usage_grows,
    "usage on every chunk and alone": lambda answer: _usage_grows(answer, again=True),
    "usage with the finish and alone": _usage_first,
    "usage before the finish": _usage_before_finish,
    "usage as Groq sends it": _as_groq,
    "logprobs is a number": _numeric_logprobs,
    "no role": _without_role,
    "audio": lambda answer: [*_sound(), *streamed(answer)],
    "audio alone, no finish": _sound_alone,
    "finish with the last piece": _finish_with_last_piece,
    "no terminator": lambda answer: streamed(answer)[:-1],
    "`reasoning`": lambda answer: streamed(answer, reasoning="reasoning"),
    "`reasoning_text`": lambda answer: streamed(answer, reasoning="reasoning_text"),
    "names with an underscore first": lambda answer: streamed(_underscored(answer)),
}


def _underscored(answer: Answer) -> Answer:
    return replace(answer, calls=[(call_id, f"_{name}", arguments) for call_id, name, arguments in answer.calls])


def _fits(shape: str, answer: Answer) -> bool:
    if shape == "audio alone, no finish":
        return not answer.says
    if shape.startswith("no finish"):  # where nothing at all came, an error is due
        return answer.says and answer.finish != "length"
    return True


def made() -> Iterator[tuple[str, Answer, bytes]]:
    """Yield every answer in every shape: a name, the truth and the upstream's bytes."""
    for shape, build in SHAPES.items():
        for number, answer in enumerate(answers()):
            if _fits(shape, answer):
                true = _underscored(answer) if shape == "names with an underscore first" else answer
                yield f"{shape}, answer {number}", true, b"".join(build(answer))
