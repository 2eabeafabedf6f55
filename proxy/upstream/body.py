"""The body of an answer: one item a socket read, with its time; then how it ended, and the connection's way back."""

from types import TracebackType
from typing import Self

import trio

from wiretape.events.core.errors import LocalError

from ..limits import DRAIN_BYTES_MAX, DRAIN_TIMEOUT_S
from .connection import Connection, Read
from .errors import WireError
from .exchange import End
from .pool import Pool

__all__ = ["Body"]


class Body:
    """Owns its connection until the body has ended or is closed. One task reads it; use `async with`, or close it."""

    def __init__(self, connection: Connection, pool: Pool, first: Read) -> None:
        self.head_t = first.t
        """When the head was complete."""
        self.repeated = False
        """The request went out twice: the connection that waited for it was closed already."""
        self._exchange = connection.exchange
        self._connection: Connection | None = connection
        self._pool = pool
        self._first = first if first.data else None

    @property
    def end(self) -> End | None:
        """How the body ended, once its last byte was received."""
        return self._exchange.end

    @property
    def fault(self) -> WireError | None:
        """What ended it instead; `receive` raises it when everything before was delivered."""
        return self._exchange.fault

    async def receive(self) -> Read | None:
        """What the next socket read brought, never empty; None after the end.

        Raises WireError after the last bytes before a fault. There is no deadline; a cancelled call has lost nothing.
        """
        if self._first is not None:
            read, self._first = self._first, None
            return read
        exchange, connection = self._exchange, self._connection
        while exchange.end is None and exchange.fault is None:
            if connection is None:
                raise LocalError("a body was read after it had been closed")
            read = await connection.receive()
            if read.data:
                return read
        await self._leave()
        if self._exchange.fault is not None:
            raise self._exchange.fault
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Read:
        read = await self.receive()
        if read is None:
            raise StopAsyncIteration
        return read

    async def drain(self, timeout_s: float = DRAIN_TIMEOUT_S) -> list[Read]:
        """For who needs no more: what still comes until the end, so that the connection can be used again.

        In all cases the body is done with afterwards. A fault is no longer raised, but stands in `fault`.
        """
        reads: list[Read] = []
        if self._first is None and (self._exchange.end is not None or self._exchange.fault is not None):
            await self.aclose()
            return reads
        left_bytes = DRAIN_BYTES_MAX
        with trio.move_on_after(timeout_s):
            try:
                while left_bytes >= 0 and (read := await self.receive()):
                    reads.append(read)
                    left_bytes -= len(read.data)
            except WireError:
                pass  # stands in `fault`
            finally:
                await self.aclose()
        return reads

    async def aclose(self) -> None:
        """Closes the connection, or gives it back where the end was reached; at once, also in a cancelled scope."""
        self._first = None
        await self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._pool.give(connection)
