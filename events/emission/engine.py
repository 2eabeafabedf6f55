"""The engine that turns the records of a tape into the frames a client gets, in any dialect.

It keeps what no dialect may decide: attempts, what was delivered, frames that wait, calls that are held, lifecycle
frames, and the one ending. What frames mean and how they are written is the business of a `Reader` and a `Writer`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ..core.json_text import parse
from ..core.lifecycle import CUT_FINISHES, State
from ..core.limits import BODY_BYTES_MAX, HELD_BYTES_MAX
from ..core.model import (
    AttemptStarted,
    Ended,
    Ending,
    Event,
    Finish,
    ForeignFrame,
    HandedOver,
    ReasoningDelta,
    Terminator,
    TextDelta,
    ToolArgumentsComplete,
    UpstreamError,
)
from ..core.settings import Facts, Settings
from ..folds.wire import SIBLING, Call, Wire
from ..tape.record import Record, Shape
from .cards import Cards
from .dialect import Closing, Context, Dialect, Held, Step
from .frames import Out, Outbox
from .ledger import Ledger, Sink

__all__ = ["Stream"]

#: Records after which frames are sent as before, unless they carry an answer of their own.
_ASIDE: Final = frozenset({"commit", "gone", "keepalive"})
_CLOSES: Final = (Finish, HandedOver)
_MALFORMED: Final = frozenset({"malformed", SIBLING})


class _Routine(NamedTuple):
    """How the frames of one shape are sent: around their text, what is sent, and the repairs that this takes."""

    shape: Shape
    before: bytes
    after: bytes
    repairs: tuple[str, ...]

    def send(self, record: Record, ledger: Ledger) -> bytes:
        assert record.raw is not None, "a frame with a shape has bytes"
        assert record.payload is not None, "a frame with a shape has a payload"
        if not self.repairs:
            return record.raw
        for repair in self.repairs:
            ledger.count(repair)
        return b"%b%b%b" % (self.before, self.shape.text(record.payload), self.after)


def _routine_of(record: Record, step: Step, frame: bytes) -> _Routine | None:
    """Return how a frame was sent, if its text is in both exactly once; the reader says if only its text matters."""
    out, shape, payload = step.out, record.shape, record.payload
    if not step.plain or out is None or out.reserialised or shape is None or payload is None:
        return None
    text = b'"%b"' % shape.text(payload)
    if len(text) == 2 or payload.count(text) != 1 or frame.count(text) != 1:
        return None
    before, _, after = frame.partition(text)
    if out.changes and (b"\\u" in before or b"\\u" in after):  # another style may be due for the next text
        return None
    return _Routine(shape, before + b'"', b'"' + after, tuple(edit.repair for edit in out.changes))


def _text_of(record: Record) -> str:
    assert record.shape is not None, "only a frame with a shape has one text"
    text: str = parse(b'"%b"' % record.shape.text(record.payload or b""))
    return text


class Stream:
    """Feed the records of one tape in order, get the frames that are sent because of each."""

    def __init__(
        self,
        dialect: Dialect,
        settings: Settings,
        stream_id: str = "",
        created: int = 0,
        sink: Sink | None = None,
        *,
        repairs: bool = True,
        writes: bool = True,
    ) -> None:
        """Pass every event to the sink; without `repairs`, none of the ledger. Without `writes`, make no frames."""
        self.ledger = Ledger(sink if repairs else None)
        self._dialect = dialect
        self._settings = settings
        self._stream_id, self._created = stream_id, created
        self._sink = sink
        self._repairs, self._writes = repairs, writes
        self._facts = Facts()
        self._cards = Cards(settings, self.ledger)
        self._outbox = Outbox()
        #: How frames of the last one's shape are sent, while nothing else happens.
        self._routine: _Routine | None = None
        #: The event of such a frame, for the sink: the events of the others differ in their text.
        self._routine_event: TextDelta | ReasoningDelta | None = None
        self._begin_attempt()

    @property
    def delivered(self) -> bool:
        """Whether content was sent, so that no other attempt may follow."""
        return self._outbox.delivered

    @property
    def overflow(self) -> bool:
        """Whether more is kept than any stream needs: the caller ends it with the cause `limit`."""
        return self.wire.overflow

    def feed(self, record: Record) -> list[bytes]:
        """Return the frames for this record."""
        if record.shape is not None and self._routine is not None and record.shape is self._routine.shape:
            event = self._routine_event
            if event is not None and self._sink is not None and (text := _text_of(record)):
                self._sink(replace(event, n=record.n, text=text))
            return [self._routine.send(record, self.ledger)]
        if record.kind not in _ASIDE or record.raw is not None:
            self._routine = None
        if record.kind == "frame":
            steps = self._frame(record)
            outs = self._outbox.take()
            frames = self._encoded(outs)
            alone = bool(frames) and len(steps) == 1 and outs[-1] is steps[0].out
            if alone and record.shape is not None and self._flows(record, steps[0]):
                self._routine = _routine_of(record, steps[0], frames[-1])
            return frames
        if record.kind == "end":
            return self._end(record)
        self._other(record)
        return self._taken()

    def ending(self, cause: str) -> tuple[Ending, tuple[str, ...]]:
        """Return how the stream ends if its bytes end now for this cause, and its flags: what `end` is to contain."""
        self._settle()
        return self.wire.ending(cause), self.wire.all_flags()

    # -- records ------------------------------------------------------------------------------------------------------

    def _frame(self, record: Record) -> Sequence[Step]:
        self._fresh = False
        if self.overflow:  # nothing more is read, so nothing more is kept
            self.ledger.frame(record.n, "late_data", record.raw, None)
            return ()
        self._t = record.t
        steps = self._reader.frame(record)
        for step in steps:
            self._take(step)
        if self.wire.overflow and not self._closed:
            self._cut(record.n, "limit")
        return steps

    def _flows(self, record: Record, step: Step) -> bool:
        """Return whether text passes with nothing else to be done or, for a sink, with the one event of the text."""
        if self._sink is not None:
            event = step.events[0] if len(step.events) == 1 and not self._repairs else None
            if not isinstance(event, TextDelta | ReasoningDelta) or event.text != _text_of(record):
                return False
            self._routine_event = event
        return self.delivered and not self._closed and not self._cards.waiting

    def _other(self, record: Record) -> None:
        match record.kind:
            case "request" if not self.delivered:
                self._facts = Facts.of(record.keys)
                self._begin_attempt()
            case "results":
                for result in self._cards.take(record, streams=self._facts.stream):
                    self._event(result)
            case "attempt" if not self.delivered:
                if not self._fresh:
                    self._discard("attempt_discarded")
                    self._begin_attempt()
                self._fresh = False
                self._event(AttemptStarted(n=record.n))
            case "commit" if record.raw is not None and not self.delivered:  # the client got this error instead
                self._discard("error_status")
                self._outbox.send(Out(record.n, raw=record.raw))
                self._outbox.delivered = self._closed = True
            case "commit" if not self._facts.stream:  # no other attempt follows a status
                self._outbox.delivered = True
            case "rest" if "limit" not in record.keys:  # bytes after a limit mean nothing
                self._fresh, self._t = False, record.t
                self._take_all(self._reader.rest(record.n, record.raw or b""))
            case "body":
                self._fresh, self._t = False, record.t
                self._body_part(record.n, record.raw or b"")
            case _:
                pass

    def _begin_attempt(self) -> None:
        """Forget what an attempt before this one brought: no client has seen it."""
        self.wire = Wire()
        #: The upstream's own error, in the form that clients raise on.
        self.failure = b""
        #: When a call was first handed over, in microseconds since `open`.
        self.handed_us: int | None = None
        self._held: list[Held] = []
        self._held_bytes = 0
        self._finished: set[int] = set()  # choices whose finish the client has
        self._closed = False
        self._fresh = True  # nothing has come yet
        #: The frames that `ending` found, when it was called before the `end` record.
        self._last: list[bytes] = []
        self._body: list[bytes] = []
        self._body_bytes_left, self._body_n, self._t = BODY_BYTES_MAX, 0, 0
        self._cards.begin()
        context = Context(
            self._facts,
            self._settings,
            self._stream_id,
            self._created,
            self.wire,
            self.ledger,
            self._cards.answered,
        )
        self._reader = self._dialect.reader(context)
        self._writer = self._dialect.writer(context)

    def _discard(self, repair: str) -> None:
        """Enter in the ledger that no client will see what came so far."""
        waiting = self._reader.flush(self._body_n)
        outs = [*self._outbox.discard(), *(held.out for held in self._held), *self._writer.tail()]
        outs += [step.out for step in waiting if step.out is not None]
        came = {out.n: out.came for out in outs if out.came is not None}
        for n in sorted({out.n for out in outs}):
            self.ledger.frame(n, repair, came.get(n), None)

    def _event(self, event: Event) -> None:
        self.wire.apply(event)
        if self._sink is not None:
            self._sink(event)

    def _taken(self) -> list[bytes]:
        return self._encoded(self._outbox.take())

    def _encoded(self, outs: Iterable[Out]) -> list[bytes]:
        return [self._writer.encode(out) for out in outs] if self._writes else []

    # -- steps --------------------------------------------------------------------------------------------------------

    def _take_all(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self._take(step)

    def _take(self, step: Step) -> None:
        last = step.events[-1] if step.events else None
        if self._closed:
            terminates = isinstance(last, Terminator)
            if step.out is not None:
                step.out.withhold("done_withheld" if terminates else "late_data", self.ledger)
            if not terminates:
                self._event(ForeignFrame(n=step.n, why="late_data"))
        elif isinstance(last, Terminator):
            self._terminated(step)
        elif isinstance(last, UpstreamError):
            self._failed(step, last)
        else:
            self._content(step)

    def _content(self, step: Step) -> None:
        closing: list[Finish | HandedOver] = []
        for event in step.events:
            if isinstance(event, _CLOSES):
                closing.append(event)
                if isinstance(event, Finish) and event.reason not in CUT_FINISHES:
                    for call in self.wire.choice(event.choice).calls.values():
                        self._event(ToolArgumentsComplete(n=event.n, choice=event.choice, call=call.number))
            self._event(event)
        for index in step.choices:
            self.wire.choice(index)
        out = self._writer.write(step)
        delivers = step.delivers
        if out is not None:
            if closing:
                self._hand_over(step, closing, out)
            self._send_cards(step.n, self.wire.take_unheard())
            if self._settings.held and step.choices:
                now, later, delivers = self._writer.split(out, self.wire)
                self._hold(later)
                out = now
        if out is not None:
            self._outbox.send(out)
            if step.choices:
                self._outbox.send_all(self._cards.of_results(step.n, self._writer))
        self._outbox.delivered = self._outbox.delivered or delivers

    def _hand_over(self, step: Step, closing: Iterable[Finish | HandedOver], out: Out) -> None:
        """Send what belongs before a frame that closes calls: results, held frames, lifecycle frames, a warning."""
        n = step.n
        # A call of this stream may have the id of one whose result is reported here: that result comes first.
        self._outbox.send_all(self._cards.of_results(n, self._writer))
        claimed: set[int] = set()
        for event in closing:
            calls = self.wire.choice(event.choice).calls
            closed = [calls[event.call]] if isinstance(event, HandedOver) else list(calls.values())
            lost = [call for call in closed if call.state is not State.RUNNING]
            if closed and not lost and self.handed_us is None:
                self.handed_us = self._t
            self._release(event, shown=not lost)
            self._send_cards(n, closed)
            if isinstance(event, HandedOver):
                continue
            if lost and event.reason in CUT_FINISHES and self._settings.on_partial != "error":
                self._warn(n, event.reason, lost, out)
            claimed.add(event.choice)
            if not any(call.state is State.MALFORMED for call in lost):
                self._finished.add(event.choice)
        self._writer.withhold_finish(out, claimed - self._finished)

    def _hold(self, later: Iterable[Held]) -> None:
        for held in later:
            self._held_bytes += held.out.size
            if self._held_bytes > HELD_BYTES_MAX:
                self.wire.overflow = True
                held.out.withhold("held_call_lost", self.ledger)
            else:
                self._held.append(held)

    def _release(self, event: Finish | HandedOver, *, shown: bool) -> None:
        """Send the frames that were held for a choice or a call; drop them if no client may see them."""
        kept: list[Held] = []
        for held in self._held:
            if held.choice != event.choice or (isinstance(event, HandedOver) and held.call != event.call):
                kept.append(held)
            elif shown:
                self._outbox.send(held.out)
            else:
                held.out.withhold("held_call_lost", self.ledger)
        self._held = kept

    def _send_cards(self, n: int, calls: Iterable[Call]) -> None:
        self._outbox.send_all(self._cards.of_calls(n, calls, self.wire, self._writer))

    def _warn(self, n: int, code: str, lost: list[Call], before: Out | None = None) -> None:
        self._outbox.send_all(self._writer.warning(n, code, lost, idle=self.wire.idle, before=before))

    # -- endings ------------------------------------------------------------------------------------------------------

    def _terminated(self, step: Step) -> None:
        assert step.out is not None, "a terminator has a frame"
        self._take_all(self._reader.supply(step.n))
        for event in step.events:
            self._event(event)
        if self.wire.finished:
            self._complete(step.n, step.out)
        else:
            step.out.withhold("done_unfinished", self.ledger)
            self._cut(step.n, "truncated")

    def _complete(self, n: int, done: Out | None) -> None:
        lost = [call for call in self.wire.calls() if call.reason in _MALFORMED]
        if lost or self.wire.late_calls:
            if done is not None:
                done.withhold("malformed_claim", self.ledger)
            self._close_partial(n, "malformed_call", lost)
            return
        self._outbox.send_all(self._writer.tail())
        self._outbox.send(self._writer.done(n) if done is None else done)
        self._closed = True

    def _cut(self, n: int, ending: str) -> None:
        self._close_partial(n, ending, self._drop(n, ending, warned=self._settings.on_partial != "error"))

    def _drop(self, n: int, ending: str, *, warned: bool) -> list[Call]:
        """Drop every open call; return those that no client may run, but for those that it was `warned` about."""
        dropped = self.wire.drop_open(ending)
        for held in self._held:
            held.out.withhold("held_call_lost", self.ledger)
        self._held.clear()
        self._send_cards(n, [*dropped, *self.wire.drop_running(ending)])
        return [call for call in self.wire.calls() if call.reason and not (warned and call.reason in CUT_FINISHES)]

    def _close_partial(self, n: int, code: str, lost: list[Call]) -> None:
        """End a stream that must not be taken for whole, as `on_partial` says."""
        live, mode = self.wire, self._settings.on_partial
        self._outbox.send_all(self._writer.tail())
        if lost and mode != "error":
            self._warn(n, code, lost)
        closing = Closing(
            code=code,
            on_partial=mode,
            lost=lost,
            late=live.late_calls,
            idle=live.idle,
            finished=frozenset(self._finished),
            choices=frozenset(live.choices),
        )
        self._outbox.send_all(self._writer.close(n, closing))
        self._closed = True

    def _failed(self, step: Step, error: UpstreamError) -> None:
        """Pass the upstream's own error in every mode, after what it cut."""
        assert step.out is not None, "an error has a frame"
        self.failure = step.out.frame()
        for event in step.events:
            self._event(event)
        lost = self._drop(error.n, "upstream_error", warned=True)
        if lost and self._settings.on_partial != "error":
            self._warn(error.n, "upstream_error", lost)
        self._outbox.send_all(self._writer.tail())
        self._outbox.send(step.out)
        self._outbox.delivered = self._outbox.delivered or step.delivers
        self._closed = True

    def _end(self, record: Record) -> list[bytes]:
        cause = record.keys.get("cause")
        ending, flags = self.ending(cause if isinstance(cause, str) else "")
        if not self._closed:
            if ending == "completed":
                self._complete(record.n, None)
            else:
                self._cut(record.n, ending)
        self._outbox.delivered = True
        frames = [*self._last, *self._taken()]
        self._event(Ended(n=record.n, ending=ending, cause=str(cause), flags=flags))
        return frames

    # -- answers that are not streams ---------------------------------------------------------------------------------

    def _body_part(self, n: int, part: bytes) -> None:
        """Pass a plain answer as it comes, and keep it up to a bound to read it at its end."""
        self._body_n = n
        if not self._facts.stream:
            self._outbox.send(Out(n, raw=part), bounded=False)
        self._body_bytes_left -= len(part)
        if self._body_bytes_left >= 0:
            self._body.append(part)

    def _settle(self) -> None:
        """Read what waited for more bytes: none follow."""
        self._take_all(self._reader.flush(self._body_n))
        if self._facts.stream:
            self._read_body()
        else:  # the client has the answer itself, not a stream
            outbox, self._outbox = self._outbox, Outbox()
            self.ledger.muted = True
            self._read_body()
            self.ledger.muted = False
            self._outbox, self._closed = outbox, True
        self._last += self._taken()

    def _read_body(self) -> None:
        body = b"".join(self._body) if self._body_bytes_left >= 0 else b""
        self._body.clear()
        if body and not self._closed:
            self._take_all(self._reader.body(self._body_n, body))
