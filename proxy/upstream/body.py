"""The body of a response: one item for each socket read, with its time, and how it ended."""

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
    """The owner of a connection until the body has ended or is closed. One task reads it."""

    def __init__(self, connection: Connection, pool: Pool, first: Read, *, repeated: bool = False) -> None:
        self.head_t = first.t
        """When the head was complete."""
        self.repeated = repeated
        """The request was sent twice: the idle connection that it was sent on first had been closed."""
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
        """What ended it instead; `receive` raises it after everything that came before it."""
        return self._exchange.fault

    async def receive(self) -> Read | None:
        """Return the next read, never empty; None after the end.

        Raise WireError after the last bytes before a fault. There is no deadline; a cancelled call has lost nothing.
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
        await self.aclose()
        if exchange.fault is not None:
            raise exchange.fault
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Read:
        read = await self.receive()
        if read is None:
            raise StopAsyncIteration
        return read

    async def drain(self, timeout_s: float = DRAIN_TIMEOUT_S) -> list[Read]:
        """Read the rest, within bounds, so that the connection can be used again; then close it.

        A fault is no longer raised, only kept in `fault`.
        """
        reads: list[Read] = []
        ended = self._first is None and (self.end is not None or self.fault is not None)
        left_bytes = DRAIN_BYTES_MAX
        try:
            with trio.move_on_after(timeout_s):
                while not ended and left_bytes >= 0 and (read := await self.receive()):
                    reads.append(read)
                    left_bytes -= len(read.data)
        except WireError:
            pass
        finally:
            await self.aclose()
        return reads

    async def aclose(self) -> None:
        """Close the connection, or give it back if the end was reached; at once, also in a cancelled scope."""
        self._first = None
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._pool.give(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
