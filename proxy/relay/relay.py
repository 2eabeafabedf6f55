"""The one task of a stream: asks the upstream, records each read before it is delivered, and ends the stream once.

It depends on no reader. What it decides by the clock, or because of a reader, is recorded before it takes effect: so
emission stays a function of the tape.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final, Protocol

import trio

from wiretape.events.core.errors import RequestError
from wiretape.events.core.limits import BODY_BYTES_MAX
from wiretape.events.core.model import Ending
from wiretape.events.dialects import DIALECTS
from wiretape.events.tape.record import Record, speaks

from ..config.model import Config
from ..http1 import Headers
from ..limits import (
    ERROR_BODY_BYTES_MAX,
    FRAMES_A_TURN_MAX,
    MEMORY_HELD_SMALL_BYTES,
    PARSE_INLINE_BYTES_MAX,
    READ_WHOLE_TIMES,
    READERS_ASKED_S,
    SHORT_READ_BYTES_MAX,
    SNIFF_BYTES_MAX,
    STREAM_BYTES_MAX,
)
from ..memory import Charge, Memory
from ..security.trace import trace_of
from ..server.asgi import Reaper
from ..store.catalogue_row import CatalogueRow, Running
from ..store.store import Store, StoreError
from ..upstream.connection import End, Read, WireError
from ..upstream.transport import UpstreamTransport
from .attempts import (
    OUR_CAUSES,
    WHOLE,
    Failure,
    Next,
    Signals,
    cause_of,
    chat_cause,
    exchange_ending,
    failed_in_stream,
    failed_status,
    is_answer,
    no_answer,
    not_crossed,
    not_whole,
    unusable,
)
from .client_answers import ClientAnswers
from .crossing import Learned
from .delivery import Delivery
from .http_responses import Answer
from .recording import Ended, Recording
from .stream_request import StreamRequest, ToolResults, Upload, UploadError
from .upstream import Shape, UpstreamRequest, UpstreamResponse, shape_of

__all__ = ["Log", "Relay", "Services"]

#: Causes that do not come from the upstream's bytes, and rule out a further attempt.
_DECIDED: Final = frozenset({"client_gone", "shutdown", "internal"})
_OnOver = Callable[["Relay"], None]


class Log(Protocol):
    """The log as a relay sees it; no field may hold a credential."""

    def info(self, event: str, /, **fields: object) -> None: ...

    def warn(self, event: str, /, **fields: object) -> None: ...

    def error(self, event: str, /, **fields: object) -> None: ...

    def ended(self, ended: Ended) -> None: ...

    @property
    def dropped(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What all streams of a process share."""

    config: Config
    store: Store
    transport: UpstreamTransport
    reaper: Reaper
    log: Log
    #: Seconds since 1970; durations are measured with trio's clock.
    wall: Callable[[], float]
    new_id: Callable[[], str]
    #: What upstreams were found not to be able to do.
    learned: Learned = field(default_factory=Learned)
    #: The tool results that running streams brought.
    answers: Running = field(default_factory=Running)
    memory: Memory = field(default_factory=Memory)
    #: Streams that have read much take turns.
    turns: trio.Lock = field(default_factory=trio.Lock)


