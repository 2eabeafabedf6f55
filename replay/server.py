"""An upstream that follows scripts, over raw sockets: one chunk a piece, and the ways of ending that servers hide

Hypercorn can neither reset a connection nor keep the boundaries of pieces, so the framing here is our own. Works over
any trio stream, and on a loopback port with `listening`.
"""

import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from errno import EADDRNOTAVAIL
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, Protocol, runtime_checkable

import h11
import trio

from .script import Fault, Request, Script

__all__ = ["Choose", "Outcome", "Resets", "Upstream", "listening"]

#: Which script answers a request; the order of requests is the caller's to remember.
Choose = Callable[[Request], Script]

#: One read of the socket.
_RECEIVE_BYTES: Final = 64 * 1024
_STATUSES: Final = frozenset(HTTPStatus)
#: Neither a status line nor the size of a chunk.
_GARBAGE: Final = b"this is not HTTP\r\n"
#: SO_LINGER on and zero: closing sends a reset instead of a FIN.
_RESET: Final = struct.pack("ii", 1, 0)


@runtime_checkable
class Resets(Protocol):
    """A stream that is no socket, and can be reset all the same: the close that follows is one."""

    def reset(self) -> None: ...


class Outcome:
    """One request and what became of its answer."""

    __slots__ = ("at", "ended", "pieces", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        #: Pieces that were sent whole.
        self.pieces = 0
        #: `ended`, a fault's word, or `left` where the other side went first; empty while it runs.
        self.ended = ""
        #: When it ended, on trio's clock.
        self.at = 0.0


class Upstream:
    """`serve` any number of connections; `seen` remembers every request."""

    def __init__(self, choose: Choose) -> None:
        self.seen: list[Outcome] = []
        self._choose = choose

    async def serve(self, stream: trio.abc.Stream) -> None:
        """One connection, until either side closes it. Always leaves it closed."""
        reader = _Reader(stream)
        try:
            while (request := await reader.request()) is not None:
                outcome = Outcome(request)
                self.seen.append(outcome)
                if not await self._answer(stream, reader, outcome):
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            return
        finally:
            await trio.aclose_forcefully(stream)

    async def _answer(self, stream: trio.abc.Stream, reader: "_Reader", outcome: Outcome) -> bool:
        """Plays the script; whether the connection may go on."""
        came = trio.current_time()  # what choosing takes, a millisecond a 10 KB asked, is no delay of the answer
        script = self._choose(outcome.request)
        outcome.ended = "left"  # whatever interrupts us
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, reader, nursery.cancel_scope)
                outcome.ended = await _play(stream, script, outcome, came)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        outcome.at = trio.current_time()
        stays = _persistent(outcome.request) and (script.chunked or not _closes(script))
        return outcome.ended == "ended" and not reader.gone and stays


async def _play(stream: trio.abc.Stream, script: Script, outcome: Outcome, came: float) -> str:
    """Each piece at its time since the request came, so that what one is late is not added to the next."""
    request, at = outcome.request, came + script.head_delay_s
    await trio.sleep_until(at)
    if script.unanswered is not None:
        await _fail(stream, script.unanswered)
        return script.unanswered.value
    chunked = script.chunked and request.http_version >= b"1.1"
    await stream.send_all(_head(script, chunked=chunked))
    whole = request.method != b"HEAD" and script.has_body
    for delay_s, what in script.steps:
        at += delay_s
        await trio.sleep_until(at)
        if isinstance(what, Fault):
            await _fail(stream, what)
            return what.value
        if whole and what:
            await stream.send_all(b"%x\r\n%b\r\n" % (len(what), what) if chunked else what)
            outcome.pieces += 1
    if whole and chunked:
        await stream.send_all(b"0\r\n\r\n")
    return "ended"


async def _fail(stream: trio.abc.Stream, fault: Fault) -> None:
    """The cut and the reset are the close that follows."""
    if fault is Fault.STALL:
        await trio.sleep_forever()
    elif fault is Fault.GARBAGE:
        await stream.send_all(_GARBAGE)
    elif fault is Fault.RESET and isinstance(stream, trio.SocketStream):
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    elif fault is Fault.RESET and isinstance(stream, Resets):
        stream.reset()


async def _watch(reader: "_Reader", scope: trio.CancelScope) -> None:
    """Ends the answer when the other side leaves."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while await reader.more():
            pass
    reader.gone = True
    scope.cancel()


def _head(script: Script, *, chunked: bool) -> bytes:
    lines = [b"HTTP/1.1 %d %b" % (script.status, _phrase(script.status)), *(b"%b: %b" % one for one in script.headers)]
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    elif _closes(script):
        lines.append(b"Connection: close")
    return b"\r\n".join([*lines, b"", b""])


def _phrase(status: int) -> bytes:
    """Of a status that has one; 529 and 599 are nobody's."""
    return HTTPStatus(status).phrase.encode() if status in _STATUSES else b""


def _closes(script: Script) -> bool:
    """Whether nothing but the end of the connection can be the end of the body."""
    return script.has_body and all(name.lower() != b"content-length" for name, _ in script.headers)


def _persistent(request: Request) -> bool:
    """HTTP/1.0 knows no chunks, and whoever speaks it expects the connection to end."""
    said = [value.lower() for name, value in request.headers if name.lower() == b"connection"]
    return b"close" not in b",".join(said) and request.http_version >= b"1.1"


class _Reader:
    """Requests of one connection, in order; what comes early waits."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.gone = False
        self._stream = stream
        self._early = bytearray()

    async def more(self) -> bool:
        """Reads once; whether there may be more."""
        data = await self._stream.receive_some(_RECEIVE_BYTES)
        self._early += data
        return bool(data)

    async def request(self) -> Request | None:
        """The next one; None where the other side has left."""
        parser = h11.Connection(h11.SERVER)  # anew each time, since we answer without it
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = parser.next_event()
            if isinstance(event, h11.Request):
                head = event
                if parser.they_are_waiting_for_100_continue:
                    await self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                self._early[:0] = parser.trailing_data[0]
                return Request(head.method, head.target, list(head.headers), bytes(body), head.http_version)
            elif event is h11.NEED_DATA:
                if not self._early and not await self.more():
                    return None
                parser.receive_data(bytes(self._early))
                self._early.clear()
            else:
                return None


@asynccontextmanager
async def listening(choose: Choose, port: int = 0, host: str = "127.0.0.1") -> AsyncGenerator[tuple[str, Upstream]]:
    """On a loopback port: its base URL (`.../v1`), and what it sees. At the end every connection is closed.

    Raises OSError where the port is somebody else's, or the address none of loopback: a recording may hold what nobody
    else should read.
    """
    host = "127.0.0.1" if host == "localhost" else host  # else it is two addresses with a port of its own each
    if not _is_loopback(host):
        raise OSError(EADDRNOTAVAIL, "a replay listens on loopback alone", host)
    upstream = Upstream(choose)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(port, host=host)
        nursery.start_soon(trio.serve_listeners, upstream.serve, listeners)
        try:
            name = f"[{host}]" if ":" in host else host
            yield f"http://{name}:{listeners[0].socket.getsockname()[1]}/v1", upstream
        finally:
            nursery.cancel_scope.cancel()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
