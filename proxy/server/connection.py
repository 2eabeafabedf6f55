"""One client's connection: its socket, its requests one after the other, and ASGI's `receive` and `send` for each.

While a response is under way the connection goes on reading, so that a client that leaves is seen at once. A half-close
counts as leaving, too: it looks the same as a close, and an upstream must not go on for a client that is gone. Bytes
after a request are kept, up to a bound, and read as the next request when the response is complete.

A send that is cancelled, late or fails aborts the connection, and every later send does nothing: nothing ever follows
a piece that was sent in part. Deadlines belong to the reaper, because a cancel scope for each send costs 8 us.
"""

import select
import socket
import struct
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final, Literal, cast
from urllib.parse import unquote

import trio

from wiretape.events.core.errors import LocalError

from ..http1 import PHRASES, Dechunker, MalformedError, format_head
from ..limits import (
    BODY_AHEAD_BYTES_MAX,
    BODY_BYTES_A_SECOND_MIN,
    CLIENT_IDLE_TIMEOUT_S,
    LEFT_LOOK_S,
    LINGER_TIMEOUT_S,
    LOG_VALUE_CHARS_MAX,
    PIPELINED_BYTES_MAX,
    RECEIVE_BYTES_MAX,
    REQUEST_HEAD_TIMEOUT_S,
    SENDS_A_TURN,
    UPLOAD_TIMEOUT_S,
    WRITE_TIMEOUT_S,
)
from .asgi import App, Reaper, ServerSettings, together
from .request_head import HeadReader, Refusal, RequestHead, refusal_bytes

__all__ = ["ClientSocket", "Connection", "Exchange"]

#: trio's socket holds the standard library's under this name; a contract test pins it.
_RAW: Final = "_sock"
_RESET: Final = struct.pack("ii", 1, 0)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
#: Headers of a response that only the server sets.
_FRAMING_HEADERS: Final = frozenset({b"connection", b"transfer-encoding", b"upgrade"})

_NO_ROOM: Final = "This server has no room for more connections. Retry in a moment."
_SLOW_HEAD: Final = f"Closed a connection without a complete request head after {REQUEST_HEAD_TIMEOUT_S:g} s."
_SLOW_BODY: Final = (
    f"The request body came too slowly: nothing for {UPLOAD_TIMEOUT_S:g} s, or after {UPLOAD_TIMEOUT_S:g} s less than "
    f"{BODY_BYTES_A_SECOND_MIN} bytes a second."
)

_Framing = Literal["chunked", "length", "close", "none"]


