"""Connections that wait for their next request: a stack for each origin, and nothing is known of those in use.

The newest is taken first, so the oldest lie at the bottom, and what is too old is always found at one end: every
operation costs the same however many wait.
"""

from collections import deque

import trio

from ..limits import IDLE_CONNECTION_TIMEOUT_S, IDLE_CONNECTIONS_MAX
from .connect import Origin
from .connection import Connection

__all__ = ["Pool"]


class Pool:
    """Owns the connections in it; who takes one owns that."""

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
        """The one that was used last, if it can still be used."""
        since = trio.current_time() - self._idle_timeout_s
        while stack := self._idle.get(origin):
            connection = stack.pop()
            if not stack:
                del self._idle[origin]
            if connection.idle_since > since and not connection.readable:
                return connection
            await connection.aclose()
        return None

    def ready(self, origin: Origin) -> Connection | None:
        """The same, where it is at hand; what cannot be used is left for `take` to close."""
        stack = self._idle.get(origin)
        if not stack or stack[-1].idle_since <= trio.current_time() - self._idle_timeout_s or stack[-1].readable:
            return None
        connection = stack.pop()
        if not stack:
            del self._idle[origin]
        return connection

    async def give(self, connection: Connection) -> None:
        """Takes it over: keeps it for the next request, or closes it."""
        if self._closed or self._idle_max < 1 or not connection.reusable:
            await connection.aclose()
            return
        connection.idle_since = trio.current_time()
        stack = self._idle.setdefault(connection.origin, deque())
        stack.append(connection)
        if len(stack) > self._idle_max:
            await stack.popleft().aclose()

    async def expire(self) -> None:
        """Closes what has waited too long; for whoever wakes up regularly, because nothing here does."""
        await self._close_until(trio.current_time() - self._idle_timeout_s)

    async def aclose(self) -> None:
        """Closes all that wait; what is given back later is closed too."""
        self._closed = True
        await self._close_until(trio.current_time())

    async def _close_until(self, since: float) -> None:
        for origin, stack in list(self._idle.items()):
            while stack and stack[0].idle_since <= since:
                connection = stack.popleft()
                if not stack:
                    del self._idle[origin]
                await connection.aclose()
