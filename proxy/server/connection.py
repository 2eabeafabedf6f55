"""One client's connection: reads its requests one after the other, and runs the app for each in a task of its own.

While a response is under way the connection goes on reading, so that a client that leaves is seen at once. A half-close
counts as leaving, too: it looks the same as a close, and an upstream must not go on for a client that is gone. Bytes
after a request are kept, up to a bound, and read as the next request when the response is complete.
"""

from collections.abc import Callable
from math import inf
from typing import Any
from urllib.parse import unquote

import trio

from ..http1 import MalformedError
from ..limits import (
    CLIENT_IDLE_TIMEOUT_S,
    LEFT_LOOK_S,
    PIPELINED_BYTES_MAX,
    REQUEST_HEAD_TIMEOUT_S,
)
from .asgi import App
from .exchange import ClientSocket, Exchange, one_line
from .request_head import HeadReader, Refusal, RequestHead, refusal_bytes

__all__ = ["Connection"]


class Connection:
    """`run` it once; the socket is closed when it returns."""

    def __init__(
        self, app: App, client: ClientSocket, *, log: Callable[[str], None], on_refused: Callable[[int], None]
    ) -> None:
        self._app = app
        self._client = client
        self._log = log
        self._on_refused = on_refused
        self._heads = HeadReader()
        self._exchange: Exchange | None = None

    async def run(self) -> None:
        """Serve until the connection is closed. Nothing that a client or an app does raises."""
        client = self._client
        try:
            addresses = client.addresses()
            async with trio.open_nursery() as nursery:
                await self._serve(nursery, addresses)
                if client.over:  # it lingers, or has ended
                    await client.receive()
                if self._exchange is not None:
                    self._exchange.leave()
                client.end()  # now, however long the app takes to notice
        except* OSError:
            pass  # the client left while it was being accepted
        except* Exception as group:  # noqa: BLE001 - an error ends this connection, and nothing else
            self._log(f"a connection failed: {one_line(group)}")
            client.abort()
        finally:
            if self._exchange is not None:
                self._exchange.abort()
            client.end()

    def retire(self) -> None:
        """End after the response that is under way, which says so if its head is not sent yet; at once if none is."""
        if self._exchange is None or self._exchange.over:
            self._client.end()
        else:
            self._exchange.keep_alive = False

    async def _serve(self, nursery: trio.Nursery, addresses: tuple[Any, Any]) -> None:
        data: bytes | None = b""
        self._client.expect(CLIENT_IDLE_TIMEOUT_S)
        while data is not None:
            head = await self._read_head(data)
            if head is None:
                return
            self._client.expect(inf)
            exchange = self._exchange = Exchange(head, self._client)
            nursery.start_soon(exchange.run, self._app, _scope(head, exchange, addresses), self._log)
            data = await self._read_on(exchange, head.rest)

    async def _read_head(self, data: bytes) -> RequestHead | None:
        """Return the next request's head; None if the client left or its head was refused."""
        while True:
            started = self._heads.started
            head = self._heads.feed(data)
            if isinstance(head, Refusal):
                self._on_refused(head.status)
                await self._client.send(refusal_bytes(head))
                self._client.linger()
                return None
            if head is not None:
                return head
            if self._heads.started and not started:
                self._client.expect(REQUEST_HEAD_TIMEOUT_S)
            data = await self._client.receive()
            if not data:
                return None

    async def _read_on(self, exchange: Exchange, data: bytes) -> bytes | None:
        """Read the body of a request, and until its response is whole. Return what came after the request, None where
        the connection is not to go on.
        """
        try:
            rest = await exchange.feed(data)
            while not exchange.request_whole:
                data = await self._client.receive()
                if not data:
                    return None
                rest = await exchange.feed(data)
        except MalformedError:
            status = exchange.malformed()
            if status is not None:
                self._on_refused(status)
            return None
        after = bytearray(rest)
        while not exchange.over:
            if len(after) > PIPELINED_BYTES_MAX:
                await trio.sleep(LEFT_LOOK_S)
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


def _scope(head: RequestHead, exchange: Exchange, addresses: tuple[Any, Any]) -> dict[str, Any]:
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
        "client": addresses[0],
        "server": addresses[1],
        "state": {},
        "extensions": {"wiretape": exchange},
    }
