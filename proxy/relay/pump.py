"""One stream from its first attempt to its one ending: pulls reads, writes each as one batch, shows what comes of it

It lives in the registry and depends on no reader. Whatever it decides by the clock, or because of a reader, it writes
down before it acts, so that emission stays a function of the tape.
"""

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any, Final

import trio

from wiretape.events.core.limits import BODY_BYTES_MAX
from wiretape.events.tape.record import Record
from wiretape.events.tape.stall_signals import lives, speaks
from wiretape.events.wire.sse import parse_block

from ..limits import FRAMES_A_TURN_MAX, SNIFF_BYTES_MAX, STREAM_BYTES_MAX
from ..store.store import StoreError
from ..upstream.connection import Read
from ..upstream.errors import WireError
from .attempts import Failure, Next
from .deadlines import Deadlines
from .live import Live
from .recording import Taping
from .scribe import Scribe
from .services import Services
from .stream_request import Order
from .upload import Upload, UploadError
from .upstream_request import Asking
from .upstream_response import Asked, Shape, shape_of
from .verdict import CAUSE_OF, chat_cause, failed, in_stream, no_answer, unusable

__all__ = ["Pump"]

#: Causes that do not come from the upstream's bytes: whoever decided them wants no further attempt.
_DECIDED: Final = frozenset({"client_gone", "shutdown", "internal"})


