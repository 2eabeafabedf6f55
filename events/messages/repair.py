"""Read one attempt of a Messages stream: upstream frames to canonical frames, their events, and named repairs.

`Q121` is a row of the dialect catalogue. A frame that needs no repair passes as the bytes that came. Canonical means:
an `event:` line, `message_start` first, blocks one after the other with all their text and input in deltas, a stop for
each, then `message_delta` and `message_stop`. The writer numbers the blocks. It never raises on upstream data.
"""

from collections.abc import Mapping
from typing import Any

from ..core import limits
from ..core.json_text import as_object, as_text, dumps, is_list, is_object
from ..core.lifecycle import CUT_FINISHES
from ..core.model import Event, Finish, ForeignFrame, ResponseStarted, Terminator, UpstreamError, Usage
from ..emission.dialect import Context, Step
from ..emission.frames import Edit, Out
from ..emission.reading import TypedReader
from ..folds.wire import counts_tokens
from ..wire.sse import Frame
from .blocks import Blocks
from .frames import STOP_REASONS, message_start, ours
from .whole import frames_of

__all__ = ["Repair"]


class Repair(TypedReader):
    """The reader of one attempt."""

    #: No text is kept.
    room = limits.SKIPPED_BYTES_MAX
    unnamed = "event_line"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._blocks = Blocks(context)
        #: `message_start` has come, or was supplied.
        self._started = False
        #: The upstream's counts, and its last stop reason.
        self._usage: dict[str, Any] = {}
        self._reason = ""

    def flush(self) -> list[Step]:
        """Withhold what waited for another frame: the stream is cut, so a call that waited may not run."""
        self._blocks.lose()
        return self._blocks.taken()

    def repeated(self, text: str) -> None:
        """Take nothing: no frame repeats a text."""

    # -- what is in a frame -------------------------------------------------------------------------------------------

    def _ends(self, value: Mapping[str, Any], event: bytes) -> bool:  # noqa: ARG002 - the type says it
        return value.get("type") in ("message_stop", "error")

    def _damaged(self, n: int, unread: bytes) -> list[Step]:
        self._blocks.damage(n, unread)
        return self._blocks.taken()

    def _failed(self, n: int, came: bytes, words: str) -> list[Step]:
        self._error(Out(n, words, came=came, repair="error_shape"))
        return self._blocks.taken()

    def _object(self, out: Out, frame: Frame) -> list[Step]:  # noqa: ARG002 - the type says it
        self._read(out)
        return self._blocks.taken()

    def _answer(self, n: int, answer: dict[str, Any]) -> list[Step]:
        streams, is_message = self._context.facts.stream, answer.get("type") == "message"
        wanted = is_message and is_list(answer.get("content")) and (self._context.settings.synthesise or not streams)
        if answer.get("type") == "error" or (answer.get("error") and not is_message):
            self._error(Out(n, answer, repair="unframed", event=b"error"))
        elif self._started or not wanted:
            self._blocks.flag(n, "not_a_stream")
        else:
            if streams:
                self._blocks.flag(n, "synthesised")
            for made in frames_of(answer):
                self._read(ours(n, made, "synthesised"))
        return self._blocks.taken()

    def _read(self, out: Out) -> None:
        value, blocks = out.value, self._blocks
        match value.get("type"):
            case "content_block_delta" | "content_block_start" | "content_block_stop":
                self._begin(out.n)
                blocks.frame(out)
            case "message_start":
                self._message_start(out)
            case "message_delta":
                self._message_delta(out)
            case "message_stop":
                self._message_stop(out)
            case "ping":
                blocks.steps.append(Step(out.n, (), out))
            case "error":
                self._error(out)
            case _ if value.get("error"):  # an error without a type
                self._error(Out(out.n, value, came=out.came))
            case kind:  # an event that no reader knows (Q125), or one of another protocol
                other = not self._started and ("choices" in value or str(kind).startswith("response."))
                blocks.withhold(out.n, out.came, "foreign", "not_a_stream" if other else "foreign")

    def _error(self, out: Out) -> None:
        error = _error_event(out.value)
        if error != out.value:
            out = ours(out.n, error, out.repair or "error_shape", out.came)
        details = error["error"]
        self._blocks.lose()
        event = UpstreamError(n=out.n, message=details["message"], code=details["type"])
        self._blocks.steps.append(Step(out.n, (event,), out))

    # -- the message --------------------------------------------------------------------------------------------------

    def _begin(self, n: int) -> None:
        """Supply a `message_start` that has not come."""
        if not self._started:
            self._message_start(ours(n, {"type": "message_start"}, "message_start_supplied"))

    def _message_start(self, out: Out) -> None:
        n, context, given = out.n, self._context, out.value.get("message")
        if self._started:
            self._blocks.withhold(n, out.came, "message_start_repeated")
            return
        self._started = True
        needed: dict[str, Any] = message_start(f"msg_{context.stream_id}", context.facts.model)["message"]
        usage = as_object(as_object(given).get("usage"))
        if is_object(given):
            wrong = [key for key in ("id", "type", "role", "model") if not as_text(given.get(key))]
            wrong += [key for key in ("content", "stop_reason", "stop_sequence") if given.get(key) != needed[key]]
            edits = [Edit("message_member", ("message",), key, needed[key]) for key in wrong]
            missing = {key: 0 for key in needed["usage"] if type(usage.get(key)) is not int}
            if missing:  # Q126: two SDKs fail without
                edits.append(Edit("usage_unknown", ("message",), "usage", {**usage, **missing}))
        else:
            edits = [Edit("message_member", (), "message", needed)]
        out.edit(edits)
        message = out.value["message"]
        started = ResponseStarted(n=n, id=message["id"], model=message["model"])
        self._blocks.send(out, started, *self._count(n, usage))

    def _count(self, n: int, usage: Mapping[str, Any]) -> list[Event]:
        """Return the counts so far as an event, if these are any.

        They are cumulative: later ones replace earlier ones, but neither null nor a mere 0 says anything.
        """
        known = self._usage
        said = {key: count for key, count in usage.items() if count or (key not in known and count is not None)}
        self._usage = {**known, **said}
        return [Usage(n=n, counts=self._usage)] if usage else []

    def _message_delta(self, out: Out) -> None:
        n, given = out.n, out.value.get("delta")
        self._begin(n)
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
            self._blocks.close(n, cut=STOP_REASONS.get(reason) in CUT_FINISHES)
            self._reason = reason
            if reason == "end_turn" and self._blocks.calls:  # Q32 of chat: agents that go by it do not run the call
                self._reason = "tool_use"
                edits.append(Edit("finish_stop_with_calls", ("delta",), "stop_reason", "tool_use"))
        out.edit(edits)
        self._blocks.send(out, *self._count(n, usage), delivers=reason is not None)

    def _message_stop(self, out: Out) -> None:
        n, blocks = out.n, self._blocks
        if not self._reason and blocks.said and not blocks.in_doubt:
            self._supply_reason(n)
        if self._reason:
            finish = STOP_REASONS.get(self._reason, "stop")
            blocks.close(n, cut=finish in CUT_FINISHES)
            flags = {
                "usage_unknown": not counts_tokens(self._usage),
                "stop_reason_unknown": self._reason not in STOP_REASONS,
                "pause_turn": self._reason == "pause_turn",
            }
            events = [ForeignFrame(n=n, why=why) for why, is_due in flags.items() if is_due]
            blocks.steps.append(Step(n, [*events, Finish(n=n, choice=0, reason=finish)], choices=(0,)))
        blocks.lose()
        blocks.steps.append(Step(n, (Terminator(n=n),), out))

    def _supply_reason(self, n: int) -> None:
        """Supply the end of a message whose blocks are all whole: clients fail without (Q37)."""
        self._blocks.close(n, cut=False)
        ends = {"stop_reason": "tool_use" if self._blocks.calls else "end_turn", "stop_sequence": None}
        self._blocks.flag(n, "no_finish")
        self._message_delta(ours(n, {"type": "message_delta", "delta": ends}, "finish_supplied"))


def _error_event(given: Any) -> dict[str, Any]:
    """Return an error event of what an upstream wrote of its failure, in any shape; other members stay."""
    frame: dict[str, Any] = {}
    if is_object(given) and given.get("error"):
        frame, given = given, given["error"]
    details = given if is_object(given) else {"message": given if isinstance(given, str) else dumps(given).decode()}
    kind, message = details.get("type"), details.get("message")
    kind = kind if isinstance(kind, str) and kind not in ("", "error") else "api_error"
    message = message if isinstance(message, str) else dumps(details).decode()
    return {**frame, "type": "error", "error": {**details, "type": kind, "message": message}}
