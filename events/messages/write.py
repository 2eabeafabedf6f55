"""Write Messages frames: those that came, numbered in the order of sending, and the frames that we add to a stream.

Lifecycle frames are pings with more members: every reader ignores a `ping`, and @ai-sdk/anthropic makes an error part
of any type that it does not know (dialects-next.md 1). An error is the event `error`, which every SDK raises.
"""

from collections.abc import Sequence
from typing import Any, Final

from ..core.json_text import as_object
from ..core.lifecycle import State
from ..emission.dialect import NO_CALL, Context, Held, Split, Step, Writer
from ..emission.frames import Edit, Out, Styles
from ..emission.words import PROGRESS_EVENT, failure, warning
from ..folds.wire import Call
from .frames import block_delta, block_frame, message_start, ours

__all__ = ["MessagesWriter"]

_KEEPALIVE: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
_START: Final = "content_block_start"
_STOP: Final = "content_block_stop"
_BLOCK_FRAMES: Final = frozenset({_START, "content_block_delta", _STOP})


class MessagesWriter(Writer):
    """Writes the frames of one emitted stream."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._styles = Styles()
        #: The client has `message_start`, or it is on its way.
        self._started = False
        #: The type of the block that the client has open; one that is held does not count.
        self._open = ""
        #: The number of the block that was sent last.
        self._index = -1
        #: The `message_delta` that ends the message: calls and warnings come before it, and it may be a false claim.
        self._end: Out | None = None
        #: A block began after it, so that it was not the end.
        self._early = False
        self._delivers = False
        #: A call is held, and with it every frame that follows.
        self._holding = False
        #: The call whose start the client has while its stop is held.
        self._first_held = NO_CALL
        #: The call that the frames of the present block are about.
        self._call = NO_CALL

    def write(self, step: Step) -> Out | None:
        """Return the frame of a step; the end of the message waits for its terminator."""
        out = step.out
        if out is None or not step.choices:
            return out
        self._started = True
        self._delivers = step.delivers
        value = out.value
        if value["type"] == _START:
            self._begin_block(value["content_block"])
        elif value["type"] == _STOP and not self._holding:
            call = self._context.live.choice(0).calls.get(self._call)
            if call is None or call.state is not State.MALFORMED:  # whose stop is withheld
                self._open = ""
        elif value["type"] == "message_delta" and value["delta"].get("stop_reason") is not None:
            if self._early:
                self._withhold_end()
            out, self._end, self._early = self._end, out, False
        return out

    def _begin_block(self, block: dict[str, Any]) -> None:
        self._early = self._end is not None
        self._call = NO_CALL
        if block["type"] == "tool_use":
            calls = reversed(self._context.live.choice(0).calls.values())
            self._call = next((call.number for call in calls if call.id == block["id"]), NO_CALL)
            self._holding = self._holding or self._context.settings.on_partial == "warn"
        if not self._holding:
            self._open = block["type"]

    def split(self, out: Out) -> Split:
        """Hold a call from its last frame on (from its first with `warn`), and then everything in its place."""
        kind, call = out.value["type"], self._call
        if kind == _STOP and call != NO_CALL and not self._holding:
            self._holding = self._context.live.choice(0).calls[call].state is not State.ANNOUNCED  # it was not cut
            self._first_held, self._open = (call, "tool_use") if self._holding else (NO_CALL, "")
        if not self._holding:
            return Split(out, (), self._delivers)
        call = call if kind in _BLOCK_FRAMES else NO_CALL
        return Split(None, [Held(0, call, out, closes=kind == _STOP and call != NO_CALL)], delivers=False)

    def encode(self, out: Out) -> bytes:
        """Return the bytes of a frame; blocks are numbered here, because held ones may never be sent."""
        value = out.value
        if value is not None and value["type"] in _BLOCK_FRAMES:
            self._index += value["type"] == _START
            index = value.get("index")
            if index != self._index or type(index) is not int:
                if out.payload is None:
                    out.value = {**value, "index": self._index}
                else:
                    out.edit([Edit("block_index", (), "index", self._index)])
        return out.encode(self._styles, self._context.ledger)

    def withhold_finish(self, out: Out, choices: set[int]) -> None:
        """Leave the frame alone: only a chunk of chat can make this claim."""

    def card(self, n: int, choice: int, said: dict[str, Any]) -> Out:  # noqa: ARG002 - there is one choice
        return Out(n, {"type": "ping", **said}, repair="lifecycle", event=PROGRESS_EVENT)

    def warning(self, n: int, code: str, lost: Sequence[Call]) -> list[Out]:
        """Return a text block of its own, or nothing while a call is open: its stop would make clients run it."""
        closed = self._closed(n)
        if self._open:
            return []
        text = block_delta("text_delta", warning(code, lost, self._context.facts))
        block = block_frame("start", content_block={"type": "text", "text": ""}), text, block_frame("stop")
        return [*closed, *(ours(n, value, "warning_text") for value in block)]

    def _closed(self, n: int) -> list[Out]:
        """Return the stop of a block of the answer that is open, unless it is a call."""
        call = self._context.live.choice(0).calls.get(self._first_held)
        if self._open == "tool_use" and (call is None or call.state is not State.RUNNING):
            return []
        stops = bool(self._open) and call is None
        self._open = ""
        return [ours(n, block_frame("stop"), "block_stop_supplied")] if stops else []

    def keepalive(self, n: int) -> Out:
        return Out(n, raw=_KEEPALIVE)

    def tail(self) -> list[Out]:
        """Return the end of the message, once; after an error it would be a false claim."""
        if self._context.live.error is not None:
            self._withhold_end()
        end, self._end = self._end, None
        return [] if end is None else [end]

    def _withhold_end(self) -> None:
        """Withhold a claim that the message is over, as it is not, or not whole."""
        if self._end is not None:
            self._end.withhold("malformed_claim", self._context.ledger)
            self._end = None

    def close(self, n: int, code: str, lost: Sequence[Call], finished: set[int]) -> list[Out]:  # noqa: ARG002 - one choice
        """Return an end by `max_tokens`, or an error event.

        It is an error in every mode if more came of a call that was handed over.
        """
        self._withhold_end()
        live, facts = self._context.live, self._context.facts
        if self._context.settings.on_partial == "warn" and not live.late_calls:
            outs: list[Out] = []
            if not self._started:
                start = message_start(f"msg_{self._context.stream_id}", facts.model)
                outs.append(ours(n, start, "message_start_supplied"))
            output = as_object(live.usage).get("output_tokens")  # SDKs demand a number
            counts = {"output_tokens": output if type(output) is int else 0}
            delta = {"stop_reason": "max_tokens", "stop_sequence": None}
            ends = {"type": "message_delta", "delta": delta, "usage": counts}
            done = ours(n, {"type": "message_stop"}, "warn_done")
            return [*outs, *self._closed(n), ours(n, ends, "warn_finish"), done]
        error = {"type": "api_error", **failure(code, lost, live.late_calls, facts)}
        return [ours(n, {"type": "error", "error": error}, "error_frame")]
