"""Write Responses frames: those that came, and the frames that we add to a stream.

The writer numbers all frames in the order of sending. Items never overlap, so a frame of an item belongs to the one
that was added last. What we add is of types that every client knows (clients.md 5): a lifecycle frame is a `keepalive`.
"""

from collections.abc import Sequence
from typing import Any, Final

from ..core.json_text import as_list, as_object, as_text, dumps
from ..emission.dialect import NO_CALL, Context, Held, Split, Step, Writer
from ..emission.frames import Edit, Out, Styles
from ..emission.words import KEEPALIVE, PROGRESS_EVENT, failure, warning
from ..folds.wire import Call
from . import frames
from .frames import ADDED, DONE, PLACED, Item, frame_value, named

__all__ = ["ResponsesWriter"]

_KEEPALIVE: Final = "keepalive"


class ResponsesWriter(Writer):
    """Writes the frames of one emitted stream in one row of numbers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._settings = context.settings
        self._styles = Styles()
        #: No client may get another event before the first one.
        self.opens = context.opened == 0
        #: The stream has a first frame, perhaps not yet encoded.
        self._begun = context.opened > 0
        self.number: int | None = context.opened
        self._place = -1
        #: What our last frame repeats of the response.
        self._response = frames.response_object(f"resp_{context.stream_id}", context.created, context.facts.model)
        #: The items whose last frame was sent, and those of them that are our warnings.
        self._done: list[dict[str, Any]] = []
        self._warned: list[dict[str, Any]] = []
        #: The message or thought that is open, where a warning may have to close it.
        self._text: Item | None = None
        #: The id of the call that the client has seen last, if no other item followed.
        self._open_call = ""
        self._delivers = False
        self._follows = context.settings.on_partial != "error"
        #: Frames wait for a finish; the number of the call that they belong to.
        self._holding = False
        self._held_call = NO_CALL

    def write(self, step: Step) -> Out | None:
        out, self._delivers = step.out, step.delivers
        self._begun |= out is not None
        if self._follows and out is not None and not self._settings.held:
            self._follow(out.value)
        return out

    def _follow(self, value: Any) -> None:
        """Follow the message or thought that is open."""
        kind = value["type"]
        if kind == ADDED:
            self._text = Item(0, value["item"]) if value["item"]["type"] in frames.TEXTS else None
            self._open_call = value["item"].get("call_id", "") if frames.is_client_call(value["item"]) else ""
        elif self._text is not None and kind in PLACED:
            self._text.take(value)
            if self._text.ended:
                self._text = None

    def split(self, out: Out) -> Split:
        """Hold the last frame of a call, or with `warn` all of them, and every frame after it, until the finish."""
        value = out.value
        kind = value["type"]
        item = as_object(value.get("item"))
        whole = self._settings.on_partial == "warn"
        if (kind == (ADDED if whole else DONE) and frames.is_client_call(item)) or (self._holding and kind == ADDED):
            number = self._number_of(item)
            self._holding = self._holding or number != NO_CALL
            self._held_call = number
        if not self._holding:
            if self._follows:
                self._follow(value)
            return Split(out, (), self._delivers)
        held = Held(0, self._held_call, out, closes=kind == DONE and self._held_call != NO_CALL)
        if kind == DONE:
            self._held_call = NO_CALL
        return Split(None, [held], delivers=False)

    def _number_of(self, item: dict[str, Any]) -> int:
        """Return the number of the call of an item."""
        calls = self._context.live.choice(0).calls if frames.is_client_call(item) else {}
        return next((number for number, call in calls.items() if call.id == item.get("call_id")), NO_CALL)

    def encode(self, out: Out) -> bytes:
        """Return the bytes of a frame, with the numbers that are next."""
        value = out.value
        if value is None:
            return out.encode(self._styles, self._context.ledger)
        kind = value["type"]
        if kind == ADDED:
            self._place += 1
        elif kind == DONE:
            self._done.append(value["item"])
        elif kind in frames.ENDS:
            self._settle_output(out)
        elif kind in ("response.created", "response.in_progress"):
            self.opens = False
            self._response = out.value["response"]
        number = self.number or 0
        self.number = number + 1
        due = {"sequence_number": number, **({"output_index": self._place} if kind in PLACED else {})}
        if out.payload is None:
            out.value = {**out.value, **due}
        else:
            out.edit([Edit("renumbered", (), key, new) for key, new in due.items() if value.get(key) != new])
        return out.encode(self._styles, self._context.ledger)

    def _settle_output(self, out: Out) -> None:
        """Write the items that the client has into the response of the last frame."""
        response: dict[str, Any] = out.value["response"]
        ours, given = out.payload is None, as_list(response.get("output"))
        if ours and (out.value["type"] == "response.failed" or out.repair == "warn_finish"):
            out.value = {**out.value, "response": {**self._response, **response, "output": self._done}}
            return
        output = [*given, *self._warned]
        if self._settings.held:  # it may name items that are held
            sent = {as_text(item.get("id")) for item in self._done}
            output = [
                item for item in output if as_text(item.get("id")) in sent or not (ours or frames.is_client_call(item))
            ]
        if output != given:
            out.edit([Edit("output_rebuilt", ("response",), "output", output)])

    def withhold_finish(self, out: Out, choices: set[int]) -> None:
        """Leave the frame alone: only a chunk of chat can make this claim."""

    def card(self, n: int, choice: int, said: dict[str, Any]) -> Out:  # noqa: ARG002 - there is one answer
        return Out(n, frame_value(_KEEPALIVE, **said), repair="lifecycle", event=PROGRESS_EVENT)

    def warning(self, n: int, code: str, lost: Sequence[Call]) -> list[Out]:
        """Return a message of its own, after the end of what is open; nothing while that is one of the lost calls.

        The end of such an item would make clients run it, and the failure that follows says the same.
        """
        if any(call.id == self._open_call for call in lost):
            return []
        said = warning(code, lost, self._context.facts)
        part = {"type": "output_text", "text": said, "annotations": list[Any]()}
        item_id = f"msg_{self._context.stream_id}_warning_{len(self._warned)}"
        item = {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": [part]}
        self._warned.append(item)
        return [*self._closed_text(n), *(named(n, value, "warning_text") for value in frames.item_frames(item, 0))]

    def _closed_text(self, n: int) -> list[Out]:
        text, self._text = self._text, None
        return [] if text is None else [named(n, value, "item_closed") for value in text.closing("incomplete")]

    def http_error(self, out: Out) -> bytes:
        error = as_object(as_object(out.value.get("response")).get("error"))
        kind = error.get("type") or "server_error"
        body = {"message": error.get("message", ""), "type": kind, "param": error.get("param"), **error}
        return dumps({"error": body})

    def keepalive(self, n: int) -> Out:
        """Return a comment before the first frame, and then the event that resets codex's clock."""
        return Out(n, raw=KEEPALIVE) if self.opens else named(n, frame_value(_KEEPALIVE), "keepalive")

    def close(self, n: int, code: str, lost: Sequence[Call], finished: set[int]) -> list[Out]:  # noqa: ARG002
        """Return a `response.incomplete`, or a `response.failed` that names the tools that were lost."""
        late = self._context.live.late_calls
        opening: list[Out] = []
        if not self._begun:
            self._begun = True
            opening = [named(n, frame_value("response.created", response=self._response), "created_supplied")]
        if self._settings.on_partial == "warn" and not late:
            details = {"reason": "max_output_tokens"}
            response = {"status": "incomplete", "incomplete_details": details, "usage": dict(frames.NO_USAGE)}
            value = frame_value("response.incomplete", response=response)
            return [*opening, *self._closed_text(n), named(n, value, "warn_finish")]
        error = failure(code, lost, late, self._context.facts)
        failed = {"status": "failed", "error": {"code": error["code"], **error}}
        value = frame_value("response.failed", response=failed)
        return [*opening, named(n, value, "error_frame")]
