"""The first piece of an answer goes out without its client's task, and never out of turn."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from wiretape.proxy.relay.http_responses import Answer
from wiretape.proxy.relay.live import Live, News

_ANSWER = Answer(200, ((b"content-type", b"text/event-stream"),), b"")


class _Wire:
    """What the connection class has, with a socket that takes `room` bytes of each piece."""

    def __init__(self, *, opens: bool = True, room: int | None = 100) -> None:
        self.opens = opens
        self.room = room
        self.sent: list[bytes | int] = []

    def open(self, answer: Answer) -> bool:
        if self.opens:
            self.sent.append(answer.status)
        return self.opens

    def offer(self, body: bytes, /, *, last: bool = False) -> bytes | None:
        data = body + b"." * last
        if self.room is None:
            return None
        self.sent.append(data[: self.room])
        return data[self.room :]


def _live(wire: _Wire) -> Live:
    live = Live("s", "caller", "route", 0.0, on_left=lambda: None)
    live.open, live.offer = wire.open, wire.offer
    return live


async def _waiting(live: Live, nursery: trio.Nursery) -> list[Answer | bytes | News | None]:
    """A client that waits for the head, and then takes what there is to its end."""
    taken: list[Answer | bytes | News | None] = []

    async def client() -> None:
        taken.append(await live.answered())
        while taken[-1] not in (News.ENDED, News.CUT):
            taken.append(await live.take())
            if taken[-1] is News.LEFTOVER:
                taken.append(live.leftover())

    nursery.start_soon(client)
    await wait_all_tasks_blocked()
    return taken


async def test_a_client_that_waits_is_sent_the_head_and_all_pieces_without_being_woken() -> None:
    wire = _Wire()
    live = _live(wire)
    async with trio.open_nursery() as nursery:
        taken = await _waiting(live, nursery)
        live.commit(_ANSWER, at_once=True)
        live.show([b"one"], 1)
        await wait_all_tasks_blocked()
        assert (wire.sent, taken, live.opened, live.sent_n) == ([200, b"one"], [], True, 1)
        live.show([b"two"], 2)
        await wait_all_tasks_blocked()
        assert (wire.sent, taken, live.sent_bytes) == ([200, b"one", b"two"], [], 6)
        live.end(cut=False)
    assert taken == [_ANSWER, News.ENDED]


async def test_the_end_goes_out_with_the_last_piece_if_that_is_no_cut() -> None:
    wire = _Wire(room=4)
    live = _live(wire)
    async with trio.open_nursery() as nursery:
        taken = await _waiting(live, nursery)
        live.commit(_ANSWER, at_once=True)
        live.show([b"one"], 1, last=True)
        live.end(cut=False)
    assert (wire.sent, taken, live.sent_n, live.sent_bytes) == ([200, b"one."], [_ANSWER, News.ENDED], 1, 3)


async def test_a_first_piece_that_goes_out_in_part_is_followed_by_its_rest() -> None:
    wire = _Wire(room=1)
    live = _live(wire)
    async with trio.open_nursery() as nursery:
        taken = await _waiting(live, nursery)
        live.commit(_ANSWER, at_once=True)
        live.show([b"one"], 1)
        assert (await live.answered(), await live.take()) == (_ANSWER, News.LEFTOVER)
        assert live.sent_n == 0, "its rest waits"
        live.show([b"two"], 2)
        live.end(cut=False)
    assert wire.sent == [200, b"o"]
    assert (taken, live.sent_n) == ([_ANSWER, News.LEFTOVER, b"ne", b"two", News.ENDED], 2)


@pytest.mark.parametrize(
    ("wire", "at_once", "sent"),
    [(_Wire(room=None), True, [200]), (_Wire(opens=False), True, []), (_Wire(), False, [])],
    ids=["the socket takes nothing, and the head is framed", "it cannot begin so", "it is not to begin so"],
)
async def test_a_piece_that_does_not_go_out_at_once_waits_for_the_client(
    wire: _Wire, at_once: bool, sent: list[bytes | int]
) -> None:
    live = _live(wire)
    async with trio.open_nursery() as nursery:
        taken = await _waiting(live, nursery)
        live.commit(_ANSWER, at_once=at_once)
        live.show([b"one"], 1)
        live.end(cut=False)
    assert live.opened == bool(sent)
    assert (wire.sent, taken) == (sent, [_ANSWER, b"one", News.ENDED])


async def test_nothing_begins_at_once_for_who_does_not_wait_yet_or_has_left() -> None:
    for left in (False, True):
        wire = _Wire()
        live = _live(wire)
        if left:
            live.leave_client()
        live.commit(_ANSWER, at_once=True)
        live.show([b"one"], 1)
        assert (wire.sent, live.opened) == ([], False)
