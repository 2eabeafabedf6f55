"""The strictest reader of a Messages stream: one block open at a time, dense indexes, usage in both places."""

import json
from typing import Any

from wiretape.events.wire.sse import Decoder

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_CUT = ("max_tokens", "model_context_window_exceeded", "refusal")


class Client:
    """Takes every frame at its word and raises at what it does not expect."""

    def __init__(self, stream: bytes) -> None:
        #: The type of each block, and its text or input.
        self.blocks: list[tuple[str, str]] = []
        self.cards: list[dict[str, Any]] = []
        #: Indexes of blocks that were closed.
        self.closed: list[int] = []
        self.reason = ""
        self.error: dict[str, Any] | None = None
        self.ended = False
        self._started = False
        self._open = False
        decoder = Decoder()
        for frame in [*decoder.feed(stream), *decoder.close()]:
            assert frame.payload is not None
            value = json.loads(frame.payload)
            own = frame.event == b"hermes.tool.progress" and value["type"] == "ping"
            assert own or frame.event == value["type"].encode()
            assert not self.ended, "nothing follows the end"
            if own:
                self.cards.append(value)
            else:
                self._read(value)
        assert decoder.rest == b""

    def _read(self, value: dict[str, Any]) -> None:
        kind = value["type"]
        if kind == "ping":
            return
        if kind == "error":
            assert isinstance(value["error"]["message"], str)
            self.error, self.ended = value["error"], True
            return
        assert self._started == (kind != "message_start")
        match kind:
            case "message_start":
                self._started = True
                message = value["message"]
                assert message["id"]
                assert message["content"] == []
                assert type(message["usage"]["input_tokens"]) is type(message["usage"]["output_tokens"]) is int
            case "content_block_start":
                assert not self._open, "one block at a time"
                assert value["index"] == len(self.blocks)
                self.blocks.append((value["content_block"]["type"], ""))
                self._open = True
            case "content_block_delta":
                assert self._open
                assert value["index"] == len(self.blocks) - 1
                member = _TEXTS.get(value["delta"]["type"], "")
                block, text = self.blocks[-1]
                self.blocks[-1] = block, text + value["delta"].get(member, "")
            case "content_block_stop":
                assert self._open
                assert value["index"] == len(self.blocks) - 1
                self.closed.append(value["index"])
                self._open = False
            case "message_delta":
                assert type(value["usage"]["output_tokens"]) is int
                self.reason = value["delta"].get("stop_reason") or self.reason
            case _:
                assert kind == "message_stop"
                assert self.reason
                cut_call = self.reason in _CUT and bool(self.blocks) and self.blocks[-1][0] == "tool_use"
                assert cut_call or not self._open
                self.ended = True

    @property
    def text(self) -> str:
        return "".join(text for kind, text in self.blocks if kind == "text")

    @property
    def runs(self) -> list[str]:
        """The inputs that a client would run its tools with: Claude Code does so at the stop of the block."""
        inputs = [self.blocks[index][1] or "{}" for index in self.closed if self.blocks[index][0] == "tool_use"]
        return [given for given in inputs if _parses(given)]


def _parses(given: str) -> bool:
    try:
        json.loads(given)
    except ValueError:
        return False
    return True
