"""The runs of this process: their turns, their viewers, and how long they may go on, wait and be kept.

In memory is only what runs or is watched: one task follows the tape of the turn that runs, for all viewers. Everything
else is read from the tapes when it is wanted. What changes a run holds its lock: a turn begins once, and a run that
waits is ended once.
"""

import hashlib
import hmac
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final
from weakref import WeakValueDictionary

import trio

from wiretape.events.chat.run_request import (
    RunRequestError,
    chat_request,
    check_outputs,
    check_start,
    next_request,
    start_request,
)
from wiretape.events.dialects import DIALECTS
from wiretape.events.emit import RunReader

from ..config.model import Route
from ..http1 import Headers
from ..limits import (
    FOLLOW_KEEPALIVE_S,
    MEMORY_A_STREAM_BYTES,
    READ_WHOLE_TIMES,
    READERS_ASKED_S,
    RUN_LOOK_MAX_S,
    RUN_LOOK_S,
)
from ..memory import Charge
from ..relay.app import Registry
from ..relay.http_responses import Answer, AnswerError, busy, error, json_answer, take
from ..relay.recording import Recording
from ..relay.relay import Services
from ..relay.stream_request import StreamRequest, Turn, contents_of, in_thread_if_large
from ..security.trace import trace_of
from ..store.catalogue_row import StreamRow
from ..store.store import Filter, Shared, StoreError, StreamMissingError, UnreachableError
from .live import Live
from .relayed import RelayedRun
from .tapes import RunTapes

__all__ = ["Runs"]

#: What the turns of our own runs are.
_CHAT: Final = DIALECTS["chat"]
_KEEPALIVE: Final = b": keepalive\n\n"
#: Headers that belong to the client's request and not to our chat request. With its idempotency key, all turns of a run
#: would be one request for the upstream.
_OF_CALL: Final = frozenset({b"content-encoding", b"content-length", b"idempotency-key", b"last-event-id"})

_Write = Callable[[bytes], Awaitable[None]]


class _TakenError(Exception):
    """Another machine begins this turn of the run, or ends it."""


