"""What a strict client of each dialect understands of a stream, by a small reader that fails on any wrong order."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Answer", "read"]

_ENDINGS: Final = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}


@dataclass
class Answer:
    """An answer, as far as the client trusts it."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    #: Id, name and arguments of each call that the client runs.
    calls: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    #: `stop`, `tool_calls`, `length`, `content_filter`, `error`, or empty if nothing ended it.
    ending: str = ""
    #: Kinds of text and ids of calls, as they began.
    order: list[str] = field(default_factory=list[str])
    usage: dict[str, Any] | None = None
    #: Everything that carries proofs.
    sealed: list[str] = field(default_factory=list[str])
    #: (id, status) of lifecycle frames.
    cards: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    error: dict[str, Any] = field(default_factory=dict[str, Any])

    def say(self, kind: str, text: str) -> None:
        """Add a piece of text."""
        setattr(self, kind, getattr(self, kind) + text)
        if text and self.order[-1:] != [kind]:
            self.order.append(kind)


def frames(stream: bytes) -> list[tuple[str, Any]]:
    """Return the event and the payload of each frame; `[DONE]` is a text."""
    found: list[tuple[str, Any]] = []
    for block in stream.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            fields = dict(line.split(": ", 1) for line in lines)
            data = fields["data"]
            found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found


def read(dialect: str, stream: bytes) -> Answer:
    """Return what a client of this dialect understands."""
    return {"chat": _chat, "responses": _responses, "messages": _messages}[dialect](frames(stream))


def _card(answer: Answer, event: str, value: Any) -> bool:
    if event == "hermes.tool.progress":
        answer.cards.append((value["toolCallId"], value["status"]))
    return event == "hermes.tool.progress"


# -- chat -------------------------------------------------------------------------------------------------------------


def _chat(stream: list[tuple[str, Any]]) -> Answer:
    answer, calls, done, begun = Answer(), list[list[str]](), False, False
    for event, value in stream:
        assert not done, "nothing follows [DONE]"
        assert not answer.error, "nothing follows an error"
        if value == "[DONE]":
            done = True
            continue
        if "error" in value:
            answer.error = value["error"]
            continue
        assert value["object"] == "chat.completion.chunk"
        answer.usage = value.get("usage") or answer.usage
        if _card(answer, event, value):
            continue
        for choice in value["choices"]:
            delta = choice["delta"]
            assert begun or delta.get("role") == "assistant", "the role comes first"
            begun = True
            _chat_delta(answer, calls, delta)
            if choice["finish_reason"]:
                assert not answer.ending, "one finish"
                answer.ending = choice["finish_reason"]
    if answer.error or not done:
        answer.ending = "error" if answer.error else ""
    if answer.ending == "tool_calls":
        answer.calls = [(call[0], call[1], call[2]) for call in calls]
    run = {call[0] for call in answer.calls}
    unrun = {call[0] for call in calls} - run
    answer.order = [kind for kind in answer.order if kind not in unrun]
    return answer


def _chat_delta(answer: Answer, calls: list[list[str]], delta: dict[str, Any]) -> None:
    for key, kind in (("reasoning_content", "reasoning"), ("content", "text"), ("refusal", "refusal")):
        answer.say(kind, delta.get(key) or "")
    for entry in delta.get("reasoning_details") or ():
        answer.sealed.append(entry["data"])
    for entry in delta.get("tool_calls") or ():
        member = entry.get("function") or entry["custom"]
        if entry["index"] == len(calls):
            assert entry["id"], "a call begins with its id"
            assert member["name"], "and its name"
            calls.append([entry["id"], member["name"], ""])
            answer.order.append(entry["id"])
        assert entry["index"] < len(calls), "indexes are dense"
        calls[entry["index"]][2] += member.get("arguments", member.get("input", ""))


# -- Responses --------------------------------------------------------------------------------------------------------


def _responses(stream: list[tuple[str, Any]]) -> Answer:
    answer, reader = Answer(), _Items()
    for number, (event, value) in enumerate(stream):
        kind = value["type"]
        assert value["sequence_number"] == number, "frames are numbered from 0"
        assert not answer.ending, "nothing follows the end"
        if _card(answer, event, value):
            assert kind == "keepalive"
            continue
        assert event == kind
        if number == 0:
            assert kind == "response.created", "the first frame opens the response"
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            _responses_end(answer, reader, value["response"], kind.rpartition(".")[2])
        elif "response" in value:
            assert number < 2, "it opens once"
        elif kind != "keepalive":
            reader.take(answer, kind, value)
    return answer


def _responses_end(answer: Answer, reader: "_Items", response: dict[str, Any], status: str) -> None:
    assert response["status"] == status
    assert response["output"] == reader.done, "the output is what was sent"
    answer.usage = response["usage"]
    if status == "failed":
        answer.error, answer.ending = response["error"], "error"
    elif status == "incomplete":
        answer.ending = _ENDINGS[response["incomplete_details"]["reason"]]
    else:
        assert not reader.item, "every item has ended"
        answer.ending = "tool_calls" if answer.calls else "stop"


