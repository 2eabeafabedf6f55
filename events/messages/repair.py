"""Read one attempt of a Messages stream: upstream frames to canonical frames, their events, and named repairs.

`Q121` is a row of the dialect catalogue. A frame that needs no repair passes as the bytes that came. Canonical means:
an `event:` line, `message_start` first, blocks one after the other with all their text and input in deltas, a stop for
each, then `message_delta` and `message_stop`. The writer numbers the blocks. It never raises on upstream data.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..core import limits
from ..core.json_text import ABSENT, as_object, as_text, is_list, is_object, parse, values_at_most
from ..core.lifecycle import CUT_FINISHES
from ..core.model import Event, Finish, ForeignFrame, ResponseStarted, Terminator, UpstreamError, Usage
from ..emission.dialect import Context, Step
from ..emission.frames import Edit, Out
from ..folds.wire import counts_tokens
from ..tape.record import Record
from ..wire.sse import BOM, Frame, parse_block
from . import frames
from .blocks import Blocks, foreign
from .frames import STOP_REASONS, ours
from .whole import frames_of

__all__ = ["Repair"]

#: A block of nothing but comments and fields that dispatch nothing.
_SILENT_BLOCK: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:(?::|(?:event|id|retry)(?=[:\r\n]))[^\r\n]*+[\r\n]++|[\r\n]++)*+"
)
#: How a line of a stream may begin; `rest` that begins otherwise never was one (Q93, Q96).
_LINE_OF_STREAM: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?:data|event|id|retry|)(?::|\Z)")
_DONE: Final = b"[DONE]"
_LAST: Final = ("message_stop", "error")


class Repair:
    """The reader of one attempt."""

    #: No text is kept.
    room = limits.SKIPPED_BYTES_MAX

    def __init__(self, context: Context) -> None:
        self._context = context
        self._blocks = Blocks(context)
        self._handlers: Mapping[str, Callable[[Out], list[Step]]] = {
            "ping": self._ping,
            "message_start": self._message_start,
            "content_block_start": self._block,
            "content_block_delta": self._block,
            "content_block_stop": self._block,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "error": self._error,
        }
        #: `message_start` has come, or was supplied.
        self._started = False
        #: The upstream's counts, and its last stop reason.
        self._usage: dict[str, Any] = {}
        self._reason = ""

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def frame(self, record: Record) -> list[Step]:
        frame = record.frame()
        if frame.payload is None:
            return self._without_payload(record.n, frame)
        return self._payload(record.n, frame, frame.payload, record.value)

    def rest(self, n: int, data: bytes) -> list[Step]:
        """Read the bytes after the last frame: a last `message_stop` or error counts (Q106), so does a bare one."""
        frame = parse_block(data, first=True)
        value = ABSENT if frame.payload is None else parse(frame.payload)
        if frame.payload is not None and as_object(value).get("type") in _LAST:
            return self._payload(n, frame, frame.payload, value)
        return [] if _LINE_OF_STREAM.match(data) else self.body(n, data)

    def body(self, n: int, data: bytes) -> list[Step]:
        """Read a whole answer where a stream was due: an error, a message, or neither."""
        data = data.removeprefix(BOM).strip()
        value = parse(data)
        if value is ABSENT and data.startswith(b"{"):  # a cut like any other; one of too many values stays unread
            self._context.live.overflow |= values_at_most(data) > limits.JSON_VALUES_MAX
            return []
        answer: dict[str, Any] = as_object(value)
        if answer.get("type") == "error" or (answer.get("error") and answer.get("type") != "message"):
            return self._error(Out(n, answer, repair="unframed", event=b"error"))
        wanted = self._context.settings.synthesise or not self._context.facts.stream
        if self._started or not wanted or answer.get("type") != "message" or not is_list(answer.get("content")):
            return [foreign(n, "not_a_stream")]
        steps = [foreign(n, "synthesised")] if self._context.facts.stream else []
        for made in frames_of(answer):
            steps += self._handlers[made["type"]](ours(n, made, "synthesised"))
        return steps

    def flush(self) -> list[Step]:
        """Withhold what waited for another frame: the stream is cut, so a call that waited may not run."""
        return self._blocks.lose()

    def supply(self, n: int) -> list[Step]:  # noqa: ARG002 - it comes with the frame that ends the message
        return []

    def repeated(self, text: str) -> None:
        """Take nothing: no frame repeats a text."""

    def opening(self, n: int) -> list[Step]:  # noqa: ARG002 - a ping may come before the first frame
        return []

    # -- the frame ----------------------------------------------------------------------------------------------------

    def _without_payload(self, n: int, frame: Frame) -> list[Step]:
        if _SILENT_BLOCK.fullmatch(frame.raw):
            return self._blocks.withheld(n, frame.raw, "comment")
        self._blocks.withheld(n, frame.raw, "unframed")
        return [*self._blocks.damaged(n, frame.raw), *self.body(n, frame.raw)]

    def _payload(self, n: int, frame: Frame, payload: bytes, value: Any) -> list[Step]:
        if payload.strip(b" ") == _DONE:  # Q40
            return self._blocks.withheld(n, frame.raw, "done_withheld")
        repair = ""
        value = parse(payload) if value is ABSENT else value
        if value is ABSENT:
            payload = payload.decode("utf-8", "replace").encode()
            value, repair = parse(payload), "invalid_utf8"
        if not is_object(value):
            return self._not_object(n, frame, payload, value)
        kind = as_text(value.get("type"))
        handler = self._handlers.get(kind)
        if handler is None:
            return self._unknown(n, frame, value)
        garbled = self._blocks.damaged(n, payload) if repair else []
        event = kind.encode()
        if not repair and not (frame.named and frame.event == event):
            repair = "event_line" if frame.canonical else "framing"
        if repair:
            payload = payload.replace(b"\n", b" ")  # between tokens: inside a string it would not be JSON
        raw = None if repair else frame.raw
        return garbled + handler(Out(n, value, raw=raw, payload=payload, came=frame.raw, repair=repair, event=event))

    def _not_object(self, n: int, frame: Frame, payload: bytes, value: Any) -> list[Step]:
        if frame.event == b"error":  # Q90, in words
            error = frames.error(value if isinstance(value, str) else payload.decode())
            return self._error(ours(n, error, "error_shape", frame.raw))
        if value is not ABSENT:
            return [*self._blocks.withheld(n, frame.raw, "foreign"), foreign(n)]
        if payload.strip()[:1] in (b"", b":"):
            return self._blocks.withheld(n, frame.raw, "empty_data")
        damaged = self._blocks.damaged(n, payload)
        return [*self._blocks.withheld(n, frame.raw, "not_json"), foreign(n, "not_json"), *damaged]

    def _unknown(self, n: int, frame: Frame, value: dict[str, Any]) -> list[Step]:
        """Read an error without a type; withhold an event that no reader knows (Q125), or one of another protocol."""
        if value.get("error"):
            return self._error(Out(n, value, came=frame.raw))
        other = not self._started and ("choices" in value or str(value.get("type")).startswith("response."))
        return [*self._blocks.withheld(n, frame.raw, "foreign"), foreign(n, "not_a_stream" if other else "foreign")]

    def _ping(self, out: Out) -> list[Step]:
        return [Step(out.n, (), out)]

    def _block(self, out: Out) -> list[Step]:
        return [*self._begin(out.n), *self._blocks.frame(out)]

    def _error(self, out: Out) -> list[Step]:
        error = frames.error(out.value)
        if error != out.value:
            out = ours(out.n, error, out.repair or "error_shape", out.came)
        details = error["error"]
        event = UpstreamError(n=out.n, message=details["message"], code=details["type"])
        return [*self._blocks.lose(), Step(out.n, (event,), out)]

    # -- the message --------------------------------------------------------------------------------------------------

    def _message_start(self, out: Out) -> list[Step]:
        n, context, given = out.n, self._context, out.value.get("message")
        if self._started:
            return self._blocks.withheld(n, out.came, "message_start_repeated")
        self._started = True
        needed: dict[str, Any] = frames.message_start(f"msg_{context.stream_id}", context.facts.model)["message"]
        edits: list[Edit] = []
        if is_object(given):
            wrong = [key for key in ("id", "type", "role", "model") if not as_text(given.get(key))]
            wrong += [key for key in ("content", "stop_reason", "stop_sequence") if given.get(key) != needed[key]]
            edits += [Edit("message_member", ("message",), key, needed[key]) for key in wrong]
        else:
            given = {**needed, "usage": None}
            edits.append(Edit("message_member", (), "message", needed))
        usage = as_object(given.get("usage"))
        missing = {key: 0 for key in needed["usage"] if type(usage.get(key)) is not int}
        if missing and out.value.get("message") is given:  # Q126: two SDKs fail without
            edits.append(Edit("usage_unknown", ("message",), "usage", {**usage, **missing}))
        out.edit(edits)
        message = out.value["message"]
        events: list[Event] = [ResponseStarted(n=n, id=message["id"], model=message["model"]), *self._count(n, usage)]
        return [Step(n, events, out, choices=(0,))]

    def _count(self, n: int, usage: Mapping[str, Any]) -> list[Event]:
        """Return the counts so far as an event, if these are any."""
        self._usage = frames.merged(self._usage, usage)
        return [Usage(n=n, counts=self._usage)] if usage else []

    def _begin(self, n: int) -> list[Step]:
        """Supply a `message_start` that has not come."""
        if self._started:
            return []
        return self._message_start(ours(n, {"type": "message_start"}, "message_start_supplied"))

    def _message_delta(self, out: Out) -> list[Step]:
        n, given = out.n, out.value.get("delta")
        steps = self._begin(n)
        edits: list[Edit] = []
        if not is_object(given):
            given = {"stop_reason": None, "stop_sequence": None}
            edits.append(Edit("message_member", (), "delta", given))
        reason = given.get("stop_reason")
        if reason is not None and not (isinstance(reason, str) and reason):
            edits.append(Edit("stop_reason_empty", ("delta",), "stop_reason", None))
            reason = None
        usage = as_object(out.value.get("usage"))
        if type(usage.get("output_tokens")) is not int:
            known = self._usage.get("output_tokens")
            counts = {**usage, "output_tokens": known if type(known) is int else 0}
            edits.append(Edit("usage_unknown", (), "usage", counts))
        if reason is not None:
            steps += self._blocks.close(n, cut=STOP_REASONS.get(reason) in CUT_FINISHES)
            self._reason = reason
            if reason == "end_turn" and self._blocks.calls:  # Q32 of chat: agents that go by it do not run the call
                self._reason = "tool_use"
                edits.append(Edit("finish_stop_with_calls", ("delta",), "stop_reason", "tool_use"))
        out.edit(edits)
        return [*steps, Step(n, self._count(n, usage), out, delivers=reason is not None, choices=(0,))]

    def _message_stop(self, out: Out) -> list[Step]:
        n = out.n
        steps: list[Step] = []
        if not self._reason and self._blocks.said and not self._blocks.in_doubt:
            steps += self._supply_reason(n)
        if self._reason:
            finish = STOP_REASONS.get(self._reason, "stop")
            steps += self._blocks.close(n, cut=finish in CUT_FINISHES)
            events: list[Event] = []
            if not counts_tokens(self._usage):
                events.append(ForeignFrame(n=n, why="usage_unknown"))
            if self._reason not in STOP_REASONS:
                events.append(ForeignFrame(n=n, why="stop_reason_unknown"))
            elif self._reason == "pause_turn":
                events.append(ForeignFrame(n=n, why="pause_turn"))
            events.append(Finish(n=n, choice=0, reason=finish))
            steps.append(Step(n, events, choices=(0,)))
        return [*steps, *self._blocks.lose(), Step(n, (Terminator(n=n),), out)]

    def _supply_reason(self, n: int) -> list[Step]:
        """Return the end of a message whose blocks are all whole: clients fail without (Q37)."""
        steps = self._blocks.close(n, cut=False)
        ends = {"stop_reason": "tool_use" if self._blocks.calls else "end_turn", "stop_sequence": None}
        delta = self._message_delta(ours(n, {"type": "message_delta", "delta": ends}, "finish_supplied"))
        return [*steps, foreign(n, "no_finish"), *delta]
