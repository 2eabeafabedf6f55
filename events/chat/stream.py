"""Records of one chat stream to the frames a client gets: joins repair, read, the live fold and write."""

from collections.abc import Iterable
from typing import Any, Final

from ..core.json_text import parse
from ..core.lifecycle import State
from ..core.limits import BODY_BYTES_MAX
from ..core.model import (
    AttemptStarted,
    Ended,
    Ending,
    Event,
    Finish,
    ForeignFrame,
    ResponseStarted,
    Terminator,
    TextDelta,
    ToolArgumentsComplete,
    UpstreamError,
    Usage,
)
from ..core.settings import Facts, Settings
from ..core.splice import Op
from ..emission.ledger import Ledger, Sink
from ..emission.outbox import Outbox
from ..folds.wire import SIBLING, Call, Wire
from ..tape.record import Record, Shape
from ..wire.sse import encode
from . import read, write
from .answers import Failure
from .cards import Cards
from .choices import CUT_FINISHES
from .held import HeldCalls
from .hermes import AgentTools, Progress, frame_of
from .repair import Chunk, Done, Item, Repair, Unknown, role_moved, without_claims
from .results import Results

__all__ = ["ChatStream"]

#: What a frame that came in several reads has to say of itself, and no more.
_CUTS: Final = frozenset({"cuts"})


