"""A TCP relay in front of a server that can stall, slow down, cut and move to another server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

__all__ = ["Relay", "relayed"]

_READ_BYTES: Final = 65_536


class Relay:
    """Passes bytes both ways. `target` is the port of the server, for connections from then on."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        #: Bytes a second of each direction of each connection; None for no limit.
        self.bytes_s: int | None = None
        #: Connections so far.
        self.accepted = 0
        self._open: set[trio.SocketStream] = set()
        self._passing = trio.Event()
        self._passing.set()

    def stall(self) -> None:
        """Pass nothing more; connections stay open and new ones are accepted."""
        self._passing = trio.Event()

    def go_on(self) -> None:
        """Pass what has waited."""
        self._passing.set()

    def cut(self) -> None:
        """Close every connection."""
        for stream in self._open:
            stream.socket.close()
        self._open.clear()

    async def serve(self, client: trio.SocketStream) -> None:
        """Relay one connection."""
        self.accepted += 1
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self.target)
        except OSError:
            await client.aclose()
            return
        self._open |= {client, server}
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(self._pass, client, server, nursery.cancel_scope)
            nursery.start_soon(self._pass, server, client, nursery.cancel_scope)
        self._open -= {client, server}

    async def _pass(self, source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some(min(self.bytes_s or _READ_BYTES, _READ_BYTES)):
                await self._passing.wait()
                if self.bytes_s is not None:
                    await trio.sleep(len(data) / self.bytes_s)
                await sink.send_all(data)
        both.cancel()


@asynccontextmanager
async def relayed(target: int) -> AsyncGenerator[Relay]:
    """A relay on a port of its own."""
    relay = Relay(target)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        relay.port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, relay.serve, [listener])
        yield relay
        nursery.cancel_scope.cancel()
