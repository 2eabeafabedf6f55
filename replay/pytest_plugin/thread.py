"""One thread with a trio run for a whole test session: the server that all tests share, and the recording proxies.

Each test has its own path on one port (`/t/<id>/v1`). Calls from tests block until the thread has answered, so they
work with any event loop, or none.
"""

import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from contextvars import ContextVar
from typing import Final, TypeVar

import trio

from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.proxy.config.model import ConfigError
from wiretape.proxy.config.urls import UrlError, checked
from wiretape.proxy.log import Log
from wiretape.proxy.serve import Assembly, running
from wiretape.proxy.store.catalogue_row import StreamRow
from wiretape.proxy.store.store import PAGE_MAX, Filter

from ..compare.verify import live_config
from ..playback.script import Request, Script, json_answer
from ..playback.server import Choose, Upstream, on_stderr
from ..redaction.redact import shown_path
from ..seal import in_order

__all__ = ["THREAD", "Proxy", "Streams", "Thread", "stripped"]

#: The name of the thread.
THREAD: Final = "wiretape-tape"
Streams = Sequence[Sequence[Record]]
_Result = TypeVar("_Result")

#: Starting and stopping take milliseconds, except on a machine that swaps.
_ANSWER_S: Final = 60.0
#: Streams of a client that was just closed end by themselves. Longer ones would hold up the run and are ended.
_SETTLE_S: Final = 5.0

_PREFIX: Final = re.compile(rb"^/t/([^/?]+)(?=/|\?|$)")
_CONNECTION: ContextVar[trio.CancelScope] = ContextVar("wiretape_connection")


def stripped(request: Request) -> Request:
    """Return a request without the prefix of its test."""
    return request._replace(target=_PREFIX.sub(b"", request.target, count=1) or b"/")


class Thread:
    """A thread that starts with the first test that needs it."""

    #: How long a stopping proxy waits for its streams.
    settle_s: float = _SETTLE_S

    def __init__(self) -> None:
        self._tests: dict[str, Choose] = {}
        #: The open connections, each with the test that it served last.
        self._connections: dict[trio.CancelScope, str] = {}
        self._upstream = Upstream(self._choose, say=on_stderr, host="127.0.0.1")
        #: Several threads of a test may need the server at once.
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._port = 0

    # -- from other threads -------------------------------------------------------------------------------------------

    def serve(self, test: str, choose: Choose) -> str:
        """Answer the requests of a test with `choose`; return their origin."""
        self._start()
        self._tests[test] = choose
        return f"http://127.0.0.1:{self._port}/t/{test}"

    def forget(self, test: str) -> None:
        """Stop answering a test and close its connections."""
        if self._tests.pop(test, None) is not None:
            self.run(self._close, test)

    def record(self, upstream: str) -> "Proxy":
        """Start a proxy for this upstream; raise `ConfigError` if the URL is invalid."""
        try:
            checked(upstream, allow_plain_http=False)
        except UrlError as error:
            raise ConfigError(f"--tape-upstream {error}") from error
        self._start()
        proxy = Proxy(self)
        self.run(lambda: self._nursery.start(proxy.serve, upstream))
        return proxy

    def run(self, what: Callable[..., Awaitable[_Result]], *arguments: object) -> _Result:
        """Run a function in the thread. `trio.from_thread` refuses callers inside a trio run."""
        done: Future[_Result] = Future()

        async def task() -> None:
            try:
                done.set_result(await what(*arguments))
            except Exception as error:  # noqa: BLE001 - the caller gets it; it must not end the thread of all tests
                done.set_exception(error)

        self._token.run_sync_soon(self._nursery.start_soon, task)
        return done.result(_ANSWER_S)

    def close(self) -> None:
        if self._thread is not None:
            self._token.run_sync_soon(self._nursery.cancel_scope.cancel)
            self._thread.join(_ANSWER_S)
            self._thread = None

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                ready: Future[None] = Future()
                self._thread = threading.Thread(target=self._main, args=(ready,), name=THREAD, daemon=True)
                self._thread.start()
                ready.result(_ANSWER_S)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _main(self, ready: "Future[None]") -> None:
        try:
            trio.run(self._serve, ready)
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _serve(self, ready: "Future[None]") -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self._port = listeners[0].socket.getsockname()[1]
            self._nursery.start_soon(trio.serve_listeners, self._connected, listeners)
            ready.set_result(None)

    async def _connected(self, stream: trio.abc.Stream) -> None:
        with trio.CancelScope() as scope:
            _CONNECTION.set(scope)
            await self._upstream.serve(stream)
        self._connections.pop(scope, None)

    def _choose(self, request: Request) -> Script:
        found = _PREFIX.match(request.target)
        test = found[1].decode("latin-1") if found else ""
        choose = self._tests.get(test)
        if choose is None:
            why = f"{shown_path(request.target)} belongs to no running test; use `tape.url` of the current test"
            error = {"message": why, "type": "wiretape_miss", "code": "no_such_test"}
            return json_answer(dumps({"type": "error", "error": error}), 404)
        self._connections[_CONNECTION.get()] = test
        return choose(stripped(request))

    async def _close(self, test: str) -> None:
        for scope, last in list(self._connections.items()):
            if last == test:
                scope.cancel()


class Proxy:
    """A recording proxy on its own port: transparent and with one attempt, so that a replay gives the same."""

    def __init__(self, thread: Thread) -> None:
        self.url = ""
        self._thread = thread
        self._assembly: Assembly
        self._stopping, self._stopped = trio.Event(), trio.Event()
        self._recorded: Streams | None = None

    def streams(self) -> Streams:
        """Return the streams so far in order of their start, after a moment for those that still run."""
        return self._thread.run(self._settled) if self._recorded is None else self._recorded

    def stop(self) -> Streams:
        """Stop, and return all streams. Those that still run end as `shutdown`."""
        if self._recorded is None:
            self._recorded = self._thread.run(self._stop)
        return self._recorded

    async def serve(self, upstream: str, task_status: "trio.TaskStatus[None]") -> None:
        with closing(Log(None, level="error")) as log:
            async with running(live_config(upstream), log=log) as server:
                self.url, self._assembly = server.url, server.assembly
                task_status.started()
                await self._stopping.wait()
        self._stopped.set()

    async def _settled(self) -> Streams:
        live = self._assembly.registry.live
        with trio.move_on_after(self._thread.settle_s):
            while live:
                await next(iter(live.values())).ended.wait()
                await trio.lowlevel.checkpoint()
        return await self._streams()

    async def _stop(self) -> Streams:
        await self._assembly.registry.drain(trio.current_time() + self._thread.settle_s)
        streams = await self._streams()
        self._stopping.set()
        await self._stopped.wait()
        return streams

    async def _streams(self) -> Streams:
        store = self._assembly.services.store
        rows: list[StreamRow] = []
        which: Filter | None = Filter()
        while which is not None:
            page = await store.list(which, PAGE_MAX)
            rows += page
            which = Filter(before=page[-1]) if len(page) == PAGE_MAX else None
        rows.reverse()
        return in_order([[record async for batch in store.read(row.stream) for record in batch] for row in rows])
