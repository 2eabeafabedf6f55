"""A follower that waits through silences loses nothing, although its waits on the store are cancelled."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.control_cases import sse
from tests.proxy.store_cases import flat, put, stream_of
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage
from wiretape.proxy.api.streams import Following
from wiretape.proxy.limits import FOLLOW_KEEPALIVE_S
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Batches, StreamMissingError

KEEPALIVE = b": keepalive\n\n"


class Forgetful(MemoryStore):
    """Its iterators lose the batch that they were about to give when they were cancelled: the worst that is allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.follows: list[int] = []
        self.expired = False

    def follow(self, stream: str, from_n: int = 0) -> Any:
        if self.expired:
            raise StreamMissingError(stream)
        self.follows.append(from_n)
        return _Forgetful(super().follow(stream, from_n))


class _Forgetful:
    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._cancelled = False

    @property
    def damage(self) -> list[Damage]:
        return []

    def __aiter__(self) -> "_Forgetful":
        return self

    async def __anext__(self) -> list[Record]:
        try:
            if self._cancelled:
                self._cancelled = False
                await anext(self._batches)
            return await anext(self._batches)
        except trio.Cancelled:
            self._cancelled = True
            raise


async def all_of(following: Following) -> bytes:
    parts: list[bytes] = []
    while (data := await following.take()) is not None:
        parts.append(data)
    return b"".join(parts)


@pytest.mark.parametrize("at_once", [1, 2, 3])
async def test_batch_lost_to_a_cancelled_wait_is_read_again(at_once: int, autojump_clock: MockClock) -> None:
    store, batches = Forgetful(), stream_of("s1", reads=6)
    await put(store, "s1", batches[:2])
    got: list[bytes] = []

    async def follow() -> None:
        got.append(await all_of(Following(store, "s1")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        for number in range(2, len(batches), at_once):
            await trio.sleep(FOLLOW_KEEPALIVE_S * number + 1)
            for batch in batches[number : number + at_once]:
                await store.append("s1", batch)
    blocks = [block for _, block in sse(got[0]) if block != KEEPALIVE]
    assert b"".join(blocks) == emit(flat(batches))
    assert len(store.follows) > 1
    assert autojump_clock.current_time() > FOLLOW_KEEPALIVE_S


async def test_stream_that_expires_while_followed_is_reported_incomplete(autojump_clock: MockClock) -> None:
    store, batches = Forgetful(), stream_of("s1", reads=6)
    await put(store, "s1", batches[:2])
    following = Following(store, "s1")
    await following.take()
    assert await following.take() == KEEPALIVE
    store.expired = True
    for batch in batches[2:]:
        await store.append("s1", batch)
    assert (await all_of(following)).startswith(b"event: wiretape.error\ndata: ")
    del autojump_clock
