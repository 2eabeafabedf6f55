"""Play scripts over any trio stream or a loopback port, with the endings that HTTP servers hide.

Hypercorn can neither reset a connection nor keep chunk boundaries, so the framing is our own. A client may close its
sending side and go on reading: only a failing send shows that it left. In a silence, its FIN is all there is.
"""

import socket
import struct
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from errno import EADDRNOTAVAIL
from http.client import responses
from pathlib import Path
from traceback import extract_tb
from typing import Final, Protocol, cast, runtime_checkable

import trio

from wiretape.proxy.config.model import Config
from wiretape.proxy.config.urls import is_loopback
from wiretape.proxy.http1 import Dechunker, Headers, MalformedError, format_head
from wiretape.proxy.security.access import page_refusal
from wiretape.proxy.server.request_head import HeadReader, Refusal, RequestHead

from .script import Fault, Request, Script

__all__ = ["Choose", "Resets", "Served", "Upstream", "listening", "on_stderr", "place_of_fault"]

#: Choose the script for a request.
Choose = Callable[[Request], Script]

_RECEIVE_BYTES: Final = 64 * 1024
#: 40 times a long conversation with pictures.
_REQUEST_BYTES_MAX: Final = 256 * 1024 * 1024
#: How long, and in how many reads, to drain a connection after a refusal.
_DRAIN_S: Final = 1.0
_DRAIN_READS_MAX: Final = 64
#: How often to look whether a response may go on.
_GATE_S: Final = 0.02
#: Neither a status line nor the size of a chunk.
_GARBAGE: Final = b"this is not HTTP\r\n"
#: SO_LINGER on and zero: closing sends a reset instead of a FIN.
_RESET: Final = struct.pack("ii", 1, 0)


@runtime_checkable
class Resets(Protocol):
    """A stream other than a socket that can make its close a reset."""

    def reset(self) -> None: ...


@dataclass(slots=True)
class Served:
    """One request, and how sending its response went."""

    request: Request
    #: Chunks to send, chunks sent completely, and bytes of the body sent, without framing.
    due: int = 0
    pieces: int = 0
    bytes: int = 0
    #: `ended`, the name of a fault, or `left` if the client left first; empty while running.
    ended: str = ""


class _RefusedError(Exception):
    """The received bytes are not a request that may be answered. The message quotes none of them."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Reader:
    """The requests of one connection, in order."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        #: The connection broke, rather than the client only closing its sending side.
        self.broken = False
        #: Set when nothing more will come.
        self.silent = trio.Event()
        self._stream = stream
        self._early = bytearray()

    async def more(self) -> bool:
        """Read once; return False at the end."""
        data = await self._stream.receive_some(_RECEIVE_BYTES)
        self._early += data
        return bool(data)

    async def watch(self, scope: trio.CancelScope) -> None:
        """Keep what arrives during a response, and cancel the response if the connection breaks."""
        try:
            while await self.more():
                if len(self._early) > _REQUEST_BYTES_MAX:
                    await trio.sleep_forever()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.broken = True
            scope.cancel()
        self.silent.set()

    async def request(self) -> Request | None:
        """Return the next request, or None if the client left. Raise _RefusedError."""
        heads = HeadReader()
        while True:
            data = self.take()
            # Without empty lines after a body, also bare LF.
            head = heads.feed(data if heads.held_bytes else data.lstrip(b"\r\n"))
            if head is not None:
                break
            if not await self.more():
                if heads.held_bytes:
                    raise _RefusedError(400, "The client left inside a request head.")
                return None
        if isinstance(head, Refusal):
            raise _RefusedError(head.status, head.message)
        if head.expects_continue:
            await self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._early[:0] = head.rest
        body = await self._body(head)
        return Request(head.method.encode(), head.target, tuple(head.headers), body, head.http_version.encode())

    async def _body(self, head: RequestHead) -> bytes:
        body, chunks = bytearray(), Dechunker()
        while True:
            data = self.take()
            if head.length is None:
                try:
                    chunks.feed(data)
                except MalformedError as error:
                    raise _RefusedError(400, f"The request body is not HTTP/1.1: {error}.") from error
                body += b"".join(chunks.parts)
                done, rest = chunks.done, chunks.rest
            else:
                cut = head.length - len(body)
                body += data[:cut]
                done, rest = len(body) == head.length, data[cut:]
            if len(body) > _REQUEST_BYTES_MAX:
                raise _RefusedError(413, f"The request is longer than {_REQUEST_BYTES_MAX} bytes.")
            if done:
                self._early[:0] = rest
                return bytes(body)
            if not await self.more():
                raise _RefusedError(400, "The client left inside a request body.")

    def take(self) -> bytes:
        """Return what was received, and forget it."""
        data = bytes(self._early)
        self._early.clear()
        return data


