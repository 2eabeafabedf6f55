"""Read one attempt of a Messages stream: upstream frames to canonical frames, their events, and named repairs.

`Q121` is a row of the dialect catalogue. A frame that needs no repair passes as the bytes that came. Canonical means:
an `event:` line, `message_start` first, blocks one after the other with all their text and input in deltas, a stop for
each, then `message_delta` and `message_stop`. The writer numbers the blocks. It never raises on upstream data.
"""

from collections.abc import Mapping
from typing import Any, Final

from ..core.json_text import as_object, as_text, dumps, is_list, is_object
from ..core.lifecycle import CUT_FINISHES
from ..core.model import Event, Finish, ForeignFrame, ResponseStarted, Terminator, UpstreamError, Usage
from ..emission.dialect import Context, Step
from ..emission.frames import Edit, Out
from ..folds.wire import counts_tokens
from ..wire.sse import Frame
from .blocks import Blocks
from .frames import message_start, ours
from .whole import frames_of

__all__ = ["Repair"]

#: The finish of each stop reason in the words of all dialects; any other one is `stop`, with a flag.
_STOP_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "compaction": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class Repair(Blocks):
    """The reader of one attempt."""

    unnamed = "event_line"
    ends = ("message_stop", "error")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: `message_start` has come, or was supplied.
        self._started = False
        #: The upstream's counts, and its last stop reason.
        self._usage: dict[str, Any] = {}
        self._reason = ""

    def _failed(self, came: bytes, words: str) -> None:
        self._error(Out(self._n, words, came=came, repair="error_shape"))

    def _answer(self, answer: dict[str, Any]) -> None:
        n, streams, is_message = self._n, self._context.facts.stream, answer.get("type") == "message"
        wanted = is_message and is_list(answer.get("content")) and (self._context.settings.synthesise or not streams)
        if answer.get("type") == "error" or (answer.get("error") and not is_message):
            self._error(Out(n, answer, repair="unframed", event=b"error"))
        elif self._started or not wanted:
            self._flag(n, "not_a_stream")
        else:
            if streams:
                self._flag(n, "synthesised")
            for made in frames_of(answer):
                self._object(ours(n, made, "synthesised"))

    def _object(self, out: Out, frame: Frame | None = None) -> None:  # noqa: ARG002 - the type says it
        value = out.value
        match value.get("type"):
            case "content_block_delta" | "content_block_start" | "content_block_stop":
                self._begin(out.n)
                self._block(out)
            case "message_start":
                self._message_start(out)
            case "message_delta":
                self._message_delta(out)
            case "message_stop":
                self._message_stop(out)
            case "ping":
                self._steps.append(Step(out.n, (), out))
            case "error":
                self._error(out)
            case _ if value.get("error"):  # an error without a type
                self._error(Out(out.n, value, came=out.came))
            case kind:  # an event that no reader knows (Q125), or one of another protocol
                other = not self._started and ("choices" in value or str(kind).startswith("response."))
                self._withhold(out, "foreign", "not_a_stream" if other else "foreign")

    def _error(self, out: Out) -> None:
        error = _error_event(out.value)
        if error != out.value:
            out = ours(out.n, error, out.repair or "error_shape", out.came)
        details = error["error"]
        self._lose()
        event = UpstreamError(n=out.n, message=details["message"], code=details["type"])
        self._steps.append(Step(out.n, (event,), out))

    def _begin(self, n: int) -> None:
        """Supply a `message_start` that has not come."""
        if not self._started:
            self._message_start(ours(n, {"type": "message_start"}, "message_start_supplied"))

    def _message_start(self, out: Out) -> None:
        n, context, given = out.n, self._context, out.value.get("message")
        if self._started:
            self._withhold(out, "message_start_repeated")
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
        self._step([started, *self._count(n, usage)], out)

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
            self._close(n, cut=_STOP_REASONS.get(reason) in CUT_FINISHES)
            self._reason = reason
            if reason == "end_turn" and self._calls:  # Q32 of chat: agents that go by it do not run the call
                self._reason = "tool_use"
                edits.append(Edit("finish_stop_with_calls", ("delta",), "stop_reason", "tool_use"))
        out.edit(edits)
        self._step(self._count(n, usage), out, delivers=reason is not None)

    def _message_stop(self, out: Out) -> None:
        n = out.n
        if not self._reason and self._said and not self._in_doubt:
            self._supply_reason(n)
        if self._reason:
            finish = _STOP_REASONS.get(self._reason, "stop")
            self._close(n, cut=finish in CUT_FINISHES)
            flags = {
                "usage_unknown": not counts_tokens(self._usage),
                "stop_reason_unknown": self._reason not in _STOP_REASONS,
                "pause_turn": self._reason == "pause_turn",
            }
            events = [ForeignFrame(n=n, why=why) for why, is_due in flags.items() if is_due]
            self._steps.append(Step(n, [*events, Finish(n=n, choice=0, reason=finish)], choices=(0,)))
        self._lose()
        self._steps.append(Step(n, (Terminator(n=n),), out))

    def _supply_reason(self, n: int) -> None:
        """Supply the end of a message whose blocks are all whole: clients fail without (Q37)."""
        self._close(n, cut=False)
        ends = {"stop_reason": "tool_use" if self._calls else "end_turn", "stop_sequence": None}
        self._flag(n, "no_finish")
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
