"""A whole message to the frames of a stream that says the same, and back as the official SDKs accumulate it."""

from collections.abc import Iterable, Iterator
from typing import Any

from ..core.json_text import ABSENT, as_list, as_object, as_text, dumps, is_list, is_object, parse
from .frames import DELTAS, INPUT_BLOCKS, block_delta, block_frame

__all__ = ["frames_of", "whole"]

#: Members of a message that SDKs take from `message_delta` alone.
_STOPS = ("stop_reason", "stop_sequence", "stop_details")
_ENDS = (*_STOPS, "container")
#: What a `message_delta` does not say of its message.
_OF_FRAME = ("type", "delta", "usage")


def frames_of(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the payloads of a stream that makes this message; counts that it lacks are left to the reader."""
    ends = {key: message[key] for key in _ENDS if key in message}
    begun = {key: member for key, member in message.items() if key not in _ENDS}
    yield {"type": "message_start", "message": {**begun, "content": [], "stop_reason": None, "stop_sequence": None}}
    for index, block in enumerate(map(as_object, as_list(message.get("content")))):
        yield from _of_block(index, block)
    frame: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": None, "stop_sequence": None, **ends}}
    output = as_object(message.get("usage")).get("output_tokens")
    yield frame if output is None else {**frame, "usage": {"output_tokens": output}}
    yield {"type": "message_stop"}


def _of_block(index: int, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = as_text(block.get("type"))
    emptied, deltas = dict(block), list[dict[str, Any]]()
    for delta, (of, member) in DELTAS.items():
        if of == kind and member and isinstance(text := block.get(member), str):
            emptied[member] = ""
            deltas += [block_delta(delta, text, index)] if text else []
    if kind == "text" and is_list(citations := block.get("citations")):
        emptied["citations"] = list[Any]()
        for citation in citations:
            deltas.append(block_frame("delta", index, delta={"type": "citations_delta", "citation": citation}))
    if kind in INPUT_BLOCKS and (given := block.get("input")):
        emptied["input"] = dict[str, Any]()
        text = given if isinstance(given, str) else dumps(given).decode()
        deltas.append(block_delta("input_json_delta", text, index))
    yield block_frame("start", index, content_block=emptied)
    yield from deltas
    yield block_frame("stop", index)


def whole(values: Iterable[Any]) -> dict[str, Any]:
    """Return the message that canonical frames make, without a call that was cut; other frames are left out."""
    message: dict[str, Any] = {}
    content: list[dict[str, Any]] = []
    given: list[str] = []
    cut = False
    for value in map(as_object, values):
        match value.get("type"):
            case "message_start":
                message = {**value["message"], "content": content}
            case "content_block_start":
                content.append(dict(value["content_block"]))
                given, cut = [], content[-1]["type"] == "tool_use"
                if content[-1]["type"] == "fallback":  # it names the model that goes on
                    message["model"] = as_object(content[-1].get("to")).get("model", message.get("model"))
            case "content_block_delta":
                _add(content[-1], value["delta"], given)
            case "content_block_stop":
                text = "".join(given).strip().encode("utf-8", "replace")
                read = parse(text) if text else content[-1].get("input", ABSENT)
                cut = cut and read is ABSENT
                if content[-1]["type"] in INPUT_BLOCKS and read is not ABSENT:
                    content[-1]["input"] = read
            case "message_delta":
                _end(message, value)
            case "message_stop" if cut:  # only the last call can be
                del content[-1]
            case _:
                pass
    return message


def _add(block: dict[str, Any], delta: dict[str, Any], given: list[str]) -> None:
    match delta["type"]:
        case "input_json_delta":
            given.append(delta["partial_json"])
        case "citations_delta":
            block["citations"] = [*as_list(block.get("citations")), delta["citation"]]
        case "signature_delta":  # one, the last
            block["signature"] = delta["signature"]
        case "compaction_delta":
            block |= {key: member for key, member in delta.items() if key != "type"}
        case kind:
            member = DELTAS[kind].member
            block[member] = block.get(member, "") + delta[member]


def _end(message: dict[str, Any], value: dict[str, Any]) -> None:
    """Add a `message_delta`: its counts are totals and replace those before, but null says nothing."""
    others = {**value["delta"], **{key: member for key, member in value.items() if key not in _OF_FRAME}}
    message |= {key: member for key, member in others.items() if member is not None or key in _STOPS}
    if is_object(usage := value.get("usage")):
        counts = {key: count for key, count in usage.items() if count is not None}
        message["usage"] = {**as_object(message.get("usage")), **counts}
