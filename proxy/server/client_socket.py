"""The socket of one client: reads, writes, deadlines, and the ways in which it ends.

A send that is cancelled, late or fails aborts the connection, and every later send does nothing: nothing ever follows
a piece that was sent in part. Deadlines belong to the reaper, because a cancel scope for each send costs 8 us.
"""

import select
import socket
import struct
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

import trio

from ..limits import (
    CLIENT_IDLE_TIMEOUT_S,
    LINGER_TIMEOUT_S,
    READS_A_TURN,
    RECEIVE_BYTES_MAX,
    REQUEST_HEAD_TIMEOUT_S,
    SEND_PIECE_BYTES_MAX,
    SENDS_A_TURN,
    WRITE_TIMEOUT_S,
)
from .reaper import Reaper, together

__all__ = ["ClientSocket", "Stream", "Timeouts"]

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]

#: trio's socket holds the standard library's under this name; a contract test pins it.
_RAW: Final = "_sock"
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The deadlines of a client's connection."""

    idle_s: float = CLIENT_IDLE_TIMEOUT_S
    head_s: float = REQUEST_HEAD_TIMEOUT_S
    write_s: float = WRITE_TIMEOUT_S
    linger_s: float = LINGER_TIMEOUT_S


class ClientSocket:
    """A stream from `accept`; its connection closes it with `aclose`."""

    def __init__(self, stream: Stream, reaper: Reaper, timeouts: Timeouts) -> None:
        self.over = False
        """Nothing more is sent."""
        self.tls = isinstance(stream, trio.SSLStream)
        self._stream = stream
        self._socket = (stream.transport_stream if isinstance(stream, trio.SSLStream) else stream).socket
        self._raw: socket.socket = getattr(self._socket, _RAW)
        #: Reads bypass trio's layers, unless there is TLS or the socket is one in memory.
        self._reads_raw = not self.tls and self._raw.fileno() >= 0
        self._reaper = reaper
        self._timeouts = timeouts
        self._reading = trio.CancelScope()
        self._sending = trio.Lock()
        self._ended = self._aborted = False
        self._send_by = self._end_by = inf
        self._reads_without_wait = self._sends_without_wait = 0
        self._check_once = partial(_check, weakref.ref(self), again=False)
        self._reaper.watch(partial(_check, weakref.ref(self), again=True), self._next_check(trio.current_time()))

    async def open(self) -> tuple[tuple[str, int], tuple[str, int]] | None:
        """Shake hands if this is TLS; return the addresses of the client and of this server, None if it took too long.

        It may raise what streams raise.
        """
        if isinstance(self._stream, trio.SSLStream):
            with trio.CancelScope(deadline=trio.current_time() + self._timeouts.head_s) as self._reading:
                await self._stream.do_handshake()
            if self._reading.cancelled_caught:
                return None
        return self._socket.getpeername()[:2], self._socket.getsockname()[:2]

    # Reading

    async def receive(self) -> bytes:
        """Return one read, empty when the client has left or the connection has ended.

        While the connection lingers, what still comes is dropped.
        """
        while not self._ended:
            if self._reads_without_wait >= READS_A_TURN:
                self._reads_without_wait = 0
                await trio.lowlevel.checkpoint()
            try:
                if self._reads_raw:
                    data = self._raw.recv(RECEIVE_BYTES_MAX)
                else:
                    data = b""
                    with trio.CancelScope() as self._reading:
                        data = bytes(await self._stream.receive_some(RECEIVE_BYTES_MAX))
                self._reads_without_wait += 1
            except BlockingIOError:
                self._reads_without_wait = 0
                with suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_readable(self._raw)
                continue
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                break  # reset, or closed by us
            if not (data and self.over):
                return data
        return b""

    def peer_left(self) -> bool:
        """Look for the end of the client's stream past everything that is not read yet."""
        if self._raw.fileno() < 0:
            return self.over
        look = select.poll()
        look.register(self._raw, select.POLLRDHUP)
        return bool(look.poll(0))

    # Sending

    async def send(self, data: bytes) -> bool:
        """Send all bytes, or abort the connection; do nothing once it is over. Concurrent sends keep their order.

        Return whether it was sent.
        """
        if self._sends_without_wait >= SENDS_A_TURN:  # before the send: a cancelled call has sent nothing
            self._sends_without_wait = 0
            await trio.lowlevel.checkpoint()
        if self.over:
            await trio.lowlevel.checkpoint()
        elif self.tls or self._sending.locked():
            await self._send_waiting(memoryview(data))
        else:
            self._sends_without_wait += 1
            try:
                sent = self._raw.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.abort()
                return False
            if sent < len(data):
                await self._send_waiting(memoryview(data)[sent:])
        return not self.over

    def send_now(self, data: bytes) -> None:
        """Send without waiting; abort the connection if it cannot take everything."""
        if self.over:
            return
        with suppress(OSError):
            if not self.tls and not self._sending.locked() and self._raw.send(data) == len(data):
                return
        self.abort()

    async def _send_waiting(self, rest: memoryview) -> None:
        try:
            async with self._sending:
                try:
                    while rest and not self.over:
                        self._send_by = trio.current_time() + self._timeouts.write_s
                        if self.tls:
                            piece, rest = rest[:SEND_PIECE_BYTES_MAX], rest[SEND_PIECE_BYTES_MAX:]
                            await self._stream.send_all(piece)
                        else:
                            await self._stream.wait_send_all_might_not_block()
                            with suppress(BlockingIOError):
                                rest = rest[self._raw.send(rest) :]
                finally:
                    self._send_by = inf
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            self.abort()
        except BaseException:
            self.abort()
            raise

    # Ending

    def expect_request(self) -> None:
        """Start the idle deadline."""
        self._end_by = trio.current_time() + self._timeouts.idle_s

    def expect_head(self) -> None:
        """Start the deadline for the rest of a request head."""
        self._end_within(self._timeouts.head_s)

    def expect_nothing(self) -> None:
        """Stop both."""
        self._end_by = inf

    def end(self) -> None:
        """Close the connection; TLS says goodbye in `aclose`. A send that is under way makes it an abort."""
        if not self.tls and self._sending.locked():
            self.abort()
            return
        self.over = self._ended = True
        self._reading.cancel()
        if not self.tls:
            self._socket.close()

    def linger(self) -> None:
        """Say that nothing more is sent, and close a little later: an earlier close would reset the connection if the
        client is still sending, and the reset would overtake the response.
        """
        if self.over:
            return
        self.over = True
        self._end_within(self._timeouts.linger_s)
        if not self.tls:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                self.abort()

    def abort(self) -> None:
        """Reset the connection; everything that waits on it wakes up."""
        if self._aborted:
            return
        self.over = self._ended = self._aborted = True
        with suppress(OSError):  # the client was faster
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()
        self._reading.cancel()

    async def aclose(self) -> None:
        """Close it, without waiting except for the TLS goodbye, which has a deadline."""
        self.over = True
        if self._sending.locked():
            self.abort()
        if not self.tls:
            self._socket.close()
        elif self._aborted:
            await trio.aclose_forcefully(self._stream)
        else:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self._timeouts.linger_s):
                await self._stream.aclose()

    # Deadlines

    def check_deadlines(self, now: float) -> float | None:
        """End what is late; return when to check again."""
        if self._send_by <= now:
            self.abort()
        elif self._end_by <= now:
            self.end()
        else:
            return min(self._next_check(now), self._send_by, self._end_by)
        return None

    def _end_within(self, seconds: float) -> None:
        self._end_by = trio.current_time() + seconds
        self._reaper.watch(self._check_once, self._end_by)

    def _next_check(self, now: float) -> float:
        return together(now, now + min(self._timeouts.write_s, self._timeouts.idle_s))


def _check(reference: weakref.ref[ClientSocket], now: float, *, again: bool) -> float | None:
    """Let the reaper check a socket without keeping it alive."""
    client = reference()
    at = None if client is None else client.check_deadlines(now)
    return at if again else None
