"""The client's side of a stream: published frames wait here until the client's own task sends them.

Readers pull. The relay publishes frames that are on the tape and never waits for its client; a client that is too slow
continues from the tape, as every follower does from the start. So no buffer grows without bound.
"""

from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress

import trio
from trio.lowlevel import ParkingLot

from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record

from ..limits import FINAL_SEND_TIMEOUT_S, SEND_BYTES_MAX, SLICE_RECORDS, WINDOW_BYTES_MAX
from ..server.asgi import Send
from ..server.connection import Exchange
from ..store.store import Store, StoreError
from .http_responses import Answer

__all__ = ["Delivery"]

_Unread = Callable[[], Awaitable[None]] | None


class Delivery:
    """What the client of one stream is to be sent: written by the relay, sent by the client's task."""

    def __init__(self, stream: str, caller: str, route: str, started: float, *, on_left: Callable[[], None]) -> None:
        self.stream = stream
        self.caller = caller
        self.route = route
        self.started = started
        #: The status and headers that the client gets; with a body only where that is the whole answer.
        self.answer: Answer | None = None
        #: The bytes published so far, and the last record that emitted some of them.
        self.published_bytes = 0
        self.published_n = 0
        #: The last record of which the client was sent everything, and the bytes sent, or handed to the socket.
        self.sent_n = 0
        self.sent_bytes = 0
        self.left = False
        #: Whether a client that falls behind can continue from the tape; if not, the relay waits for `room`.
        self.taped = True
        #: The client and the followers of the stream.
        self.readers = 1
        self.ended = trio.Event()
        self._broken = False
        self._on_left = on_left
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._behind = False
        self._news = ParkingLot()
        self._room = trio.Event()
        self._sending = trio.CancelScope()

    def unread(self) -> None:
        """Hold nothing for a client: a run has viewers instead, who follow its tape."""
        self._behind = True

    # -- the relay ----------------------------------------------------------------------------------------------------

    def commit(self, answer: Answer) -> None:
        """Fix the status and headers."""
        assert self.answer is None, "a status is given once"
        self.answer = answer
        self._news.unpark_all()

    def publish(self, frames: Sequence[bytes], n: int) -> None:
        """Hand over frames that are on the tape up to record `n`."""
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self.published_n = n
        self.published_bytes += len(data)
        if not (self.left or self._behind):
            if self.taped and self._parts and self._waiting_bytes + len(data) > WINDOW_BYTES_MAX:
                self._behind = True
                self._parts.clear()
            else:
                self._parts.append(data)
                self._waiting_bytes += len(data)
        self._news.unpark_all()

    def room(self) -> trio.Event | None:
        """Return what is set once the client has taken what waits; None if there is room now."""
        if self.left or self._waiting_bytes < WINDOW_BYTES_MAX:
            return None
        self._room = trio.Event()
        return self._room

    def end(self, *, broken: bool) -> None:
        """Publish nothing more; a broken answer must look broken to its client."""
        self._broken = broken
        self.ended.set()
        self._news.unpark_all()

    # -- the client ---------------------------------------------------------------------------------------------------

    async def run(self, store: Store, send: Send, connection: Exchange, unread: _Unread, *, head: bool) -> None:
        """Send the answer until it is whole or broken, or the client has left. `unread` reads what the client still
        sends; without a body for `head`.
        """
        whole = False
        try:
            async with trio.open_nursery() as nursery:
                self._sending = nursery.cancel_scope
                connection.on_left(self.leave_client)
                if unread is not None:
                    nursery.start_soon(unread)
                while self.answer is None and not self.ended.is_set():
                    await self._news.park()
                answer, sending = self.answer, self.answer is not None
                if answer is not None:
                    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
                while sending:
                    if self._parts:
                        parts, n, self._parts = self._parts, self.published_n, []
                        self.sent_bytes += self._waiting_bytes
                        self._waiting_bytes = 0
                        self._room.set()
                        if not head:
                            data = parts[0] if len(parts) == 1 else b"".join(parts)
                            await send({"type": "http.response.body", "body": data, "more_body": True})
                        if not self.left:  # else it may not have been sent
                            self.sent_n = n
                    elif self._behind:
                        sending = await self._send_from_tape(store, send, head=head)
                    elif self.ended.is_set():
                        whole, sending = not self._broken, False
                    else:
                        await self._news.park()
                connection.on_left(None)  # the last send ends the request, which would count as leaving
                nursery.cancel_scope.cancel()
            if self.left:
                return
            if whole:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + FINAL_SEND_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                connection.abort()
        finally:
            self.leave_client()

    async def _send_from_tape(self, store: Store, send: Send, *, head: bool) -> bool:
        """Send the same bytes, emitted again from the tape (L3), until the client has caught up with the relay.

        Return whether it was sent all that was published: a tape may be shorter.
        """
        if head:
            self.sent_bytes = self.published_bytes
            return self._catch_up()
        emitter, at = Emitter(), 0
        with suppress(StoreError):  # the tape is shorter than what was published
            async for records in store.follow(self.stream):
                for n, data in _pieces(emitter, records):
                    fresh, at = data[max(0, self.sent_bytes - at) :], at + len(data)
                    if fresh:
                        self.sent_bytes = at
                        await send({"type": "http.response.body", "body": fresh, "more_body": True})
                        if not self.left:
                            self.sent_n = n
                    else:
                        await trio.lowlevel.checkpoint()
                while self.published_bytes < self.sent_bytes and not self.ended.is_set():
                    await self._news.park()  # what is on the tape is published a moment later
                if self._catch_up():
                    return True
        return self._catch_up()

    def _catch_up(self) -> bool:
        if self.published_bytes != self.sent_bytes:
            return False
        self._behind = False
        self._waiting_bytes = 0
        self.sent_n = self.published_n if not self.left else self.sent_n
        return True

    def leave_client(self) -> None:
        """Note that the client has gone, or has been sent everything."""
        if not self.left:
            self.left = True
            self._parts.clear()
            self._sending.cancel()
            self.leave()

    # -- followers ----------------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Generator[None]:
        """Count as a reader."""
        self.readers += 1
        try:
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Remove a reader."""
        self.readers -= 1
        if not self.ended.is_set():
            self._on_left()


def _pieces(emitter: Emitter, records: Sequence[Record]) -> Iterator[tuple[int, bytes]]:
    """Yield what the records emit in sends of a bounded size, and the last record in each."""
    frames: list[bytes] = []
    size = count = 0
    for record in records:
        emitted = emitter.feed(record)
        frames += emitted
        size += sum(map(len, emitted))
        count += 1
        if size >= SEND_BYTES_MAX or count >= SLICE_RECORDS:
            yield record.n, b"".join(frames)
            frames, size, count = [], 0, 0
    if count:
        yield records[-1].n, b"".join(frames)