class Upstream:
    """Serves any number of connections.

    `say` gets a line for bytes that are no request, and for our own bugs, which end only their connection; without it,
    bugs are raised, and `seen` has every request. `ended` gets each finished response. Listening on a `host`, the
    rules of the proxy for names and browser pages apply.
    """

    def __init__(
        self,
        choose: Choose,
        *,
        say: Callable[[str], None] | None = None,
        ended: Callable[[Served], None] | None = None,
        host: str = "",
    ) -> None:
        self.seen: list[Served] = []
        self._choose = choose
        self._say = say
        self._ended = ended
        self._own = Config(data=Path(), host=host) if host else None

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until either side closes it, and close it."""
        reader = _Reader(stream)
        try:
            while (request := await reader.request()) is not None:
                self._refuse_pages(request)
                served = Served(request)
                if self._say is None:  # a server that runs for weeks must not keep its requests
                    self.seen.append(served)
                if not await self._answer(stream, reader, served):
                    return
        except _RefusedError as error:
            if self._say is not None:
                self._say(f"refused -> {error.status}: {error}")
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await _refuse(stream, reader, error)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        except Exception as error:
            if self._say is None:
                raise
            self._say(f"internal error, {place_of_fault(error)}: the connection is reset")
            await _fail(stream, Fault.RESET)
        finally:
            await trio.aclose_forcefully(stream)

    def _refuse_pages(self, request: Request) -> None:
        """Raise _RefusedError for a request under a foreign name, or by a foreign page."""
        refused = self._own and page_refusal(self._own, Headers(request.headers), request.http_version.decode())
        if refused:
            why = refused.message.partition(".")[0]
            raise _RefusedError(refused.status, f"{why}: a replay is for programs on this machine.")

    async def _answer(self, stream: trio.abc.Stream, reader: _Reader, served: Served) -> bool:
        """Play the script; return whether the connection persists."""
        received = trio.current_time()  # choosing takes about 1 ms per 10 KB, which must not delay the response
        script = self._choose(served.request)
        served.ended = "left"  # unless the script ends first
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reader.watch, nursery.cancel_scope)
                served.ended = await _play(stream, reader, script, served, received)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        if self._ended is not None:
            self._ended(served)
        return served.ended == "ended" and not reader.broken and _persists(served.request, script)


def on_stderr(line: str) -> None:
    """Write a line to stderr, if it is still open."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"wiretape: {line}\n")


