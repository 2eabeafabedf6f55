"""Runs of an upstream that has runs itself (`runs = relay`): started there once, and read on one connection.

Such an upstream (hermes-agent) gives each event to one reader only, and forgets the events of a run once that reader
has gone. What remains then is the status of the run.
"""

import re
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from wiretape.events.core.json_text import as_object, parse
from wiretape.events.folds.run_events import CLOSED

from ..limits import RUN_ANSWER_BYTES_MAX, RUN_ANSWER_S, RUN_POLL_S, RUN_UNREACHABLE_S
from ..relay.http_responses import Answer, AnswerError, error, json_answer, wrapped_error
from ..relay.relay import Services
from ..relay.stream_request import StreamRequest
from ..relay.upstream import UpstreamRequest, UpstreamResponse
from ..upstream.connection import ProtocolError, Read, StalledError, TruncatedError, WireError

__all__ = ["RelayedRun", "RunResponse"]

#: An event that ends a run. A quote inside a JSON string is escaped, so no text of a model looks like this.
_CLOSING: Final = re.compile(rb'"event":\s?"run\.(?:completed|failed|cancelled)"')
#: More than its longest match.
_CLOSING_BYTES: Final = 64
#: The answers to a stop; what the upstream does not find has just ended.
_TAKEN: Final = (200, 404)
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


class RunResponse(UpstreamResponse):
    """A response of the upstream about a run."""

    #: Its events: they last until the run is over.
    run: "RelayedRun | None" = None
    #: What broke the events.
    broken: WireError | None = None
    _closed = False
    _tail = b""

    @property
    def over(self) -> bool:
        return super().over and (self.run is None or (self._closed and self.broken is None))

    def receiver(self) -> Callable[[], Awaitable[Read | None]]:
        return super().receiver() if self.run is None else partial(self._receive, self.run)

    async def _receive(self, run: "RelayedRun") -> Read | None:
        """Return the next read; once the events broke, wait until the run is over, and raise what broke them."""
        if self.broken is None:
            try:
                with trio.fail_after(run.silence_s):
                    read = await self._next()
                if read is not None:
                    self._tail = self._tail[-_CLOSING_BYTES:] + read.data
                    self._closed = self._closed or _CLOSING.search(self._tail) is not None
                if read is not None or self._closed:
                    return read
                self.broken = TruncatedError("The upstream ended the events before the run was over.")
            except trio.TooSlowError:
                self.broken = StalledError(f"The upstream sent nothing for {run.silence_s:g} s.")
            except WireError as fault:
                self.broken = fault.with_traceback(None)
        if not self._closed:
            await run.recover()
        raise self.broken


class RelayedRun(UpstreamRequest):
    """The upstream's side of one run. Every request goes out with the credentials of the one that began it."""

    def __init__(self, request: StreamRequest, services: Services) -> None:
        super().__init__("", request, services.config, services.transport, services.learned)
        assert request.turn is not None, "it is made for a run"
        self._run = request.turn.run
        #: Empty until the upstream has started the run.
        self._upstream_run = ""
        #: It is to be stopped once it has been started.
        self._stops = False
        #: A connection that is silent for longer is lost: the relay would soon end the run.
        self.silence_s = 0.9 * request.route.idle_s

    async def send(self, body: bytes | AsyncIterable[bytes], done: trio.Event) -> None:
        """Start the run and open its events; if they do not open, the answer to the start takes their place."""
        try:
            answer = await self.ask(b"POST", b"/runs", body, RunResponse)
            if answer.status < 300:
                found = as_object(parse(await answer.whole(RUN_ANSWER_BYTES_MAX))).get("run_id")
                if not (isinstance(found, str) and _RUN_ID.fullmatch(found)):
                    raise ProtocolError("The upstream did not start a run: its answer has no run_id.")
                self._upstream_run = found
                self.signals.note("upstream_run", {"run_id": found})
                answer = await self._events(answer)
            self.result, self.headers, self.status = answer, answer.headers, answer.status
            if self._stops and self._upstream_run and (await self._pass(b"/stop", b"{}")).status not in _TAKEN:
                self.signals.send("stop")
        except WireError as fault:
            self.result = fault.with_traceback(None)
        finally:
            done.set()

    async def recover(self) -> None:
        """Ask for the status until the run is over, and record it, or until the upstream does not know the run."""
        until = trio.current_time() + RUN_UNREACHABLE_S
        while trio.current_time() < until:
            with suppress(WireError):
                answer, said = await self._said(b"GET", b"")
                if 400 <= answer.status < 500:
                    return
                if answer.status == 200 and as_object(parse(said)).get("status") in CLOSED:
                    self.signals.note("recovered", {}, said)
                    return
                if answer.status == 200:
                    self.signals.progress_at = trio.current_time()
                    until = self.signals.progress_at + RUN_UNREACHABLE_S
            await trio.sleep(RUN_POLL_S)

    async def approve(self, body: bytes) -> Answer:
        """Pass an approval on; return the upstream's answer with our id of the run."""
        if not self._upstream_run:
            message = f"Run has no pending approval: {self._run}"
            return error(409, message, type="invalid_request_error", code="approval_not_pending")
        answer = await self._pass(b"/approval", body)
        if answer.status == 200:
            said = as_object(parse(answer.body))
            self.signals.note("approval", {name: said[name] for name in ("choice", "resolved") if name in said})
        return answer

    async def stop(self, why: str, *, anyhow: bool = True) -> None:
        """Pass a stop on, now or once the upstream has started the run, whose own event then ends the run.

        If the upstream does not take it, end the run here, or raise `AnswerError` unless it is to end `anyhow`.
        """
        self._stops = not self._upstream_run
        answer = None if self._stops else await self._pass(b"/stop", b"{}")
        taken = answer is None or answer.status in _TAKEN
        if not (answer is None or taken or anyhow):
            raise AnswerError(answer)
        self.signals.note("stop", {"why": why}, signal="look" if taken else "stop")

    async def _events(self, started: RunResponse) -> RunResponse:
        """Return the response with the events, or the answer to the start, broken."""
        started.broken = ProtocolError("The upstream started the run, but sends no events.")
        response = started
        try:
            events = await self.ask(b"GET", self._path(b"/events"), b"", RunResponse)
            if events.status == 200 and events.media_type == "text/event-stream":
                response = events
            else:
                await events.body.aclose()
        except WireError as fault:
            started.broken = fault.with_traceback(None)
        response.run = self
        return response

    async def _pass(self, action: bytes, body: bytes) -> Answer:
        try:
            answer, said = await self._said(b"POST", action, body)
        except WireError as fault:
            return error(502, f"The upstream did not answer: {fault}", type="upstream_error", code=fault.ending)
        if answer.status < 300:
            return json_answer(answer.status, {**as_object(parse(said)), "run_id": self._run})
        said = said.replace(self._upstream_run.encode("ascii"), self._run.encode("ascii"))
        return wrapped_error(answer.status, answer.headers, said)

    async def _said(self, method: bytes, action: bytes, body: bytes = b"") -> tuple[RunResponse, bytes]:
        """Return the answer to a request about the run, and its body; raise WireError without an answer."""
        with trio.move_on_after(RUN_ANSWER_S):
            answer = await self.ask(method, self._path(action), body, RunResponse)
            return answer, await answer.whole(RUN_ANSWER_BYTES_MAX)
        raise StalledError(f"The upstream sent nothing for {RUN_ANSWER_S:g} s.")

    def _path(self, action: bytes) -> bytes:
        return b"/runs/%b%b" % (self._upstream_run.encode("ascii"), action)
