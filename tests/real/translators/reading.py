"""What a client reads out of the bytes of a stream, and what is wrong with them for a strict one."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.conformance.order import messages_faults, responses_faults

from .streams import Part, Stream


@dataclass(slots=True)
class Answer:
    """An answer as its bytes say it."""

    parts: list[Part] = field(default_factory=list[Part])
    #: Numbers of the calls whose done event came.
    closed: set[int] = field(default_factory=set[int])
    ending: str = "none"
    usage: tuple[int, int] | None = None


def _payloads(body: bytes) -> Iterator[dict[str, Any]]:
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        for line in block.split(b"\n"):
            if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                said = json.loads(line[5:])
                if isinstance(said, dict):
                    yield said


#: The deltas of Responses by the kind of their part.
_DELTAS: Final = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "call",
}
_ITEMS: Final = {"message": "text", "reasoning": "reasoning", "function_call": "call"}


def responses(body: bytes) -> Answer:
    """Read a Responses stream by the item ids and indexes that it gives."""
    answer, places = Answer(), dict[tuple[Any, str], int]()
    for said in _payloads(body):
        kind = str(said.get("type"))
        item: dict[str, Any] = said.get("item") or {}
        if kind == "response.output_item.added" and item.get("type") == "function_call":
            places[said.get("output_index"), "call"] = len(answer.parts)
            answer.parts.append(Part("call", item.get("arguments") or "", item.get("name", "")))
        elif kind == "response.output_item.done" and item.get("type") == "function_call":
            place = places.get((said.get("output_index"), "call"))
            if place is None:
                answer.parts.append(Part("call", "", item.get("name", "")))
                place = len(answer.parts) - 1
            answer.parts[place] = Part("call", item.get("arguments") or "", item.get("name", ""))
            answer.closed.add(place)
        elif kind in _DELTAS:
            where = (said.get("output_index"), _DELTAS[kind])
            if where not in places:
                places[where] = len(answer.parts)
                answer.parts.append(Part(_DELTAS[kind], ""))
            part = answer.parts[places[where]]
            answer.parts[places[where]] = Part(part.kind, part.words + str(said.get("delta")), part.name)
        _end_of_responses(answer, kind, said)
    return answer


def _end_of_responses(answer: Answer, kind: str, said: dict[str, Any]) -> None:
    response: dict[str, Any] = said.get("response") or {}
    if kind == "response.completed":
        called = any(part.kind == "call" for part in answer.parts)
        refused = any(part.kind == "refusal" for part in answer.parts)
        answer.ending = "refusal" if refused else "tool_calls" if called else "stop"
        if response.get("status") != "completed":
            answer.ending = f"completed, status {response.get('status')}"
    elif kind == "response.incomplete":
        details: dict[str, Any] = response.get("incomplete_details") or {}
        reason = str(details.get("reason"))
        answer.ending = {"max_output_tokens": "length"}.get(reason, reason)
    elif kind in ("response.failed", "error") or "error" in said:
        answer.ending = "failed"
    if kind in ("response.completed", "response.incomplete") and (usage := response.get("usage")):
        answer.usage = (usage.get("input_tokens", 0), usage.get("output_tokens", 0))


_BLOCKS: Final = {"text": "text", "thinking": "reasoning", "tool_use": "call"}
_REASONS: Final = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "refusal"}


def messages(body: bytes) -> Answer:
    """Read a Messages stream by the indexes that it gives."""
    answer, places = Answer(), dict[Any, int]()
    usage: dict[str, Any] = {}
    stopped = ""
    for said in _payloads(body):
        match said.get("type"):
            case "message_start":
                usage = said["message"].get("usage") or {}
            case "content_block_start":
                block = said["content_block"]
                places[said["index"]] = len(answer.parts)
                kind = str(_BLOCKS.get(block["type"], block["type"]))
                words = block.get("text") or block.get("thinking") or ""
                answer.parts.append(Part(kind, words, block.get("name", "")))
            case "content_block_delta":
                delta, place = said["delta"], places.get(said["index"])
                words = delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
                if place is not None:
                    part = answer.parts[place]
                    answer.parts[place] = Part(part.kind, part.words + words, part.name)
            case "content_block_stop":
                answer.closed.add(places.get(said["index"], -1))
            case "message_delta":
                reason = str(said["delta"].get("stop_reason"))
                stopped = _REASONS.get(reason, reason)
                usage |= said.get("usage") or {}
            case "message_stop":
                answer.ending = stopped
            case "error":
                answer.ending = "failed"
            case _:
                continue
    if answer.ending not in ("none", "failed"):
        answer.usage = (usage.get("input_tokens", 0), usage.get("output_tokens", 0))
    return answer


READERS: Final = {"responses": responses, "messages": messages}
_ORDERS: Final = {"responses": responses_faults, "messages": messages_faults}

#: What a finish becomes where the dialect has no word for it.
_DUE: Final = {"responses": {}, "messages": {"content_filter": "refusal"}}
#: Of the rules of order that a stream breaks.
_RULES_SHOWN: Final = 2


def faults(dialect: str, stream: Stream, body: bytes) -> Iterator[str]:
    """Yield what is wrong with the bytes that a client got for a stream."""
    answer = READERS[dialect](body)
    due = _DUE[dialect].get(stream.ending, stream.ending)
    if answer.ending != due:
        yield f"ends as **{answer.ending}**, not as {due}"
    calls = [part for number, part in enumerate(answer.parts) if part.kind == "call" and number in answer.closed]
    if stream.ending == "failed":
        if calls:
            yield f"closes half a call: `{calls[0].words}`"
    elif stream.ending != "length":
        yield from _contents(dialect, stream, answer)
    if order := _ORDERS[dialect](body):
        rules = list(dict.fromkeys(each.partition(":")[0] for each in order))
        more = f" and {len(rules) - _RULES_SHOWN} more" if len(rules) > _RULES_SHOWN else ""
        yield f"order ({len(order)}): not so: {', '.join(rules[:_RULES_SHOWN])}{more}"


def _contents(dialect: str, stream: Stream, answer: Answer) -> Iterator[str]:
    due, had = [_plain(dialect, part) for part in stream.parts], [_plain(dialect, part) for part in answer.parts]
    had = [each for each in had if each[1] not in ("", None) or each[0] == "call"]
    if had != due:
        missing = [each for each in due if each not in had]
        said = f"lost {missing[0][0]}" if missing else "order of the parts" if len(had) == len(due) else "parts added"
        yield f"**{said}**"
    usage = (9, 21) if stream.usage else None
    if answer.usage != usage and not (usage is None and answer.usage == (0, 0)):
        yield f"usage {answer.usage}, not {usage}"


def _plain(dialect: str, part: Part) -> tuple[str, Any, str]:
    """Return a part as a client understands it: no byte of arguments is no argument."""
    kind = "text" if dialect == "messages" and part.kind == "refusal" else part.kind
    if part.kind != "call":
        return kind, part.words, part.name
    try:
        return kind, json.dumps(json.loads(part.words or "{}"), sort_keys=True), part.name
    except ValueError:
        return kind, part.words, part.name