class ClientSocket:
    """The socket of one client: reads, writes, deadlines, and the ways in which it ends."""

    def __init__(self, stream: trio.SocketStream, reaper: Reaper) -> None:
        self.over = False
        """Nothing more is sent."""
        self.late = False
        """It was closed because the client sent nothing, or no complete head, in time."""
        self._stream = stream
        self._socket = stream.socket
        self._raw: socket.socket = getattr(stream.socket, _RAW)
        self._reaper = reaper
        self._sending = trio.Lock()
        self._sends_without_wait = 0
        self._send_by = inf
        self.end_by = trio.current_time() + REQUEST_HEAD_TIMEOUT_S
        self._check_once = partial(_check, weakref.ref(self), again=False)
        self.watch(self, REQUEST_HEAD_TIMEOUT_S)
        self.peer = self.own = ("", 0)
        """The addresses of the client and of this server."""
        with suppress(OSError, ValueError):  # the client has left, or it is a Unix socket
            (host, port), own = self._socket.getpeername()[:2], self._socket.getsockname()[:2]
            self.peer, self.own = (host, port), own

    # -- reading ------------------------------------------------------------------------------------------------------

    async def receive(self) -> bytes:
        """Return one read, empty when the client has left or the connection has ended.

        While the connection lingers, what still comes is dropped.
        """
        while True:
            try:
                data = bytes(await self._stream.receive_some(RECEIVE_BYTES_MAX))
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                return b""  # reset, or closed by us
            if not (data and self.over):
                return data

    def peer_left(self) -> bool:
        """Look for the end of the client's stream past everything that is not read yet."""
        if self._raw.fileno() < 0:
            return self.over
        look = select.poll()
        look.register(self._raw, select.POLLRDHUP)
        return bool(look.poll(0))

    # -- sending ------------------------------------------------------------------------------------------------------

    async def send(self, data: bytes) -> bool:
        """Send all bytes, or abort the connection; do nothing once it is over. Concurrent sends keep their order.

        Return whether it was sent.
        """
        if self._sends_without_wait >= SENDS_A_TURN:  # before the send: a cancelled call has sent nothing
            self._sends_without_wait = 0
            await trio.lowlevel.checkpoint()
        if self.over:
            await trio.lowlevel.checkpoint()
        elif self._sending.locked():
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
            if not self._sending.locked() and self._raw.send(data) == len(data):
                return
        self.abort()

    async def _send_waiting(self, rest: memoryview) -> None:
        try:
            async with self._sending:
                try:
                    while rest and not self.over:
                        self._send_by = trio.current_time() + WRITE_TIMEOUT_S
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

    # -- ending -------------------------------------------------------------------------------------------------------

    def expect(self, within_s: float) -> None:
        """End the connection if nothing changes this within so many seconds."""
        self.end_by = trio.current_time() + within_s
        if within_s < CLIENT_IDLE_TIMEOUT_S:
            self._reaper.watch(self._check_once, self.end_by)

    def watch(self, what: "ClientSocket | Exchange", after_s: float) -> None:
        """Let the reaper check deadlines, first after so many seconds, as long as something else keeps them alive."""
        self._reaper.watch(partial(_check, weakref.ref(what), again=True), trio.current_time() + after_s)

    def end(self) -> None:
        """Close the connection. A send that is under way makes it an abort."""
        self.over = True
        if self._sending.locked():
            self.abort()
        self._socket.close()

    def linger(self) -> None:
        """End the sending side, and close a little later: an earlier close would reset the connection if the
        client is still sending, and the reset would overtake the response.
        """
        if self.over:
            return
        self.over = True
        self.expect(LINGER_TIMEOUT_S)
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.abort()

    def abort(self) -> None:
        """Reset the connection; everything that waits on it wakes up."""
        self.over = True
        with suppress(OSError):  # the client was faster, or it is closed already
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()

    def check_deadlines(self, now: float) -> float | None:
        """End what is late; return when to check again."""
        if self._send_by <= now:
            self.abort()
        elif self.end_by <= now:
            self.late = self.late or not self.over
            self.end()
        else:
            return min(together(now, now + min(WRITE_TIMEOUT_S, CLIENT_IDLE_TIMEOUT_S)), self._send_by, self.end_by)
        return None


def _check(reference: "weakref.ref[ClientSocket | Exchange]", now: float, *, again: bool) -> float | None:
    """Let the reaper check a socket or an exchange without keeping it alive."""
    found = reference()
    at = None if found is None else found.check_deadlines(now)
    return at if again else None


