"""An ASGI server for HTTP/1.1: listening sockets, one task for each connection, and a shutdown that always ends.

It has no lifespan, because the app needs none, and no HTTP/2.
"""

import errno
import os
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import trio

from wiretape.events.core.errors import WiretapeError

from ..limits import (
    ACCEPT_BACKLOG,
    ACCEPT_RETRY_S,
    ACCEPTS_A_TURN,
    CONNECTIONS_SPARE,
    HEADS_BYTES_MAX,
    TCP_USER_TIMEOUT_MS,
)
from .asgi import App, Reaper, ServerSettings
from .connection import ClientSocket, Connection

__all__ = ["BindError", "Server", "listening", "listening_together", "prepared", "serve"]

#: An address of the host that this machine lacks, as `localhost` has in a container without IPv6; the others serve.
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class BindError(WiretapeError):
    """An address that cannot be listened on; the message is one line."""


def listening_together(host: str, port: int, count: int) -> list[list[socket.socket]]:
    """Return what `listening` does so many times, for processes that share the connections of one port."""
    alone = listening(host, port)  # fails if another server has the port, though it may share it
    port = alone[0].getsockname()[1]
    for sock in alone:
        sock.close()
    return [listening(host, port, shared=True) for _ in range(count)]


def listening(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Return a listening socket for each address of a host (brackets allowed); port 0 is one free port for all.

    Several `shared` ones may have the same port.
    """
    opened: list[socket.socket] = []
    failed: OSError | None = None
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as exc:
        raise BindError(f"cannot listen on {host} port {port}: {exc.strerror or exc}") from exc
    except UnicodeError as exc:  # an empty label, or one of more than 63 letters
        raise BindError(f"cannot listen on {host} port {port}: this is not a valid host name") from exc
    for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
        try:
            opened.append(_bound(family, (address[0], port, *address[2:]), shared=shared))
        except OSError as exc:
            failed = exc
            if exc.errno not in _ABSENT:
                break
        else:
            port = opened[0].getsockname()[1]
    if failed is not None and (not opened or failed.errno not in _ABSENT):
        for sock in opened:
            sock.close()
        why = os.strerror(failed.errno) if failed.errno else failed
        why = f"{why}. Choose another port: 0 picks a free one" if failed.errno == errno.EADDRINUSE else why
        raise BindError(f"cannot listen on {host} port {port}: {why}") from failed
    return opened


def _bound(family: int, address: tuple[Any, ...], *, shared: bool) -> socket.socket:
    return prepared(socket.create_server(address, family=family, backlog=ACCEPT_BACKLOG, reuse_port=shared))


def prepared(sock: socket.socket) -> socket.socket:
    """Return a listening socket with the settings of this server."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # accepted sockets inherit it
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MS)
    sock.setblocking(False)
    return sock


class Server:
    """All connections of one app: `handle` one stream in a task of its own; `retire` when no more are to come.

    Where there is no room for another connection, one makes way that waits for a request or still receives one, of the
    address that has most of those: no single address keeps the others out, and those of a reverse proxy, which are one
    address, lose nothing as long as there is room. Without one the new connection is refused.
    """

    def __init__(self, app: App, settings: ServerSettings, reaper: Reaper) -> None:
        self.settings = settings
        self.refusing = 0
        """Connections that get a 503, because there is no room for them."""
        self._app = app
        self._reaper = reaper
        self._connections: dict[Connection, ClientSocket] = {}
        self._heads: dict[Connection, int] = {}
        self._heads_bytes = 0

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one connection, from its first byte to its close."""
        client = ClientSocket(stream, self._reaper)
        connection = Connection(self._app, client, self.settings, self._hold)
        if len(self._connections) >= self.settings.connections_max and not self._make_room():
            self.refusing += 1
            try:
                await connection.refuse()
            finally:
                self.refusing -= 1
            return
        self._connections[connection] = client
        try:
            await connection.run()
        finally:
            self._forget(connection)

    def retire(self) -> None:
        """End idle connections at once, the others after the response that is under way."""
        for connection in list(self._connections):
            connection.retire()

    def _make_room(self) -> bool:
        """Close those of the connections that may go which would time out first; some at once, because each search
        looks at all of them.
        """
        going = [connection for connection in self._connections if connection.may_go]
        [(caller, count)] = Counter(connection.caller for connection in going).most_common(1) or [("", 0)]
        going = [connection for connection in going if connection.caller == caller]
        going.sort(key=lambda connection: self._connections[connection].end_by)
        for connection in going[: 1 + count // 16]:
            what = f"No room for more than {self.settings.connections_max} connections: closed an idle one."
            self._close(connection, "connections", what)
        return bool(going)

    def _hold(self, connection: Connection, held_bytes: int) -> None:
        """Account for the bytes of an incomplete head; the connection that holds most makes way if it is too much."""
        self._heads_bytes += held_bytes - self._heads.pop(connection, 0)
        if held_bytes:
            self._heads[connection] = held_bytes
        if self._heads_bytes > HEADS_BYTES_MAX:
            largest = max(self._heads, key=self._heads.__getitem__)
            self._close(largest, "heads_bytes", f"Incomplete request heads hold more than {HEADS_BYTES_MAX} bytes.")

    def _close(self, connection: Connection, limit: str, what: str) -> None:
        connection.make_way()
        self._forget(connection)
        self.settings.on_limited(limit, what)

    def _forget(self, connection: Connection) -> None:
        self._hold(connection, 0)
        self._connections.pop(connection, None)


async def serve(
    app: App,
    sockets: Sequence[socket.socket],
    *,
    settings: ServerSettings,
    reaper: Reaper,
    shutdown: trio.Event,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `shutdown`, and then as long as responses run, but at most `settings.graceful_s`.

    It starts with the URLs that it serves. The reaper must run.
    """
    server = Server(app, settings, reaper)
    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            for sock in sockets:
                accepting.start_soon(_accept, sock, server, connections)
            task_status.started([f"http://{_authority(sock)}" for sock in sockets])
            await shutdown.wait()
            accepting.cancel_scope.cancel()
        connections.cancel_scope.deadline = trio.current_time() + settings.graceful_s
        server.retire()


def _authority(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if sock.family == socket.AF_INET6 else f"{host}:{port}"


async def _accept(sock: socket.socket, server: Server, connections: trio.Nursery) -> None:
    async with trio.SocketListener(trio.socket.from_stdlib_socket(sock)) as listener:
        while True:
            if server.refusing >= CONNECTIONS_SPARE:  # each holds a descriptor; the others wait in the kernel's queue
                await trio.sleep(ACCEPT_RETRY_S)
                continue
            try:
                connections.start_soon(server.handle, await listener.accept())
                with suppress(OSError):  # the next accept reports it
                    for _ in range(ACCEPTS_A_TURN - 1):
                        more = trio.socket.from_stdlib_socket(sock.accept()[0])
                        connections.start_soon(server.handle, trio.SocketStream(more))
            except OSError as exc:  # no descriptors or no memory: the clients in the queue are served later
                server.settings.on_limited("accept", f"Cannot accept connections: {exc.strerror or exc}")
                await trio.sleep(ACCEPT_RETRY_S)
