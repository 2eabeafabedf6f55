"""One client's side of a stream: sends what the pump shows, at the client's own pace, and notices that it has left."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import trio

from wiretape.events.emit import Emitter
from wiretape.events.record import Record

from .limits import FINAL_SEND_TIMEOUT_S, SEND_BYTES_MAX, SLICE_RECORDS
from .live import Live, News
from .store import Store, StoreError

__all__ = ["tail"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_KEEPALIVE: Final = b": keepalive\n\n"


async def tail(
    live: Live, store: Store, receive: Receive, send: Send, abort: Callable[[], None], *, head: bool
) -> None:
    """Returns when the answer is whole, cut, or nobody is left to have it."""
    ending = News.CUT
    try:
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            nursery.start_soon(_watch, live, receive, scope)
            ending = await _send_all(live, store, send, head=head)
            # Disarmed before the last send: hypercorn posts `http.disconnect` in it, and the watcher would cancel it.
            scope.cancel()
        if live.left:
            return
        if ending is News.ENDED and live.answer is not None:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + FINAL_SEND_TIMEOUT_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            abort()
    finally:
        live.leave_client()


async def _watch(live: Live, receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    live.leave_client()
    scope.cancel()


async def _send_all(live: Live, store: Store, send: Send, *, head: bool) -> News:
    answer = await live.answered()
    if answer is None:
        return News.CUT
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    sent_bytes = 0
    while True:
        taken = await live.take()
        if isinstance(taken, bytes):
            sent_bytes += len(taken)
            if not head:
                await send({"type": "http.response.body", "body": taken, "more_body": True})
        elif taken is News.KEEPALIVE:
            await send({"type": "http.response.body", "body": _KEEPALIVE, "more_body": True})
        elif taken is not News.BEHIND:
            return taken
        elif head:
            live.skip()
        else:
            sent_bytes = await _from_tape(live, store, send, sent_bytes)
            if live.shown != sent_bytes:
                return News.CUT


async def _from_tape(live: Live, store: Store, send: Send, sent_bytes: int) -> int:
    """For a client that fell behind what is kept in memory: the same bytes, emitted again from its tape (L3).

    Until it has all that is shown, and goes on with what is shown from then on; or as far as the tape goes, where
    that is shorter. How many bytes the client has been sent.
    """
    emitter, at = Emitter(), 0
    try:
        async for records in store.follow(live.stream):
            for n, data in _pieces(emitter, records):
                fresh, at = data[max(0, sent_bytes - at) :], at + len(data)
                if fresh:
                    await send({"type": "http.response.body", "body": fresh, "more_body": True})
                    sent_bytes = at
                    live.sent_n = n
                else:
                    await trio.lowlevel.checkpoint()
            await live.reached(sent_bytes)
            if live.caught_up(sent_bytes):
                break
    except StoreError:
        pass  # it is shorter than what was shown
    return sent_bytes


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