class Pump:
    """`run` it in one task; `poke` it from others in trio's thread."""

    def __init__(self, order: Order, services: Services, live: Live, taping: Taping) -> None:
        self._order = order
        self._services = services
        self._live = live
        self._taping = taping
        if order.verbatim:  # what we cannot read passes all the same
            taping.recorder.beyond = "rest" if order.dialect else "body"
        self._asking = Asking(live.stream, order, services)
        if isinstance(order.body, Upload):
            order.body.onto(taping, self._uploading, hashed=services.config.requests == "hash")
        #: What is looked up beside it, where its request brings tool results.
        self.answering = self._asking.answering
        self.attempts = 0
        self.received_bytes = 0
        #: What others want of it, attended to between two batches.
        self._wanted: set[str] = set()
        self._pausing: trio.CancelScope | None = None
        self._deadlines = Deadlines(order, services.reaper, live.started, lambda: self.poke("look"))
        self._scribe = Scribe(order, live, taping, self._asking, self._deadlines, services.log)
        if order.history:
            self._scribe.flags["history_marked"] = None
        #: The upstream's own error: the body of its answer, or the object in its stream.
        self._said = b""

    @property
    def cause(self) -> str:
        """What ended it."""
        return self._scribe.cause

    def _uploading(self) -> None:
        """While the client still asks, nobody waits for an answer."""
        self._deadlines.progress_at = trio.current_time()

    # -- from outside -------------------------------------------------------------------------------------------------

    def poke(self, wish: str) -> None:
        """`left`: a reader has gone. `shutdown`: the proxy stops. `look`: some deadline may have passed."""
        self._wanted.add(wish)
        if self._pausing is not None:
            self._pausing.cancel()

    async def run(self) -> None:
        """To the one ending; only cancellation comes out of it."""
        try:
            await self._run()
        except StoreError as error:
            self._services.log.error("tape_failed", stream=self._live.stream, why=str(error))
            await self._scribe.without("log_failure", "untaped")
        except Exception as error:  # noqa: BLE001 - P20: one stream ends, and nothing else
            self._services.log.error("stream_failed", stream=self._live.stream, why=repr(error))
            await self._scribe.last("internal")
        except (trio.Cancelled, BaseExceptionGroup):  # a nursery puts a group around it
            with trio.CancelScope(shield=True):  # writes, no waiting for anybody
                await self._scribe.last("shutdown")
            await trio.lowlevel.checkpoint_if_cancelled()
        finally:
            await self._asking.aclose()
            self._deadlines.over()
            if isinstance(self._order.body, Upload):
                self._order.body.over()
            if self._scribe.body is not None:
                await self._scribe.body.aclose()
            if not self._live.ended.is_set():
                self._live.end(cut=True)

    # -- attempts -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        asking = self._asking
        while True:
            self.attempts += 1
            outcome = await self._attempt()
            if isinstance(outcome, str):
                await self._scribe.finish(outcome)
                return
            decision = asking.decide(outcome, self._services.wall())
            self._scribe.note(self.attempts, outcome, decision)
            if decision.next is Next.GIVE_UP:
                await self._scribe.give_up(outcome, decision, self._said)
                return
            asking.follow(decision)
            cause = await self._until(trio.sleep_forever, lambda: False, trio.current_time() + decision.after_s)
            if cause:
                await self._scribe.finish(cause)
                return

    async def _attempt(self) -> str | Failure:
        """The cause to end with, or how this attempt failed before anything was delivered."""
        self._deadlines.attempt(trio.current_time())
        self._scribe.body = self._scribe.fault = None
        self._said = b""
        answered = await self._asked()
        if isinstance(answered, str | Failure):
            return answered
        async with answered.body as self._scribe.body:
            cause = await self._take(answered, shape_of(self._order, answered))
            return cause if self._taping.recorder.ended else await self._judged(answered, cause)

    async def _asked(self) -> Asked | Failure | str:
        """The head of the answer; the tape begins while the upstream is asked."""
        asking = self._asking
        cause, untaped = await self._ask_aside()
        if cause or untaped is not None:
            await asking.aclose()
        if untaped is None:
            asking.bring(self._taping)
        answered, asking.answered = untaped or asking.answered, None
        if cause:
            return self._stalled() if cause == "stalled" else cause
        if isinstance(answered, StoreError):
            raise answered
        if isinstance(answered, UploadError):
            if answered.cause == "client_gone":
                await self._scribe.gone()
            return answered.cause
        if isinstance(answered, WireError):
            self._scribe.fault = answered
            return no_answer(answered)
        assert answered is not None, "asking ends with an answer or an error"
        return answered

    async def _ask_aside(self) -> tuple[str, StoreError | None]:
        """In a task of its own: to connect and to send must not be stopped by who wants to look."""
        done, body = trio.Event(), await self._asking.prepare()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._asking.ask, body, done)
            try:
                await self._begin()
                return await self._until(done.wait, done.is_set), None
            except StoreError as error:  # raised behind the nursery, which would put a group around it
                return "", error
            finally:
                nursery.cancel_scope.cancel()

    async def _begin(self) -> None:
        async with self._taping.turn:
            if self.attempts == 1:
                await self._taping.create()
            await self._batch(self._asking.beginning(self._taping, self.attempts))

    def _stalled(self) -> Failure | str:
        if self._live.answer is not None and self._taping.emitter.stream.delivered:
            return "stalled"
        silent_s = self._deadlines.silent_s
        return Failure(ending="stalled", message=f"the upstream sent nothing for {silent_s:g} s", transient=False)

    # -- one answer ---------------------------------------------------------------------------------------------------

    async def _take(self, answered: Asked, shape: Shape) -> str:
        """All reads of one answer; the cause of its end."""
        taping = self._taping
        taping.later(taping.record("head", answered.described()))
        if self._order.verbatim and self._live.answer is None:
            await self._scribe.relay(answered)
        if shape is Shape.NOTHING:
            return await self._take_nothing(answered)
        if shape is Shape.SNIFF:
            sniffed = await self._sniffed(answered)
            if isinstance(sniffed, str):
                return sniffed
            if sniffed is Shape.NOTHING:
                return await self._take_nothing(answered)
            shape = sniffed
            self._scribe.flags["wrong_content_type"] = None
        answered.shape = shape
        take = self._take_frames if shape is Shape.FRAMES else self._take_body
        while True:
            cause = await self._pull(answered, take) or await self._attend()
            if cause:
                return cause

    async def _pull(self, answered: Asked, take: Any) -> str:
        """Reads until the answer ends, or somebody wants something (then the empty word)."""
        late: Read | None = None
        with trio.CancelScope() as scope:
            while not self._wanted:  # it may have been wanted while something was written
                try:
                    self._pausing = scope
                    read = await answered.receive()
                    self._pausing = None
                except WireError as fault:
                    self._scribe.fault = fault.with_traceback(None)  # it holds this frame, and this frame the fault
                    return CAUSE_OF[fault.ending]
                if read is None:
                    return "framed" if answered.framed else "eof"
                if self._wanted and scope.cancel_called:  # in the same moment, and no write must be cancelled
                    late = read
                    break
                cause: str = await take(answered, read)
                if cause or answered.over:
                    return cause or "framed"
        self._pausing = None
        if late is None:
            return ""
        return await take(answered, late) or ("framed" if answered.over else "")

    async def _take_frames(self, _: Asked, read: Read) -> str:
        taping = self._taping
        self.received_bytes += len(read.data)
        if taping.drip(read.t, read.data):
            return ""
        if read.data.count(b"\n") <= 8 * FRAMES_A_TURN_MAX:
            records, frames = taping.read(read.t, read.data)
            if not records and not taping.recorder.decoder.overflow:
                return ""
            await self._took(read.t, records, frames)
        else:
            with trio.CancelScope(shield=True):  # all of one read, and only then whoever wants it to end
                for records, frames in taping.turns(read.t, read.data):
                    await self._took(read.t, records, frames)
                    await trio.lowlevel.checkpoint()
        return "" if self._order.verbatim else self._frames_end()  # it ends where the upstream ends it

    async def _took(self, t: float, records: Sequence[Record], frames: list[bytes]) -> None:
        says = lives if self._order.route.hermes else speaks
        if (records and records[-1].kind != "frame") or any(map(says, records)):
            self._deadlines.progress(t)
        await self._write(records, frames)

    def _frames_end(self) -> str:
        """Whether the stream has said its last word."""
        emitter, wire = self._taping.emitter, self._taping.emitter.wire
        if wire.error is not None or wire.terminated:
            return "closed"
        if self._taping.recorder.decoder.overflow or emitter.stream.overflow or self.received_bytes > STREAM_BYTES_MAX:
            return "limit"
        if wire.finished and self._deadlines.grace_at == inf:
            self._deadlines.grace(trio.current_time())
        return ""

    async def _take_body(self, answered: Asked, read: Read) -> str:
        taping = self._taping
        self.received_bytes += len(read.data)
        self._deadlines.progress(read.t)
        order = self._order
        if not order.streams and not order.verbatim and self._live.answer is None and answered.status < 400:
            await self._scribe.relay(answered)
        await self._batch([taping.recorder.body(taping.t(read.t), read.data)])
        if answered.status >= 400 and not order.verbatim and not answered.keep(read.data):
            return "closed"
        return "limit" if order.streams and not order.verbatim and self.received_bytes > BODY_BYTES_MAX else ""

    async def _take_nothing(self, answered: Asked) -> str:
        """No answer (U13, U16); what comes of it in a moment is taped for whoever wants to know what it was."""
        for read in await answered.drain():
            await self._batch([self._taping.recorder.body(self._taping.t(read.t), read.data)])
        return "protocol"

    async def _sniffed(self, answered: Asked) -> Shape | str:
        """What the first bytes say, where the content type says nothing that we know; or the cause that ends it."""
        while True:
            seen = answered.seen.lstrip(b"\xef\xbb\xbf \t\r\n")
            if seen or len(answered.seen) > SNIFF_BYTES_MAX:
                return {b"{": Shape.BODY, b"[": Shape.BODY, b"<": Shape.NOTHING}.get(seen[:1], Shape.FRAMES)
            with trio.CancelScope() as scope:
                self._pausing = scope
                try:
                    if not self._wanted and not await answered.peek():
                        return Shape.FRAMES
                except WireError:
                    return Shape.FRAMES  # raised again by the read that follows
                finally:
                    self._pausing = None
            cause = await self._attend()
            if cause:
                return cause

    async def _judged(self, answered: Asked, cause: str) -> str | Failure:
        """What the end of these bytes means: the cause to end with, or a failure before anything was delivered."""
        taping, order = self._taping, self._order
        await self._drain(answered, cause)
        await self._batch(taping.recorder.rest(taping.t()))
        if answered.masked:
            self._scribe.flags["key_masked"] = None
        if cause in _DECIDED:
            return cause
        if order.verbatim:
            said = order.dialect == "chat" and answered.status >= 400 and self._scribe.fault is None
            return "status" if said and cause in ("framed", "eof") else cause
        if not order.streams:
            return await self._judged_whole(answered, cause)
        status = answered.status if answered.status >= 400 else 0
        ending, _ = taping.ending("status" if status else chat_cause(cause))
        if taping.emitter.stream.delivered or ending == "completed":
            return cause
        return self._failure(answered, ending, cause)

    async def _judged_whole(self, answered: Asked, cause: str) -> str | Failure:
        """A whole answer was asked for: its own status decides, and once its first byte was relayed it stays."""
        if self._live.answer is not None:
            return cause
        if answered.status < 400 and cause in ("framed", "eof") and self.received_bytes:
            return cause
        ending, _ = self._taping.ending("status" if answered.status >= 400 else chat_cause(cause))
        return self._failure(answered, "truncated" if ending == "completed" else ending, cause)

    def _failure(self, answered: Asked, ending: str, cause: str) -> Failure:
        error = self._taping.emitter.wire.error
        if answered.status >= 400:
            self._said = answered.kept()
            return failed(answered, streams=self._order.streams, agent=self._order.route.hermes)
        if error is not None:
            self._said = parse_block(self._taping.emitter.stream.failure).payload or b""
            return in_stream(error)
        if cause == "stalled":
            stalled = self._stalled()
            assert isinstance(stalled, Failure), "nothing was delivered"
            return stalled
        return unusable(ending, self._scribe.fault)

    async def _drain(self, answered: Asked, cause: str) -> None:
        """After the last word: what still comes is on the tape, and the connection can be used again."""
        if cause != "closed":
            return
        taping = self._taping
        for read in await answered.drain():
            if answered.shape is not Shape.FRAMES:
                await self._batch([taping.recorder.body(taping.t(read.t), read.data)])
            elif not taping.recorder.decoder.overflow:
                await self._write(*taping.read(read.t, read.data))

    async def _batch(self, records: Sequence[Record]) -> None:
        """Emitted, written, and only then shown."""
        await self._write(records, self._taping.emitted(records))

    async def _write(self, records: Sequence[Record], frames: list[bytes]) -> None:
        await self._scribe.write(records, frames)
        if frames and self._taping.store is None:
            await self._untaped()

    async def _untaped(self) -> None:
        """What its client has not taken can be read nowhere else, so the upstream waits for it."""
        live = self._live
        live.taped = False
        while (room := live.room()) is not None and not self._wanted - {"look"}:
            self._wanted.clear()
            with trio.CancelScope() as self._pausing:
                await room.wait()
            self._pausing = None
        self._deadlines.progress_at = trio.current_time()

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def _until(self, wait: Callable[[], Awaitable[None]], over: Callable[[], bool], at: float = inf) -> str:
        """Waits, and attends to what is wanted meanwhile; a cause where that ends it. A wait may be stopped."""
        while not over() and trio.current_time() < at:
            with trio.CancelScope(deadline=at) as scope:
                self._pausing = scope
                if not self._wanted:
                    await wait()
            self._pausing = None
            cause = await self._attend()
            if cause:
                return cause
        return ""

    async def _attend(self) -> str:
        """What others want, and what the clock says; the cause where the stream is to end."""
        wanted, self._wanted = self._wanted, set()
        now = trio.current_time()
        if "shutdown" in wanted:
            return "shutdown"
        if "left" in wanted:
            cause = await self._left(now)
            if cause:
                return cause
        deadlines = self._deadlines
        if now >= deadlines.leave_at and self._live.readers <= 0:
            return "client_gone"
        if now >= deadlines.grace_at:
            if self._taping.emitter.wire.finished:
                return "closed"
            deadlines.grace_at = inf  # one more choice has begun
        if now >= deadlines.stall_at:
            return "stalled"
        if now >= deadlines.keepalive_at:
            await self._scribe.keepalive(now)
        return ""

    async def _left(self, now: float) -> str:
        live, route = self._live, self._order.route
        if live.left:
            self._deadlines.keepalives = False
            await self._scribe.gone()
        if live.readers > 0:
            return ""
        keeps = self._order.resumes or route.on_client_gone == "keep"
        if not keeps and route.on_client_gone == "cancel":
            return "client_gone"
        self._deadlines.leave(now + (route.keep_s if keeps else route.drain_s))
        return ""
