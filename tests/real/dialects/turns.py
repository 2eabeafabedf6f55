"""What a scripted upstream says, and its frames in each dialect, as the vendor's documents show them.

Nothing here uses Wiretape's own writers: what they would get wrong must not be right here.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

_CREATED: Final = 1_700_000_000
_INPUT, _OUTPUT = 9, 21

#: Pieces of a text, of arguments.
_TEXT_SIZE: Final = 9
_ARGUMENTS_SIZE: Final = 7


@dataclass(frozen=True, slots=True)
class Text:
    """Words for the user."""

    words: str


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning before the answer."""

    words: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call as this request offers the tool; `arguments` of a custom tool are its raw input."""

    id: str
    name: str
    arguments: str
    namespace: str = ""
    kind: str = "function"


Part = Text | Thought | Call


class Frame(NamedTuple):
    """One frame, and the cut that comes right after it: `text`, `arguments`, `called`, or none."""

    data: bytes
    place: str = ""


Render = Callable[[str, Sequence[Part]], Iterator[Frame]]


def _pieces(words: str, size: int) -> list[str]:
    return [words[at : at + size] for at in range(0, len(words), size)]


def _middle(pieces: Sequence[str], place: str) -> list[tuple[str, str]]:
    """Return each piece with its place; the middle one is that of a cut."""
    return [(piece, place if number == len(pieces) // 2 else "") for number, piece in enumerate(pieces)]


def _line(payload: Mapping[str, Any], name: str = "") -> bytes:
    said = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {said}\n\n".encode()


# --- chat completions ------------------------------------------------------------------------------------------------


def chat(model: str, parts: Sequence[Part]) -> Iterator[Frame]:
    """Yield a chat completions stream."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": _CREATED, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None, place: str = "") -> Frame:
        return Frame(_line({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}), place)

    yield chunk({"role": "assistant", "content": ""})
    calls = 0
    for part in parts:
        match part:
            case Text(words):
                for piece, place in _middle(_pieces(words, _TEXT_SIZE), "text"):
                    yield chunk({"content": piece}, place=place)
            case Thought(words):
                for piece in _pieces(words, _TEXT_SIZE):
                    yield chunk({"reasoning_content": piece})
            case Call():
                yield from _chat_call(part, calls, chunk)
                calls += 1
    yield chunk({}, "tool_calls" if calls else "stop")
    counts = {"prompt_tokens": _INPUT, "completion_tokens": _OUTPUT, "total_tokens": _INPUT + _OUTPUT}
    yield Frame(_line({**head, "choices": [], "usage": counts}))
    yield Frame(b"data: [DONE]\n\n")


