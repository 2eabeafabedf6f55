"""One thread with a trio run for a whole test session: the server that all tests share, and the proxies that record

A test has a path of its own on the one port (`/t/<id>/v1`), so that it costs no port, no thread and no process. Nothing
here needs the caller's own loop, whichever it is: calls block until the thread has answered.
"""

import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import trio

from wiretape.events.core.json_text import dumps
from wiretape.events.core.settings import Settings
from wiretape.events.tape.record import Record
from wiretape.proxy.config.model import Config, ConfigError, Route, Target
from wiretape.proxy.config.urls import UrlError, checked
from wiretape.proxy.log import Log
from wiretape.proxy.serve import Assembly, running
from wiretape.proxy.store.catalogue_row import StreamRow
from wiretape.proxy.store.store import PAGE_MAX, Filter, Store

from ..playback.script import Request, Script, json_answer
from ..playback.server import Choose, Upstream, on_stderr
from ..redaction.redact import shown_path

__all__ = ["Proxy", "Streams", "Thread", "stripped"]

Streams = Sequence[Sequence[Record]]

#: A start or a stop is a matter of milliseconds; on a machine that swaps it is not.
_ANSWER_S: Final = 60.0
#: A client that was closed a moment ago leaves streams that end by themselves. What runs on for longer would hold up
#: the run, and is ended; docs/pytest.md says so.
_SETTLE_S: Final = 5.0

_PREFIX: Final = re.compile(rb"^/t/([^/?]+)(?=/|\?|$)")
_CONNECTION: ContextVar[trio.CancelScope] = ContextVar("wiretape_connection")


def stripped(request: Request) -> Request:
    """The request without the prefix of its test."""
    return request._replace(target=_PREFIX.sub(b"", request.target, count=1) or b"/")


class Thread:
    """Starts when it is first asked for something."""

    #: How long a proxy that stops waits for what still runs.
    settle_s: float = _SETTLE_S

    def __init__(self) -> None:
        self._tests: dict[str, Choose] = {}
        #: The connections that are open, and for which test each of them answered last.
        self._connections: dict[trio.CancelScope, str] = {}
        self._upstream = Upstream(self._choose, say=on_stderr)
        #: A test may have threads of its own, which ask for the first time all at once.
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._port = 0

    def serve(self, test: str, choose: Choose) -> str:
        """What answers this test's requests; the origin that they are to be sent to."""
        self._start()
        self._tests[test] = choose
        return f"http://127.0.0.1:{self._port}/t/{test}"

    def forget(self, test: str) -> None:
        """What it still has open is closed."""
        if self._tests.pop(test, None) is not None:
            self.call(self._close, test)

    def record(self, upstream: str) -> "Proxy":
        """A proxy of its own before this upstream; raises ConfigError where its URL is none."""
        try:
            checked(upstream, allow_plain_http=False)
        except UrlError as error:
            raise ConfigError(f"the upstream of the tapes {error}") from error
        self._start()
        proxy = Proxy(self)
        self.soon(proxy.run, upstream)
        proxy.ready.result(_ANSWER_S)
        return proxy

    def close(self) -> None:
        """Ends the run, and what it still serves."""
        if self._thread is not None and self._nursery is not None:
            self.call(self._nursery.cancel_scope.cancel)
            self._thread.join(_ANSWER_S)
            self._thread = None

    # -- from other threads -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                ready: Future[None] = Future()
                self._thread = threading.Thread(target=self._run, args=(ready,), name="wiretape-tape", daemon=True)
                self._thread.start()
                ready.result(_ANSWER_S)

    def call(self, what: Callable[..., object], *arguments: object) -> None:
        """Not with trio.from_thread: the caller may be inside a trio run of its own."""
        assert self._token is not None, "nothing runs"
        done: Future[None] = Future()

        def call() -> None:
            what(*arguments)
            done.set_result(None)

        self._token.run_sync_soon(call)
        done.result(_ANSWER_S)

    def soon(self, what: Callable[..., Awaitable[object]], *arguments: object) -> None:
        assert self._nursery is not None, "nothing runs"
        self.call(self._nursery.start_soon, what, *arguments)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _run(self, ready: "Future[None]") -> None:
        try:
            trio.run(self._main, ready)
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _main(self, ready: "Future[None]") -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self._port = listeners[0].socket.getsockname()[1]
            self._nursery.start_soon(trio.serve_listeners, self._serve, listeners)
            ready.set_result(None)

    async def _serve(self, stream: trio.abc.Stream) -> None:
        with trio.CancelScope() as scope:
            _CONNECTION.set(scope)
            await self._upstream.serve(stream)
        self._connections.pop(scope, None)

    def _choose(self, request: Request) -> Script:
        found = _PREFIX.match(request.target)
        test = found[1].decode("latin-1") if found else ""
        choose = self._tests.get(test)
        if choose is None:
            return _nobodys(request)
        self._connections[_CONNECTION.get()] = test
        return choose(stripped(request))

    def _close(self, test: str) -> None:
        prefix = b"/t/%b/" % test.encode()
        self._upstream.seen[:] = [each for each in self._upstream.seen if not each.request.target.startswith(prefix)]
        for scope, last in list(self._connections.items()):
            if last == test:
                scope.cancel()