class _Items:
    """One open item at a time, and in it one open part."""

    def __init__(self) -> None:
        self.count = 0
        self.item: dict[str, Any] = {}
        self.part: dict[str, Any] = {}
        self.parts = 0
        self.text = ""
        self.done: list[dict[str, Any]] = []

    def take(self, answer: Answer, kind: str, value: dict[str, Any]) -> None:
        name = kind.removeprefix("response.")
        if name == "output_item.added":
            assert not self.item, "one item at a time"
            assert value["output_index"] == self.count, "items are numbered densely"
            self.item, self.parts, self.text = value["item"], 0, ""
            assert self.item["id"] not in [item["id"] for item in self.done]
            self.count += 1
            return
        assert self.item, f"{name} is of an item"
        assert value["output_index"] == self.count - 1
        if name == "output_item.done":
            self.end(answer, value["item"])
            return
        assert value["item_id"] == self.item["id"]
        what, _, when = name.rpartition(".")
        if what in ("content_part", "reasoning_summary_part"):
            index = value["content_index" if what == "content_part" else "summary_index"]
            assert index == self.parts, "parts are numbered densely"
            if when == "added":
                assert not self.part, "one part at a time"
                self.part, self.text = value["part"], ""
            else:
                assert value["part"].get("text", value["part"].get("refusal")) == self.text
                self.part, self.parts = {}, self.parts + 1
            return
        of = {"output_text": "text", "refusal": "refusal", "reasoning_summary_text": "reasoning"}.get(what, "")
        if when == "delta":
            assert bool(of) == bool(self.part)
            self.text += value["delta"]
            if of:
                answer.say(of, value["delta"])
            return
        whole = value.get("text", value.get("refusal", value.get("arguments", value.get("input"))))
        assert whole == self.text, "a done says what the deltas said"

    def end(self, answer: Answer, item: dict[str, Any]) -> None:
        assert not self.part, "every part has ended"
        begun, kind = self.item, item["type"]
        assert (begun["id"], begun["type"], begun.get("call_id")) == (item["id"], kind, item.get("call_id"))
        prefixes = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_"}
        assert item["id"].startswith(prefixes.get(kind, "tsc_"))
        if kind == "reasoning":
            answer.sealed += [item["encrypted_content"]] if "encrypted_content" in item else []
        elif kind != "message":
            said = item.get("arguments", item.get("input"))
            name = ".".join(filter(None, (item.get("namespace"), item.get("name", kind))))
            answer.calls.append((item["call_id"], name, said if isinstance(said, str) else json.dumps(said)))
            answer.order.append(item["call_id"])
        self.item = {}
        self.done.append(item)


# -- Messages ---------------------------------------------------------------------------------------------------------


def _messages(stream: list[tuple[str, Any]]) -> Answer:
    answer, reader = Answer(), _Blocks()
    for event, value in stream:
        kind = value["type"]
        assert not reader.stopped, "nothing follows message_stop"
        assert not answer.error, "nothing follows an error"
        if _card(answer, event, value):
            assert kind == "ping"
            continue
        assert event == kind
        if kind == "error":
            answer.error, answer.ending = value["error"], "error"
        elif kind != "ping":
            reader.take(answer, kind, value)
    if not (reader.stopped or answer.error):
        answer.ending = ""
    return answer


class _Blocks:
    """One open block at a time."""

    def __init__(self) -> None:
        self.started = self.stopped = False
        self.index = -1
        self.block: dict[str, Any] = {}
        self.input = ""
        self.signed = False

    def take(self, answer: Answer, kind: str, value: dict[str, Any]) -> None:
        assert self.started is (kind != "message_start"), "message_start comes first, once"
        self.started = True
        if kind == "message_start":
            assert value["message"]["content"] == []
            assert {"input_tokens", "output_tokens"} <= value["message"]["usage"].keys()
        elif kind == "message_delta":
            assert not self.block or self.block["type"] == "tool_use", "every block but a cut call has ended"
            answer.usage, answer.ending = value["usage"], _ENDINGS[value["delta"]["stop_reason"]]
        elif kind == "message_stop":
            assert answer.ending, "message_delta comes before"
            self.stopped = True
        elif kind == "content_block_start":
            assert not self.block, "one block at a time"
            assert value["index"] == self.index + 1, "blocks are numbered densely"
            self.index, self.block, self.input, self.signed = value["index"], value["content_block"], "", False
            said = [self.block.get(member) for member in ("input", "text", "thinking")]
            assert not any(said), "what a block says comes in deltas"
        else:
            assert self.block, "a delta is of a block"
            assert value["index"] == self.index
            if kind == "content_block_stop":
                self.end(answer)
            else:
                self.delta(answer, value["delta"])

    def delta(self, answer: Answer, delta: dict[str, Any]) -> None:
        of = {"text_delta": "text", "input_json_delta": "tool_use"}.get(delta["type"], "thinking")
        assert self.block["type"] == of, "a delta fits its block"
        match delta["type"]:
            case "text_delta":
                answer.say("text", delta["text"])
            case "thinking_delta":
                assert not self.signed, "the signature comes last"
                answer.say("reasoning", delta["thinking"])
            case "signature_delta":
                assert not self.signed, "one signature"
                self.signed = True
                answer.sealed += [delta["signature"]] if delta["signature"] else []
            case _:
                self.input += delta["partial_json"]

    def end(self, answer: Answer) -> None:
        if self.block["type"] == "tool_use" and _is_json(self.input or "{}"):  # no client runs another one
            answer.calls.append((self.block["id"], self.block["name"], self.input or "{}"))
            answer.order.append(self.block["id"])
        assert self.signed is (self.block["type"] == "thinking"), "a thought is signed"
        self.block = {}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
