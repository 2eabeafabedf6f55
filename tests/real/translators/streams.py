"""The scripted chat completions streams, each with what a client of another dialect must get from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wiretape.replay.playback.script import Fault, Script, Step

_GAP_S: Final = 0.004
_LAST_GAP_S: Final = 0.08
_USAGE: Final = {"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30}

_DONE: Final = b"data: [DONE]\n\n"
_ERROR: Final = {"error": {"message": "The model has stopped", "type": "server_error", "param": None, "code": None}}

TEXT: Final = "Rain 🌧 until nine, then sun."
_PARIS: Final = '{"city":"Paris","days":3}'
_LYON: Final = '{"city":"Lyon","days":1}'


@dataclass(frozen=True, slots=True)
class Part:
    """One thing in an answer: `text`, `reasoning`, `refusal` or `call`."""

    kind: str
    #: The words, or the arguments of a call.
    words: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One scripted stream."""

    name: str
    says: str
    #: Deltas of choice 0, in order; bytes as they are.
    deltas: Sequence[Mapping[str, Any]]
    #: The last chunk's finish; none for a stream that is cut.
    finish: str = ""
    #: The bytes after the finish.
    tail: Sequence[bytes] = (_DONE,)
    fault: Fault | None = None
    usage: bool = True
    #: What the answer holds.
    parts: Sequence[Part]
    #: `stop`, `tool_calls`, `length`, `content_filter` or `failed`.
    ending: str

    def script(self, model: str) -> Script:
        """Return the response."""
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model}

        def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
            return b"data: %b\n\n" % json.dumps({**head, "choices": choices, **more}, ensure_ascii=False).encode()

        def delta(said: Mapping[str, Any], finish: str | None) -> bytes:
            return chunk([{"index": 0, "delta": said, "finish_reason": finish}])

        pieces = [delta({"role": "assistant", "content": ""}, None), *(delta(said, None) for said in self.deltas)]
        if self.finish:
            pieces.append(delta({}, self.finish))
            pieces += [chunk([], usage=_USAGE)] * self.usage
        pieces += self.tail
        steps = [Step(_GAP_S, piece) for piece in pieces]
        return Script(steps=[*steps, *([Step(_LAST_GAP_S, self.fault)] if self.fault else [])])


def _text(words: str, member: str = "content") -> list[dict[str, Any]]:
    return [{member: words[at : at + 7]} for at in range(0, len(words), 7)]


def _open(index: int, name: str = "get_weather", first: str = "") -> dict[str, Any]:
    function = {"name": name, "arguments": first}
    return {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]}


def _more(index: int, arguments: str) -> list[dict[str, Any]]:
    pieces = [arguments[at : at + 6] for at in range(0, len(arguments), 6)]
    return [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces]


def _called(index: int, arguments: str) -> list[dict[str, Any]]:
    return [_open(index), *_more(index, arguments)]


def _call(arguments: str, name: str = "get_weather") -> Part:
    return Part("call", arguments, name)


def _interleaved() -> list[dict[str, Any]]:
    pairs = zip(_more(0, _PARIS), _more(1, _LYON.ljust(len(_PARIS))), strict=True)
    return [_open(0), _open(1), *(each for pair in pairs for each in pair)]


_HALF: Final = _called(0, _PARIS)[:3]
_TEXT_PART: Final = Part("text", TEXT)

STREAMS: Final = (
    Stream(name="text", says="text", deltas=_text(TEXT), finish="stop", parts=[_TEXT_PART], ending="stop"),
    Stream(
        name="call", says="a call", deltas=_called(0, _PARIS), finish="tool_calls", parts=[_call(_PARIS)],
        ending="tool_calls",
    ),
    Stream(
        name="eof-text", says="an orderly end in the text", deltas=_text(TEXT)[:2], tail=(), parts=[], ending="failed"
    ),
    Stream(
        name="eof-arguments", says="an orderly end in the arguments", deltas=_HALF, tail=(), parts=[], ending="failed"
    ),
    Stream(
        name="done-arguments", says="`[DONE]` in the arguments, no finish", deltas=_HALF, parts=[], ending="failed"
    ),
    Stream(
        name="reset-arguments", says="a reset in the arguments", deltas=_HALF, tail=(), fault=Fault.RESET, parts=[],
        ending="failed",
    ),
    Stream(
        name="error", says="an error frame in the arguments", deltas=_HALF, parts=[], ending="failed",
        tail=(b"data: %b\n\n" % json.dumps(_ERROR).encode(),),
    ),
    Stream(name="length", says="`length` in a call", deltas=_HALF, finish="length", parts=[], ending="length"),
    Stream(
        name="two", says="two calls", deltas=[*_called(0, _PARIS), *_called(1, _LYON)], finish="tool_calls",
        parts=[_call(_PARIS), _call(_LYON)], ending="tool_calls",
    ),
    Stream(
        name="interleaved", says="two calls, interleaved", deltas=_interleaved(), finish="tool_calls",
        parts=[_call(_PARIS), _call(_LYON)], ending="tool_calls",
    ),
    Stream(
        name="reasoning", says="reasoning, text, a call", finish="tool_calls", ending="tool_calls",
        deltas=[*_text("Rain? Look it up.", "reasoning_content"), *_text(TEXT), *_called(0, _PARIS)],
        parts=[Part("reasoning", "Rain? Look it up."), _TEXT_PART, _call(_PARIS)],
    ),
    Stream(
        name="text-after", says="text after a call", deltas=[*_called(0, _PARIS), *_text(TEXT)], finish="tool_calls",
        parts=[_call(_PARIS), _TEXT_PART], ending="tool_calls",
    ),
    Stream(
        name="no-arguments", says="a call with `{}`", deltas=[_open(0, first="{}")], finish="tool_calls",
        parts=[_call("{}")], ending="tool_calls",
    ),
    Stream(
        name="zero-bytes", says="a call with no byte of arguments", deltas=[_open(0)], finish="tool_calls",
        parts=[_call("{}")], ending="tool_calls",
    ),
    Stream(
        name="stop-call", says="finish `stop` with a call", deltas=_called(0, _PARIS), finish="stop",
        parts=[_call(_PARIS)], ending="tool_calls",
    ),
    Stream(
        name="filter", says="`content_filter`", deltas=_text(TEXT)[:2], finish="content_filter",
        parts=[Part("text", TEXT[:14])], ending="content_filter",
    ),
    Stream(
        name="refusal", says="a refusal", deltas=_text("I will not say that.", "refusal"), finish="stop",
        parts=[Part("refusal", "I will not say that.")], ending="refusal",
    ),
    Stream(
        name="no-usage", says="no usage", deltas=_text(TEXT), finish="stop", usage=False, parts=[_TEXT_PART],
        ending="stop",
    ),
)  # fmt: skip
