"""The replay server inside the process: a streaming httpx transport for tests under trio's clock, virtual or not.

Real HTTP bytes flow through memory between our upstream transport and the replay server, so a client gets the same
reads, times and errors as over a port. Under an autojump clock, every recorded gap is exact and takes no time. Clients
on httpx and on httpx2 work.
"""

import importlib
import ssl
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from math import inf
from types import MappingProxyType
from typing import Any, Final, Never

import httpx
import trio
from trio.testing import MockClock, lockstep_stream_pair

from wiretape.proxy.upstream.connection import Exchange, WireError
from wiretape.proxy.upstream.transport import UpstreamTransport

from .script import Script
from .server import Choose, Upstream, on_stderr

__all__ = ["TapeTransport"]

_NO_HOST: Final = "http://tape"
#: The httpx exception for an ending; every other ending is a RemoteProtocolError.
_RAISED: Final[Mapping[str, str]] = MappingProxyType(
    {"refused": "ConnectError", "reset": "ReadError", "stalled": "WriteTimeout"}
)
_OUTSIDE: Final = "tape.transport is for an AsyncClient inside a trio run; other clients use the base URL tape.url"


class TapeTransport(httpx.AsyncBaseTransport):
    """A transport for clients in one trio run. Its tasks end with their connections: close it, or leave the run."""

    def __init__(self, answers: Choose | str) -> None:
        """`answers` chooses the scripts, or is the origin of a real server on this machine."""
        self._real = isinstance(answers, str)
        #: In memory; without requests if a real server answers.
        self.upstream = Upstream(answers if callable(answers) else lambda _: Script(), say=on_stderr)
        self._origin = httpx.URL(answers if isinstance(answers, str) else _NO_HOST)
        # Nothing is encrypted here, and loading the trust store would take 30 ms.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._wire = UpstreamTransport(open_tcp=_in_real_time if self._real else self._connect, context=context)

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request of httpx or httpx2; response and exceptions are of the same library."""
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError(_OUTSIDE)
        names = [kind.__module__.partition(".")[0] for kind in type(request).__mro__]
        library = _library("httpx2" if "httpx2" in names else "httpx")
        timeout_s = request.extensions.get("timeout", {}).get("read")
        method, headers, body = request.method.encode(), request.headers.raw, await request.aread()
        if self._real:  # a real server refuses another host's name
            headers = [(name, value) for name, value in headers if name.lower() != b"host"]
        outgoing = self._wire.addressed(self._origin, method, request.url.raw_path, headers, body)
        with library.raising(timeout_s):
            head, answer = await self._wire.exchange(outgoing)
        stream = library.stream(answer, library, timeout_s)
        extensions = {"http_version": b"HTTP/1.1", "reason_phrase": head.reason}
        return library.module.Response(head.status, headers=list(head.headers), stream=stream, extensions=extensions)

    def __enter__(self) -> Never:
        raise RuntimeError(_OUTSIDE)

    def __exit__(self, *_: object) -> None:
        pass

    def handle_request(self, request: Any) -> Never:
        """Refuse a client that is not asynchronous."""
        del request
        raise RuntimeError(_OUTSIDE)

    def close(self) -> None:
        """Close nothing: a client that is not asynchronous has opened nothing."""

    async def aclose(self) -> None:
        if trio.lowlevel.in_trio_run():  # elsewhere nothing was ever opened
            await self._wire.aclose()

    async def _connect(self, host: str, port: int) -> trio.abc.Stream:
        del host, port
        ours, theirs = lockstep_stream_pair()
        client = _End(ours)
        # A nursery could not outlive this call; a system task ends with its connection or with the run.
        trio.lowlevel.spawn_system_task(self.upstream.serve, _End(theirs, client), name="wiretape tape")
        return client


async def _in_real_time(host: str, port: int) -> trio.abc.Stream:
    """Connect to a real server. An autojump clock would pass every deadline before the first byte, so let it run."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, MockClock):
        clock.autojump_threshold, clock.rate = inf, 1.0
    return await trio.open_tcp_stream(host, port)


class _End(trio.abc.Stream):
    """One end of a connection. A send ends when the other side has received it, so each is one read."""

    def __init__(self, stream: trio.abc.Stream, other: "_End | None" = None) -> None:
        self._stream = stream
        self._other = other
        self._was_reset = False

    def reset(self) -> None:
        """Make the close that follows a reset."""
        assert self._other is not None, "only the server resets"
        self._other._was_reset = True  # noqa: SLF001 - of the same class

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._stream.receive_some(max_bytes)
        if not data and self._was_reset:
            raise trio.BrokenResourceError("reset by the tape")
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Library:
    """httpx or httpx2: the latter began as a copy of the former."""

    def __init__(self, name: str) -> None:
        self.module: Any = importlib.import_module(name)
        #: A response insists on a stream class of its own library.
        self.stream: Any = type("Bytes", (_Bytes, self.module.AsyncByteStream), {})

    @contextmanager
    def raising(self, timeout_s: float | None) -> Generator[None]:
        """Translate errors into those of the library; the timeout is the client's, for one read."""
        try:
            with trio.fail_after(inf if timeout_s is None else timeout_s):
                yield
        except trio.TooSlowError as error:
            raise self.module.ReadTimeout(f"no data for {timeout_s:g} s") from error
        except WireError as error:
            name = _RAISED.get(error.ending, "RemoteProtocolError")
            raise getattr(self.module, name)(str(error)) from error


class _Bytes:
    """A body with one item per read; not a generator, so nothing is left to a finaliser."""

    def __init__(self, body: Exchange, library: _Library, timeout_s: float | None) -> None:
        self._body = body
        self._library = library
        self._timeout_s = timeout_s

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with self._library.raising(self._timeout_s):
            return (await self._body.__anext__()).data

    async def aclose(self) -> None:
        await self._body.aclose()


_library: Final = lru_cache(maxsize=2)(_Library)
