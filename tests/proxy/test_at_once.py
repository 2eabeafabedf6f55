"""An answer that comes in one read, its end included: written as one batch, and sent as one piece."""

from typing import Any, Final

import pytest
from trio.testing import MockClock

from tests.support.house import DONE, at_once, call, finish, house, role, streams, text
from wiretape.proxy.store_memory import MemoryStore

FRAMES: Final = (role(), text("hi"), text(" you"), call("{}", "look"), finish("tool_calls"), DONE)


class Batches(MemoryStore):
    """Says what was written together."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[list[str]] = []

    async def append(self, stream: str, records: Any, entry: Any = None) -> int:
        self.kinds.append([record.kind for record in records])
        return await super().append(stream, records, entry)


async def test_its_frames_and_its_end_are_one_batch_and_one_piece(autojump_clock: MockClock) -> None:
    store = Batches()
    async with house(at_once(*FRAMES), store=store) as home:
        answered = await home.ask()
        assert await home.ending() == ("completed", [])
    assert len(answered.pieces) == 1
    assert (answered.status, answered.ended) == (200, "chunked")
    assert store.kinds[0][-1] == "attempt", "what is asked is on the tape before the answer"
    assert store.kinds[1:] == [["head", *["frame"] * len(FRAMES), "commit", "end"]]


async def test_an_end_that_comes_later_is_not_waited_for(autojump_clock: MockClock) -> None:
    store = Batches()
    async with house(streams(b"".join(FRAMES), end=b""), store=store) as home:
        await home.ask()
    assert store.kinds[-2][-2:] == ["frame", "commit"]
    assert store.kinds[-1] == ["end"]


@pytest.mark.parametrize(
    "last", [(), (b'data: {"error":{"message":"no"}}\n\n',)], ids=["no last word", "an error of the upstream's"]
)
async def test_what_ends_in_another_way_is_judged_first(autojump_clock: MockClock, last: tuple[bytes, ...]) -> None:
    store = Batches()
    async with house(at_once(role(), text("hi"), *last), store=store) as home:
        answered = await home.ask()
    assert answered.ended == "chunked"
    assert store.kinds[-2][0] == "head"
    assert store.kinds[-1] == ["end"]