class ChatStream:
    """Feed the records of one tape in order, get the frames that go out on account of each."""

    def __init__(
        self, settings: Settings, stream_id: str, created: int, sink: Sink | None = None, *, repairs: bool = True
    ) -> None:
        """The sink is told every event; without `repairs` those of the ledger are not made."""
        self.ledger = Ledger(sink if repairs else None)
        self._settings = settings
        self._stream_id, self._created = stream_id, created
        self._sink = sink
        self._facts = Facts()
        self._results = Results(self.ledger, told=settings.tool_events)
        self._outbox = Outbox(self.ledger)
        self._cards = Cards(settings, self.ledger, self._outbox)
        #: Text has come, so that a warning begins a paragraph of its own.
        self._texted = False
        #: Frames of this shape pass as they came and change nothing; None once anything else has happened but one more
        #: piece of a call's arguments.
        self._plain_shape: Shape | None = None
        self._begin_attempt()

    @property
    def delivered(self) -> bool:
        """Content has gone out, so no other attempt may follow."""
        return self._outbox.delivered

    @property
    def overflow(self) -> bool:
        """More is kept than any stream needs: the caller ends it with the cause `limit`."""
        return self.wire.overflow

    def feed(self, record: Record) -> list[bytes]:
        """The frames for this record."""
        kind = record.kind
        if record.shape is not None and record.shape is self._plain_shape:
            assert record.raw is not None
            return [record.raw]
        if kind == "frame":
            if self._flows and record.payload is not None and (not record.keys or record.keys.keys() <= _CUTS):
                frame = self._flowing(record, record.payload)
                if frame is not None:
                    return [frame]
            self._plain_shape = None
            self._fresh = False
            self._frame(record.read())
        elif kind == "end":
            self._end(record)
            return [*self._last, *self._outbox.take()]
        else:
            self._plain_shape = None
            self._other(record)
        return self._outbox.take()

    def _flowing(self, record: Record, payload: bytes) -> bytes | None:
        """One more piece of text, or of a call's arguments, if it is no more than that."""
        frame = None if self.ledger.whole else self._repair.steady(payload)  # first: the dearest of what is usual
        value = record.read().value
        plain = frame is None and self._repair.plain(value)
        frame = record.raw if plain else frame
        calls = not frame and b'"tool_calls"' in payload and not self._settings.held
        if calls and self.wire.has_room(len(payload)) and (said := self._repair.arguments(value, record.n)) is not None:
            self._event(said)
            return record.raw
        self._texted = self._texted or read.says_text(value)
        if self._sink is not None and frame is not None:  # told here; the live fold knows it already
            for event in read.texts(value if plain else parse(frame[6:-2]), record.n):
                self._sink(event)
        elif plain and record.shape is not None and len(payload) > record.shape.edges:  # it says something
            self._plain_shape = record.shape
        return frame

    def _frame(self, record: Record) -> None:
        if self.overflow:  # nothing more is read, so nothing more is kept
            self.ledger.came(record.n, record.raw or b"")
            self.ledger.withheld(record.n, "late_data")
            return
        self._t = record.t
        self._items(self._repair.frame(record))
        if self.wire.overflow and not self._closed:
            self._cut(record.n, "limit")

    def _other(self, record: Record) -> None:
        match record.kind:
            case "request" if not self.delivered:
                self._facts = Facts.of(record.keys)
                self._begin_attempt()
            case "results":
                self._flows = False  # the next frame that goes out tells of them
                for result in self._results.take(record, told=self._facts.stream):
                    self._event(result)
            case "attempt" if not self.delivered:
                if not self._fresh:
                    self._discard("attempt_discarded")
                    self._begin_attempt()
                self._fresh = False
                self._event(AttemptStarted(n=record.n))
            case "commit" if record.raw is not None and not self.delivered:  # the client got this error instead
                self._discard("error_status")
                self._outbox.send(record.n, record.raw)
                self._outbox.deliver()
                self._close()
            case "commit" if not self._facts.stream:  # and no other attempt follows a status
                self._outbox.deliver()
            case "rest" if "limit" not in record.keys:  # bytes behind a limit mean nothing
                self._fresh, self._t = False, record.t
                self._items(self._repair.rest(record.n, record.raw or b""))
            case "body":
                self._fresh, self._t = False, record.t
                self._take_body(record.n, record.raw or b"")
            case _:
                pass

    def _begin_attempt(self) -> None:
        """What an attempt before this one brought counts for nothing: no client has seen it."""
        self.wire = Wire()
        #: The upstream's own error, in the form that clients raise on.
        self.failure = b""
        self._held = HeldCalls(self._outbox, self.ledger)
        self._agent = AgentTools(self._stream_id)
        self._envelope = write.Envelope()
        self._roles: set[int] = set()
        self._finished: set[int] = set()  # choices whose finish the client has
        self._usage: Chunk | None = None
        self._body: list[bytes] = []
        #: What came of it that no more bytes follow; live that is asked before `end`, and a replay knows it only there.
        self._last: list[bytes] = []
        self._body_bytes_left, self._body_n, self._t = BODY_BYTES_MAX, 0, 0
        self._started = self._closed = self._flows = self._texted = False
        self._fresh = True  # nothing has come yet
        self._results.begin()
        #: When a call was first handed over.
        self.handed_us: int | None = None
        self._plain_shape = None
        self._repair = Repair(self._facts, self._settings, self._envelope, self._roles, self.ledger, self._stream_id)

    def _discard(self, repair: str) -> None:
        """No client will see what came so far."""
        waiting = [item.n for item in self._repair.end()]
        waiting += [*self._outbox.waiting(), *self._held.waiting(), *([self._usage.n] if self._usage else [])]
        for n in sorted(set(waiting)):
            self.ledger.withheld(n, repair)

    def _event(self, event: Event) -> None:
        self.wire.apply(event)
        if self._sink is not None:
            self._sink(event)

    # -- chunks -------------------------------------------------------------------------------------------------------

    def _items(self, items: Iterable[Item]) -> None:
        for item in items:
            if self._closed:
                self._late(item)
            elif isinstance(item, Chunk):
                self._chunk(item)
            elif isinstance(item, Done):
                self._done(item)
            elif isinstance(item, Failure):
                self._failed(item)
            elif isinstance(item, Progress):
                self._ran(item)
            else:
                self._event(ForeignFrame(n=item.n, why=item.why))
                for event in item.events:
                    self._event(event)

    def _late(self, item: Item) -> None:
        if not isinstance(item, Unknown):
            self.ledger.removed(item.n, "done_withheld" if isinstance(item, Done) else "late_data", item.frame)
        if not isinstance(item, Done):
            self._event(ForeignFrame(n=item.n, why="late_data"))

    def _chunk(self, chunk: Chunk) -> None:
        n, value = chunk.n, chunk.value
        if not self._started:
            self._started = True
            self._event(ResponseStarted(n=n, id=value["id"], model=value.get("model", "")))
        for event in chunk.events:
            self._event(event)
        finishes: list[Finish] = []
        for event in read.events(value, n):
            if isinstance(event, TextDelta):
                self._texted = True
            elif isinstance(event, Finish):
                self._close_calls(event)
                finishes.append(event)
            self._event(event)
        if not value["choices"]:
            self._usage_chunk(chunk)
            return
        for choice in value["choices"]:
            self.wire.choice(choice["index"])
        if self._send_chunk(chunk, finishes) and not self.delivered:
            self._outbox.deliver()
        self._flows = self.delivered and self.wire.content and not self._results.waiting

    def _ran(self, progress: Progress) -> None:
        """A tool that the upstream runs itself: what it did cannot be undone, so no other attempt may follow."""
        event = None if self.wire.finished else self._agent.event(progress, self.wire, self._results.told_of)
        if event is None or not self._settings.tool_events or event.name.startswith("_"):
            self.ledger.withheld(progress.n, "progress_withheld")
        else:
            frame = frame_of(progress, event, self._own_envelope().settled(self._envelope))
            self.ledger.replaced(progress.n, "progress", frame)
            self._outbox.send(progress.n, frame)
        if event is not None:
            self._event(event)
            self._outbox.deliver()

    def _close_calls(self, finish: Finish) -> None:
        if finish.reason not in CUT_FINISHES:
            for call in self.wire.choice(finish.choice).calls.values():
                self._event(ToolArgumentsComplete(n=finish.n, choice=finish.choice, call=call.number))

    def _usage_chunk(self, chunk: Chunk) -> None:
        """The last one counts and one is enough, so it waits for the terminator."""
        if not self._facts.usage:
            self.ledger.removed(chunk.n, "usage_not_asked", chunk.frame)
            return
        if self._usage is not None:
            self.ledger.removed(self._usage.n, "usage_repeated", self._usage.frame)
        self._usage = chunk

    def _send_chunk(self, chunk: Chunk, finishes: list[Finish]) -> bool:
        """The chunk, behind the lifecycle frames that its finishes bring; whether content has gone out."""
        broken: set[int] = set()
        ops: list[Op] = []
        if finishes:  # a call of this stream may have the id of one that is answered here: that one's end comes first
            self._send_results(chunk.n)
        for finish in finishes:
            calls = list(self.wire.choice(finish.choice).calls.values())
            lost = [call for call in calls if call.state is not State.RUNNING]
            if lost:
                broken.add(finish.choice)
            elif calls and self.handed_us is None:
                self.handed_us = self._t
            self._held.release(finish.choice, shown=not lost)
            self._send_lifecycle(finish.n, calls)
            if lost and finish.reason in CUT_FINISHES and self._settings.on_partial != "error":
                ops += role_moved(chunk, finish.choice, self._roles)
                self._send_warning(finish.n, finish.reason, lost)
            if not any(call.state is State.MALFORMED for call in lost):
                self._finished.add(finish.choice)
        finished = {finish.choice for finish in finishes}
        self._send_lifecycle(chunk.n, self.wire.take_unheard())
        ops += without_claims(chunk, finished - self._finished)
        frame, delivers = self.ledger.edited(chunk.n, chunk.frame, ops), read.delivers(chunk.value)
        if self._settings.held:
            kept = Chunk(chunk.n, chunk.value, frame)
            frame, delivers = self._held.hold(kept, finished - broken, broken, self._own_envelope())
            self.wire.overflow = self.wire.overflow or self._held.overflow
        if frame:
            self._outbox.send(chunk.n, frame)
            self._send_results(chunk.n)
        return delivers

    # -- frames of ours -----------------------------------------------------------------------------------------------

    def _send_lifecycle(self, n: int, calls: Iterable[Call]) -> None:
        self._cards.of_calls(n, calls, self.wire.ran, self._own_envelope)

    def _send_results(self, n: int) -> None:
        self._cards.of_results(n, self._results.due(), self._own_envelope)

    def _send_warning(self, n: int, code: str, lost: list[Call]) -> None:
        delta = {"content": ("\n\n" if self._texted else "") + write.warning(code, lost, alone=self.wire.idle)}
        self._outbox.add(n, "warning_text", self._own_chunk(lost[0].choice, delta))

    def _send_usage(self) -> None:
        if self._usage is not None:
            self._outbox.send(self._usage.n, self._usage.frame)
            self._usage = None

    def _own_envelope(self) -> write.Envelope:
        """The stream's, or, where no frame has come, one made from its tape."""
        known = self._envelope
        return write.Envelope(
            known.id or f"chatcmpl-{self._stream_id}", known.model or self._facts.model, known.created or self._created
        )

    def _own_chunk(self, index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
        role = {} if index in self._roles else {"role": "assistant"}
        self._roles.add(index)
        return encode(write.chunk(self._own_envelope(), index, role | delta, finish))

    # -- endings ------------------------------------------------------------------------------------------------------

    def _done(self, done: Done) -> None:
        if self.wire.said_whole:
            for index in self.wire.unfinished:
                self._supply_finish(done.n, index)
        self._event(Terminator(n=done.n))
        if self.wire.finished:
            self._complete(done.n, done.frame)
        else:
            self.ledger.removed(done.n, "done_unfinished", done.frame)
            self._cut(done.n, "truncated")

    def _supply_finish(self, n: int, index: int) -> None:
        """Q37: `[DONE]` after content and no finish: clients without one loop or fail."""
        self.wire.flags["no_finish"] = None
        calls = self.wire.choice(index).calls
        reason = "stop" if not calls else "function_call" if list(calls) == [read.LEGACY_CALL] else "tool_calls"
        payload = write.chunk(self._own_envelope(), index, {}, reason)
        self.ledger.added(n, "finish_supplied", encode(payload))
        self._chunk(Chunk(n, parse(payload), encode(payload)))

    def _complete(self, n: int, done: bytes) -> None:
        lost = [call for call in self.wire.calls() if call.reason in ("malformed", SIBLING)]
        late = self.wire.late_calls
        if (lost or late) and done:
            self.ledger.removed(n, "malformed_claim", done)
        if lost or late:
            self._close_partial(n, "malformed_call", lost)
            return
        self._send_usage()
        if done:
            self._outbox.send(n, done)
        else:
            self._outbox.add(n, "done_supplied", write.DONE)
        self._close()

    def _cut(self, n: int, ending: str) -> None:
        self._close_partial(n, ending, self._dropped(n, ending, told=self._settings.on_partial != "error"))

    def _dropped(self, n: int, ending: str, *, told: bool) -> list[Call]:
        """All calls that nobody is to run; those that a limit or a filter cut are `told` of already, in words."""
        dropped = self.wire.drop_open(ending)
        self._held.drop_all()
        self._send_lifecycle(n, [*dropped, *self.wire.drop_running(ending)])
        return [call for call in self.wire.calls() if call.reason and not (told and call.reason in CUT_FINISHES)]

    def _close_partial(self, n: int, code: str, lost: list[Call]) -> None:
        """The stream must not be taken for whole: told as `on_partial` says."""
        self._send_usage()
        mode, late = self._settings.on_partial, self.wire.late_calls
        if lost and mode != "error":
            self._send_warning(n, code, lost)
        if late:  # in every mode: the client has these, and only an error keeps it from running them
            self._outbox.add(n, "error_frame", write.late(code, late, lost))
        elif mode == "warn":
            for index in sorted((set(self.wire.choices) or {0}) - self._finished):
                self._outbox.add(n, "warn_finish", self._own_chunk(index, {}, "length"))
            self._outbox.add(n, "warn_done", write.DONE)
        else:
            self._outbox.add(n, "error_frame", write.error(code, lost, alone=self.wire.idle))
        self._close()

    def _failed(self, failure: Failure) -> None:
        """The upstream's own error passes in every mode; what it cut is told before it."""
        self.failure = failure.frame
        if failure.usage is not None:
            self._event(Usage(n=failure.n, counts=failure.usage))
        self._event(UpstreamError(n=failure.n, message=failure.message, code=failure.code))
        lost = self._dropped(failure.n, "upstream_error", told=True)
        if lost and self._settings.on_partial != "error":
            self._send_warning(failure.n, "upstream_error", lost)
        self._send_usage()
        self._outbox.send(failure.n, failure.frame)
        if self._settings.hermes:  # it has tried again itself; on an HTTP error LangChain.js did, seven times
            self._outbox.deliver()
        self._close()

    def _close(self) -> None:
        self._closed, self._flows = True, False
        self._plain_shape = None

    def ending(self, cause: str) -> tuple[Ending, tuple[str, ...]]:
        """How the stream ends and with which flags, if its bytes end now for this cause: what `end` is to say."""
        self._settle()
        return self.wire.ending(cause), self.wire.all_flags()

    def _end(self, record: Record) -> None:
        cause = record.keys.get("cause")
        ending, flags = self.ending(cause if isinstance(cause, str) else "")
        if not self._closed:
            if ending == "completed":
                self._complete(record.n, b"")
            else:
                self._cut(record.n, ending)
        self._outbox.deliver()
        self._event(Ended(n=record.n, ending=ending, cause=str(cause), flags=flags))

    # -- answers that are no stream -----------------------------------------------------------------------------------

    def _take_body(self, n: int, part: bytes) -> None:
        """A plain answer passes as it comes; a whole one is read at its end, up to a bound."""
        self._body_n = n
        if not self._facts.stream:
            self._outbox.keep(n, part)
        self._body_bytes_left -= len(part)
        if self._body_bytes_left >= 0:
            self._body.append(part)

    def _settle(self) -> None:
        """No more bytes: what waited for them is read."""
        self._items(self._repair.end())
        if self._facts.stream:
            self._read_body()
        else:
            self._outbox.aside(self._read_body)  # the client has the answer itself, not the stream made of it
            self._close()
        self._last += self._outbox.take()

    def _read_body(self) -> None:
        body = b"".join(self._body) if self._body_bytes_left >= 0 else b""
        self._body.clear()
        if body and not self._closed:
            self._items(self._repair.answer(self._body_n, body))