def _chat_call(call: Call, index: int, chunk: Callable[..., Frame]) -> Iterator[Frame]:
    opening = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    yield chunk({"tool_calls": [opening]})
    pieces = _middle(_pieces(call.arguments, _ARGUMENTS_SIZE), "arguments")
    for number, (piece, place) in enumerate(pieces):
        last = number == len(pieces) - 1
        delta = {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
        yield chunk(delta, place="called" if last else place)


def chat_whole(model: str, parts: Sequence[Part]) -> dict[str, Any]:
    """Return the same without a stream."""
    calls = [
        {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
        for each in parts
        if isinstance(each, Call)
    ]
    words = "".join(each.words for each in parts if isinstance(each, Text))
    message: dict[str, Any] = {"role": "assistant", "content": words or None}
    choice = {
        "index": 0,
        "message": message | ({"tool_calls": calls} if calls else {}),
        "finish_reason": "tool_calls" if calls else "stop",
    }
    counts = {"prompt_tokens": _INPUT, "completion_tokens": _OUTPUT, "total_tokens": _INPUT + _OUTPUT}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": _CREATED, "model": model}
    return {**head, "choices": [choice], "usage": counts}


# --- Responses -------------------------------------------------------------------------------------------------------


class _Numbered:
    """Numbers the events of one Responses stream."""

    def __init__(self) -> None:
        self._number = -1

    def frame(self, kind: str, place: str = "", **fields: Any) -> Frame:
        self._number += 1
        return Frame(_line({"type": kind, "sequence_number": self._number, **fields}, kind), place)


def responses(model: str, parts: Sequence[Part]) -> Iterator[Frame]:
    """Yield a Responses stream."""
    say = _Numbered().frame
    output: list[dict[str, Any]] = []
    opened = _response(model, "in_progress", [])
    yield say("response.created", response=opened)
    yield say("response.in_progress", response=opened)
    for index, part in enumerate(parts):
        match part:
            case Text(words):
                yield from _message(words, index, output, say)
            case Thought(words):
                yield from _reasoning(words, index, output, say)
            case Call():
                yield from _responses_call(part, index, output, say)
    yield say("response.completed", response=_response(model, "completed", output))


def responses_whole(model: str, parts: Sequence[Part]) -> dict[str, Any]:
    """Return the same without a stream."""
    return _response(model, "completed", [_item(part, index) for index, part in enumerate(parts)])


def _response(model: str, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    counts = {
        "input_tokens": _INPUT,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": _OUTPUT,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": _INPUT + _OUTPUT,
    }
    return {
        "id": "resp_1", "object": "response", "created_at": _CREATED, "status": status, "background": False,
        "completed_at": _CREATED + 1 if status == "completed" else None, "error": None, "incomplete_details": None,
        "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "model": model, "output": output,
        "parallel_tool_calls": True, "previous_response_id": None, "prompt_cache_key": None, "reasoning": None,
        "safety_identifier": None, "service_tier": "default", "store": False, "temperature": 1.0,
        "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "truncation": "disabled", "metadata": {},
        "usage": counts if status == "completed" else None,
    }  # fmt: skip


def _item(part: Part, index: int) -> dict[str, Any]:
    """Return a finished item."""
    match part:
        case Text(words):
            none: list[Any] = []
            content = [{"type": "output_text", "text": words, "annotations": none, "logprobs": none}]
            return {
                "id": f"msg_{index}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        case Thought(words):
            summary = [{"type": "summary_text", "text": words}]
            return {"id": f"rs_{index}", "type": "reasoning", "summary": summary}
        case Call():
            return _call_item(part, index)


def _call_item(call: Call, index: int) -> dict[str, Any]:
    done = {"status": "completed", "call_id": call.id}
    if call.kind == "tool_search":
        searched = {"execution": "client", "arguments": json.loads(call.arguments)}
        return {"id": f"tsc_{index}", "type": "tool_search_call", **done, **searched}
    space = {"namespace": call.namespace} if call.namespace else {}
    if call.kind == "custom":
        kind = {"id": f"ctc_{index}", "type": "custom_tool_call", "input": call.arguments}
    else:
        kind = {"id": f"fc_{index}", "type": "function_call", "arguments": call.arguments}
    return {**kind, **done, "name": call.name, **space}


def _message(words: str, index: int, output: list[dict[str, Any]], say: Callable[..., Frame]) -> Iterator[Frame]:
    item = _item(Text(words), index)
    part = item["content"][0]
    where = {"item_id": item["id"], "output_index": index, "content_index": 0}
    started: dict[str, Any] = item | {"status": "in_progress", "content": []}
    yield say("response.output_item.added", output_index=index, item=started)
    yield say("response.content_part.added", part=part | {"text": ""}, **where)
    for piece, place in _middle(_pieces(words, _TEXT_SIZE), "text"):
        yield say("response.output_text.delta", place, delta=piece, logprobs=[], **where)
    yield say("response.output_text.done", text=words, logprobs=[], **where)
    yield say("response.content_part.done", part=part, **where)
    output.append(item)
    yield say("response.output_item.done", output_index=index, item=item)


def _reasoning(words: str, index: int, output: list[dict[str, Any]], say: Callable[..., Frame]) -> Iterator[Frame]:
    item = _item(Thought(words), index)
    where = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    part = item["summary"][0]
    yield say("response.output_item.added", output_index=index, item=item | {"summary": []})
    yield say("response.reasoning_summary_part.added", part=part | {"text": ""}, **where)
    for piece in _pieces(words, _TEXT_SIZE):
        yield say("response.reasoning_summary_text.delta", delta=piece, **where)
    yield say("response.reasoning_summary_text.done", text=words, **where)
    yield say("response.reasoning_summary_part.done", part=part, **where)
    output.append(item)
    yield say("response.output_item.done", output_index=index, item=item)


#: By the kind of a call: the member that holds what it is called with, and the name of its events.
_INPUTS: Final = {
    "function": ("arguments", "response.function_call_arguments"),
    "custom": ("input", "response.custom_tool_call_input"),
}


def _responses_call(call: Call, index: int, output: list[dict[str, Any]], say: Callable[..., Frame]) -> Iterator[Frame]:
    item = _item(call, index)
    output.append(item)
    if call.kind == "tool_search":
        yield say("response.output_item.added", output_index=index, item=item | {"status": "in_progress"})
    else:
        member, event = _INPUTS[call.kind]
        where = {"item_id": item["id"], "output_index": index}
        started = item | {"status": "in_progress", member: ""}
        yield say("response.output_item.added", output_index=index, item=started)
        for piece, place in _middle(_pieces(call.arguments, _ARGUMENTS_SIZE), "arguments"):
            yield say(f"{event}.delta", place, delta=piece, **where)
        yield say(f"{event}.done", **{member: call.arguments}, **where)
    yield say("response.output_item.done", "called", output_index=index, item=item)


# --- Messages --------------------------------------------------------------------------------------------------------


def messages(model: str, parts: Sequence[Part]) -> Iterator[Frame]:
    """Yield a Messages stream."""

    def say(kind: str, place: str = "", **fields: Any) -> Frame:
        return Frame(_line({"type": kind, **fields}, kind), place)

    opened = _answer(model, [], None) | {"usage": {"input_tokens": _INPUT, "output_tokens": 1}}
    yield say("message_start", message=opened)
    yield say("ping")
    for index, part in enumerate(parts):
        opening, deltas = _block(part)
        yield say("content_block_start", index=index, content_block=opening)
        for delta, place in deltas:
            yield say("content_block_delta", place, index=index, delta=delta)
        yield say("content_block_stop", "called" if isinstance(part, Call) else "", index=index)
    reason = "tool_use" if any(isinstance(part, Call) for part in parts) else "end_turn"
    end = {"stop_reason": reason, "stop_sequence": None}
    yield say("message_delta", delta=end, usage={"output_tokens": _OUTPUT})
    yield say("message_stop")


def _block(part: Part) -> tuple[dict[str, Any], list[tuple[dict[str, Any], str]]]:
    """Return the start of a block, and its deltas with their places."""
    match part:
        case Text(words):
            pieces = _middle(_pieces(words, _TEXT_SIZE), "text")
            return {"type": "text", "text": ""}, [({"type": "text_delta", "text": each}, at) for each, at in pieces]
        case Thought(words):
            thoughts = [{"type": "thinking_delta", "thinking": each} for each in _pieces(words, _TEXT_SIZE)]
            deltas = [*thoughts, {"type": "signature_delta", "signature": "c2lnbmVk"}]
            return {"type": "thinking", "thinking": "", "signature": ""}, [(each, "") for each in deltas]
        case Call(id_, name, arguments):
            pieces = _middle(_pieces(arguments, _ARGUMENTS_SIZE), "arguments")
            opening = {"type": "tool_use", "id": id_, "name": name, "input": dict[str, Any]()}
            return opening, [({"type": "input_json_delta", "partial_json": each}, at) for each, at in pieces]


def messages_whole(model: str, parts: Sequence[Part]) -> dict[str, Any]:
    """Return the same without a stream."""
    content: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case Text(words):
                content.append({"type": "text", "text": words})
            case Thought(words):
                content.append({"type": "thinking", "thinking": words, "signature": "c2lnbmVk"})
            case Call(id_, name, arguments):
                content.append({"type": "tool_use", "id": id_, "name": name, "input": json.loads(arguments)})
    reason = "tool_use" if any(isinstance(part, Call) for part in parts) else "end_turn"
    return _answer(model, content, reason)


def _answer(model: str, content: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
    counts = {"input_tokens": _INPUT, "output_tokens": _OUTPUT}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": model}
    return {**head, "content": content, "stop_reason": reason, "stop_sequence": None, "usage": counts}


# --- the three -------------------------------------------------------------------------------------------------------


class Speech(NamedTuple):
    """How one dialect is spoken."""

    path: bytes
    stream: Render
    whole: Callable[[str, Sequence[Part]], dict[str, Any]]
    #: The frame of an error inside a stream.
    error: bytes


_WHY: Final = "The model has stopped in the middle of its answer"

SPEECHES: Final[Mapping[str, Speech]] = {
    "chat": Speech(
        b"/chat/completions", chat, chat_whole, _line({"error": {"message": _WHY, "type": "api_error", "code": None}})
    ),
    "responses": Speech(
        b"/responses",
        responses,
        responses_whole,
        _line(
            {
                "type": "response.failed",
                "sequence_number": 999,
                "response": _response("fake", "failed", []) | {"error": {"code": "server_error", "message": _WHY}},
            },
            "response.failed",
        ),
    ),
    "messages": Speech(
        b"/messages",
        messages,
        messages_whole,
        _line({"type": "error", "error": {"type": "api_error", "message": _WHY}}, "error"),
    ),
}