class Relay:
    """One stream, from its first attempt to its one ending. Run it in one task; signal it from others."""

    def __init__(
        self, stream: str, request: StreamRequest, services: Services, upstream: UpstreamRequest, on_over: _OnOver
    ) -> None:
        config, now = services.config, trio.current_time()
        self.stream = stream
        self.attempts = 0
        #: What ended the stream.
        self.cause = ""
        self.why = ""
        self.signals = Signals(request, services.reaper, now)
        left = partial(self.signals.send, "left")
        self.delivery = Delivery(stream, request.caller, request.route.name, now, on_left=left)
        self.delivery.taped = bool(request.dialect) or request.route.tape or request.turn is not None
        if request.turn is not None:
            self.delivery.unread()
        store = services.store if self.delivery.taped else None
        serve_on = config.on_log_failure == "serve" and request.turn is None
        self.recording = Recording(stream, store, now, trace_of(stream, request.headers), serve_on=serve_on)
        if request.verbatim:  # what we cannot read passes all the same
            self.recording.recorder.beyond = "rest" if request.dialect else "body"
        if isinstance(request.body, Upload):
            self.recording.turn = trio.Lock()  # the relay writes, and the task that sends the upload
        self._arrived_us = int(services.wall() * 1_000_000)
        self.charge = request.charge
        found = request.contents.results
        #: The tool results in the request, which from now on are found by retries; None if it brings none, as most.
        self.tool_results = found and ToolResults(stream, request, found, services.answers, self._arrived_us)
        self.body = request.body
        self._request = request
        self._on_over = on_over
        self._is_progress = partial(speaks, hermes=request.route.hermes or bool(request.turn and not request.dialect))
        self._services = services
        self._upstream, upstream.signals, upstream.trace = upstream, self.signals, self.recording.trace
        self._answers = ClientAnswers(stream, request, upstream, services.wall)
        #: Flags of the ending, in addition to those that the tape gives.
        self._flags: dict[str, None] = {"history_marked": None} if request.contents.marks else {}
        self._results_recorded = self.tool_results is None
        #: Of the last attempt: its response, what broke its connection, and the error that the upstream sent.
        self._response: UpstreamResponse | None = None
        self._fault: WireError | None = None
        self._error_body = bytearray()
        self._received_bytes = 0
        #: What is held of the answer until its end, or until a frame is whole.
        self._held = Charge(services.memory, small_bytes=MEMORY_HELD_SMALL_BYTES)
        #: The client's status, while it is being written with its first frames.
        self._uncommitted: Answer | None = None
        self._gave_up = False
        self._gone = False
        #: The end was decided on, and leaves the client's answer whole.
        self._whole = False

    async def run(self) -> None:
        """Relay the stream to its one ending; raise nothing but cancellation."""
        log = self._services.log
        try:
            try:
                cause = ""
                while not cause:
                    self.attempts += 1
                    self._response, self._fault, self._error_body = None, None, bytearray()
                    outcome = await self._ask()
                    if isinstance(outcome, UpstreamResponse):
                        self._response = outcome
                        outcome = await self._take_all(outcome)
                    cause = outcome if isinstance(outcome, str) else await self._retry(outcome)
                await self._finish(cause)
            except StoreError as error:
                log.error("tape_failed", stream=self.stream, why=str(error))
                await self._close("log_failure", "untaped")
            except Exception as error:  # noqa: BLE001 - P20: one stream ends, and nothing else
                log.error("stream_failed", stream=self.stream, why=repr(error))
                await self._finish_anyhow("internal")
            except (trio.Cancelled, BaseExceptionGroup):  # a nursery wraps a cancellation in a group
                with trio.CancelScope(shield=True):  # writes, and waits for no peer
                    await self._finish_anyhow("shutdown")
                await trio.lowlevel.checkpoint_if_cancelled()
        except Exception as error:  # noqa: BLE001 - P20, and even if the ending fails
            log.error("stream_failed", stream=self.stream, why=repr(error))
        finally:
            self.signals.over = True
            self._held.release()
            if self._request.turn is not None:
                self._request.turn.written.set()
            if not self.delivery.ended.is_set():
                self.delivery.end(broken=True)
            with trio.CancelScope(shield=True):  # closing waits for no peer
                await self._upstream.aclose()
                if self._response is not None:
                    await self._response.body.aclose()
            self._on_over(self)

    def ended(self, row: CatalogueRow) -> Ended:
        """Return what log and metrics get, once the stream has ended."""
        recording, signals = self.recording, self.signals
        summary, crossed = recording.summary, self._upstream.dialect if self._upstream.crossed else ""
        silence_s = max(signals.longest_silence_s, summary.t / 1e6 + recording.began - signals.progress_at)
        repairs, written_bytes = recording.emitter.ledger.counts, recording.written_bytes
        told = (self.cause, self.why, crossed, recording.trace, summary, repairs, silence_s)
        return Ended(row, self.attempts, written_bytes, *told)

    # -- attempts -----------------------------------------------------------------------------------------------------

    async def _ask(self) -> UpstreamResponse | Failure | str:
        """Send the request and return the response once its head is there; meanwhile begin the tape.

        Return the cause to end with, or the failure, if there is no response.
        """
        upstream, recording = self._upstream, self.recording
        body = await upstream.body()
        signals, now = self.signals, trio.current_time()
        signals.longest_silence_s = max(signals.longest_silence_s, now - signals.progress_at)
        signals.progress_at, signals.progressed, signals.grace_at = now, False, inf
        done, cause = trio.Event(), ""
        untaped: StoreError | None = None
        async with trio.open_nursery() as nursery:
            # In a task of its own: what wants the relay's attention must not cancel a connect or a send.
            if isinstance(body, Upload):
                hashed = self._services.config.requests == "hash"
                nursery.start_soon(upstream.send, recording.upload(body, self.signals.hear, hashed=hashed), done)
            else:
                nursery.start_soon(upstream.send, body, done)
            try:
                async with recording.turn:
                    if self.attempts == 1:
                        await recording.create()
                        config = self._services.config
                        recording.later(*recording.opening(self._request, config, self._arrived_us, upstream.sha256))
                    keys = upstream.attempt_keys(self.attempts)
                    await self._write(recording.recorder.attempt(recording.t(), keys))
                    if self._request.turn is not None:
                        self._request.turn.written.set()
                cause = await self._wait(done)
            except StoreError as error:  # raised after the nursery, which would wrap it in a group
                untaped = error
            nursery.cancel_scope.cancel()
        if untaped is not None:
            raise untaped
        if self.tool_results is not None and not self._results_recorded:
            self._results_recorded = True
            keys = self.tool_results.keys(outputs=self._services.config.requests == "full")
            recording.later(recording.record("results", keys))
        if cause:
            await upstream.aclose()
            return self._stalled() if cause == "stalled" else cause
        result, upstream.result = upstream.result, None
        if isinstance(result, StoreError):
            raise result
        if isinstance(result, RequestError):
            return not_crossed(result)
        if isinstance(result, UploadError):
            if result.cause == "client_gone":
                await self._record_gone()
            return result.cause
        if isinstance(result, WireError):
            self._fault = result
            return no_answer(result)
        assert result is not None, "asking ends with a response or an error"
        return result

    def _stalled(self) -> Failure | str:
        if self.delivery.answer is not None and self.recording.emitter.delivered:
            return "stalled"
        message = f"The upstream sent nothing for {self.signals.silent_s:g} s."
        return Failure(ending="stalled", message=message, transient=False)

    # -- one response -------------------------------------------------------------------------------------------------

    async def _take_all(self, response: UpstreamResponse) -> str | Failure:
        """Take a response to its end; return the cause to end with, or the failure if it delivered nothing."""
        cause, signals = await self._begin_response(response), self.signals
        take = self._take_frames if response.shape is Shape.FRAMES else self._take_body
        receive = response.receiver()
        while not cause:
            late: Read | None = None
            with trio.CancelScope() as scope:
                while not (cause or signals.wanted):  # a signal may have come during a write
                    try:
                        signals.waiting = scope
                        read = await receive()
                    except WireError as fault:
                        self._fault = fault.with_traceback(None)  # it holds this frame, and this frame the fault
                        cause = cause_of(fault.ending)
                        break
                    finally:
                        signals.waiting = None
                    if read is None:
                        cause = "framed" if response.body.end is End.FRAMED else "eof"
                    elif signals.wanted and scope.cancel_called:  # in the same moment; a write must not be cancelled
                        late = read
                    else:
                        cause = await take(response, read)
            if late is not None:
                cause = await take(response, late)
            cause = cause or ("framed" if response.over else await self._attend())
        outcome = await self._judge(response, cause)
        await response.body.aclose()
        return outcome

    async def _begin_response(self, response: UpstreamResponse) -> str:
        """Record the head; return the cause if it ends the stream already."""
        request, recording = self._request, self.recording
        recording.later(recording.record("head", response.head_keys()))
        if self._request.verbatim:
            await self._commit_relayed(response)
        shape = response.shape = shape_of(request, response)
        if shape is Shape.SNIFF:
            cause = await self._sniff(response)
            if cause:
                return cause
            shape = response.shape
            if shape is not Shape.NOTHING:
                self._flags["wrong_content_type"] = None
        if shape is Shape.NOTHING:  # U13, U16; what still comes is recorded all the same
            for read in await response.drain():
                await self._write([recording.recorder.body(recording.t(read.t), read.data)])
            return "protocol"
        return ""

    async def _sniff(self, response: UpstreamResponse) -> str:
        """Find out what the first bytes of an unknown media type are; return the cause if the stream ends meanwhile."""
        signals, cause = self.signals, ""
        response.shape = Shape.FRAMES
        while not cause:
            seen = response.seen.lstrip(b"\xef\xbb\xbf \t\r\n")
            if seen or len(response.seen) > SNIFF_BYTES_MAX:
                shapes = {b"{": Shape.BODY, b"[": Shape.BODY, b"<": Shape.NOTHING}
                response.shape = shapes.get(seen[:1], Shape.FRAMES)
                break
            try:
                with trio.CancelScope() as signals.waiting:
                    if not signals.wanted and not await response.peek():
                        break
            except WireError:
                break  # raised again by the next read
            finally:
                signals.waiting = None
            cause = await self._attend()
        return cause

    async def _take_frames(self, _: UpstreamResponse, read: Read) -> str:
        recording, signals = self.recording, self.signals
        t, data = int((read.t - recording.began) * 1_000_000), read.data
        self._received_bytes += len(data)
        slices = [data]
        turns = self._services.turns if len(data) > SHORT_READ_BYTES_MAX else None
        if data.count(b"\n") > 8 * FRAMES_A_TURN_MAX:  # each frame has two lines or more
            lines = data.splitlines(keepends=True)
            size = 2 * FRAMES_A_TURN_MAX
            slices = [b"".join(lines[at : at + size]) for at in range(0, len(lines), size)]
        with trio.CancelScope(shield=True) if turns else nullcontext():  # the whole read, before anything ends it
            for at, part in enumerate(slices):
                if turns is not None:
                    async with turns:  # held for one round of the scheduler: all other tasks run between two turns
                        pass
                records, frames = recording.read(t, part, more=at > 0)
                if not records:
                    if not self._held.add(READ_WHOLE_TIMES * len(part)):
                        return "limit"
                    continue
                if self._held.held_bytes:
                    self._held.release()
                if records[-1].kind != "frame" or any(map(self._is_progress, records)):
                    signals.longest_silence_s = max(signals.longest_silence_s, read.t - signals.progress_at)
                    signals.progress_at, signals.progressed = read.t, True
                await self._write(records, frames)
        if self._request.verbatim:
            return ""  # it ends where the upstream ends it
        wire = recording.emitter.wire
        if wire.error is not None or wire.terminated:
            return "closed"
        overflow = recording.recorder.decoder.overflow or wire.overflow
        if overflow or self._received_bytes > STREAM_BYTES_MAX:
            return "limit"
        if self.signals.grace_at == inf and wire.finished:
            self.signals.grace(trio.current_time())
        return ""

    async def _take_body(self, response: UpstreamResponse, read: Read) -> str:
        request, recording = self._request, self.recording
        self._received_bytes += len(read.data)
        signals = self.signals
        signals.longest_silence_s = max(signals.longest_silence_s, read.t - signals.progress_at)
        signals.progress_at, signals.progressed = read.t, True
        await self._write([recording.recorder.body(recording.t(read.t), read.data)])
        if request.dialect and not self._held.add(READ_WHOLE_TIMES * len(read.data)):
            return "limit"
        if self._request.verbatim:
            return ""
        if response.status >= 400:
            self._error_body += read.data
            if len(self._error_body) > ERROR_BODY_BYTES_MAX:
                return "closed"
        too_long = self._received_bytes > BODY_BYTES_MAX
        if request.streams:
            return "limit" if too_long else ""
        # DeepSeek sends empty lines for minutes before a whole answer: they keep the client's connection open too.
        waits = read.data.isspace() and read.t >= self.signals.published_at + request.route.keepalive_s
        if (too_long or waits) and not self._upstream.crossed:
            await self._commit_relayed(response)
        return "limit" if too_long and self._upstream.crossed else ""

    async def _commit_relayed(self, response: UpstreamResponse) -> None:
        """Fix the status of an answer that passes. A whole one waits for its end: half of one can become an error."""
        if self.delivery.answer is None:
            await self._commit(self._answers.relayed_head(response))

    # -- what the end of a response means -----------------------------------------------------------------------------

    async def _judge(self, response: UpstreamResponse, cause: str) -> str | Failure:
        """Return the cause to end with, or the failure of a response that delivered nothing."""
        request, recording = self._request, self.recording
        if cause == "closed" and not response.over:  # record what still comes, so that the connection can be reused
            for read in await response.drain():
                if response.shape is not Shape.FRAMES:
                    await self._write([recording.recorder.body(recording.t(read.t), read.data)])
                elif not recording.recorder.decoder.overflow:
                    await self._write(*recording.read(recording.t(read.t), read.data))
        await self._write(recording.recorder.rest(recording.t()))
        if response.masked:
            self._flags["key_masked"] = None
        if cause in _DECIDED:
            return cause
        failed = response.status >= 400
        ended = cause in ("framed", "eof")
        if self._request.verbatim:
            return "status" if failed and ended and request.dialect and self._fault is None else cause
        if request.streams and recording.emitter.delivered:
            return cause
        ending, flags = await self._ending("status" if failed else chat_cause(cause))
        # Half an object is not an answer, even if its framing is whole. The client reads everything else itself.
        half = ending == "truncated" and (self._fault is not None or not recording.emitter.wire.choices)
        if request.dialect != "chat" or self._upstream.crossed:
            half = half or not is_answer(ending, flags, crossed=self._upstream.crossed)
        fine = ended and not failed and self._received_bytes > 0 and not half
        if not request.streams and (fine or self.delivery.answer is not None):
            await self._commit_relayed(response)
            return "eof" if ended and half else cause
        if request.streams and (recording.emitter.delivered or ending == "completed"):
            return cause
        error = recording.emitter.wire.error
        if failed:
            status, headers, body = response.status, response.headers, bytes(self._error_body)
            return failed_status(status, headers, body, streams=request.streams, agent=request.route.hermes)
        if error is not None:
            self._error_body += recording.emitter.failure
            return failed_in_stream(error, DIALECTS[self._upstream.dialect].statuses)
        if cause == "stalled":
            return self._stalled()
        if half and self._fault is None and not request.streams:
            return not_whole(ending, malformed="malformed_call" in flags)
        garbled = request.dialect != "chat" and ending == "protocol" and response.shape is Shape.FRAMES
        return unusable("truncated" if ending == "completed" else ending, self._fault, garbled=garbled)

    async def _ending(self, cause: str) -> tuple[Ending, Sequence[str]]:
        """Return the ending and flags of a chat answer. A large one that is no stream is parsed in a thread."""
        emitter, response = self.recording.emitter, self._response
        if response is None or response.shape is Shape.FRAMES or "json" not in response.media_type:
            return emitter.ending(cause)
        if self._received_bytes <= PARSE_INLINE_BYTES_MAX:
            return emitter.ending(cause)
        return await trio.to_thread.run_sync(emitter.ending, cause)

    async def _retry(self, failure: Failure) -> str:
        """Wait for the next attempt, or return the cause to end with.

        The client gets an HTTP error if it has no status yet, else an error in the stream. So also if a call is held:
        its end is reported as `on_partial` says, and after an HTTP error clients that ignore `x-should-retry` would ask
        again, LangChain.js seven times.
        """
        decision = self._upstream.decide(failure, self._services.wall())
        keys: dict[str, Any] = {
            "attempt": self.attempts,
            "ending": failure.ending,
            "message": failure.message,
            "next": decision.next.value,
            **({"status": failure.status} if failure.status else {}),
            **({"after_ms": round(decision.after_s * 1_000)} if decision.after_s else {}),
        }
        if self._response is not None:
            keys |= self._response.end_keys()
        self.recording.later(self.recording.record("failed", keys))
        self._held.release()
        if decision.next is not Next.GIVE_UP:
            return await self._wait(trio.Event(), trio.current_time() + decision.after_s)
        self.why = "" if self.recording.emitter.wire.error else failure.message  # no log has the upstream's words
        shown = self._request.streams and any(self.recording.emitter.wire.calls())
        if self.delivery.answer is None and not shown:
            self._gave_up = True
            answer = self._answers.failure(failure, bytes(self._error_body), exhausted=decision.exhausted)
            await self._commit(answer, answer.body)
        return "status" if failure.answered else cause_of(failure.ending)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def _write(self, records: Sequence[Record], frames: list[bytes] | None = None) -> None:
        """Write records, and only then publish what they emit. The first frames fix the client's status."""
        if not records:
            return
        recording, delivery, n = self.recording, self.delivery, records[-1].n
        if frames is None:
            frames = recording.emitted(records)
        if not frames:
            await recording.write(records)
            return
        if delivery.answer is None:
            self._uncommitted = self._answers.stream_head()
            commit = recording.recorder.record("commit", records[-1].t, {"status": self._uncommitted.status})
            frames += recording.emitted([commit], records)
            records = [*records, commit]
        await recording.write(records)
        if self._uncommitted is not None:
            delivery.commit(self._uncommitted)
            self._uncommitted = None
        delivery.publish(frames, n)
        self.signals.published_at = trio.current_time()
        if recording.store is None:
            await self._wait_for_room()

    async def _commit(self, answer: Answer, body: bytes | None = None) -> None:
        """Fix the client's status, with a body if that is the whole answer."""
        record = self.recording.record("commit", {"status": answer.status}, body)
        frames = await self.recording.put(record)
        self.delivery.commit(answer)
        if frames:
            self.delivery.publish(frames, record.n)

    async def _record_gone(self) -> None:
        """Record once that the client has left. A piece of an upload may be on its way to the tape."""
        async with self.recording.turn:
            if self._gone:
                return
            self._gone = True  # only now: a task that is cancelled while it waits has written nothing
            await self.recording.put(self.recording.record("gone", {"at": self.delivery.sent_n}))

    async def _wait_for_room(self) -> None:
        """Wait for the client of a stream without a tape: what it has not taken can be read nowhere else."""
        delivery, signals = self.delivery, self.signals
        delivery.taped = False
        while (room := delivery.room()) is not None and not signals.wanted - {"look"}:
            signals.wanted.clear()
            with trio.CancelScope() as signals.waiting:
                await room.wait()
            signals.waiting = None
        self.signals.progress_at = trio.current_time()

    # -- signals ------------------------------------------------------------------------------------------------------

    async def _wait(self, event: trio.Event, until: float = inf) -> str:
        """Wait for an event or a time, attending to signals; return the cause if one ends the stream."""
        signals = self.signals
        while not event.is_set() and trio.current_time() < until:
            with trio.CancelScope(deadline=until) as signals.waiting:
                if not signals.wanted:
                    await event.wait()
            signals.waiting = None
            cause = await self._attend() if signals.wanted else ""
            if cause:
                return cause
        return ""

    async def _attend(self) -> str:
        """Do what signals and the clock ask for; return the cause if that ends the stream."""
        wanted, self.signals.wanted = self.signals.wanted, set()
        now, signals = trio.current_time(), self.signals
        if signals.notes:
            await self.recording.note(signals.notes)
        if "stop" in wanted:
            return "client_gone"
        if "shutdown" in wanted:
            return "shutdown"
        if "left" in wanted:
            route = self._request.route
            if self.delivery.left:
                signals.keepalives = False
                await self._record_gone()
            if self.delivery.readers <= 0:
                how = "keep" if self._request.resumes else route.on_client_gone
                signals.leave(now + {"keep": route.keep_s, "drain": route.drain_s, "cancel": 0.0}[how])
        if now >= signals.leave_at and self.delivery.readers <= 0:
            shared = self.recording.store.shared if self.recording.store else None
            if shared is None or not (await shared.read_elsewhere(self.stream) or self.delivery.readers > 0):
                return "client_gone"
            signals.leave(now + READERS_ASKED_S)
        if now >= signals.grace_at:
            if self.recording.emitter.wire.finished:
                return "closed"
            signals.grace_at = inf  # another choice has begun
        if now >= signals.stall_at:
            return "stalled"
        if now >= signals.keepalive_at:
            if self.delivery.answer is None:
                await self._commit(self._answers.stream_head())
            await self._write([self.recording.record("keepalive")])
        return ""

    # -- the one ending -----------------------------------------------------------------------------------------------

    async def _finish(self, cause: str) -> None:
        """Write the `end` record and end the client's answer."""
        recording, delivery, request = self.recording, self.delivery, self._request
        if recording.recorder.ended:
            return
        if self.signals.notes:
            await recording.note(self.signals.notes)
        self.cause = cause
        if cause in OUR_CAUSES and delivery.answer is None and not delivery.left:
            answer = self._answers.ours(cause)
            await self._commit(answer, answer.body)
        recorded_cause = cause
        ending: str
        flags: Sequence[str]
        if request.dialect:
            # Everything has passed, but beyond the limit nothing was read that could have been the terminator.
            unread = cause in ("framed", "closed") and recording.recorder.decoder.overflow
            recorded_cause = "limit" if unread or cause == "upload" else chat_cause(cause)
            ending, flags = await self._ending(recorded_cause)
        else:
            ending, flags = exchange_ending(self._upstream.status, cause, cut=self._fault is not None)
        if ending == "completed":
            self._upstream.completed()
        if delivery.answer is None and not delivery.left and cause != "client_gone":
            await self._commit(self._answers.stream_head())
        if delivery.left and delivery.sent_n < delivery.published_n:  # it left during a write
            await self._record_gone()
        untaped = ["untaped"] if recording.untaped else []
        keys: dict[str, Any] = {"cause": recorded_cause, "ending": ending, "flags": [*flags, *self._flags, *untaped]}
        if self._response is not None:
            keys |= self._response.end_keys()
        self._whole = not self._is_broken(cause, ending)
        keys["answer"] = "whole" if self._whole else "broken"
        record = recording.recorder.end(recording.t(), keys)
        frames = await recording.put(record)
        if frames:
            delivery.publish(frames, record.n)
        delivery.end(broken=not self._whole)

    def _is_broken(self, cause: str, ending: str) -> bool:
        """Return whether the client's connection has to break: its answer passed as it came, but its end never did."""
        request, answer = self._request, self.delivery.answer
        if request.verbatim and cause == "closed" and answer is not None:
            length = Headers(answer.headers).get(b"content-length")
            return length.isdigit() and self.delivery.published_bytes < int(length)
        if (request.streams and not request.verbatim) or self._gave_up or cause in WHOLE:
            return False
        if cause == "eof" and self._fault is None:  # ended by a close, which only chat can distinguish from a cut
            return ending not in ("completed", "upstream_error")
        return True

    async def _finish_anyhow(self, cause: str) -> None:
        """End the tape and the client's answer after a failure of any kind."""
        if self.recording.failed:
            await self._close("failed_here", "internal")
            return
        try:
            await self._write(self.recording.recorder.rest(self.recording.t()))
            await self._finish(cause)
        except Exception as error:  # noqa: BLE001 - the emitter itself may be what failed
            self._services.log.error("ending_failed", stream=self.stream, why=repr(error))
            await self._close("failed_here", "internal")

    async def _close(self, flag: str, reason: str) -> None:
        """End the stream after its log, or our own reading, failed: as well as the disk allows."""
        delivery, request, held = self.delivery, self._request, self._uncommitted
        answer = self._answers.ours(reason) if delivery.answer is None else None
        whole = not self._request.verbatim and (request.streams or self._whole)
        closing = await self.recording.close(
            delivery.published_bytes,
            flag,
            answer,
            closed="whole" if whole or answer is not None else "broken",
            held=held is not None,
        )
        self.cause = self.cause if closing.as_meant else "internal"
        if closing.committed:
            assert held is not None, "a status was being written"
            delivery.commit(held)
        elif answer is not None and not delivery.left:
            delivery.commit(answer)
            delivery.publish([answer.body], 0)
            delivery.end(broken=False)
            return
        rest = closing.rest
        if rest is None and request.streams:
            rest = self._answers.closing()
        if rest:
            delivery.publish([rest], delivery.published_n)
        delivery.end(broken=not whole or not (request.streams or closing.rest is not None))