class Runs:
    """All runs; the registry holds their tasks."""

    def __init__(
        self,
        services: Services,
        registry: Registry,
        salt: bytes,
        *,
        on_started: Callable[[], None],
        on_ended: Callable[[str], None],
    ) -> None:
        self._services = services
        self._store = services.store
        self._shared = services.store.shared
        self._registry = registry
        self._tapes = RunTapes(services.store, registry)
        self._salt = salt
        self._on_started = on_started
        self._on_ended = on_ended
        self._live: dict[str, Live] = {}
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()
        self._parsing = trio.Lock()
        #: When to look again at runs that wait, or that no client has read: in seconds since 1970.
        self._due: dict[str, float] = {}
        registry.on_drain = self._drain
        #: Whether a run may begin in this process: of several workers, each owns some ids.
        self.owns: Callable[[str], bool] = lambda _: True
        #: Whether one more run of a caller may be active, of whom so many are active here; and their number later.
        self.may_begin: Callable[[str, int, int], bool] = lambda _, active, most: active < most
        self.on_active: Callable[[str, int], None] = lambda _, __: None

    # -- find ---------------------------------------------------------------------------------------------------------

    def _lock(self, run_id: str) -> trio.Lock:
        return self._locks.setdefault(run_id, trio.Lock())

    def _mine(self, call: StreamRequest, run_id: str) -> Live | None:
        live = self._live.get(run_id)
        return live if live and (live.caller, live.route) == (call.caller, call.route.name) else None

    async def find(self, call: StreamRequest, run_id: str) -> Live:
        """Return a run of this caller and route, or raise `StreamMissingError`."""
        live = self._mine(call, run_id)
        if live is None or self._late(live) or (self._shared and not live.running):
            async with self._lock(run_id):
                return await self._found(call, run_id)
        return live

    async def _found(self, call: StreamRequest, run_id: str) -> Live:
        """Return a run whose lock is held; end it if it has waited for too long."""
        live = await self._look_up(call, run_id)
        if self._late(live) and live.idle:
            with suppress(_TakenError):
                await self._mark(live, "expired", "waited")
        return live

    async def _look_up(self, call: StreamRequest, run_id: str) -> Live:
        # Another caller's run takes the same way as one that does not exist.
        which = Filter(caller=call.caller, route=call.route.name, run=run_id)
        return await self._current(self._mine(call, run_id), which, call.charge)

    async def _current(self, live: Live | None, which: Filter, held: Charge) -> Live:
        """Return a run as all machines know it; `live` is what is known here."""
        if live is None and self._shared:
            with suppress(StreamMissingError):
                return await self._tapes.load(which, held)
            await trio.sleep(2 * RUN_LOOK_S)  # it may have begun on another machine a moment ago
        if live is None:
            return await self._tapes.load(which, held)
        if self._shared and not live.running:
            await self._tapes.catch_up(live, held)
        return live

    async def page(self, call: StreamRequest, limit: int, before: StreamRow | None) -> tuple[list[Live], str | None]:
        """Return one page of the caller's runs, the latest first, and where the next one begins."""
        which = Filter(caller=call.caller, route=call.route.name, runs=True, before=before)
        rows = await self._store.list(which, limit + 1)
        found: list[Live] = []
        for row in rows[:limit]:
            with suppress(StreamMissingError):  # expired or deleted meanwhile
                found.append(await self.find(call, row.run or ""))
        return found, rows[limit - 1].cursor if len(rows) > limit else None

    # -- start and continue -------------------------------------------------------------------------------------------

    async def start(self, call: StreamRequest) -> str:
        """Start a run and return its id once it is on its tape; of a request that came before, the run it started."""
        body = _body(call)
        own = call.route.runs == "own"
        given = await in_thread_if_large(body, lambda: check_start(body, own=own))
        key = call.headers.get(b"idempotency-key")
        run_id = self.id_of(call.caller, call.route.name, key)
        while True:
            with suppress(_TakenError):  # another machine is starting it
                async with self._lock(run_id):
                    if not (key and await self._is_known(run_id)):
                        await self._start(call, run_id, given)
                return run_id
            await trio.sleep(RUN_LOOK_S)

    async def _start(self, call: StreamRequest, run_id: str, given: Mapping[str, Any]) -> None:
        body = _body(call)
        history = await self._history(call, given)
        made = chat_request if call.route.runs == "own" else partial(start_request, body)
        content = await in_thread_if_large(body, lambda: made(given, history))
        live = Live(run_id, call.caller, call.route.name)
        await self._begin(live, call, "start", content, given.get("session_id", ""))
        self._on_started()
        self._services.log.info("run_started", run=run_id, route=live.route, model=live.fold.model)

    def id_of(self, caller: str, route: str, key: bytes) -> str:
        """Return the id of a run that is to start: always the same with an idempotency key, else a fresh one."""
        if key:
            parts = b"\0".join([caller.encode(), route.encode(), key])
            return f"run_{hmac.new(self._salt, parts, hashlib.sha256).hexdigest()[:32]}"
        while not self.owns(run_id := f"run_{secrets.token_hex(16)}"):
            pass
        return run_id

    async def _is_known(self, run_id: str) -> bool:
        if run_id in self._live:
            return True
        rows = await self._tapes.rows(Filter(run=run_id))
        if rows and rows[0].turn == 1:
            return True
        await self._store.delete([row.stream for row in rows])  # what is left of a run whose beginning has expired
        return False

    async def outputs(self, call: StreamRequest, run_id: str) -> None:
        """Continue a run with the outputs of its tools."""
        body = _body(call)
        async with self._lock(run_id):
            live = await self._found(call, run_id)
            outputs = await in_thread_if_large(body, lambda: check_outputs(body, live.fold.pending, live.status))
            last, summary = await self._tapes.last_turn(live, call.charge)
            content = await in_thread_if_large(last, lambda: next_request(last, summary, outputs))
            try:
                await self._begin(live, call, "outputs", content, live.fold.session)
            except _TakenError:  # the same outputs must not answer the calls of the turn after
                message = f"The run {run_id} does not wait any more: another machine continues or ends it."
                raise RunRequestError("tool_outputs", message, "run_not_waiting") from None

    async def _begin(self, live: Live, call: StreamRequest, what: str, content: bytes, session: str) -> None:
        """Start a turn of a run whose lock is held, and return once it is on its tape."""
        charge, number = Charge(self._services.memory), live.fold.turn + 1
        mode = live.fold.mode if live.fold.turn else call.route.runs
        own, keys = mode == "own", {"turn": number, "what": what, "mode": mode}
        try:
            take(charge, MEMORY_A_STREAM_BYTES + READ_WHOLE_TIMES * len(content))
            request = replace(
                call,
                dialect=_CHAT.name if own else "",
                path_tail=_CHAT.path if own else b"/runs",
                query=b"",
                headers=Headers(call.headers.without(_OF_CALL)),
                body=content,
                plain=None,
                contents=await contents_of(
                    content, _CHAT.name if own else "", call.route.history, charge, self._parsing
                ),
                charge=charge,
                settings=replace(call.settings, profile="strict"),
                recorded_path=f"/{live.route}/v1{_CHAT.path.decode() if own else '/runs'}".replace("//", "/"),
                resumes=False,
                turn=Turn(run=live.run_id, session=session, keys=keys, body=_body(call)),
            )
            if number > 1 or call.headers.get(b"idempotency-key"):
                self._check(live)
                await self._claim(live.run_id, number)
            self._check(live)
        except BaseException:
            charge.release()
            self.on_active(live.caller, self._active(live.caller))
            raise
        # Nothing has waited since the check: of two runs that begin at once, the second one counts the first.
        live.relayed = None if own else RelayedRun(request, self._services)
        live.running, live.stopped = self._registry.start(request, live.relayed).stream, ""
        begun = trio.Event()
        self._keep(live)
        self._registry.spawn(self._follow, live, request.turn, begun)
        await begun.wait()
        if live.fold.turn < number:
            raise AnswerError(busy("The tape of this run cannot be written (on_log_failure = stop).", "log_failure"))

    async def _claim(self, run_id: str, turn: int) -> None:
        """Raise `_TakenError` unless a turn may begin here: of all machines, one may begin it."""
        if self._shared is not None:
            with trio.CancelScope(shield=True):  # or it might be claimed for nothing
                if not await self._shared.claim(run_id, turn):
                    raise _TakenError

    def _check(self, live: Live) -> None:
        """Raise `AnswerError` if no turn of this run may begin now."""
        self._registry.check(live.caller)
        most = self._services.config.runs_max
        if not self.may_begin(live.caller, self._active(live.caller, live), most):
            message = f"{most} runs of this caller are active (runs_max). Retry when one of them has ended."
            soon = ((b"retry-after", b"1"),)
            raise AnswerError(error(429, message, type="rate_limit_error", code="runs_max", headers=soon))

    def _active(self, caller: str, but: Live | None = None) -> int:
        """Return how many runs of a caller are active here."""
        return sum(bool(each.running) and each.caller == caller for each in self._live.values() if each is not but)

    # -- conversations ------------------------------------------------------------------------------------------------

    async def _history(self, call: StreamRequest, given: Mapping[str, Any]) -> list[Any]:
        """Return the conversation that a new run continues."""
        param = "previous_response_id"
        if "conversation_history" in given:
            return list(given["conversation_history"])
        # On a relayed route, other ids are responses of the upstream's.
        if param in given and (call.route.runs == "own" or given[param].startswith("run_")):
            try:
                live = await self._look_up(call, given[param])
            except StreamMissingError:
                raise RunRequestError(param, f"{param}: run not found, or not visible.", "run_not_found") from None
            _refuse_if(live, not live.closed, "run_not_finished", param)
            return await self._tapes.conversation(live, call.charge)
        which = Filter(caller=call.caller, route=call.route.name, session=given.get("session_id", ""), runs=True)
        while which.session and (rows := await self._store.list(which, 1)):
            with suppress(StreamMissingError):  # expired meanwhile
                live = await self._look_up(call, rows[0].run or "")
                if live.closed:
                    return await self._tapes.conversation(live, call.charge)
            which = replace(which, before=rows[0])
        return []

    # -- follow -------------------------------------------------------------------------------------------------------

    def _keep(self, live: Live) -> None:
        """Keep a run that runs or is watched, and attend to its deadlines."""
        now = live.alone_since = trio.current_time()
        if self._live.get(live.run_id) is not live:
            self._live[live.run_id], live.over = live, False
            first = min(FOLLOW_KEEPALIVE_S, self._services.config.runs_unwatched_s)
            self._services.reaper.watch(partial(self._look, live), now + first)
        self._watch_elsewhere(live)

    def _forget(self, live: Live) -> None:
        live.end()
        if live.watching is not None:
            live.watching.cancel()
        if self._live.get(live.run_id) is live:
            del self._live[live.run_id]

    def _drain(self) -> None:
        """Let viewers go whose run does not run: nothing more comes."""
        for live in [each for each in self._live.values() if not each.running]:
            self._forget(live)

    def _look(self, live: Live, now: float) -> float | None:
        """Attend to the deadlines of a run (a check of the reaper)."""
        if self._live.get(live.run_id) is not live:
            return None
        if now >= live.spoke_at + FOLLOW_KEEPALIVE_S:
            live.note_silence()
        alone_until = live.alone_since + self._services.config.runs_unwatched_s
        if live.viewers or not live.running or live.stopped:
            alone_until = inf
        elif now >= alone_until:
            self._stop_unwatched(live)
        if self._late(live) and live.running:
            self._stop_turn(live, "waited")
        elif self._late(live) and live.idle:
            self._registry.spawn(self._sweep_one, live.run_id)
        return min(live.spoke_at + FOLLOW_KEEPALIVE_S, alone_until)

    async def _follow(self, live: Live, turn: Turn, begun: trio.Event) -> None:
        """Read a turn as it is written, for all viewers, and see to what follows its end. Raise nothing."""
        held, log, stream = Charge(self._services.memory), self._services.log, live.running
        try:
            await turn.written.wait()
            async with aclosing(self._tapes.records(stream, held, follow=True)) as tape:
                async for records in tape:
                    live.read(stream, records)
                    if live.fold.turn == turn.keys["turn"]:
                        begun.set()
        except Exception as failure:  # noqa: BLE001 - one run is left to its tapes, and nothing else
            log.error("run_failed", run=live.run_id, why=repr(failure))
        finally:
            held.release()
            begun.set()
        async with self._lock(live.run_id):
            if live.running != stream:
                return  # the next turn has begun
            live.running = ""
            self.on_active(live.caller, self._active(live.caller))
            if live.stopped and not live.closed:  # the turn ended before the stop came
                try:
                    await self._mark(live, "stop", live.stopped)
                except (UnreachableError, _TakenError):  # it goes on elsewhere, or none can know
                    live.stopped = ""
                    self._settle(live)
                except StoreError as failure:
                    log.error("run_failed", run=live.run_id, why=str(failure))
            else:
                self._settle(live)

    def _settle(self, live: Live) -> None:
        """Note what is to become of a run that does not run, and forget it unless viewers wait for it."""
        config, fold = self._services.config, live.fold
        if fold.turn and not (live.closed and self._shared):  # others do not say that it was read there
            kept_s = config.runs_unread_s if live.closed else config.runs_waiting_s
            self._due[live.run_id] = fold.updated_us / 1e6 + kept_s
        if live.closed:
            self._on_ended(fold.status)
            log = self._services.log.info if fold.status == "completed" else self._services.log.warn
            seconds = (fold.updated_us - fold.created_us) / 1e6
            log("run_ended", run=live.run_id, status=fold.status, turns=fold.turn, error=fold.error, seconds=seconds)
        if live.closed or not live.viewers or self._registry.draining:
            self._forget(live)
        else:
            self._watch_elsewhere(live)

    def _watch_elsewhere(self, live: Live) -> None:
        if self._shared and live.watching is None and not live.running:
            live.watching = trio.CancelScope()
            self._registry.spawn(self._follow_elsewhere, live, live.watching)

    async def _follow_elsewhere(self, live: Live, watching: trio.CancelScope) -> None:
        """Read what other machines record of a run, for viewers here, until one of its turns runs here."""
        held, pause_s = Charge(self._services.memory), RUN_LOOK_S
        with watching:
            while True:
                try:
                    async with self._lock(live.run_id):
                        await self._current(live, Filter(), held)
                    if live.elsewhere:
                        pause_s = RUN_LOOK_S
                        await self._follow_one(live, live.elsewhere, held)
                except UnreachableError:
                    pass
                except StoreError:  # expired
                    break
                finally:
                    held.release()
                if live.running or live.closed:
                    break
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, RUN_LOOK_MAX_S)
        live.watching = None
        if not live.running:
            self._forget(live)

    async def _follow_one(self, live: Live, stream: str, held: Charge) -> None:
        assert self._shared is not None
        records = self._tapes.records(stream, held, live.last_n(stream), follow=True, elsewhere=True)
        with self._shared.reading(stream):
            async with aclosing(records) as tape:
                async for batch in tape:
                    live.read(stream, batch)

    # -- viewers ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watched(self, call: StreamRequest, run_id: str) -> AsyncGenerator[Live]:
        """Provide a run to a viewer, or raise `StreamMissingError`."""
        async with self._lock(run_id):
            live = await self._found(call, run_id)
            if live.running or not (live.closed or self._registry.draining):
                self._keep(live)
            else:
                live.end()
            live.viewers += 1
        try:
            yield live
        finally:
            live.viewers -= 1
            live.alone_since = trio.current_time()
            if not (live.viewers or live.running):
                self._forget(live)
            elif not live.viewers:
                until = live.alone_since + self._services.config.runs_unwatched_s
                self._services.reaper.watch(lambda now: self._look(live, now) and None, until)

    async def view(self, live: Live, after: int, held: Charge, write: _Write) -> bool:
        """Write all events after this one until the run is over; return False if we, or its tapes, go before."""
        silences = live.silences
        while True:
            if after + 1 < live.first:
                after, before = await self._view_tapes(live, after, held, write), after
                if after == before:
                    return False
            elif data := live.since(after):
                after, silences = live.fold.sequence, live.silences
                await write(data)
            elif live.over:
                self.note_read(live)
                if not (self._shared and live.closed and after > live.fold.sequence):
                    return live.closed
                after = live.fold.sequence - 1  # what a dead machine showed last is lost, but not the end
            elif silences != live.silences:
                silences = live.silences
                await write(_KEEPALIVE)
            else:
                await live.news.park()

    async def _view_tapes(self, live: Live, after: int, held: Charge, write: _Write) -> int:
        """Write the events after this one from the tapes, until the window has the rest; return the last written."""
        reader, at = RunReader(), 0
        while at < len(live.fold.streams):  # which may become more meanwhile
            stream, at = live.fold.streams[at], at + 1
            try:
                async with aclosing(self._tapes.records(stream, held, follow=True)) as tape:
                    async for records in tape:
                        frames = reader.feed(*records)
                        missing = min(len(frames), reader.run.sequence - after)
                        if missing > 0:
                            after = reader.run.sequence
                            await write(b"".join(frames[-missing:]))
                        if after + 1 >= live.first:
                            return after
            except UnreachableError:
                break
            except StoreError:  # expired or deleted meanwhile
                continue
        return after

    def note_read(self, live: Live) -> None:
        """Note that a client knows how the run ended: from now on it is kept as long as its tapes."""
        if live.closed:
            self._due.pop(live.run_id, None)

    # -- end ----------------------------------------------------------------------------------------------------------

    async def approve(self, call: StreamRequest, run_id: str) -> Answer:
        """Pass an approval on; return the upstream's answer."""
        live = await self.find(call, run_id)
        if live.elsewhere:
            return await self._ask(live, live.elsewhere, "approval", call)
        if live.relayed is None or not live.running:
            raise RunRequestError(None, f"Run has no active approval session: {run_id}", "approval_not_active")
        return await live.relayed.approve(_body(call))

    async def stop(self, call: StreamRequest, run_id: str) -> None:
        """Stop a run that runs or waits."""
        while True:
            with suppress(_TakenError):
                await self._stop(call, run_id)
                return
            await trio.sleep(RUN_LOOK_S)

    async def _stop(self, call: StreamRequest, run_id: str) -> None:
        async with self._lock(run_id):
            live = await self._found(call, run_id)
            _refuse_if(live, live.closed, "run_finished")
            elsewhere = live.elsewhere
            if live.running and live.relayed is not None:  # its tools may take a while to stop
                await live.relayed.stop("asked", anyhow=False)
                live.stopped = "asked"
                return
            if live.running:
                self._stop_turn(live, "asked")
            elif not elsewhere:
                await self._mark(live, "stop", "asked")
        if elsewhere:
            await self._ask(live, elsewhere, "stop", call)
            return
        while live.running and not live.closed:
            await live.news.park()
        _refuse_if(live, live.fold.status != "cancelled", "run_finished")  # its end was faster

    async def _ask(self, live: Live, stream: str, what: str, call: StreamRequest) -> Answer:
        """Return the answer of the machine that runs a turn, or raise it."""
        assert self._shared is not None
        keys = {"run": live.run_id, "caller": live.caller, "route": live.route, "body": _body(call).decode("latin-1")}
        said = await self._shared.ask(stream, what, keys)
        if not said:
            raise AnswerError(busy("The machine of this run does not answer. Retry in a moment.", "store_unreachable"))
        answer = json_answer(said["status"], said["body"])
        if answer.status >= 400:
            raise AnswerError(answer)
        return answer

    def _stop_unwatched(self, live: Live) -> None:
        """Stop a run without viewers here, unless other machines have some."""
        if self._shared is None:
            self._stop_turn(live, "unwatched")
        else:
            live.alone_since += READERS_ASKED_S
            self._registry.spawn(self._stop_unread, live, live.running, self._shared)

    async def _stop_unread(self, live: Live, stream: str, shared: Shared) -> None:
        if not await shared.read_elsewhere(stream) and live.running == stream and not live.viewers:
            self._stop_turn(live, "unwatched")

    def _stop_turn(self, live: Live, why: str) -> None:
        if live.stopped:
            return
        live.stopped = why
        if live.relayed is not None:
            self._registry.spawn(live.relayed.stop, why)
        else:
            self._registry.note(live.running, "stop", {"why": why}, signal="stop")

    async def delete(self, call: StreamRequest, run_id: str) -> None:
        """Remove the tapes of a run that has ended."""
        async with self._lock(run_id):
            live = await self._found(call, run_id)
            _refuse_if(live, not live.closed or bool(live.running), "run_not_finished")
            await self._delete(live)

    async def _delete(self, live: Live) -> None:
        self._due.pop(live.run_id, None)
        if self._shared is not None:  # before: a store that ships deletes its copies without asking who wrote them
            await self._shared.forget(live.fold.streams)
        await self._store.delete(live.fold.streams)

    def _late(self, live: Live) -> bool:
        """Return whether a run has waited for too long."""
        waits = live.status in ("waiting_for_tools", "waiting_for_approval")
        return waits and self._services.wall() - live.fold.updated_us / 1e6 >= self._services.config.runs_waiting_s

    async def _mark(self, live: Live, what: str, why: str) -> None:
        """End a run whose lock is held by a turn that does not ask the model."""
        services, fold = self._services, live.fold
        await self._claim(live.run_id, fold.turn + 1)
        keys = {"turn": fold.turn + 1, "what": what, "mode": fold.mode, "why": why}
        turn = Turn(run=live.run_id, session=fold.session, keys=keys)
        route, charge = Route(name=live.route, targets=()), Charge(services.memory)
        request = StreamRequest(route=route, dialect="", charge=charge, caller=live.caller, turn=turn)
        stream = services.new_id()
        trace = trace_of(stream, request.headers)
        recording = Recording(stream, self._store, trio.current_time(), trace, serve_on=False)
        with trio.CancelScope(shield=True):  # whole or not at all; it waits for no peer
            await recording.create()
            recording.later(*recording.begin(request, int(services.wall() * 1_000_000)))
            end: dict[str, Any] = {"cause": "client_gone", "ending": "client_gone", "flags": [], "answer": "whole"}
            await recording.put(recording.recorder.end(recording.t(), end))
            async for records in self._tapes.records(recording.stream, None):
                live.read(stream, records)
        self._settle(live)

    # -- housekeeping -------------------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """End runs that have waited for too long, and delete those that no client has read for too long."""
        for run_id in [run_id for run_id, at in self._due.items() if at <= self._services.wall()]:
            await self._sweep_one(run_id)

    async def _sweep_one(self, run_id: str) -> None:
        """Do what is due with one run. Raise nothing."""
        held = Charge(self._services.memory)
        try:
            async with self._lock(run_id):
                live = await self._current(self._live.get(run_id), Filter(run=run_id), held)
                due = self._due.get(run_id, inf) <= self._services.wall()
                if self._late(live) and live.idle:
                    await self._mark(live, "expired", "waited")
                elif due and live.closed and self._shared is None:
                    await self._delete(live)
                    self._services.log.info("run_expired", run=run_id)
                elif due:  # it runs again, or is over on another machine
                    del self._due[run_id]
        except (StreamMissingError, _TakenError):  # its tapes have expired, or another machine changes it
            self._due.pop(run_id, None)
        except Exception as failure:  # noqa: BLE001 - one run stays as it is, and nothing else
            self._services.log.error("run_failed", run=run_id, why=repr(failure))
        finally:
            held.release()


def _body(call: StreamRequest) -> bytes:
    body = call.plain or call.body
    assert isinstance(body, bytes), "requests for runs are read whole"
    return body


def _refuse_if(live: Live, refused: bool, code: str, param: str | None = None) -> None:
    if refused:
        raise RunRequestError(param, f"This is not possible: the run {live.run_id} is {live.status}.", code)