def place_of_fault(error: BaseException) -> str:
    """Return the class and place of an error, without its message: that may quote a request."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    frame = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(frame.filename).name} line {frame.lineno}"


async def _play(stream: trio.abc.Stream, reader: _Reader, script: Script, served: Served, received: float) -> str:
    """Send each chunk at its time since the request, so that one late chunk delays no other."""
    request, at = served.request, received + script.head_delay_s
    whole = request.method != b"HEAD" and script.has_body and script.unanswered is None
    served.due = sum(1 for _, what in script.steps if isinstance(what, bytes) and what) if whole else 0
    await trio.sleep_until(at)
    if script.unanswered is not None:
        return await _end(stream, reader, script.unanswered)
    chunked = script.chunked and request.http_version >= b"1.1"
    # Where times count, a client also gets time to read a late chunk by itself.
    hurried = not script.apart and not any(delay_s for delay_s, _ in script.steps)
    await stream.send_all(_head(script.status, script.headers, chunked=chunked, persists=_persists(request, script)))
    for number, (delay_s, what) in enumerate(script.steps):
        while number in script.gates and not script.gates[number]():
            if reader.silent.is_set():
                return "left"
            at = trio.current_time() + _GATE_S
            await trio.sleep_until(at)
        at += delay_s
        if not hurried:
            await trio.sleep_until(at)
        if isinstance(what, Fault):
            return await _end(stream, reader, what)
        if whole and what:
            await stream.send_all(b"%x\r\n%b\r\n" % (len(what), what) if chunked else what)
            served.pieces += 1
            served.bytes += len(what)
    if whole and chunked:
        await stream.send_all(b"0\r\n\r\n")
    return "ended"


async def _end(stream: trio.abc.Stream, reader: _Reader, fault: Fault) -> str:
    """End with a fault; return how the response ended. A silence ends when the client leaves."""
    if fault is Fault.STALL:
        await reader.silent.wait()
        return "left"
    await _fail(stream, fault)
    return str(fault.value)


async def _fail(stream: trio.abc.Stream, fault: Fault) -> None:
    """Prepare the close that follows, which is the cut or the reset."""
    if fault is Fault.GARBAGE:
        await stream.send_all(_GARBAGE)
    elif fault is Fault.RESET and isinstance(stream, trio.SocketStream):
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    elif fault is Fault.RESET and isinstance(stream, Resets):
        stream.reset()


def _head(status: int, headers: Sequence[tuple[bytes, bytes]], *, chunked: bool, persists: bool) -> bytes:
    """Return the head; it says that the connection closes if the client asked for that (RFC 9112, 9.6)."""
    phrase = responses.get(status, "").encode()  # 529 and 599 have none
    framing = [(b"Transfer-Encoding", b"chunked")] * chunked + [(b"Connection", b"close")] * (not persists)
    return format_head(b"HTTP/1.1 %d %b" % (status, phrase), [*headers, *framing])


def _persists(request: Request, script: Script) -> bool:
    """Return whether the connection outlives the response: the client lets it, and the end of the body shows."""
    asked = [value.lower() for name, value in request.headers if name.lower() == b"connection"]
    lets = b"close" not in b",".join(asked) and request.http_version >= b"1.1"  # HTTP/1.0 has no chunks either
    return lets and (script.chunked or script.has_length)


async def _refuse(stream: trio.abc.Stream, reader: _Reader, error: _RefusedError) -> None:
    """Refuse in plain HTTP, then drain for a moment: closing on unread bytes would be a reset."""
    body = f"wiretape: {error}\n".encode()
    headers = [(b"Content-Type", b"text/plain; charset=utf-8"), (b"Content-Length", b"%d" % len(body))]
    await stream.send_all(_head(error.status, headers, chunked=False, persists=False) + body)
    with trio.move_on_after(_DRAIN_S):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        for _ in range(_DRAIN_READS_MAX):
            if not await reader.more():
                break
            reader.take()


@asynccontextmanager
async def listening(
    choose: Choose,
    port: int = 0,
    host: str = "127.0.0.1",
    *,
    say: Callable[[str], None] | None = None,
    ended: Callable[[Served], None] | None = None,
) -> AsyncGenerator[tuple[str, Upstream]]:
    """Listen on a loopback port; yield the base URL (`.../v1`) and the upstream. Every connection closes at the end.

    Raise OSError if the port is taken or the address is not loopback: a recording may hold private data.
    """
    host = "127.0.0.1" if host.lower() == "localhost" else host  # else two addresses, each with its own port
    if not is_loopback(host):
        raise OSError(EADDRNOTAVAIL, "a replay listens on loopback alone", host)
    upstream = Upstream(choose, say=say, ended=ended, host=host)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(port, host=host)
        nursery.start_soon(trio.serve_listeners, upstream.serve, listeners)
        try:
            name = f"[{host}]" if ":" in host else host
            yield f"http://{name}:{listeners[0].socket.getsockname()[1]}/v1", upstream
        finally:
            nursery.cancel_scope.cancel()
