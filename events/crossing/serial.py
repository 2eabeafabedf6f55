"""One thing at a time: the events of an answer in an order that every dialect can write.

A chat upstream may write several calls in turns, and text between them. Responses and Messages have one item open at a
time, and their clients run a call as soon as it is closed. So what begins while a call is open waits until that call
has ended: its arguments are complete, or they are whole JSON and something else has begun. A call that is cut short
never ends, and what waits for it is lost. A call starts with its first argument, or its end, under its whole name.

It also restores the calls of custom tools, whose upstream knows them as functions.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..core import model
from ..core.json_text import Boundary
from ..core.limits import COMPOSED_CHARS_MAX
from ..emission.dialect import Context
from .custom import CustomInput
from .names import way_back

__all__ = ["ChoiceEvent", "Serial"]

_Said = model.TextPiece | model.AudioDelta | model.Proof
#: What is about one choice.
ChoiceEvent = _Said | model.CallEvent | model.Finish


@dataclass(slots=True, eq=False)
class _Call:
    """A call, and what waits until it is shown."""

    start: model.ToolCallStarted
    #: Of a custom tool that the upstream knows as a function.
    input: CustomInput | None = None
    #: Follows arguments that are JSON, which show by themselves that they have ended.
    boundary: Boundary = field(default_factory=Boundary)
    damaged: bool = False
    queued: bool = False
    closed: bool = False
    #: The upstream completed it while it was waiting.
    complete: bool = False
    waiting: list[str] = field(default_factory=list[str])


class Serial:
    """Puts the events of one choice in order."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._calls: dict[int, _Call] = {}
        #: The call that is shown now.
        self._open: _Call | None = None
        #: Calls and texts that wait for it, in order.
        self._waiting = deque[_Call | list[_Said]]()
        self._waiting_chars = 0
        self._out: list[ChoiceEvent] = []

    def order(self, n: int, events: Iterable[ChoiceEvent]) -> list[ChoiceEvent]:
        """Return what may be written because of these events of record `n`."""
        out: list[ChoiceEvent] = []
        self._out = out
        for event in events:
            if isinstance(event, model.Finish):
                self._finish(n)
                out.append(event)
            elif isinstance(event, model.CallEvent):
                self._of_call(n, event)
            elif isinstance(event, model.Proof) and self._open is not None and self._open.start.call == event.call:
                out.append(event)
            else:
                self._say(n, event)
        return out

    def lose(self, n: int) -> list[model.ToolCallStarted]:
        """Give up what waits, since the answer ends here, and return the starts of calls that were never shown."""
        self._finish(n)
        lost = [call for call in self._calls.values() if not call.closed and call is not self._open]
        for call in lost:
            call.closed = True
        return [call.start for call in lost]

    def _of_call(self, n: int, event: model.CallEvent) -> None:
        if isinstance(event, model.ToolCallStarted):
            self._calls.setdefault(event.call, _Call(event)).start = event
            return
        call = self._calls.get(event.call)
        named = call is not None and (call.start.name or isinstance(event, model.ToolNameDelta))
        if call is None or not named:  # a part was lost: it must not run
            self._out.append(model.ToolCallDamaged(n=n, choice=0, call=event.call))
            return
        match event:
            case model.ToolNameDelta():
                call.start = replace(call.start, name=call.start.name + event.name)
            case model.ToolArgumentsDelta():
                self._argue(n, call, event.text)
            case model.ToolArgumentsComplete() if not call.closed:
                call.complete = True
                if self._enter(n, call):
                    self._close(n, call)
            case model.ToolCallDamaged():
                call.damaged = True
                if call.closed:
                    self._out.append(event)
            case _:
                pass

    def _argue(self, n: int, call: _Call, text: str) -> None:
        number = call.start.call
        shown = not call.closed and self._enter(n, call)
        if call.closed:  # the client may have run it without them
            self._out.append(model.ToolCallDamaged(n=n, choice=0, call=number))
        elif not shown:
            call.waiting.append(text)
            self._wait(len(text))
        else:
            if call.input is not None or not call.start.custom:
                call.boundary.feed(text)
            if call.input is not None:
                text = call.input.feed(text)
            if text:
                self._out.append(model.ToolArgumentsDelta(n=n, choice=0, call=number, text=text))

    def _say(self, n: int, event: _Said) -> None:
        if self._make_room(n):
            self._out.append(event)
            return
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, list):
            last.append(event)
        else:
            self._waiting.append([event])
        self._wait(len(event.text) if isinstance(event, model.TextPiece) else 1)

    def _enter(self, n: int, call: _Call) -> bool:
        """Return whether a call is the one that is shown; if no other one is, show it unless it has ended."""
        if self._open is not call and self._make_room(n) and not call.closed:  # it may have waited, and have ended
            self._show(call)
        if self._open is call:
            return True
        if not (call.queued or call.closed):
            call.queued = True
            self._waiting.append(call)
        return False

    def _show(self, call: _Call) -> None:
        self._open = call
        if not call.start.custom and way_back(self._context.crossing, call.start.name).kind == "custom":
            call.start, call.input = replace(call.start, custom=True), CustomInput()
        self._out.append(call.start)

    def _make_room(self, n: int) -> bool:
        """End the call that is shown if its arguments have ended, and return whether nothing else is shown then."""
        if self._open is not None and self._open.boundary.complete:
            self._close(n, self._open)
        return self._open is None

    def _wait(self, chars: int) -> None:
        self._waiting_chars += chars
        self._context.live.overflow |= self._waiting_chars > COMPOSED_CHARS_MAX

    def _close(self, n: int, call: _Call) -> None:
        """End the call that is shown, and go on with what waits for it."""
        following: _Call | None = call
        while following is not None:
            call, number = following, following.start.call
            rest = "" if call.input is None else call.input.rest(whole=call.boundary.complete)
            if rest is None or call.damaged:
                self._out.append(model.ToolCallDamaged(n=n, choice=0, call=number))
            elif rest:
                self._out.append(model.ToolArgumentsDelta(n=n, choice=0, call=number, text=rest))
            self._out.append(model.ToolArgumentsComplete(n=n, choice=0, call=number))
            self._open, call.closed = None, True
            following = self._next(n)

    def _next(self, n: int) -> _Call | None:
        """Show what waits, as far as the next call; return that if it has ended too."""
        while self._waiting:
            one = self._waiting.popleft()
            if isinstance(one, list):
                self._out += (replace(event, n=n) for event in one)
                continue
            self._show(one)
            self._argue(n, one, "".join(one.waiting))
            one.waiting.clear()
            return one if one.complete or (self._waiting and one.boundary.complete) else None
        return None

    def _finish(self, n: int) -> None:
        """Enter in the ledger that text is lost, because a call before it never ends."""
        if any(isinstance(one, list) for one in self._waiting):
            self._context.ledger.enter(n, "lost_order")
        self._waiting.clear()
