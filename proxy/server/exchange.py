"""One request and its response: ASGI's `receive` and `send` over a client's socket."""

from collections.abc import Callable
from typing import Any, Final, Literal

import trio

from wiretape.events.core.errors import LocalError

from ..http1 import PHRASES, Dechunker, chunk, format_head
from ..limits import BODY_AHEAD_BYTES_MAX, LEFT_LOOK_S
from .client_socket import ClientSocket
from .request_head import Refusal, RequestHead, refusal_bytes

__all__ = ["Exchange"]

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
#: Headers of a response that only the server sets.
_FRAMING_HEADERS: Final = frozenset({b"connection", b"transfer-encoding", b"upgrade"})

_Framing = Literal["chunked", "length", "close", "none"]


class Exchange:
    """The state of one request; its connection feeds it, its app receives and sends. It is the `ClientConnection`."""

    def __init__(self, head: RequestHead, client: ClientSocket) -> None:
        self.keep_alive = head.keep_alive
        self.request_whole = head.length == 0
        """The request's body was received to its end."""
        self.over = False
        """The response is whole, or was cut."""
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

    # The connection's side

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
        self._changed.unpark_all()
        while self._waiting_bytes > BODY_AHEAD_BYTES_MAX and not self._left:
            with trio.move_on_after(LEFT_LOOK_S):
                await self._changed.park()
            if self._client.over:
                self.leave()
            elif self._client.peer_left():  # what came stays: the app may still want it
                self._notify()
        return rest

    def malformed(self) -> int | None:
        """Refuse a body that is not HTTP/1.1, if the response has not begun; return the status that was sent."""
        self.leave()
        if self._framing or self._client.over:
            self._client.abort()
            return None
        self._client.send_now(refusal_bytes(Refusal(400, "The request body is not HTTP/1.1.")))
        self._client.linger()
        return 400

    def leave(self) -> None:
        """Tell the app that the client has left."""
        self._left = True
        self._notify()
        self._changed.unpark_all()

    def close(self) -> None:
        """End a response that its app has not ended."""
        if not (self.over or self._framing):
            self._client.send_now(refusal_bytes(Refusal(500, "Internal error. The log has the details.")))
            self._client.linger()
        self.abort()

    # The app's side

    def on_left(self, callback: Callable[[], None] | None) -> None:
        """Implement ClientConnection."""
        self._callback = callback
        if self._left and not self.over:
            self._notify()

    def abort(self) -> None:
        """Implement ClientConnection: a framed response shows that its end is missing, another one needs a reset."""
        if self.over:
            return
        self._finish()
        if self._framing in ("chunked", "length"):
            self._client.linger()
        elif not self._client.over:
            self._client.abort()

    async def receive(self) -> dict[str, Any]:
        """Return what came of the body, joined to one message; then `http.disconnect`, once the client has left or the
        response is whole.
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
                return {"type": "http.request", "body": body, "more_body": not self.request_whole}
            if self._left:
                return {"type": "http.disconnect"}
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
            gone = not await self._client.send(head)
            self._framing = framing
            if gone:
                self.leave()
            return
        if kind != "http.response.body" or not self._framing or self.over:
            raise LocalError(f"the app sent an unexpected {kind}")
        if self._framing == "chunked":
            data = (chunk(data) if data else b"") + (b"" if more else _LAST_CHUNK)
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
        sent = [header for header in headers if header[0].lower() not in _FRAMING_HEADERS]
        if any(name.lower() == b"connection" and b"close" in value.lower() for name, value in headers):
            self.keep_alive = False
        length = next((int(value) for name, value in sent if name.lower() == b"content-length"), None)
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

    # Both

    def _complete(self) -> None:
        """Go on to the next request, or end the connection. Nothing here waits, so nothing can come in between."""
        self._finish()
        if self.keep_alive and self.request_whole:
            self._client.expect_request()
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
