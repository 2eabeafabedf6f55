"""What an app has yet to receive of its request, bounded by bytes; that the client has left is never behind a queue"""

from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from ..limits import BODY_AHEAD_BYTES_MAX, LEFT_LOOK_S

__all__ = ["Inbox"]


def _unseen() -> bool:
    return False


class Inbox:
    """hypercorn's queue holds ten messages, and its `http.disconnect` waits for room in it: an app that answers
    without reading a long body then waits for itself, for ever. Here an end needs no room.
    """

    # fmt: off
    __slots__ = (
        "_bytes", "_ended", "_gone", "_has_left", "_on_first", "_on_left", "_parts", "_room", "_said_end", "_waiting",
    )
    # fmt: on

    def __init__(self, on_first: Callable[[], None], has_left: Callable[[], bool] = _unseen) -> None:
        """`has_left` looks past what nobody reads yet, while there is no room for it."""
        self._parts: deque[bytes] = deque()
        self._bytes = 0
        self._ended = False
        self._said_end = False
        self._gone = False
        self._on_first: Callable[[], None] | None = on_first
        self._on_left: Callable[[], None] | None = None
        self._has_left = has_left
        self._waiting = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    async def put(self, data: bytes) -> None:
        """A piece of the body; waits while the app has enough to read."""
        self._parts.append(data)
        self._bytes += len(data)
        self._waiting.unpark_all()
        while self._bytes > BODY_AHEAD_BYTES_MAX and not self._gone:
            with trio.move_on_after(LEFT_LOOK_S):
                await self._room.park()
                continue
            if self._has_left():  # what came stays where it is: it may still be wanted
                self._tell()

    def end(self) -> None:
        """The body is whole."""
        self._ended = True
        self._waiting.unpark_all()

    def leave(self) -> None:
        """The client has left, or its answer is whole: nothing more comes, and nobody is waited for."""
        self._gone = True
        self._on_first = None  # its connection may be over, and is not asked to go on
        self._tell()
        self._waiting.unpark_all()
        self._room.unpark_all()

    def _tell(self) -> None:
        told, self._on_left = self._on_left, None  # which also breaks a circle of references
        if told is not None:
            told()

    def on_left(self, told: Callable[[], None] | None) -> None:
        """Told at once, and in every case once: a task that waits for `http.disconnect` costs 0.1 ms a request."""
        self._on_left = told
        if told is not None and self._gone:
            told()

    def at_hand(self) -> dict[str, Any] | None:
        """The whole body, if it is there and nothing of it was received yet; then it needs no deadline."""
        if not self._ended or self._said_end or self._on_first is None:
            return None
        self._on_first = None  # nobody waits to be told to go on
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._bytes = 0
        self._said_end = True
        self._room.unpark_all()
        return {"type": "http.request", "body": body, "more_body": False}

    async def receive(self) -> dict[str, Any]:
        """ASGI's: what has come of the body joined to one message; then `http.disconnect`, as soon as it is so."""
        if self._on_first is not None:
            on_first, self._on_first = self._on_first, None
            on_first()
        while True:
            if self._parts or (self._ended and not self._said_end):
                body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts.clear()
                self._bytes = 0
                self._said_end = self._ended
                self._room.unpark_all()
                return {"type": "http.request", "body": body, "more_body": not self._ended}
            if self._gone:
                return {"type": "http.disconnect"}
            await self._waiting.park()