def _nobodys(request: Request) -> Script:
    path = shown_path(request.target)
    why = f"{path} belongs to no test that runs: the base URL is `tape.url`, and it is for that test alone"
    return json_answer(dumps({"error": {"message": why, "type": "wiretape_miss", "code": "no_such_test"}}), 404)


class Proxy:
    """A real proxy on a port of its own, and what it taped: transparent and in one attempt, so that the client meets
    what a replay will give it.
    """

    def __init__(self, thread: Thread) -> None:
        self.url = ""
        self.ready: Future[None] = Future()
        self._thread = thread
        self._assembly: Assembly
        self._stop = trio.Event()
        self._done: Future[Streams] = Future()

    def streams(self) -> Streams:
        """Those so far, in the order in which they began. What still runs has a moment to end by itself."""
        if self._done.done():
            return self._done.result()
        found: Future[Streams] = Future()
        self._thread.soon(self._collect, found)
        return found.result(_ANSWER_S)

    def stop(self) -> Streams:
        """The same, and no more: what does not end by itself in time is ended as `shutdown`."""
        if not self._done.done():
            self._thread.call(self._stop.set)
        return self._done.result(_ANSWER_S)

    # -- in the thread ------------------------------------------------------------------------------------------------

    async def run(self, upstream: str) -> None:
        """Until it is stopped. A fault of ours is the caller's to see, and must not end the thread of all tests."""
        try:
            streams = await self._run(upstream)
        except Exception as error:  # noqa: BLE001 - handed to who waits for it
            for future in (self.ready, self._done):
                if not future.done():
                    future.set_exception(error)
        else:
            self._done.set_result(streams)

    async def _run(self, upstream: str) -> Streams:
        target = Target(name="live", url=upstream)
        settings = Settings(profile="transparent")
        # SDKs hang up at `[DONE]`, and whether that is before the body's own end must not be told by the tape.
        route = Route(name="", targets=(target,), attempts=1, settings=settings, on_client_gone="drain")
        config = Config(data=Path("unused"), port=0, durability="none", routes={"": route})
        log = Log(None, level="error")
        try:
            async with running(config, log=log) as server:
                self.url, self._assembly = server.url, server.assembly
                self.ready.set_result(None)
                await self._stop.wait()
                await self._assembly.registry.drain(trio.current_time() + self._thread.settle_s)
                return await self._streams()
        finally:
            log.close()

    async def _collect(self, found: "Future[Streams]") -> None:
        live = self._assembly.registry.live
        with trio.move_on_after(self._thread.settle_s):
            while live:
                await next(iter(live.values())).ended.wait()
                await trio.lowlevel.checkpoint()
        found.set_result(await self._streams())

    async def _streams(self) -> Streams:
        store = self._assembly.services.store
        rows = await _rows(store)
        streams = [[record async for batch in store.read(row.stream) for record in batch] for row in rows]
        return sorted(streams, key=_began)


async def _rows(store: Store) -> list[StreamRow]:
    """All of them: of a test with 1,050 requests the first 50 were lost with the second page."""
    rows: list[StreamRow] = []
    which: Filter | None = Filter()
    while which is not None:
        page = await store.list(which, PAGE_MAX)
        rows += page
        which = Filter(before=page[-1]) if len(page) == PAGE_MAX else None
    return rows


def _began(records: Sequence[Record]) -> tuple[int, str]:
    at = records[0].keys.get("created_us")
    return at if isinstance(at, int) else 0, str(records[0].keys.get("stream"))
