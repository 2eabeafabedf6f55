"""One client's side of a stream: sends what the pump shows, at the client's own pace, and notices that it has left."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from wiretape.events.emit import Emitter

from .limits import FINAL_SEND_TIMEOUT_S
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
        elif taken is News.BEHIND:
            return await _from_tape(live, store, send, sent_bytes)
        else:
            return taken


async def _from_tape(live: Live, store: Store, send: Send, sent_bytes: int) -> News:
    """For a client that fell behind what is kept in memory: the same bytes, emitted again from its tape (L3)."""
    emitter, skip = Emitter(), sent_bytes
    try:
        async for records in store.follow(live.stream):
            data = b"".join([frame for record in records for frame in emitter.feed(record)])
            fresh, skip = data[skip:], max(0, skip - len(data))
            if fresh:
                await send({"type": "http.response.body", "body": fresh, "more_body": True})
            if not skip:
                live.sent_n = records[-1].n
    except StoreError:
        return News.CUT
    await live.ended.wait()
    return live.ending
