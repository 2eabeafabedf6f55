"""An upstream that follows scripts, over raw sockets: one chunk a piece, and the ways of ending that servers hide

Hypercorn can neither reset a connection nor keep the boundaries of pieces, so the framing here is our own. Works over
any trio stream, and on a loopback port with `listening`.

A client may close its sending side and go on reading: it has left where a send to it breaks. Only in a silence, where
nothing is sent, its FIN is all that tells that it went.
"""

import os
import socket
import struct
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from errno import EADDRNOTAVAIL
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from traceback import extract_tb
from typing import Final, Protocol, cast, runtime_checkable

import trio

from .incoming import Reader, RefusedError
from .script import Fault, Request, Script

__all__ = ["Choose", "Outcome", "Resets", "Upstream", "listening", "on_stderr", "place_of_fault"]

#: Which script answers a request; the order of requests is the caller's to remember.
Choose = Callable[[Request], Script]

#: Elsewhere a socket is no file.
_POSIX: Final = os.name == "posix"
_STATUSES: Final = frozenset(HTTPStatus)
#: What is still read behind a request that was refused.
_UNREAD_S: Final = 1.0
_UNREAD_READS_MAX: Final = 64
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

    __slots__ = ("at", "bytes", "due", "ended", "pieces", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        #: Pieces that were to be sent.
        self.due = 0
        #: Of the body, what was sent, its framing not counted.
        self.bytes = 0
        #: Pieces that were sent whole.
        self.pieces = 0
        #: `ended`, a fault's word, or `left` where the other side went first; empty while it runs.
        self.ended = ""
        #: When it ended, on trio's clock.
        self.at = 0.0


class Upstream:
    """`serve` any number of connections; `seen` remembers every request. `say` is told a line of what is no request,
    and of each fault of ours, which then ends its own connection alone; without it a fault goes on to the caller.
    `ended` is told of each answer.
    """

    def __init__(
        self,
        choose: Choose,
        *,
        say: Callable[[str], None] | None = None,
        ended: Callable[[Outcome], None] | None = None,
    ) -> None:
        self.seen: list[Outcome] = []
        self._choose = choose
        self._say = say
        self._ended = ended

    async def serve(self, stream: trio.abc.Stream) -> None:
        """One connection, until either side closes it. Always leaves it closed."""
        try:
            await self._requests(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        except Exception as error:
            if self._say is None:
                raise
            self._say(f"a fault of ours, {place_of_fault(error)}: the connection is reset")
            await _fail(stream, Fault.RESET)
        finally:
            await trio.aclose_forcefully(stream)

    async def _requests(self, stream: trio.abc.Stream) -> None:
        reader = Reader(stream)
        try:
            while (request := await reader.request()) is not None:
                outcome = Outcome(request)
                self.seen.append(outcome)
                if not await self._answer(stream, reader, outcome):
                    return
        except RefusedError as error:
            if self._say is not None:
                self._say(f"what is no request -> {error.status}: {error}")
            await stream.send_all(_refusal(error))
            await _unread(stream, reader)

    async def _answer(self, stream: trio.abc.Stream, reader: Reader, outcome: Outcome) -> bool:
        """Plays the script; whether the connection may go on."""
        came = trio.current_time()  # what choosing takes, a millisecond a 10 KB asked, is no delay of the answer
        script = self._choose(outcome.request)
        outcome.ended = "left"  # whatever interrupts us
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reader.watch, nursery.cancel_scope)
                outcome.ended = await _play(stream, reader, script, outcome, came)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        outcome.at = trio.current_time()
        if self._ended is not None:
            self._ended(outcome)
        stays = _persistent(outcome.request) and (script.chunked or not _closes(script))
        return outcome.ended == "ended" and not reader.broken and stays


def on_stderr(line: str) -> None:
    """What to `say` with where nobody else listens."""
    with suppress(OSError, ValueError):  # whoever read it may have gone
        sys.stderr.write(f"wiretape: {line}\n")


def place_of_fault(error: BaseException) -> str:
    """Its class and its place: what it says may hold what was asked."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    frame = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(frame.filename).name} line {frame.lineno}"


async def _play(stream: trio.abc.Stream, reader: Reader, script: Script, outcome: Outcome, came: float) -> str:
    """Each piece at its time since the request came, so that what one is late is not added to the next."""
    request, at = outcome.request, came + script.head_delay_s
    whole = request.method != b"HEAD" and script.has_body and script.unanswered is None
    outcome.due = sum(1 for _, what in script.steps if isinstance(what, bytes) and what) if whole else 0
    await trio.sleep_until(at)
    if script.unanswered is not None:
        await _end(stream, reader, script.unanswered)
        return _word(script.unanswered)
    chunked = script.chunked and request.http_version >= b"1.1"
    # Where times count, a client has time to read a late piece by itself, too.
    hurried = not script.apart and not any(delay_s for delay_s, _ in script.steps)
    await stream.send_all(_head(script, chunked=chunked, closes=not _persistent(request)))
    for delay_s, what in script.steps:
        at += delay_s
        if not hurried:
            await trio.sleep_until(at)
        if isinstance(what, Fault):
            await _end(stream, reader, what)
            return _word(what)
        if whole and what:
            await _send(stream, b"%x\r\n%b\r\n" % (len(what), what) if chunked else what, hurried=hurried)
            outcome.pieces += 1
            outcome.bytes += len(what)
    if whole and chunked:
        await stream.send_all(b"0\r\n\r\n")
    return "ended"


async def _send(stream: trio.abc.Stream, data: bytes, *, hurried: bool) -> None:
    """A send of its own. In a hurry a socket that has room takes it at once, in a third of the time of a `send_all`."""
    if hurried and _POSIX and isinstance(stream, trio.SocketStream):
        try:
            data = data[os.write(stream.socket.fileno(), data) :]
        except BlockingIOError:
            pass
        except OSError as error:
            raise trio.BrokenResourceError("the client has left") from error
        if not data:
            await trio.lowlevel.checkpoint()
            return
    await stream.send_all(data)


def _word(fault: Fault) -> str:
    """A silence ends because the other side leaves."""
    return "left" if fault is Fault.STALL else fault.value


async def _end(stream: trio.abc.Stream, reader: Reader, fault: Fault) -> None:
    if fault is Fault.STALL:
        await reader.silent.wait()
    else:
        await _fail(stream, fault)


async def _fail(stream: trio.abc.Stream, fault: Fault) -> None:
    """The cut and the reset are the close that follows."""
    if fault is Fault.GARBAGE:
        await stream.send_all(_GARBAGE)
    elif fault is Fault.RESET and isinstance(stream, trio.SocketStream):
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    elif fault is Fault.RESET and isinstance(stream, Resets):
        stream.reset()


def _head(script: Script, *, chunked: bool, closes: bool) -> bytes:
    """`closes` where the client wants it so: then it is to be told (RFC 9112 9.6)."""
    lines = [b"HTTP/1.1 %d %b" % (script.status, _phrase(script.status)), *(b"%b: %b" % one for one in script.headers)]
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if closes or (not chunked and _closes(script)):
        lines.append(b"Connection: close")
    return b"\r\n".join([*lines, b"", b""])


def _refusal(error: RefusedError) -> bytes:
    """In HTTP as everybody reads it, whatever was spoken."""
    said = f"wiretape: {error}\n".encode()
    head = b"HTTP/1.1 %d %b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close"
    return b"\r\n".join([head % (error.status, _phrase(error.status), len(said)), b"", said])


async def _unread(stream: trio.abc.Stream, reader: Reader) -> None:
    """What still comes is read for a moment: closing on it would be a reset, which takes the answer away."""
    with suppress(trio.BrokenResourceError), trio.move_on_after(_UNREAD_S):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        for _ in range(_UNREAD_READS_MAX):
            if not await reader.more():
                break
            reader.forget()


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


@asynccontextmanager
async def listening(
    choose: Choose,
    port: int = 0,
    host: str = "127.0.0.1",
    *,
    say: Callable[[str], None] | None = None,
    ended: Callable[[Outcome], None] | None = None,
) -> AsyncGenerator[tuple[str, Upstream]]:
    """On a loopback port: its base URL (`.../v1`), and what it sees. At the end every connection is closed. `say` and
    `ended` are the upstream's.

    Raises OSError where the port is somebody else's, or the address none of loopback: a recording may hold what nobody
    else should read.
    """
    host = "127.0.0.1" if host == "localhost" else host  # else it is two addresses with a port of its own each
    if not _is_loopback(host):
        raise OSError(EADDRNOTAVAIL, "a replay listens on loopback alone", host)
    upstream = Upstream(choose, say=say, ended=ended)
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
