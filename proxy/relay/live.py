"""What readers see of a running stream: the answer's head, the bytes as they are emitted, and how it ended.

The one client that asked takes its bytes here. A client that falls far behind is told so, and goes on from the tape
(`behind`); all others follow the tape from the start. So nobody waits for anybody, and no buffer grows.
"""

from collections.abc import Callable, Sequence
from enum import Enum

import trio

from ..limits import WINDOW_BYTES_MAX
from .http_responses import Answer

__all__ = ["Live", "News"]


class News(Enum):
    """What there is to tell besides bytes."""

    KEEPALIVE = "keepalive"
    #: More waits than is kept: the rest is to be read from the tape.
    BEHIND = "behind"
    ENDED = "ended"
    #: It ended in a way that must look like a cut.
    CUT = "cut"


def _nobody() -> None:
    pass


class Live:
    """Written by the stream's pump; read by its client, and joined by those who follow."""

    def __init__(self, stream: str, caller: str, route: str, started: float, *, on_left: Callable[[], None]) -> None:
        self.stream = stream
        self.caller = caller
        self.route = route
        self.started = started
        #: The status and headers that the client gets; a body only where that is all of it.
        self.answer: Answer | None = None
        #: Bytes emitted so far, and the last record whose bytes they hold.
        self.shown = 0
        self.shown_n = 0
        #: The last record of which the client was sent all.
        self.sent_n = 0
        #: The client has gone.
        self.left = False
        #: What it has not taken can be read again; else the pump waits until there is `room`.
        self.taped = True
        self.readers = 1
        self.ended = trio.Event()
        self._cut = False
        self._on_left = on_left
        #: Bytes that the client was sent, or is being sent.
        self.sent_bytes = 0
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._behind = False
        self._keepalive = False
        self._taken_n = 0
        self._wake: trio.Event | None = None
        self._room = trio.Event()

    # -- the pump -----------------------------------------------------------------------------------------------------

    def show(self, frames: Sequence[bytes], n: int) -> None:
        """Bytes that stand on the tape up to record `n`."""
        self.shown_n = n
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self.shown += len(data)
        if self.left or self._behind:
            self._tell()
            return
        if self.taped and self._parts and self._waiting_bytes + len(data) > WINDOW_BYTES_MAX:
            self._behind = True
            self._parts.clear()
        else:
            self._parts.append(data)
            self._waiting_bytes += len(data)
        self._tell()

    def room(self) -> trio.Event | None:
        """Set when the client has taken what waits for it; None where there is room now."""
        if self.left or self._waiting_bytes < WINDOW_BYTES_MAX:
            return None
        self._room = trio.Event()
        return self._room

    def commit(self, answer: Answer) -> None:
        """The status is fixed."""
        assert self.answer is None, "a status is given once"
        self.answer = answer
        self._tell()

    def keepalive(self) -> None:
        """A comment is due."""
        self._keepalive = True
        self._tell()

    def end(self, *, cut: bool) -> None:
        """Nothing more comes."""
        self._cut = cut
        self._on_left = _nobody  # who held the stream by it holds it no longer
        self.ended.set()
        self._tell()

    # -- its client ---------------------------------------------------------------------------------------------------

    async def answered(self) -> Answer | None:
        """The head, as soon as it is known; None where the stream was cut before it had one."""
        while self.answer is None and not self.ended.is_set():
            await self._news()
        return self.answer

    async def take(self) -> bytes | News:
        """The bytes that wait, or what else there is; what was taken before has been sent."""
        self.sent(self._taken_n)
        while True:
            if self._behind:
                return News.BEHIND
            if self._parts:
                parts, self._parts = self._parts, []
                self._waiting_bytes = 0
                self._room.set()
                self._taken_n = self.shown_n
                self._keepalive = False
                self.sent_bytes += sum(map(len, parts))
                return parts[0] if len(parts) == 1 else b"".join(parts)
            if self.ended.is_set():
                return self.ending
            if self._keepalive:
                self._keepalive = False
                return News.KEEPALIVE
            await self._news()

    def sent(self, n: int) -> None:
        """All up to this record has been; not the rest that waits, nor what broke off because the client left."""
        if not self.left:
            self.sent_n = n

    async def reached(self, shown_bytes: int) -> None:
        """What stands on the tape is shown a moment later."""
        while self.shown < shown_bytes and not self.ended.is_set():
            await self._news()

    def caught_up(self) -> bool:
        """Whether a client that was behind has been sent all; then what comes is kept for it again."""
        if self.shown != self.sent_bytes:
            return False
        self._behind = self._keepalive = False
        self._waiting_bytes = 0
        self._taken_n = self.shown_n
        return True

    def skip(self) -> None:
        """Its client wants no bytes, so it is never behind."""
        self.sent_bytes = self.shown
        self.caught_up()

    @property
    def ending(self) -> News:
        """How the answer is to end, once it has."""
        return News.CUT if self._cut else News.ENDED

    def leave_client(self) -> None:
        """The client has gone."""
        if not self.left:
            self.left = True
            self._parts.clear()
            self.leave()

    # -- those who follow ---------------------------------------------------------------------------------------------

    def join(self) -> None:
        """One more reader, for whom the upstream is kept."""
        self.readers += 1

    def leave(self) -> None:
        """One reader less."""
        self.readers -= 1
        self._on_left()

    def _tell(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.set()

    async def _news(self) -> None:
        assert self._wake is None, "a stream has one client"
        self._wake = trio.Event()
        await self._wake.wait()
