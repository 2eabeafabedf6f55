"""One client's connection: reads, writes and deadlines; a send that did not end well is the last one on it

What always holds: nothing follows a frame that was torn. A send that is cancelled, late or fails aborts the connection,
and every later one goes nowhere; the app is told by `http.disconnect`. An end of the client's stream is its leaving,
also where it only half-closed: the two cannot be told apart, and an upstream must not go on for who has left (F12).
Bytes behind a request are kept, up to a bound, and read as the next request when the answer is whole (C06); meanwhile
the reader goes on, so that a client that leaves is seen.
"""

import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from ..limits import (
    CLIENT_IDLE_TIMEOUT_S,
    LINGER_TIMEOUT_S,
    LOG_VALUE_CHARS_MAX,
    READS_A_TURN,
    RECEIVE_BYTES_MAX,
    REQUEST_HEAD_TIMEOUT_S,
    SEND_PIECE_BYTES_MAX,
    SENDS_A_TURN,
    WRITE_TIMEOUT_S,
)
from .http1 import App, Http1
from .reading import received
from .reaper import Reaper, together
from .request_guard import Guard

__all__ = ["Connection", "Stream", "Timeouts"]

#: trio's socket holds the standard library's under this name; a contract test pins it.
_RAW: Final = "_sock"
_RESET: Final = struct.pack("ii", 1, 0)
_NEVER: Final = float("inf")

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Of a client's connection."""

    idle_s: float = CLIENT_IDLE_TIMEOUT_S
    head_s: float = REQUEST_HEAD_TIMEOUT_S
    write_s: float = WRITE_TIMEOUT_S
    linger_s: float = LINGER_TIMEOUT_S


def _uncounted(_: int) -> None:
    pass


class _Watched:
    """What the reaper holds, so that a connection that is over is held by nobody."""

    __slots__ = ("connection",)

    def __init__(self, connection: "Connection") -> None:
        self.connection: Connection | None = connection

    def often(self, now: float) -> float | None:
        """Asked again and again, at least once in every write timeout."""
        return None if self.connection is None else self.connection.look(now)

    def once(self, now: float) -> None:
        """For a deadline that is nearer than that."""
        if self.connection is not None:
            self.connection.look(now)