class Exchange:
    """The state of one request; its connection feeds it, its app receives and sends.

    It is the extension `scope["extensions"]["wiretape"]`: `on_left` and `abort` are what ASGI cannot express.
    """

    def __init__(self, head: RequestHead, client: ClientSocket, settings: ServerSettings) -> None:
        self.keep_alive = head.keep_alive
        self.request_whole = head.length == 0
        """The request's body was received to its end."""
        self.over = False
        """The response is whole, or was cut."""
        self.extra_headers: tuple[tuple[bytes, bytes], ...] = ()
        """Headers that the app adds to whichever response it sends."""
        self.until_over: trio.CancelScope | None = None
        """Cancelled when it is over, for a connection that waits for that."""
        self._head = head
        self._client = client
        self._dechunker = Dechunker() if head.length is None else None
        self._body_left = head.length or 0
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._end_received = False
        self._wants_continue = head.expects_continue
        self._left = False
        self._callback: Callable[[], None] | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self._framing: _Framing | None = None
        self._response_left = 0
        self._settings = settings
        self._asked_at = inf
        """Since when the app waits for a part of the body."""
        self._patience_s = UPLOAD_TIMEOUT_S
        """How long it may still wait in all."""
        self._cut = ""
        """Why the rest of the body is not received."""

    @property
    def receiving(self) -> bool:
        """The request is not complete, and the response has not begun."""
        return not (self.request_whole or self._framing or self.over)

    # -- the connection's side ----------------------------------------------------------------------------------------

    async def run(self, app: App, scope: dict[str, Any]) -> None:
        """Run the app for this request. An error ends the request, and nothing else."""
        try:
            await app(scope, self.receive, self.send)
        except* Exception as group:  # noqa: BLE001 - it is logged
            self._settings.log(f"an app failed: {_one_line(group)}")
        if not self.over:
            self.close()

    async def feed(self, data: bytes) -> bytes:
        """Take what was read of the body, and wait while the app has enough; return what came after the body.

        Raise MalformedError if the body is not HTTP/1.1. The client's leaving is noticed also while this waits.
        """
        if self._dechunker is not None:
            self._dechunker.feed(data)
            body, rest = b"".join(self._dechunker.parts), self._dechunker.rest
            self.request_whole = self._dechunker.done
        else:
            body, rest = data[: self._body_left], data[self._body_left :]
            self._body_left -= len(body)
            self.request_whole = not self._body_left
        if body:
            self._wants_continue = False
            self._parts.append(body)
            self._waiting_bytes += len(body)
            self._patience_s += len(body) / BODY_BYTES_A_SECOND_MIN
        self._changed.unpark_all()
        while self._waiting_bytes > BODY_AHEAD_BYTES_MAX and not self._left:
            await self.pause()
        return rest

    async def pause(self) -> None:
        """Wait a little without reading, or until something changes; notice the client's leaving all the same."""
        with trio.move_on_after(LEFT_LOOK_S):
            await self._changed.park()
        if self._client.over:
            self.leave()
        elif self._client.peer_left():  # what came stays: the app may still want it
            self._notify()

    def malformed(self) -> None:
        """Refuse a body that is not HTTP/1.1; abort the response if it has begun."""
        self.leave()
        if self._framing or self._client.over:
            self._client.abort()
            return
        self._settings.on_refused(400)
        self._client.send_now(refusal_bytes(Refusal(400, "The request body is not HTTP/1.1.")))
        self._client.linger()

    def check_deadlines(self, now: float) -> float | None:
        """Cut a body that comes too slowly; return when to check again. Only time in which the app waits counts."""
        if self.request_whole or self._left or self._cut:
            return None
        left_s = min(self._patience_s, UPLOAD_TIMEOUT_S) - max(0.0, now - self._asked_at)
        if left_s > 0:
            return now + left_s
        self._settings.on_limited("slow_body", _SLOW_BODY)
        self.cut(_SLOW_BODY)
        return None

    def cut(self, why: str) -> None:
        """Receive no more of the body; the app learns the reason."""
        self._cut = why
        self._changed.unpark_all()

    def leave(self) -> None:
        """Notify the app that the client has left."""
        self._left = True
        self._notify()
        self._changed.unpark_all()

    def close(self) -> None:
        """End a response that its app has not ended."""
        if not self._framing:
            self._client.send_now(refusal_bytes(Refusal(500, "Internal error. The log has the details.")))
            self._client.linger()
        self.abort()

    # -- the app's side -----------------------------------------------------------------------------------------------

    def on_left(self, callback: Callable[[], None] | None) -> None:
        """Set what is called, once, as soon as the client is seen to have left, even while no `receive` is pending.

        It is called at once if that was seen already, and never after the response is complete.
        """
        self._callback = callback
        if self._left and not self.over:
            self._notify()

    def abort(self) -> None:
        """End the response so that the client can see that it is not complete; later sends do nothing.

        A framed response shows that its end is missing, another one needs a reset.
        """
        if self.over:
            return
        self._finish()
        if self._framing in ("chunked", "length"):
            self._client.linger()
        elif not self._client.over:
            self._client.abort()

    async def receive(self) -> dict[str, Any]:
        """Return what came of the body, joined to one message; then `http.disconnect`, once the client has left or the
        response is whole. Its `limit` is the reason why a body was cut, and then the client can still be answered.
        """
        if self._wants_continue and not (self._framing or self._left):
            self._wants_continue = False
            self._client.send_now(_CONTINUE)
        while True:
            if self._parts or (self.request_whole and not self._end_received):
                body = b"".join(self._parts)
                self._parts.clear()
                self._waiting_bytes = 0
                self._end_received = self.request_whole
                self._changed.unpark_all()
                self._patience_s -= max(0.0, trio.current_time() - self._asked_at)
                self._asked_at = inf
                return {"type": "http.request", "body": body, "more_body": not self.request_whole}
            if self._left or self._cut:
                return {"type": "http.disconnect", "limit": self._cut}
            self._asked_at = min(self._asked_at, trio.current_time())
            await self._changed.park()

    async def send(self, message: Any) -> None:
        """Send a part of the response. It never raises for a client that left; what is sent then goes nowhere."""
        if self._client.over:
            self.leave()
            await trio.lowlevel.checkpoint()
            return
        kind, data, more = message["type"], message.get("body", b""), message.get("more_body", False)
        if kind == "http.response.start" and not self._framing:
            framing, self._response_left, head = self._response_head(message["status"], message.get("headers", ()))
            if not await self._client.send(head):
                self.leave()
            self._framing = framing
            return
        if kind != "http.response.body" or not self._framing or self.over:
            raise LocalError(f"the app sent an unexpected {kind}")
        if self._framing == "chunked":
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + (b"" if more else _LAST_CHUNK)
        elif self._framing == "none":
            data = b""
        elif self._framing == "length":
            left = self._response_left - len(data)
            if left < 0 or (left and not more):
                raise LocalError("the app sent a body that is not as long as its content-length")
        gone = bool(data) and not await self._client.send(data)
        self._response_left -= len(data)
        if gone:  # the app knows before its `send` returns
            self.leave()
        elif not more:
            self._complete()

    def _response_head(self, status: int, headers: Any) -> tuple[_Framing, int, bytes]:
        """Return how the body is framed, its length where that is given, and the head."""
        sent = list(self.extra_headers)
        length: int | None = None
        for name, value in headers:
            lower = name.lower()
            if lower == b"connection" and b"close" in value.lower():
                self.keep_alive = False
            elif lower == b"content-length" and length is None:
                length = int(value)
            if lower not in _FRAMING_HEADERS:
                sent.append((name, value))
        bodiless = status in {204, 304}
        framing: _Framing = "length"
        if length is None:
            framing = "close" if self._head.http_version == "1.0" else "chunked"
            if framing == "chunked" and not bodiless:
                sent.append((b"Transfer-Encoding", b"chunked"))
        if bodiless or self._head.method == "HEAD":
            framing = "none"
        if not self.keep_alive:
            sent.append((b"Connection", b"close"))
        return framing, length or 0, format_head(b"HTTP/1.1 %d %b" % (status, PHRASES.get(status, b"")), sent)

    # -- both ---------------------------------------------------------------------------------------------------------

    def _complete(self) -> None:
        """Go on to the next request, or end the connection. Nothing here waits, so nothing can come in between."""
        self._finish()
        if self.keep_alive and self.request_whole:
            self._client.expect(CLIENT_IDLE_TIMEOUT_S)
        elif self.request_whole:
            self._client.end()
        else:
            self._client.linger()

    def _finish(self) -> None:
        self.over = self._left = True
        self._callback = None
        self._changed.unpark_all()
        if self.until_over is not None:
            self.until_over.cancel()

    def _notify(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Connection:
    """`run` it once; the socket is closed when it returns."""

    def __init__(
        self, app: App, client: ClientSocket, settings: ServerSettings, hold: "Callable[[Connection, int], None]"
    ) -> None:
        """`hold` accounts for the bytes of an incomplete head."""
        host = client.peer[0]
        self.caller = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:8] if ":" in host else host
        """The address of the client, or its network of IPv6."""
        self._app = app
        self._client = client
        self._settings = settings
        self._hold = hold
        self._heads = HeadReader()
        self._exchange: Exchange | None = None

    async def run(self) -> None:
        """Serve until the connection is closed. Nothing that a client or an app does raises."""
        client = self._client
        try:
            async with trio.open_nursery() as nursery:
                await self._serve(nursery)
                if client.over:  # it lingers, or has ended
                    await client.receive()
                if self._exchange is not None:
                    self._exchange.leave()
                client.end()  # now, however long the app takes to notice
        except* Exception as group:  # noqa: BLE001 - an error ends this connection, and nothing else
            self._settings.log(f"a connection failed: {_one_line(group)}")
            client.abort()
        finally:
            if self._exchange is not None:
                self._exchange.abort()
            client.end()

    async def refuse(self) -> None:
        """Answer any request with 503, because there is no room."""
        self._settings.on_refused(503)
        self._settings.on_limited("connections_refused", _NO_ROOM)
        self._client.send_now(refusal_bytes(Refusal(503, _NO_ROOM)))
        self._client.linger()
        await self._client.receive()
        self._client.end()

    @property
    def may_go(self) -> bool:
        """It waits for a request or receives one: its end cuts no response."""
        return self._exchange is None or self._exchange.over or self._exchange.receiving

    def make_way(self) -> None:
        """Close it at once, for another one."""
        if self._exchange is not None:
            self._exchange.cut(_NO_ROOM)
        self._client.end()

    def retire(self) -> None:
        """End after the response that is under way, which says so if its head is not sent yet; at once if none is."""
        if self._exchange is None or self._exchange.over:
            self._client.end()
        else:
            self._exchange.keep_alive = False

    async def _serve(self, nursery: trio.Nursery) -> None:
        data: bytes | None = b""
        while data is not None:
            head = await self._read_head(data)
            if head is None:
                return
            self._client.end_by = inf
            exchange = self._exchange = Exchange(head, self._client, self._settings)
            nursery.start_soon(exchange.run, self._app, _scope(head, exchange, self._client))
            data = await self._read_on(exchange, head.rest)

    async def _read_head(self, data: bytes) -> RequestHead | None:
        """Return the next request's head; None if the client left or its head was refused."""
        while True:
            started = self._heads.held_bytes
            head = self._heads.feed(data)
            if isinstance(head, Refusal):
                self._settings.on_refused(head.status)
                await self._client.send(refusal_bytes(head))
                self._client.linger()
                return None
            if head is not None:
                if started:
                    self._hold(self, 0)
                return head
            if self._heads.held_bytes:
                self._hold(self, self._heads.held_bytes)
                if not started and self._exchange is not None:  # the first head has its deadline already
                    self._client.expect(REQUEST_HEAD_TIMEOUT_S)
            data = b""  # it may be large, and the next one may never come
            data = await self._client.receive()
            if not data:
                if self._client.late and (self._heads.held_bytes or self._exchange is None):
                    self._settings.on_limited("slow_head", _SLOW_HEAD)
                return None

    async def _read_on(self, exchange: Exchange, data: bytes) -> bytes | None:
        """Read the body of a request, and until its response is whole. Return what came after the request, None where
        the connection is not to go on.
        """
        try:
            rest = await exchange.feed(data)
            if not exchange.request_whole:
                self._client.watch(exchange, UPLOAD_TIMEOUT_S)
            while not exchange.request_whole:
                data = await self._client.receive()
                if not data:
                    return None
                rest = await exchange.feed(data)
        except MalformedError:
            exchange.malformed()
            return None
        after = bytearray(rest)
        while not exchange.over:
            if len(after) > PIPELINED_BYTES_MAX:
                await exchange.pause()
                if self._client.peer_left():
                    return None
                continue
            if not after:
                data = await self._client.receive()
            else:  # the next request waits for the end of this one, and so does the reader
                with trio.CancelScope() as exchange.until_over:
                    data = await self._client.receive()
                if exchange.until_over.cancelled_caught:
                    break
            if not data:
                return None
            after += data
        return None if self._client.over else bytes(after)


def _scope(head: RequestHead, exchange: Exchange, client: ClientSocket) -> dict[str, Any]:
    path, _, query = head.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"spec_version": "2.1", "version": "3.0"},
        "http_version": head.http_version,
        "method": head.method,
        "scheme": "http",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": head.headers,
        "client": client.peer,
        "server": client.own,
        "state": {},
        "extensions": {"wiretape": exchange},
    }


def _one_line(error: BaseException) -> str:
    """Return the first error of a group as one line for the log."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    return " ".join(f"{type(error).__name__}: {error}".split())[:LOG_VALUE_CHARS_MAX]
