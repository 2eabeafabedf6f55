"""Read one attempt of a Responses stream: upstream frames to canonical ones, their events, and named repairs.

`Q110` is a row of the dialect catalogue. Canonical frames begin with `response.created` and `response.in_progress`, and
end with one of three frames that hold the whole response. A frame that needs no repair passes as the bytes object that
came. Nothing here raises on upstream data.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..core import model
from ..core.json_text import as_list, as_object, dumps, is_list, is_object
from ..core.model import Event
from ..emission.dialect import Context, Step
from ..emission.frames import Edit, Out
from ..emission.reading import TypedReader
from ..wire.sse import Frame
from . import frames
from .frames import COMPLETED, CREATED, FAILED, IN_PROGRESS, INCOMPLETE, NO_USAGE, frame_value, named
from .output import CHOICES, Output
from .whole import frames_of

__all__ = ["Repair"]

_OPENINGS: Final = frozenset({CREATED, "response.queued", IN_PROGRESS})
_CANCELLED: Final = frozenset({"response.cancelled", "response.canceled"})
#: What keeps a connection open; we have our own.
_PINGS: Final = frozenset(
    f"{prefix}{word}" for prefix in ("", "response.") for word in ("heartbeat", "keepalive", "ping")
)
#: Older and other names of events (Q115, Q118).
_ALIASES: Final[Mapping[str, str]] = {
    "response.done": COMPLETED,
    "response.output_text_annotation.added": frames.ANNOTATED,
    "response.reasoning_part.added": "response.content_part.added",
    "response.reasoning_part.done": "response.content_part.done",
    "response.reasoning.delta": "response.reasoning_text.delta",
    "response.reasoning.done": "response.reasoning_text.done",
    "response.reasoning_summary.delta": "response.reasoning_summary_text.delta",
    "response.reasoning_summary.done": "response.reasoning_summary_text.done",
}
#: Events of no item.
_FREE: Final = frozenset(f"response.audio.{name}" for name in ("delta", "done", "transcript.delta", "transcript.done"))
#: Events of another dialect; chunks of chat completions have no type at all.
_OF_OTHERS: Final = ("message_", "content_block_")
#: The last frame that a status means, and the status that a last frame says.
_MEANT: Final[Mapping[str, str]] = {"incomplete": INCOMPLETE, "failed": FAILED, "cancelled": FAILED}
_STATUS: Final[Mapping[str, str]] = {COMPLETED: "completed", INCOMPLETE: "incomplete", FAILED: "failed"}


class Repair(TypedReader):
    """The reader of one attempt."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._output = Output(context)
        #: The first frames have come. A client that has frames of an earlier attempt knows the id that we made.
        self._started = False
        self._opened = self._progressed = context.opened > 0
        made = f"resp_{context.stream_id}"
        self._id = made if self._opened else ""
        #: The response as it began, or one of ours.
        self._response = frames.response_object(made, context.created, context.facts.model)
        self._ended = False

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def flush(self) -> Sequence[Step]:
        """Return what waited for another frame."""
        self._output.settle(cut=False)
        self._output.lose()
        return self._output.taken()

    @property
    def room(self) -> int:
        return self._output.chars_left

    def repeated(self, text: str) -> None:
        output = self._output
        assert output.open is not None, "a text repeats in an open item"
        assert output.open.part is not None, "a text repeats in an open part"
        output.open.part.pieces.append(text)
        output.chars_left -= len(text)
        self._context.live.overflow |= output.overflow

    # -- frames -------------------------------------------------------------------------------------------------------

    def _ends(self, value: Mapping[str, Any], event: bytes) -> bool:
        return value.get("type") in (*_STATUS, "error") or event == b"error"

    def _damaged(self, n: int, unread: bytes) -> list[Step]:  # noqa: ARG002 - a call that is open may have been anywhere
        self._output.n = n
        self._output.damage()
        return self._output.taken()

    def _failed(self, n: int, came: bytes, words: str) -> list[Step]:
        self._output.n = n
        self._fail(came, words)
        return self._output.taken()

    def _object(self, out: Out, frame: Frame) -> list[Step]:
        self._output.n = out.n
        self._typed(out, frame.event.decode("utf-8", "replace"))
        self._context.live.overflow |= self._output.overflow
        return self._output.taken()

    def _typed(self, out: Out, event: str) -> None:
        value, kind = out.value, out.value.get("type")
        if not isinstance(kind, str) or not kind:
            if value.get("error") or event == "error":
                self._fail(out.came, value.get("error") or value)
                return
            if value.get("object") == "response" and not self._started:  # Q96 in a frame
                self._output.withhold(out, "whole_object")
                self._whole(value)
                return
            kind = event
            self._rename(out, kind)
        elif kind in _ALIASES:  # Q115, Q118
            kind = _ALIASES[kind]
            self._rename(out, kind)
        if kind in _PINGS:  # Q117
            self._output.withhold(out, "ping")
        elif not self._ended:
            self._output.settle(cut=kind == INCOMPLETE)
            self._dispatch(out)
        elif kind == FAILED and self._context.live.error is not None:  # Q94
            self._output.withhold(out, "failed_repeated")
        else:
            self._output.step((), out)

    @staticmethod
    def _rename(out: Out, kind: str) -> None:
        out.edit([Edit("event_name", (), "type", kind)])
        out.event, out.repair = kind.encode("utf-8", "replace"), out.repair or "event_name"

    def _dispatch(self, out: Out) -> None:
        """Read one frame whose type is known to be text."""
        kind, output = out.value["type"], self._output
        if kind in frames.PLACED:
            self._open_response()
            output.take(out)
        elif kind in _OPENINGS:
            self._opening(out)
        elif kind in frames.ENDS:
            self._end(out)
        elif kind == "error":
            self._fail(out.came, out.value.get("error") or out.value)
        elif kind in _CANCELLED:
            self._fail(out.came, {"code": "cancelled", "message": "the upstream cancelled the answer"})
        elif kind in _FREE:
            self._open_response()
            sound = [model.AudioDelta(n=out.n, choice=0)] if kind == "response.audio.delta" else []
            output.step(sound, out, delivers=bool(sound))
        else:  # strict clients raise on a name that they do not know
            other = not self._started and (not kind or kind.startswith(_OF_OTHERS))
            output.withhold(out, "foreign")
            self._flag("not_a_stream" if other else "foreign")

    def _flag(self, why: str) -> None:
        self._output.step([model.ForeignFrame(n=self._output.n, why=why)])

    # -- the response -------------------------------------------------------------------------------------------------

    def _opening(self, out: Out) -> None:
        kind, response = out.value["type"], as_object(out.value.get("response"))
        known = self._started or self._opened
        if known if kind == CREATED else (self._progressed or self._output.order):
            self._output.step(self._start(response))
            self._output.withhold(out, "opening_repeated")
            return
        if not known and kind != CREATED:  # Q112, Q116
            self._supply(CREATED, {**response, "status": "in_progress"}, "created_supplied")
        self._identify(out)
        self._progressed = self._progressed or kind == IN_PROGRESS
        self._output.step(self._start(out.value["response"]), out)

    def _supply(self, kind: str, response: Mapping[str, Any], repair: str) -> None:
        self._opening(named(self._output.n, frame_value(kind, response=response), repair))

    def _start(self, response: dict[str, Any]) -> Sequence[Event]:
        """Note the response as it began, and return the event of its start, once."""
        if self._started:
            return ()
        self._started = True
        self._id = self._id or str(response.get("id") or self._response["id"])
        self._response = {**(response or self._response), "id": self._id}
        name: Any = response.get("model")
        known = name if isinstance(name, str) and name else self._context.facts.model
        return (model.ResponseStarted(n=self._output.n, id=self._id, model=known),)

    def _open_response(self, *, progress: bool = True) -> None:
        """Supply the frames that begin an answer (Q116)."""
        if not (self._started or self._opened):
            self._supply(CREATED, self._response, "created_supplied")
        if progress and not self._progressed:
            self._supply(IN_PROGRESS, {**self._response, "status": "in_progress"}, "in_progress_supplied")
            self._progressed = True

    def _identify(self, out: Out) -> None:
        """Give a response its one id, and a list of output (Q111)."""
        given: Any = out.value.get("response")
        if not is_object(given) or not given:
            out.edit([Edit("response_missing", (), "response", self._response)])
            given = self._response
        due, edits = _STATUS.get(out.value["type"]), list[Edit]()
        if due is not None and given.get("status") != due:
            edits.append(Edit("response_status", ("response",), "status", due))
        self._id = self._id or str(given.get("id") or self._response["id"])
        if given.get("id") != self._id:
            edits.append(Edit("response_id", ("response",), "id", self._id))
        if not is_list(given.get("output")):
            edits.append(Edit("output_missing", ("response",), "output", list[Any]()))
        out.edit(edits)

    # -- the end of the answer ----------------------------------------------------------------------------------------

    def _end(self, out: Out) -> None:
        kind, output = out.value["type"], self._output
        status = str(as_object(out.value.get("response")).get("status"))
        if kind == COMPLETED and status in _MEANT:
            kind = _MEANT[status]
            self._rename(out, kind)
        if kind == FAILED:
            self._begin_failure()
            self._identify(out)
            error = as_object(out.value["response"].get("error"))
            message, code = str(error.get("message") or ""), str(error.get("code") or "")
            output.step((model.UpstreamError(n=out.n, message=message, code=code),), out)
            return
        self._open_response()
        self._identify(out)
        given = [item for item in as_list(out.value["response"]["output"]) if is_object(item)]
        output.close(given, whole=kind == COMPLETED)
        self._settle_output(out, given)
        events = self._usage(out)
        reason = as_object(out.value["response"].get("incomplete_details")).get("reason")
        word = "content_filter" if reason == "content_filter" else "length"
        if kind == COMPLETED:
            word = "tool_calls" if output.calls else "stop"
        events.append(model.Finish(n=out.n, choice=0, reason=word))
        output.steps.append(Step(out.n, events, None, choices=CHOICES))
        output.step((model.Terminator(n=out.n),), out)
        self._ended = True

    def _settle_output(self, out: Out, output: list[dict[str, Any]]) -> None:
        """Give the last frame the items as they were sent (Q110, Q111)."""
        order, edits = self._output.order, list[Edit]()
        whole = len(output) == len(out.value["response"]["output"])  # else the places of items are others
        if whole and self._output.known(output) == order and not any(item.split for item in order):
            for number, (item, given) in enumerate(zip(order, output, strict=True)):
                path = ("response", "output", number)
                edits += item.ids(given, path)
                if item.value.get("arguments") == "{}" and not given.get("arguments"):
                    edits.append(Edit("arguments_empty", path, "arguments", "{}"))
        elif not whole or self._output.done != output:  # Q110
            edits.append(Edit("output_rebuilt", ("response",), "output", self._output.done))
        out.edit(edits)

    def _usage(self, out: Out) -> list[Event]:
        usage: Any = out.value["response"].get("usage")
        if not is_object(usage):
            out.edit([Edit("usage_unknown", ("response",), "usage", dict(NO_USAGE))])
            return []
        missing = {name: 0 for name in ("input_tokens", "output_tokens") if type(usage.get(name)) is not int}
        counts: dict[str, Any] = {**NO_USAGE, **usage, **missing}
        if type(usage.get("total_tokens")) is not int:
            counts["total_tokens"] = counts["input_tokens"] + counts["output_tokens"]
        if missing:
            out.edit([Edit("usage_unknown", ("response",), "usage", counts)])
        elif counts["total_tokens"] != usage.get("total_tokens"):
            out.edit([Edit("usage_total", ("response", "usage"), "total_tokens", counts["total_tokens"])])
        return [model.Usage(n=out.n, counts=usage)]

    # -- failures and whole answers -----------------------------------------------------------------------------------

    def _fail(self, came: bytes | None, given: Any) -> None:
        """Turn an error of any shape into the one that every client reads (codex ignores all others)."""
        self._begin_failure()
        n, error = self._output.n, _error_of(given)
        out = named(n, frame_value(FAILED, response={"status": "failed", "error": error}), "error_shape")
        out.came = came
        self._output.step((model.UpstreamError(n=n, message=error["message"], code=error["code"]),), out)

    def _begin_failure(self) -> None:
        self._output.settle(cut=False)
        self._open_response(progress=False)
        self._ended = True

    def _answer(self, n: int, answer: dict[str, Any]) -> list[Step]:
        self._output.n = n
        status: Any = answer.get("status")
        wanted = self._context.settings.synthesise or not self._context.facts.stream
        if answer.get("object") == "response" and status in ("failed", "cancelled", "queued", "in_progress"):
            self._flag("unfinished")  # a client asked for no more
        if answer.get("error") or status in ("failed", "cancelled"):
            self._fail(None, answer.get("error") or {"code": status, "message": f"the answer is {status}"})
        elif self._started or not wanted or not is_list(answer.get("output")) or status in ("queued", "in_progress"):
            self._flag("not_a_stream")
        else:
            if self._context.facts.stream:
                self._flag("synthesised")
            self._whole(answer)
        return self._output.taken()

    def _whole(self, answer: dict[str, Any]) -> None:
        for value in frames_of(answer):
            self._dispatch(named(self._output.n, value, "synthesised"))


def _error_of(given: Any) -> dict[str, Any]:
    """Return the error of a `response.failed`: a code, a message, and all other members that came with them."""
    error = as_object(given)
    message, code = error.get("message"), error.get("code") or error.get("type")
    rest = {key: value for key, value in error.items() if key not in ("code", "message", "type", "sequence_number")}
    text = message if isinstance(message, str) else given if isinstance(given, str) else dumps(given).decode()
    return {"code": str(code or "server_error"), "message": text, **rest}