class Connection:
    """`run` it for each stream that was accepted; it has closed the stream when it returns."""

    def __init__(
        self,
        app: App,
        config: Config,
        context: WorkerContext,
        stream: Stream,
        reaper: Reaper,
        timeouts: Timeouts,
        log: Callable[[str], None],
        *,
        h2c_offers: Literal["refused", "ignored"] = "refused",
        on_refused: Callable[[int], None] = _uncounted,
    ) -> None:
        self.over = False
        """Nothing more is sent on it."""
        self._app = app
        self._config = config
        self._context = context
        self._stream = stream
        self._reaper = reaper
        self._timeouts = timeouts
        self._log = log
        self._on_refused = on_refused
        self._h2c_offers: Literal["refused", "ignored"] = h2c_offers
        self._watched = _Watched(self)
        self._reading = trio.CancelScope()
        self._ahead: trio.CancelScope | None = None
        self._aborted = False
        self._idle_since = self._head_since = self._sending_since = self._lingering_since = _NEVER
        self._busy = False
        self._turns: trio.lowlevel.ParkingLot | None = None
        self._raw: Any = None
        self._socket: Any = None
        #: The same as `_raw`, where it is a socket of the kernel's.
        self._read_from: socket.socket | None = None
        self._unyielded = self._unwaited = 0
        self._http: Http1 | None = None

    async def run(self) -> None:
        """Until it is closed. Nothing that a client or an app does raises."""
        try:
            await self._serve()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it left while it came
        except* Exception as group:  # noqa: BLE001 - one connection, and nothing else, ends with it
            self.failed(group)
            self.abort()
        finally:
            self.over = True
            self._watched.connection = None
            http, self._http = self._http, None
            if http is not None:
                http.forget()
            await self._close()

    async def _serve(self) -> None:
        stream = self._stream
        transport = stream
        self._reaper.watch(self._watched.often, self._next_look(trio.current_time()))
        if isinstance(stream, trio.SSLStream):
            transport = stream.transport_stream
            with trio.CancelScope(deadline=trio.current_time() + self._timeouts.head_s) as self._reading:
                await stream.do_handshake()
            if self._reading.cancelled_caught:
                return
        else:
            self._raw = getattr(stream.socket, _RAW)
            self._read_from = self._raw if isinstance(self._raw, socket.socket) else None
        self._socket = transport.socket
        client, server = self._socket.getpeername()[:2], self._socket.getsockname()[:2]
        async with trio.open_nursery() as nursery:
            self._http = http = Http1(
                self._app,
                self._config,
                self._context,
                self,
                nursery,
                (client, server),
                ssl=self._raw is None,
                guard=Guard(self._h2c_offers),
            )
            self._idle_since = trio.current_time()
            if self._read_from is not None:  # whoever ends it closes the socket, which wakes the reader
                if not self.over:
                    await self._read(http)
            else:
                with trio.CancelScope() as self._reading:
                    if not self.over:
                        await self._read(http)
            self.over = True
            http.left()
            await self._close()  # now, however long the app takes to see it

    async def _read(self, http: Http1) -> None:
        try:
            while data := await self._received():
                if self.over:
                    continue  # lingering: it is read so that our answer is not lost to a reset
                await self._feed(http, data)
                while http.behind and not self.over:
                    if not await self._read_ahead(http):
                        return
                    if not self.over:
                        behind, http.behind = http.behind, bytearray()
                        await self._feed(http, behind)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def _received(self) -> bytes | bytearray:
        """One read; of a plain socket without trio's layers and their turn of the scheduler."""
        raw = self._read_from
        if raw is None:
            return await self._stream.receive_some(RECEIVE_BYTES_MAX)
        if self._unwaited >= READS_A_TURN:
            self._unwaited = 0
            await trio.lowlevel.checkpoint()
        while True:
            try:
                data = received(raw)
            except BlockingIOError:
                self._unwaited = 0
                await trio.lowlevel.wait_readable(raw)
            except OSError:
                return b""  # reset, or closed by us
            else:
                self._unwaited += 1
                return data

    def has_left(self) -> bool:
        """Whether its end has come, past all that is not read yet; of a socket, which alone can tell."""
        raw = getattr(self._socket, _RAW, None)
        if self.over or not isinstance(raw, socket.socket) or raw.fileno() < 0:
            return False
        look = select.poll()
        look.register(raw, select.POLLRDHUP)
        return bool(look.poll(0))

    async def _feed(self, http: Http1, data: bytes | bytearray) -> None:
        await http.feed(data)
        if http.guard.begun and not self.over:
            self._idle_since = _NEVER
            if self._head_since == _NEVER:
                self._head_since = trio.current_time()
                self._reaper.watch(self._watched.once, self._head_since + self._timeouts.head_s)
        else:
            self._head_since = _NEVER
            if http.busy:
                self._idle_since = _NEVER

    async def _read_ahead(self, http: Http1) -> bool:
        """What comes behind a request while its answer is under way; whether the connection goes on."""
        with trio.CancelScope() as self._ahead:
            while http.busy and not self.over:
                if http.full:
                    await trio.sleep_forever()
                data = await self._received()
                if not data:
                    return False
                http.behind += data
        self._ahead = None
        return True

    # What is sent.

    async def send(self, data: bytes) -> None:
        """Whole, or the connection is aborted; nothing where it is over. In order, whoever sends."""
        if self._unyielded >= SENDS_A_TURN:  # before the send: who is cancelled here has torn nothing
            self._unyielded = 0
            await trio.lowlevel.checkpoint()
        if self.over:
            await trio.lowlevel.checkpoint()
        elif self._raw is None or self._busy:
            await self._send_slowly(data)
        else:
            self._unyielded += 1
            try:
                sent = self._raw.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.abort()
                return
            if sent != len(data):
                await self._send_slowly(memoryview(data)[sent:])

    def send_now(self, data: bytes) -> None:
        """Without waiting: what does not fit at once aborts the connection."""
        if self.over:
            return
        try:
            if self._raw is not None and not self._busy and self._raw.send(data) == len(data):
                return
        except OSError:
            pass
        self.abort()

    def offer(self, data: bytes) -> bytes | None:
        """As much of it as can be sent without waiting: what is left, or None where nothing was sent."""
        if self.over or self._raw is None or self._busy:
            return None
        try:
            sent: int = self._raw.send(data)
        except BlockingIOError:
            return None
        except OSError:
            self.abort()
            return None
        return data[sent:]

    async def _send_slowly(self, data: bytes | memoryview) -> None:
        try:
            if self._busy:
                self._turns = self._turns or trio.lowlevel.ParkingLot()
                await self._turns.park()  # then it is our turn: nobody comes between
            self._busy = True
            self._sending_since = trio.current_time()
            await self._push(memoryview(data))
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            self.abort()
        except BaseException:
            self.abort()
            raise
        finally:
            self._sending_since = _NEVER
            self._busy = bool(self._turns)
            if self._turns:
                self._turns.unpark()

    async def _push(self, rest: memoryview) -> None:
        while rest and not self.over:
            if self._raw is None:
                piece, rest = rest[:SEND_PIECE_BYTES_MAX], rest[SEND_PIECE_BYTES_MAX:]
                await self._stream.send_all(piece)
            else:
                await self._stream.wait_send_all_might_not_block()
                try:
                    rest = rest[self._raw.send(rest) :]
                except BlockingIOError:
                    continue
            self._sending_since = trio.current_time()

    # How it ends.

    def exchanged(self, *, stays: bool, read: bool) -> None:
        """An answer is whole: the connection waits for its next request, or ends. A long body that nobody will read
        must be read all the same, for a while: else the reset for it would overtake the answer.
        """
        if self.over:
            return
        if self._ahead is not None:
            self._ahead.cancel()
        if stays and not self._context.terminated.is_set():
            self._idle_since = trio.current_time()
        elif read:
            self._end()
        else:
            self._linger()

    def retire(self) -> None:
        """The server stops: ends at once where no answer is under way, else with it."""
        if self._http is None or not self._http.busy:
            self._end()

    def cut(self, *, framed: bool) -> None:
        """A framed answer without its end says itself that it was cut, and all that was sent still arrives; a body
        that lasts until the close needs a reset.
        """
        if framed:
            self._linger()
        else:
            self.abort()
        if self._http is not None:
            self._http.left()

    def abort(self) -> None:
        """A reset. Whatever waits on this connection is woken."""
        if self._aborted:
            return
        self.over = self._aborted = True
        if self._http is not None:
            self._http.left()
        if self._socket is not None:
            with suppress(OSError):  # the other side was faster
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._socket.close()
        self._wake_reader()

    def failed(self, exc: BaseException) -> None:
        """An app raised; it is one line."""
        self._log(f"an app failed: {_said(exc)}")

    def refused(self, status: int) -> None:
        """A request that no app was asked, or whose body was no HTTP before it was answered; it is counted."""
        self._on_refused(status)

    def _end(self) -> None:
        if self._read_from is not None and self._busy:
            self.abort()
            return
        self.over = True
        self._wake_reader()
        if self._read_from is not None:
            self._socket.close()

    def _wake_reader(self) -> None:
        self._reading.cancel()
        if self._ahead is not None:
            self._ahead.cancel()

    def _linger(self) -> None:
        if self.over:
            return
        self.over = True
        self._lingering_since = trio.current_time()
        self._reaper.watch(self._watched.once, self._lingering_since + self._timeouts.linger_s)
        if self._ahead is not None:
            self._ahead.cancel()
        if self._raw is not None:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                self.abort()

    async def _close(self) -> None:
        if self._busy:
            self.abort()
        if self._raw is not None:  # of a plain socket nothing has to be waited for
            self._socket.close()
            return
        if self._aborted:
            await trio.aclose_forcefully(self._stream)
            return
        # TLS says goodbye, which may block.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + self._timeouts.linger_s):
            await self._stream.aclose()

    # Deadlines.

    def _next_look(self, now: float) -> float:
        return together(now, now + min(self._timeouts.write_s, self._timeouts.idle_s))

    def look(self, now: float) -> float | None:
        """The reaper asks."""
        timeouts = self._timeouts
        sent_by = self._sending_since + timeouts.write_s
        other = min(
            self._idle_since + timeouts.idle_s,
            self._head_since + timeouts.head_s,
            self._lingering_since + timeouts.linger_s,
        )
        if sent_by <= now:
            self.abort()
            return None
        if other <= now:
            self._end()
            return None
        return min(self._next_look(now), sent_by, other)


def _said(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = cast(BaseExceptionGroup[BaseException], exc).exceptions[0]
    return " ".join(f"{type(exc).__name__}: {exc}".split())[:LOG_VALUE_CHARS_MAX]
