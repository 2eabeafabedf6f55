"""The engine that turns the records of a tape into the frames a client gets, in any dialect.

It keeps what no dialect may decide: attempts, what was delivered, frames that wait, calls that are held, lifecycle
frames, and the one ending. What frames mean and how they are written is the business of a `Reader` and a `Writer`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, get_args

from ..core import model
from ..core.json_text import as_list, as_object, as_text, dumps
from ..core.lifecycle import CUT_FINISHES, State
from ..core.limits import BODY_BYTES_MAX, HELD_BYTES_MAX, SHAPES_MAX, UNDELIVERED_BYTES_MAX
from ..core.model import Ending, Event
from ..core.settings import Facts, Profile, Settings
from ..folds.wire import SIBLING, Call, Wire
from ..tape.record import NO_KEYS, Record, Shape
from .cards import Cards
from .dialect import Context, Cross, Dialect, Held, Step
from .frames import Ledger, Out
from .routine import Parts, Routine
from .words import KEEPALIVE

__all__ = ["Engine"]

#: Records that may come between two frames without changing how these are sent, unless they carry an answer.
_ASIDE: Final = frozenset({"commit", "gone", "keepalive"})
#: What a client gets of a record, verbatim: the upstream's bytes, or the error answer that it was given instead.
_CARRIERS: Final = frozenset({"frame", "rest", "body", "commit"})
_CLOSES: Final = (model.Finish, model.HandedOver)
_MALFORMED: Final = frozenset({"malformed", SIBLING})


class Engine:
    """Feed the records of one tape in order, get the frames that are sent because of each.

    The dialect comes with the `open` record. A tape without one, or of an unknown dialect, is emitted as it came.
    """

    #: The dialects that are read and written, by name.
    dialects: ClassVar[Mapping[str, Dialect]]
    #: Return a reader of the first dialect whose frames are of the second.
    cross: ClassVar[Cross]

    def __init__(
        self, profile: Profile | None = None, sink: Callable[[Event], None] | None = None, *, repairs: bool = True
    ) -> None:
        """Pass every event to the sink; without `repairs`, none of the ledger, which costs more than the rest."""
        self.wire = Wire()
        self.ledger = Ledger()
        #: Content was sent, so that no other attempt may follow.
        self.delivered = False
        #: The upstream's own error, as the body of an HTTP error.
        self.failure = b""
        self._dialect: Dialect | None = None
        self._profile: Profile | None = profile
        self._sink = sink
        self._repairs = repairs
        self._verbatim = True
        #: The client has the head of a stream.
        self._streaming = False
        #: How frames like the last one are sent while nothing else happens.
        self._routine: Routine | None = None

    def feed(self, record: Record) -> list[bytes]:
        """Return the frames to send because of this record, each complete."""
        routine, raw = self._routine, record.raw
        if routine is not None:
            if record.shape is routine.shape or routine.admits(record):
                assert raw is not None, "a frame with a shape has bytes"
                frame = raw if routine.unread else routine.repeat(record, raw)
                if frame is not None:
                    return [frame]
            if routine.skipped:
                routine.catch_up()
        kind = record.kind
        if kind not in _ASIDE or raw is not None:
            self._routine = None
        if kind == "open":
            self._open(record.keys)
        elif kind in _CARRIERS:
            self._settled = False
        if self._dialect is None:
            self._pass(record)
            frames: list[bytes] = []
        elif kind == "frame":
            frames = self._frame(record)
        elif kind == "end":
            frames = self._end(record)
        else:
            self._other(record)
            frames = self._taken() if self._waiting else []
        if kind == "commit":
            self._streaming = raw is None
        if self._verbatim:
            return [raw] if raw and kind in _CARRIERS else []
        return self._keepalive(record.n) if kind == "keepalive" and self._streaming else frames

    def ending(self, cause: str) -> tuple[Ending, tuple[str, ...]]:
        """Return the ending and the flags for the `end` record if the bytes end now for this cause."""
        if self._routine is not None and self._routine.skipped:
            self._routine.catch_up()
        if self._dialect is not None and not self._settled:
            self._settle()
            self._settled = True
        return self.wire.ending(cause), self.wire.all_flags()

    # -- records ------------------------------------------------------------------------------------------------------

    def _open(self, keys: Mapping[str, Any]) -> None:
        created = keys.get("created")
        self._settings = Settings.of(keys, self._profile)
        self._holds = self._settings.held
        self._dialect = self.dialects.get(as_text(keys.get("dialect")))
        self._verbatim = self._settings.profile == "transparent" or self._dialect is None
        self._stream_id = as_text(keys.get("stream"))
        self._created = created if type(created) is int else 0
        self.ledger = Ledger(self._sink if self._repairs else None, muted=self._verbatim)
        self._facts = Facts()
        self._cards = Cards(self._settings, self.ledger)
        self.delivered = False
        self._waiting: list[Out] = []
        #: Frames that the client has of a stream without content.
        self._opened = 0
        if self._dialect is not None:
            self._begin_attempt(self._dialect, NO_KEYS)

    def _pass(self, record: Record) -> None:
        """Take the ending of a dialect that we do not read from its `end`: HTTP alone says how it ended."""
        ending: Any = record.keys.get("ending")
        if record.kind == "end" and self._sink is not None and ending in get_args(Ending):
            flags = tuple(flag for flag in as_list(record.keys.get("flags")) if isinstance(flag, str))
            self._sink(model.Ended(n=record.n, ending=ending, cause=str(record.keys.get("cause")), flags=flags))

    def _begin_attempt(self, dialect: Dialect, keys: Mapping[str, Any]) -> None:
        """Forget what an attempt brought that no client has seen; `keys` are those of the `attempt` record after it."""
        self.wire = Wire()
        self.failure = b""
        self._held: list[Held] = []
        self._held_bytes = self._waiting_bytes = 0
        self._finished: set[int] = set()  # choices whose finish the client has
        self._reported: set[int] = set()  # calls that were handed over, and reported, before the finish
        self._closed = False
        #: We ended it with a malformed call; the upstream may still end it well.
        self._refused = False
        self._fresh = True  # nothing has come yet
        self._settled = False  # `ending` has read all that came
        #: The frames that `ending` found, when it was called before the `end` record.
        self._last: list[bytes] = []
        self._body: list[Record] = []
        self._body_bytes_left = BODY_BYTES_MAX
        self._cards.begin()
        crossing, answered = as_object(keys.get("crossing")), self._cards.reported
        started = (self._facts, self._settings, self._stream_id, self._created, self.wire, self.ledger)
        context = Context(*started, answered, self._opened, crossing)
        self._writer = dialect.writer(context)
        theirs = self.dialects.get(as_text(keys.get("dialect")), dialect)
        #: The upstream speaks another dialect than the client.
        self._crossed = theirs is not dialect
        self._reader = self.cross(theirs, dialect, context) if self._crossed else dialect.reader(context)
        entries = self._repairs and self._sink is not None
        self._parts = Parts(self._reader, self._writer, self.ledger, self._sink, entries, self._crossed)
        self._shapes_left = SHAPES_MAX

    def _frame(self, record: Record) -> list[bytes]:
        self._fresh = False
        full = self.wire.overflow
        if full:  # nothing more is read, so nothing more is kept
            self.ledger.frame(record.n, "late_data", record.raw, None)
            return []
        steps = self._reader.frame(record)
        self._take(steps)
        if self.wire.overflow and not self._closed:
            self._cut(record.n, "limit")
        if not self._waiting:
            return []
        last = self._waiting[-1]
        frames = self._taken()
        if frames and len(steps) == 1 and steps[0].plain and last is steps[0].out:
            shape = record.shape
            if shape is None and self._shapes_left and not record.keys.keys() - {"event"}:  # it was read from a tape
                shape = Shape.of(record.payload or b"", record.keys)
                self._shapes_left -= shape is not None
            self._routine = Routine.of(self._parts, shape, record, steps[0], last, frames[-1])
        return frames

    def _other(self, record: Record) -> None:
        n, raw = record.n, record.raw
        assert self._dialect is not None, "others are passed"
        match record.kind:
            case "request" if not self.delivered:
                self._facts = self._cards.facts = Facts.of(record.keys)
                self._begin_attempt(self._dialect, NO_KEYS)
            case "results":
                self._apply(self._cards.take(record, streams=self._facts.stream))
            case "attempt" if not self.delivered:
                if not self._fresh:
                    self._discard("attempt_discarded")
                if not self._fresh or "dialect" in record.keys:
                    self._begin_attempt(self._dialect, record.keys)
                self._fresh = False
                self._apply([model.AttemptStarted(n=n)])
            case "commit" if raw is not None and not self.delivered:  # the client got this error instead
                self._discard("error_status")
                self._send(Out(n, raw=raw))
                self.delivered = self._closed = True
            case "commit" if not self._facts.stream:  # no other attempt follows a status
                self.delivered = True
            case "rest" if "limit" not in record.keys:  # bytes after a limit mean nothing
                self._fresh = False
                self._take(self._reader.rest(n, raw or b""))
            case "body":
                self._fresh = False
                part = raw or b""
                if not (self._facts.stream or self._crossed):
                    self._send(Out(n, raw=part), bounded=False)
                self._body_bytes_left -= len(part)
                if self._body_bytes_left < 0:
                    self._body.clear()
                else:
                    self._body.append(record)
            case _:
                pass

    def _end(self, record: Record) -> list[bytes]:
        cause = record.keys.get("cause")
        ending, flags = self.ending(cause if isinstance(cause, str) else "")
        if not self._closed:
            if ending == "completed":
                self._complete(record.n, None)
            else:
                self._cut(record.n, ending)
        self.delivered = True
        frames = [*self._last, *self._taken()]
        self._apply([model.Ended(n=record.n, ending=ending, cause=str(cause), flags=flags)])
        return frames

    def _apply(self, events: Iterable[Event]) -> None:
        for event in events:
            self.wire.apply(event)
            if self._sink is not None:
                self._sink(event)

    def _send(self, *outs: Out, bounded: bool = True) -> None:
        """Add frames; until one carries content a retry may replace them, unless they are too many."""
        self._waiting += outs
        if not self.delivered and bounded:
            for out in outs:
                self._waiting_bytes += out.size
            self.delivered = self._waiting_bytes > UNDELIVERED_BYTES_MAX

    def _taken(self) -> list[bytes]:
        """Return the bytes of the frames that may be sent now."""
        if not self.delivered:
            return []
        waiting, self._waiting = self._waiting, []
        return [] if self._verbatim else [self._writer.encode(out) for out in waiting]

    def _keepalive(self, n: int) -> list[bytes]:
        """Return what a waiting client gets, after the frames that begin its stream if it needs those."""
        frames: list[bytes] = []
        if not self._verbatim and self._writer.opens:
            if self._waiting:  # no other attempt can follow: it would begin in other words
                self.delivered = True
                frames = self._taken()
            else:
                frames = [self._writer.encode(step.out) for step in self._reader.opening(n) if step.out is not None]
                self._opened = len(frames)
        frames.append(KEEPALIVE if self._verbatim else self._writer.encode(self._writer.keepalive(n)))
        self._opened += bool(self._opened)
        return frames

    def _discard(self, repair: str) -> None:
        """Enter in the ledger that no client will see what came so far."""
        lost = [*self._waiting, *(held.out for held in self._held), *self._writer.tail()]
        lost += [step.out for step in self._reader.flush() if step.out is not None]
        self._waiting.clear()
        came = {out.n: out.came for out in lost if out.came is not None}
        for n in sorted({out.n for out in lost}):
            self.ledger.frame(n, repair, came.get(n), None)

    def _take(self, steps: Sequence[Step]) -> None:
        for step in steps:
            last = step.events[-1] if step.events else None
            if self._closed:
                terminates = isinstance(last, model.Terminator)
                if step.out is not None:
                    step.out.withhold("done_withheld" if terminates else "late_data", self.ledger)
                if self._refused:
                    self._apply(event for event in step.events if not isinstance(event, model.HandedOver))
                elif not terminates and (step.out is not None or not step.choices):
                    self._apply([model.ForeignFrame(n=step.n, why="late_data")])
            elif isinstance(last, model.Terminator):
                self._terminated(step)
            elif isinstance(last, model.UpstreamError):
                self._failed(step)
            else:
                self._content(step)

    def _content(self, step: Step) -> None:
        wire = self.wire
        closing: list[model.Finish | model.HandedOver] = []
        for event in step.events:
            if isinstance(event, model.HandedOver) and self._holds:
                continue  # its frame is held: the finish hands the call over
            if isinstance(event, _CLOSES):
                closing.append(event)
                if isinstance(event, model.Finish):
                    self._apply(wire.completed_by(event))
            self._apply([event])
        for index in step.choices:
            wire.choice(index)
        out = self._writer.write(step)
        delivers = step.delivers
        if closing:
            again = all(isinstance(event, model.Finish) and event.choice in self._finished for event in closing)
            self._hand_over(step, closing, out)
            if self._closed:
                return
            out = None if again else out  # a frame of ours, for calls after the first finish
        if out is not None:
            if wire.unheard:
                self._send(*self._call_cards(step.n, wire.unheard))
                wire.unheard = []
            if self._holds and step.choices:
                now, later, delivers = self._writer.split(out)
                self._hold(later)
                out = now
        if out is not None:
            self._send(out)
            if step.choices and self._cards.due:
                self._send(*self._cards.of_results(step.n, step.choices[0], self._writer))
        self.delivered = self.delivered or delivers

    def _hand_over(self, step: Step, closing: Sequence[model.Finish | model.HandedOver], out: Out | None) -> None:
        """Send what belongs before a frame that closes calls: results, held frames, lifecycle frames, a warning."""
        n = step.n
        # A call of this stream may have the id of one whose result is reported here: that result comes first.
        before = self._cards.of_results(n, closing[0].choice, self._writer)
        malformed: set[int] = set()
        for event in closing:
            choice = self.wire.choice(event.choice)
            if isinstance(event, model.HandedOver):
                call = choice.calls[event.call]
                if call.state is not State.RUNNING:  # its last frame, after which some clients would run it
                    assert out is not None, "a call is handed over with a frame"
                    out.withhold("malformed_claim", self.ledger)
                    self._send(*before, *self._call_cards(n, [call]))
                    self._close_partial(n, "malformed_call", [call])
                    self._refused = True
                    return
                before += self._call_cards(n, [call])
                self._reported.add(event.call)
                continue
            lost = [call for call in choice.closed if call.state is not State.RUNNING]
            gone = {call.number for call in lost}
            held, self._held = self._held, []
            hidden: set[int | None] = set()
            stuck = False  # the client has the beginning of a lost call: what follows would be inside
            for one in held:
                if one.choice != event.choice:
                    self._held.append(one)
                elif stuck or one.call in gone or (lost and one.call is None):  # no client may see them
                    stuck = stuck or (one.closes and one.call not in hidden)
                    hidden.add(one.call)
                    one.out.withhold("held_call_lost", self.ledger)
                else:
                    if one.closes and one.call is not None:
                        before += self._call_cards(n, [choice.calls[one.call]])
                        self._reported.add(one.call)
                    before.append(one.out)
            before += self._call_cards(n, [call for call in choice.closed if call.number not in self._reported])
            if event.choice in self._finished:
                continue
            if event.reason in CUT_FINISHES:
                before += self._warning(n, event.reason, lost)
            (malformed if choice.malformed else self._finished).add(event.choice)
        if malformed and out is not None:
            self._writer.withhold_finish(out, malformed)
        if before:
            self._send(*(self._writer.introduce(out) if out is not None else ()), *before)

    def _hold(self, later: Iterable[Held]) -> None:
        for held in later:
            self._held_bytes += held.out.size
            self._held.append(held)
        self.wire.overflow |= self._held_bytes > HELD_BYTES_MAX

    def _call_cards(self, n: int, calls: Iterable[Call]) -> list[Out]:
        return self._cards.of_calls(n, calls, self.wire, self._writer)

    def _warning(self, n: int, code: str, lost: list[Call]) -> list[Out]:
        return self._writer.warning(n, code, lost) if lost and self._settings.on_partial != "error" else []

    # -- endings ------------------------------------------------------------------------------------------------------

    def _terminated(self, step: Step) -> None:
        assert step.out is not None, "a terminator has a frame"
        self._take(self._reader.supply(step.n))
        self._apply(step.events)
        if self.wire.finished:
            self._complete(step.n, step.out)
        else:
            step.out.withhold("done_unfinished", self.ledger)
            self._cut(step.n, "truncated")

    def _complete(self, n: int, done: Out | None) -> None:
        lost = [call for call in self.wire.calls() if call.reason in _MALFORMED]
        if lost or self.wire.late_calls:
            self._lose_held()
            if done is not None:
                done.withhold("malformed_claim", self.ledger)
            self._close_partial(n, "malformed_call", lost)
            return
        late = [held.out for held in self._held]  # text after the finish; a call would have reopened its choice
        self._held.clear()
        supplied = Out(n, raw=self._writer.terminator, repair="done_supplied")
        self._send(*late, *self._writer.tail(), done or supplied)
        self._closed = True

    def _lose_held(self) -> None:
        for held in self._held:
            held.out.withhold("held_call_lost", self.ledger)
        self._held.clear()

    def _cut(self, n: int, ending: str) -> None:
        self._close_partial(n, ending, self._drop(n, ending))

    def _drop(self, n: int, ending: str) -> list[Call]:
        """Drop every open call; return those that no client may run, but for those that it was warned about."""
        dropped = self.wire.drop(n, ending)
        self._lose_held()
        self._send(*self._call_cards(n, dropped))
        warned = CUT_FINISHES if self._settings.on_partial != "error" else ()
        return [call for call in self.wire.calls() if call.reason and call.reason not in warned]

    def _close_partial(self, n: int, code: str, lost: list[Call]) -> None:
        """End a stream that must not be taken for whole, as `on_partial` says."""
        self._send(*self._warning(n, code, lost), *self._writer.close(n, code, lost, self._finished))
        self._closed = True

    def _failed(self, step: Step) -> None:
        """Pass the upstream's own error in every mode, after what it cut."""
        assert step.out is not None, "an error has a frame"
        self.failure = self._writer.http_error(step.out)
        self._apply(step.events)
        lost = self._drop(step.n, "upstream_error")
        self._send(*self._warning(step.n, "upstream_error", lost), *self._writer.tail(), step.out)
        self.delivered = self.delivered or step.delivers
        self._closed = True

    def _settle(self) -> None:
        """Read what waited for more bytes: none follow."""
        self._take(self._reader.flush())
        streams, kept = self._facts.stream, (self._waiting, self.delivered, self.ledger.muted)
        if not streams:  # the client has the answer itself
            self._waiting, self.ledger.muted = [], True
        parts, self._body = self._body, []
        body = b"".join(part.raw or b"" for part in parts)
        if body and not self._closed:
            self._take(self._reader.body(parts[-1].n, body))
        if not streams:
            if self.wire.finished:  # a whole answer needs no terminator
                self._apply(model.Terminator(n=record.n) for record in parts[-1:])
            composed, self._waiting, self.delivered, self.ledger.muted = self._waiting, *kept
            if self._crossed and self._dialect is not None and parts and self.wire.finished and self.wire.error is None:
                whole = self._dialect.whole(out.value for out in composed)
                self._send(Out(parts[-1].n, raw=dumps(whole)), bounded=False)
            self._closed = True
        self._last += self._taken()
