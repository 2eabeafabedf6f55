"""One client's side of a stream: sends what the pump shows, at the client's own pace, and notices that it has left."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import trio

from wiretape.events.emission.emit import Emitter
from wiretape.events.tape.record import Record

from ..limits import FINAL_SEND_TIMEOUT_S, SEND_BYTES_MAX, SLICE_RECORDS
from ..server.asgi import ClientConnection, Receive, Send
from ..store.store import Store, StoreError
from .live import Live, News

__all__ = ["tail"]


_KEEPALIVE: Final = b": keepalive\n\n"


async def tail(
    live: Live, store: Store, behind: Receive | None, send: Send, connection: ClientConnection, *, head: bool
) -> None:
    """Returns when the answer is whole, cut, or nobody is left to have it.

    `behind` reads what the client still says, where its body was not read before.
    """
    ending = News.CUT
    try:
        async with trio.open_nursery() as nursery:
            # Told at once, also while the upstream takes nothing of what was sent before.
            connection.on_left(partial(_left, live, nursery.cancel_scope))
            if behind is not None:
                nursery.start_soon(_watch, live, behind, nursery.cancel_scope)
            ending = await _send_all(live, store, send, head=head)
            connection.on_left(None)  # before the last send, which would tell of the end of the request
            nursery.cancel_scope.cancel()
        if live.left:
            return
        if ending is News.ENDED and live.answer is not None:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + FINAL_SEND_TIMEOUT_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            connection.abort()
    finally:
        live.leave_client()


async def _watch(live: Live, receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    _left(live, scope)


def _left(live: Live, scope: trio.CancelScope) -> None:
    live.leave_client()
    scope.cancel()


async def _send_all(live: Live, store: Store, send: Send, *, head: bool) -> News:
    """Send everything but the end; return how the answer is to end."""
    answer = await live.answered()
    if answer is None:
        return News.CUT
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    while True:
        taken = await live.take()
        if isinstance(taken, bytes):
            if not head:
                await send({"type": "http.response.body", "body": taken, "more_body": True})
        elif taken is News.KEEPALIVE:
            await send({"type": "http.response.body", "body": _KEEPALIVE, "more_body": True})
        elif taken is News.BEHIND and head:
            live.skip()
        elif taken is News.BEHIND:
            if not await _from_tape(live, store, send):
                return News.CUT
        else:
            return taken


async def _from_tape(live: Live, store: Store, send: Send) -> bool:
    """For a client that fell behind what is kept in memory: the same bytes, emitted again from its tape (L3).

    Until it has all that is shown, and goes on with what is shown from then on; or as far as the tape goes, where
    that is shorter. Whether the client has been sent all of it.
    """
    emitter, at = Emitter(), 0
    try:
        async for records in store.follow(live.stream):
            for n, data in _pieces(emitter, records):
                fresh, at = data[max(0, live.sent_bytes - at) :], at + len(data)
                if fresh:
                    live.sent_bytes = at
                    await send({"type": "http.response.body", "body": fresh, "more_body": True})
                    live.sent(n)
                else:
                    await trio.lowlevel.checkpoint()
            await live.reached(live.sent_bytes)
            if live.caught_up():
                return True
    except StoreError:
        pass  # it is shorter than what was shown
    return live.caught_up()


def _pieces(emitter: Emitter, records: Sequence[Record]) -> Iterator[tuple[int, bytes]]:
    """What goes out on account of these records, in sends of a bounded size, and up to which record each of them is."""
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
