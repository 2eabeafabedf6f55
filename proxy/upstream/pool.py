"""Idle connections, a stack for each origin; connections in use are not known here.

The newest is taken first, so the oldest is always at the bottom: every operation costs the same however many wait.
"""

from collections import deque

import trio

from ..limits import IDLE_CONNECTION_TIMEOUT_S, IDLE_CONNECTIONS_MAX
from .connect import Origin
from .connection import Connection

__all__ = ["Pool"]


class Pool:
    """The owner of all idle connections."""

    def __init__(
        self, *, idle_max: int = IDLE_CONNECTIONS_MAX, idle_timeout_s: float = IDLE_CONNECTION_TIMEOUT_S
    ) -> None:
        self._idle: dict[Origin, deque[Connection]] = {}
        self._idle_max = idle_max
        self._idle_timeout_s = idle_timeout_s
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    async def take(self, origin: Origin) -> Connection | None:
        """Return the connection that was used last, if it can still be used."""
        since = trio.current_time() - self._idle_timeout_s
        while stack := self._idle.get(origin):
            connection = stack.pop()
            if not stack:
                del self._idle[origin]
            if connection.idle_since > since and not connection.readable:
                return connection
            await connection.aclose()
        return None

    async def give(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it."""
        if self._closed or self._idle_max < 1 or not connection.reusable:
            await connection.aclose()
            return
        connection.idle_since = trio.current_time()
        stack = self._idle.setdefault(connection.origin, deque())
        stack.append(connection)
        if len(stack) > self._idle_max:
            await stack.popleft().aclose()

    async def expire(self) -> None:
        """Close what has been idle for too long; the caller does so now and then."""
        await self._close_until(trio.current_time() - self._idle_timeout_s)

    async def aclose(self) -> None:
        """Close all of them, and each that is given back later."""
        self._closed = True
        await self._close_until(trio.current_time())

    async def _close_until(self, since: float) -> None:
        for origin, stack in list(self._idle.items()):
            while stack and stack[0].idle_since <= since:
                connection = stack.popleft()
                if not stack:
                    del self._idle[origin]
                await connection.aclose()
