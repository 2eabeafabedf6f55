"""Read one attempt of a Responses stream: upstream frames to canonical ones, their events, and named repairs.

`Q110` is a row of the dialect catalogue. Canonical frames begin with `response.created` and `response.in_progress`, and
end with one of three frames that hold the whole response. A frame that needs no repair passes as the bytes object that
came. Nothing here raises on upstream data.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..core import model
from ..core.json_text import as_list, as_object, as_text, dumps, is_list, is_object
from ..core.model import Event
from ..emission.dialect import Context, Step
from ..emission.frames import Edit, Out
from ..wire.sse import Frame
from . import frames
from .frames import ENDS, NO_USAGE, frame_value, named
from .output import Output
from .whole import frames_of

__all__ = ["Repair"]

_OPENINGS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
#: What keeps a connection open; we have our own.
_PINGS: Final = frozenset(
    f"{prefix}{word}" for prefix in ("", "response.") for word in ("heartbeat", "keepalive", "ping")
)
#: Older and other names of events (Q115, Q118).
_ALIASES: Final[Mapping[str, str]] = {
    "response.done": "response.completed",
    "response.output_text_annotation.added": "response.output_text.annotation.added",
    "response.reasoning_part.added": "response.content_part.added",
    "response.reasoning_part.done": "response.content_part.done",
    "response.reasoning.delta": "response.reasoning_text.delta",
    "response.reasoning.done": "response.reasoning_text.done",
    "response.reasoning_summary.delta": "response.reasoning_summary_text.delta",
    "response.reasoning_summary.done": "response.reasoning_summary_text.done",
}
#: Events of another dialect; chunks of chat completions have no type at all.
_OF_OTHERS: Final = ("message_", "content_block_")
#: The last frame that a status means.
_MEANT: Final[Mapping[str, str]] = {status: kind for kind, status in ENDS.items()} | {"cancelled": "response.failed"}


class Repair(Output):
    """The reader of one attempt."""

    ends = (*ENDS, "error")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: The first frames have come. A client that has frames of an earlier attempt knows the id that we made.
        self._started = False
        self._opened = self._progressed = context.opened > 0
        made = f"resp_{context.stream_id}"
        self._id = made if self._opened else ""
        #: The response as it began, or one of ours.
        self._response = frames.response_object(made, context.created, context.facts.model)
        self._ended = False

    def _object(self, out: Out, frame: Frame) -> None:
        self._typed(out, frame.event.decode("utf-8", "replace"))
        self._note_overflow()

    def _typed(self, out: Out, event: str) -> None:
        value, kind = out.value, out.value.get("type")
        if not isinstance(kind, str) or not kind:
            if value.get("error") or event == "error":
                self._failed(out.came, value.get("error") or value)
                return
            kind = event
            self._rename(out, kind)
        elif kind in _ALIASES:  # Q115, Q118
            kind = _ALIASES[kind]
            self._rename(out, kind)
        if kind in _PINGS:  # Q117
            self._withhold(out, "ping")
        elif not self._ended:
            self._settle(cut=kind == "response.incomplete")
            self._dispatch(out)
        elif kind == "response.failed" and self._context.live.error is not None:  # Q94
            self._withhold(out, "failed_repeated")
        else:
            self._step((), out)

    @staticmethod
    def _rename(out: Out, kind: str) -> None:
        out.edit([Edit("event_name", (), "type", kind)])
        out.event, out.repair = kind.encode("utf-8", "replace"), out.repair or "event_name"

    def _dispatch(self, out: Out) -> None:
        """Read one frame whose type is known to be text."""
        kind = out.value["type"]
        if kind in frames.PLACED:
            self._open_response()
            self._take(out)
        elif kind in _OPENINGS:
            self._opening(out)
        elif kind in ENDS:
            self._last(out)
        elif kind == "error":
            self._failed(out.came, out.value.get("error") or out.value)
        else:  # strict clients raise on a name that they do not know
            other = not self._started and (not kind or kind.startswith(_OF_OTHERS))
            self._withhold(out, "foreign", "not_a_stream" if other else "foreign")

    def _opening(self, out: Out) -> None:
        kind, response = out.value["type"], as_object(out.value.get("response"))
        known = self._started or self._opened
        if known if kind == "response.created" else (self._progressed or self._order):
            self._step(self._start(response))
            self._withhold(out, "opening_repeated")
            return
        if not known and kind != "response.created":  # Q112, Q116
            self._supply_opening("created", response, "created_supplied")
        self._identify(out)
        self._progressed = self._progressed or kind == "response.in_progress"
        self._step(self._start(out.value["response"]), out)

    def _supply_opening(self, kind: str, response: Mapping[str, Any], repair: str) -> None:
        value = frame_value(f"response.{kind}", response={**response, "status": "in_progress"})
        self._opening(named(self._n, value, repair))

    def _start(self, response: dict[str, Any]) -> Sequence[Event]:
        """Note the response as it began, and return the event of its start, once."""
        if self._started:
            return ()
        self._started = True
        self._id = self._id or str(response.get("id") or self._response["id"])
        self._response = {**(response or self._response), "id": self._id}
        name = as_text(response.get("model")) or self._context.facts.model
        return (model.ResponseStarted(n=self._n, id=self._id, model=name),)

    def _open_response(self, *, progress: bool = True) -> None:
        """Supply the frames that begin an answer (Q116)."""
        if not (self._started or self._opened):
            self._supply_opening("created", self._response, "created_supplied")
        if progress and not self._progressed:
            self._supply_opening("in_progress", self._response, "in_progress_supplied")

    def _identify(self, out: Out) -> None:
        """Give a response its one id, and a list of output (Q111)."""
        given: Any = out.value.get("response")
        if not is_object(given) or not given:
            out.edit([Edit("response_missing", (), "response", self._response)])
            given = self._response
        due, edits = ENDS.get(out.value["type"]), list[Edit]()
        if due is not None and given.get("status") != due:
            edits.append(Edit("response_status", ("response",), "status", due))
        self._id = self._id or str(given.get("id") or self._response["id"])
        if given.get("id") != self._id:
            edits.append(Edit("response_id", ("response",), "id", self._id))
        if not is_list(given.get("output")):
            edits.append(Edit("output_missing", ("response",), "output", list[Any]()))
        out.edit(edits)

    def _last(self, out: Out) -> None:
        kind = out.value["type"]
        status = str(as_object(out.value.get("response")).get("status"))
        if kind == "response.completed" and _MEANT.get(status, kind) != kind:
            kind = _MEANT[status]
            self._rename(out, kind)
        if kind == "response.failed":
            self._begin_failure()
            self._identify(out)
            error = as_object(out.value["response"].get("error"))
            message, code = str(error.get("message") or ""), str(error.get("code") or "")
            self._step((model.UpstreamError(n=out.n, message=message, code=code),), out)
            return
        self._open_response()
        self._identify(out)
        given = [item for item in as_list(out.value["response"]["output"]) if is_object(item)]
        self._close_all(given, whole=kind == "response.completed")
        self._settle_output(out, given)
        events = self._usage(out)
        reason = as_object(out.value["response"].get("incomplete_details")).get("reason")
        word = "content_filter" if reason == "content_filter" else "length"
        if kind == "response.completed":
            word = "tool_calls" if self._calls else "stop"
        events.append(model.Finish(n=out.n, choice=0, reason=word))
        self._steps.append(Step(out.n, events, choices=(0,)))
        self._step((model.Terminator(n=out.n),), out)
        self._ended = True

    def _settle_output(self, out: Out, output: list[dict[str, Any]]) -> None:
        """Give the last frame the items as they were sent (Q110, Q111)."""
        order, edits = self._order, list[Edit]()
        whole = len(output) == len(out.value["response"]["output"])  # else the places of items are others
        if whole and self._known(output) == order and not any(item.split for item in order):
            for number, (item, given) in enumerate(zip(order, output, strict=True)):
                path = ("response", "output", number)
                edits += item.ids(given, path)
                if item.value.get("arguments") == "{}" and not given.get("arguments"):
                    edits.append(Edit("arguments_empty", path, "arguments", "{}"))
        elif not whole or self._done != output:  # Q110
            edits.append(Edit("output_rebuilt", ("response",), "output", self._done))
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

    def _failed(self, came: bytes | None, words: Any) -> None:
        """Turn an error of any shape into the one that every client reads (codex ignores all others)."""
        self._begin_failure()
        n, error = self._n, _error_of(words)
        out = named(n, frame_value("response.failed", response={"status": "failed", "error": error}), "error_shape")
        out.came = came
        self._step((model.UpstreamError(n=n, message=error["message"], code=error["code"]),), out)

    def _begin_failure(self) -> None:
        self._settle(cut=False)
        self._open_response(progress=False)
        self._ended = True

    def _answer(self, answer: dict[str, Any]) -> None:
        status: Any = answer.get("status")
        wanted = self._context.settings.synthesise or not self._context.facts.stream
        if answer.get("object") == "response" and status in ("failed", "cancelled", "queued", "in_progress"):
            self._flag(self._n, "unfinished")  # a client asked for no more
        if answer.get("error") or status in ("failed", "cancelled"):
            self._failed(None, answer.get("error") or {"code": status, "message": f"the answer is {status}"})
        elif self._started or not wanted or not is_list(answer.get("output")) or status in ("queued", "in_progress"):
            self._flag(self._n, "not_a_stream")
        else:
            if self._context.facts.stream:
                self._flag(self._n, "synthesised")
            for value in frames_of(answer):
                self._dispatch(named(self._n, value, "synthesised"))


def _error_of(given: Any) -> dict[str, Any]:
    """Return the error of a `response.failed`: a code, a message, and all other members that came with them."""
    error = as_object(given)
    message, code = error.get("message"), error.get("code") or error.get("type")
    rest = {key: value for key, value in error.items() if key not in ("code", "message", "type", "sequence_number")}
    text = message if isinstance(message, str) else given if isinstance(given, str) else dumps(given).decode()
    return {"code": str(code or "server_error"), "message": text, **rest}
