"""Read one attempt of a Responses stream: upstream frames to canonical ones, their events, and named repairs.

`Q110` is a row of the dialect catalogue. Canonical frames begin with `response.created` and `response.in_progress`, and
end with one of three frames that hold the whole response. A frame that needs no repair passes as the bytes object that
came. Nothing here raises on upstream data.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..core import model
from ..core.json_text import ABSENT, as_list, as_object, is_list, is_object, parse, values_at_most
from ..core.limits import JSON_VALUES_MAX
from ..core.model import Event
from ..emission.dialect import Context, Step
from ..emission.frames import Edit, Out
from ..tape.record import Record
from ..wire.sse import BOM, Frame, parse_block
from .frames import (
    ALIASES,
    CANCELLED,
    COMPLETED,
    CREATED,
    ENDS,
    FAILED,
    FREE,
    IN_PROGRESS,
    INCOMPLETE,
    NO_USAGE,
    OF_DELTA,
    OPENINGS,
    PINGS,
    PLACED,
    error_of,
    failed,
    frame_value,
    named,
    response_object,
)
from .output import CHOICES, Output
from .whole import frames_of

__all__ = ["Repair"]

#: Events of another dialect; chunks of chat completions have no type at all.
_OF_OTHERS: Final = ("message_", "content_block_")
#: How the lines of a block begin that dispatches nothing (Q97, Q99, Q100).
_SILENT: Final = (b":", b"event", b"id", b"retry")
#: What a whole answer begins with, where no stream came.
_UNFRAMED: Final = (b"{", b"[", b"<")
#: The status that the last frames say, and the last frame that a status means.
_STATUS: Final[Mapping[str, str]] = {COMPLETED: "completed", INCOMPLETE: "incomplete", FAILED: "failed"}
_MEANT: Final[Mapping[str, str]] = {"incomplete": INCOMPLETE, "failed": FAILED, "cancelled": FAILED}


class Repair:
    """The reader of one attempt."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._output = Output(context)
        #: The first frames have come. A client that has frames of an earlier attempt knows the id that we made.
        self._started = False
        self._opened = self._progressed = context.opened > 0
        made = f"resp_{context.stream_id}"
        self._id = made if self._opened else ""
        #: The response as it began, or one of ours.
        self._response = response_object(made, context.created, context.facts.model)
        self._ended = False
        #: The writer need not see each frame of a text.
        self._plain = context.settings.on_partial == "error"

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def frame(self, record: Record) -> Sequence[Step]:
        """Read one frame; a piece of the text that is open takes the short way."""
        value, output = record.read().value, self._output
        item, kind = output.open, OF_DELTA.get(record.keys.get("event", ""))
        if kind is not None and item is not None and is_object(value) and value.get("type") == kind.delta:
            part, text = item.part, value.get("delta")
            if (
                text
                and type(text) is str
                and part is not None
                and part.kind is kind
                and value.get("item_id") == item.id
                and value.get("output_index") == item.place
                and (not kind.index_key or value.get(kind.index_key) == part.index == part.theirs)
                and not (item.silent or part.said)
                and len(record.keys) == 1
            ):
                output.n = n = record.n
                part.pieces.append(text)
                output.chars_left -= len(text)
                if output.chars_left < 0:
                    self._context.live.overflow = True
                out = Out(n, value, raw=record.raw, payload=record.payload, came=record.raw)
                return (Step(n, output.text_events(item, part, text), out, True, CHOICES, self._plain),)
        self._begin(record.n)
        self._frame(record.frame(), value)
        self._context.live.overflow |= output.overflow
        return output.steps

    def rest(self, n: int, data: bytes) -> Sequence[Step]:
        """Read the bytes after the last frame: the end of an answer counts without its blank line (Q106)."""
        self._begin(n)
        frame = parse_block(data, first=True)
        value = ABSENT if frame.payload is None else parse(frame.payload)
        if is_object(value) and (value.get("type") in ENDS or "error" in (value.get("type"), frame.event.decode())):
            self._object(Out(n, value, payload=frame.payload, came=data, repair="framing"), frame)
        elif data.removeprefix(BOM).lstrip().startswith(_UNFRAMED):
            self._body(data)
        return self._output.steps

    def body(self, n: int, data: bytes) -> Sequence[Step]:
        """Read a whole answer where a stream was due (Q93, Q96): an error, a response, or neither."""
        self._begin(n)
        self._body(data)
        return self._output.steps

    def flush(self) -> Sequence[Step]:
        """Return what waited for another frame."""
        self._begin(self._output.n)
        self._output.settle(cut=False)
        self._output.lose()
        return self._output.steps

    def supply(self, n: int) -> Sequence[Step]:  # noqa: ARG002 - the last frame holds everything
        return ()

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

    def opening(self, n: int) -> Sequence[Step]:  # noqa: ARG002 - the upstream begins its answer itself
        return ()

    # -- frames -------------------------------------------------------------------------------------------------------

    def _begin(self, n: int) -> None:
        self._output.n, self._output.steps = n, []

    def _frame(self, frame: Frame, value: Any) -> None:
        payload, repair = frame.payload, ""
        if payload is None:
            self._without_payload(frame)
            return
        if payload.strip(b" ") == b"[DONE]":  # Q40
            self._withhold(frame.raw, "done_withheld")
            return
        value = parse(payload) if value is ABSENT else value
        if value is ABSENT:
            payload = payload.decode("utf-8", "replace").encode()
            value, repair = parse(payload), "invalid_utf8"
            self._output.damage()
        if not is_object(value):
            self._not_an_object(frame, payload, value)
            return
        kind: Any = value.get("type")
        event = kind.encode("utf-8", "replace") if isinstance(kind, str) else b""
        if not repair and not (frame.named and event == frame.event):
            repair = "framing"
        payload, raw = (payload.replace(b"\n", b" "), None) if repair else (payload, frame.raw)
        self._object(
            Out(self._output.n, value, raw=raw, payload=payload, came=frame.raw, repair=repair, event=event), frame
        )

    def _without_payload(self, frame: Frame) -> None:
        lines = frame.raw.removeprefix(BOM).splitlines()
        if all(not line or line.startswith(_SILENT) for line in lines):
            self._withhold(frame.raw, "comment")
            return
        self._withhold(frame.raw, "unframed")
        self._output.damage()
        self._body(frame.raw)

    def _not_an_object(self, frame: Frame, payload: bytes, value: Any) -> None:
        if frame.event == b"error":
            self._fail(frame.raw, value if isinstance(value, str) else payload.decode("utf-8", "replace"))
        elif value is not ABSENT:
            self._foreign(frame.raw, "foreign")
        elif payload.strip()[:1] in (b"", b":"):  # Q98, Q99
            self._withhold(frame.raw, "empty_data")
        else:
            self._foreign(frame.raw, "not_json")

    def _object(self, out: Out, frame: Frame) -> None:
        value, kind = out.value, out.value.get("type")
        if not isinstance(kind, str) or not kind:
            if value.get("error") or frame.event == b"error":
                self._fail(frame.raw, value.get("error") or value)
                return
            if value.get("object") == "response" and not self._started:  # Q96 in a frame
                self._withhold(frame.raw, "whole_object")
                self._whole(value)
                return
            kind = frame.event.decode("utf-8", "replace")
            self._rename(out, kind)
        elif kind in ALIASES:  # Q115, Q118
            kind = ALIASES[kind]
            self._rename(out, kind)
        if kind in PINGS:  # Q117
            self._withhold(frame.raw, "ping")
        elif not self._ended:
            self._output.settle(cut=kind == INCOMPLETE)
            self._dispatch(out)
        elif kind == FAILED and self._context.live.error is not None:  # Q94
            self._withhold(frame.raw, "failed_repeated")
        else:
            self._output.step((), out)

    @staticmethod
    def _rename(out: Out, kind: str) -> None:
        out.edit([Edit("event_name", (), "type", kind)])
        out.event, out.repair = kind.encode("utf-8", "replace"), out.repair or "event_name"

    def _dispatch(self, out: Out) -> None:
        """Read one frame whose type is known to be text."""
        kind, output = out.value["type"], self._output
        if kind in PLACED:
            self._open_response()
            output.take(out)
        elif kind in OPENINGS:
            self._opening(out)
        elif kind in ENDS:
            self._end(out)
        elif kind == "error":
            self._fail(out.came, out.value.get("error") or out.value)
        elif kind in CANCELLED:
            self._fail(out.came, {"code": "cancelled", "message": "the upstream cancelled the answer"})
        elif kind in FREE:
            self._open_response()
            sound = [model.AudioDelta(n=out.n, choice=0)] if kind == "response.audio.delta" else []
            output.step(sound, out, delivers=bool(sound))
        elif not self._started and (not kind or kind.startswith(_OF_OTHERS)):
            self._withhold(out.came, "foreign")
            output.step([model.ForeignFrame(n=out.n, why="not_a_stream")])
        else:  # strict clients raise on a name that they do not know
            self._foreign(out.came, "foreign")

    def _withhold(self, came: bytes | None, repair: str) -> None:
        self._context.ledger.frame(self._output.n, repair, came, None)

    def _foreign(self, came: bytes | None, why: str) -> None:
        self._withhold(came, why)
        self._output.step([model.ForeignFrame(n=self._output.n, why=why)])
        if why == "not_json":
            self._output.damage()

    # -- the response -------------------------------------------------------------------------------------------------

    def _opening(self, out: Out) -> None:
        kind, response = out.value["type"], as_object(out.value.get("response"))
        known = self._started or self._opened
        if known if kind == CREATED else (self._progressed or self._output.order):
            self._output.step(self._start(response))
            self._output.withhold(out, "opening_repeated")
            return
        if not known and kind != CREATED:  # Q112, Q116
            value = frame_value(CREATED, response={**response, "status": "in_progress"})
            self._opening(named(out.n, value, "created_supplied"))
        self._identify(out)
        self._progressed = self._progressed or kind == IN_PROGRESS
        self._output.step(self._start(out.value["response"]), out)

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

    def _open_response(self) -> None:
        """Supply the frames that begin an answer (Q116)."""
        n = self._output.n
        if not (self._started or self._opened):
            self._opening(named(n, frame_value(CREATED, response=self._response), "created_supplied"))
        if not self._progressed:
            response = {**self._response, "status": "in_progress"}
            self._opening(named(n, frame_value(IN_PROGRESS, response=response), "in_progress_supplied"))
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
        kind = out.value["type"]
        status = str(as_object(out.value.get("response")).get("status"))
        if kind == COMPLETED and status in _MEANT:
            kind = _MEANT[status]
            self._rename(out, kind)
        if kind == FAILED:
            self._begin_failure()
            self._identify(out)
            error = as_object(out.value["response"].get("error"))
            message, code = str(error.get("message") or ""), str(error.get("code") or "")
            self._output.step((model.UpstreamError(n=out.n, message=message, code=code),), out)
            return
        self._open_response()
        self._identify(out)
        given = [item for item in as_list(out.value["response"]["output"]) if is_object(item)]
        self._output.close(given, whole=kind == COMPLETED)
        self._settle_output(out, given)
        events = self._usage(out)
        reason = as_object(out.value["response"].get("incomplete_details")).get("reason")
        word = "content_filter" if reason == "content_filter" else "length"
        if kind == COMPLETED:
            word = "tool_calls" if self._output.calls else "stop"
        events.append(model.Finish(n=out.n, choice=0, reason=word))
        self._output.steps.append(Step(out.n, events, None, choices=CHOICES))
        self._output.step((model.Terminator(n=out.n),), out)
        self._ended = True

    def _settle_output(self, out: Out, output: list[dict[str, Any]]) -> None:
        """Give the last frame the items as they were sent (Q110, Q111)."""
        order, edits = self._output.order, list[Edit]()
        whole = len(output) == len(out.value["response"]["output"])  # else the places of items are others
        if whole and self._output.known(output) == order and not any(item.split for item in order):
            for number, (item, given) in enumerate(zip(order, output, strict=True)):
                path = ("response", "output", number)
                if given.get("id") != item.id:
                    edits.append(Edit("item_id", path, "id", item.id))
                if item.value.get("call_id") not in (None, given.get("call_id")):
                    edits.append(Edit("call_id", path, "call_id", item.value["call_id"]))
                if item.value.get("arguments") == "{}" and not given.get("arguments"):
                    edits.append(Edit("arguments_empty", path, "arguments", "{}"))
        elif not whole or self._output.done != output:  # Q110
            edits.append(Edit("output_rebuilt", ("response",), "output", self._output.done))
        out.edit(edits)

    def _usage(self, out: Out) -> list[Event]:
        usage: Any = out.value["response"].get("usage", ABSENT)
        if is_object(usage):
            missing = {name: 0 for name in ("input_tokens", "output_tokens") if type(usage.get(name)) is not int}
            counts: dict[str, Any] = {**NO_USAGE, **usage, **missing}
            total = counts["input_tokens"] + counts["output_tokens"]
            if missing:
                known = usage if type(usage.get("total_tokens")) is int else {"total_tokens": total}
                counts["total_tokens"] = known["total_tokens"]
                out.edit([Edit("usage_unknown", ("response",), "usage", counts)])
            elif type(usage.get("total_tokens")) is not int:
                out.edit([Edit("usage_total", ("response", "usage"), "total_tokens", total)])
            return [model.Usage(n=out.n, counts=usage)]
        out.edit([Edit("usage_unknown", ("response",), "usage", dict(NO_USAGE))])
        return []

    # -- failures and whole answers -----------------------------------------------------------------------------------

    def _fail(self, came: bytes | None, given: Any) -> None:
        """Turn an error of any shape into the one that every client reads (codex ignores all others)."""
        self._begin_failure()
        output, error = self._output, error_of(given)
        value = failed({**self._response, "id": self._id}, error, output.done)
        event = model.UpstreamError(n=output.n, message=error["message"], code=error["code"])
        output.step((event,), Out(output.n, value, came=came, repair="error_shape", event=FAILED.encode()))

    def _begin_failure(self) -> None:
        self._output.settle(cut=False)
        if not (self._started or self._opened):
            self._opening(named(self._output.n, frame_value(CREATED, response=self._response), "created_supplied"))
        self._ended = True

    def _body(self, data: bytes) -> None:
        data = data.removeprefix(BOM).strip()
        value = parse(data)
        if value is ABSENT and data.startswith(b"{"):
            # The beginning of one is a cut like any other; one of too many values stays unread.
            self._context.live.overflow |= values_at_most(data) > JSON_VALUES_MAX
            return
        answer: dict[str, Any] = as_object(value)
        status: Any = answer.get("status")
        wanted = self._context.settings.synthesise or not self._context.facts.stream
        if answer.get("object") == "response" and status in ("failed", "cancelled", "queued", "in_progress"):
            self._output.step([model.ForeignFrame(n=self._output.n, why="unfinished")])  # a client asked for no more
        if answer.get("error") or status in ("failed", "cancelled"):
            self._fail(None, answer.get("error") or {"code": status, "message": f"the answer is {status}"})
        elif self._started or not wanted or not is_list(answer.get("output")) or status in ("queued", "in_progress"):
            self._output.step([model.ForeignFrame(n=self._output.n, why="not_a_stream")])
        else:
            if self._context.facts.stream:
                self._output.step([model.ForeignFrame(n=self._output.n, why="synthesised")])
            self._whole(answer)

    def _whole(self, answer: dict[str, Any]) -> None:
        for value in frames_of(answer):
            self._dispatch(named(self._output.n, value, "synthesised"))
