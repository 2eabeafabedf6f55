"""The streams of this process and of others as one: what the shared suite of stores does not cover."""

import json
from dataclasses import replace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.proxy.control_cases import ME, OTHER, House, sse
from tests.proxy.store_cases import CREATED, Batch, Elsewhere, fates_in, gathered, put, stream_of
from wiretape.events.core.lifecycle import State
from wiretape.events.tape.record import encode
from wiretape.proxy.limits import NOT_FOUND_STEP_S, SOURCE_WAIT_S
from wiretape.proxy.store.catalogue_row import AnswerRow, Fate, Link, digest
from wiretape.proxy.store.joined import JoinedStore
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Filter, StreamMissingError, UnreachableError, links_of


class Both:
    """A store joined of two."""

    def __init__(self) -> None:
        self.own, self.others = MemoryStore(), Elsewhere()
        self.store = JoinedStore(self.own, self.others)


@pytest.fixture
def both() -> Both:
    return Both()


def mine(stream: str, **options: Any) -> list[Batch]:
    return stream_of(stream, caller=ME, **options)


# -- the store --------------------------------------------------------------------------------------------------------


async def test_stream_elsewhere_is_read_and_followed_to_its_end(both: Both) -> None:
    *begun, last = stream_of("s1")
    written = await put(both.others, "s1", begun)
    assert await gathered(both.store.read("s1", 2)) == written[2:]
    async with trio.open_nursery() as nursery:
        got: list[Any] = []

        async def follow() -> None:
            got.extend(await gathered(both.store.follow("s1")))

        nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        await both.others.append("s1", last)
    assert got == written + last
    for batches in (both.store.read("never-was"), both.store.follow("never-was")):
        with pytest.raises(StreamMissingError):
            await anext(batches)


async def test_own_tape_wins_over_the_copy_of_others(both: Both) -> None:
    """As of a proxy that was declared dead: elsewhere its stream ends earlier."""
    whole = await put(both.own, "s1", stream_of("s1"))
    await put(both.others, "s1", stream_of("s1", model="other", reads=0))
    assert await gathered(both.store.read("s1")) == whole
    assert [row.model for row in await both.store.list(Filter())] == ["m"]
    assert [*await both.store.list(Filter(model="other"))] == []
    assert (await both.store.rows(["s1"]))["s1"].stream.model == "m"


#: Where each stream is (here, elsewhere, or both), and when it began.
PLACES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=12)


@given(places=PLACES, limit=st.integers(1, 5))
def test_pages_have_every_stream_once_and_in_order(places: list[tuple[int, int]], limit: int) -> None:
    async def pages() -> None:
        both = Both()
        for number, (where, second) in enumerate(places):
            for bit, store in ((1, both.own), (2, both.others)):
                if where & bit:
                    await put(store, f"s{number}", stream_of(f"s{number}", reads=0, created=CREATED + second))
        found, which = list[str](), Filter()
        while page := await both.store.list(which, limit):
            assert len(page) == limit or len(found) + len(page) == len(places)
            found += [row.stream for row in page]
            which = Filter(before=page[-1])
        due = sorted(((second, f"s{number}") for number, (_, second) in enumerate(places)), reverse=True)
        assert found == [stream for _, stream in due]

    trio.run(pages)


async def test_a_call_made_elsewhere_is_linked_with_its_result_here(both: Both) -> None:
    result = {"id": "call-1", "name": "look_up", "arguments": digest("{}")}
    await put(both.others, "s1", stream_of("s1", call_id="call-1"))
    said: dict[str, Any] = {"caller": "caller-1", "call": "call-1", "stream": "s2", "name": "look_up", "after": 1}
    new = AnswerRow(**said, arguments=digest("{}"), failed=False, arrived_us=(CREATED + 1) * 1_000_000)
    assert await links_of(both.store, [new], {}) == [Link("s1", 995)]
    assert await fates_in(both.store, "s1", CREATED) == {"call-1": Fate(State.RUNNING)}
    await put(both.own, "s2", stream_of("s2", created=CREATED + 1, messages=3, results=[result]))
    assert await fates_in(both.store, "s1", CREATED) == {"call-1": Fate(State.COMPLETED, "s2", 995)}
    await put(both.own, "s1", stream_of("s1", call_id="call-1"))  # the same call in both is one call
    assert await links_of(both.store, [replace(new, stream="s3", arrived_us=(CREATED + 2) * 1_000_000)], {}) == [
        Link("s1", 995)
    ]


@pytest.mark.parametrize("how", ["away", "silent"])
async def test_what_is_here_is_served_while_others_cannot_be_asked(
    both: Both, how: str, autojump_clock: MockClock
) -> None:
    del autojump_clock
    await put(both.own, "own", stream_of("own", call_id="call-1"))
    await put(both.others, "theirs", stream_of("theirs", call_id="call-1", run="run_1"))
    both.others.why, both.others.silent_s = ("no server", 0.0) if how == "away" else ("", 60.0)
    for asked in (
        lambda: both.store.list(Filter()),
        lambda: both.store.rows(["own", "theirs"]),
        lambda: both.store.running(["theirs"]),
        lambda: fates_in(both.store, "own", 0),
    ):
        began = trio.current_time()
        found: Any = await asked()
        assert "theirs" not in {getattr(each, "stream", each) for each in found}
        assert trio.current_time() - began <= (SOURCE_WAIT_S if how == "silent" else 0) + 1e-6
        assert both.store.partial == ("no server" if how == "away" else "no answer within 2 s")
    assert [row.stream for row in await both.store.list(Filter())] == ["own"]
    with pytest.raises(UnreachableError):  # a run without its newest turn would be in another state
        await both.store.list(Filter(run="run_1"))
    both.others.why, both.others.silent_s = "", 0.0
    assert len(await both.store.list(Filter())) == 2
    assert not both.store.partial


# -- the endpoints ----------------------------------------------------------------------------------------------------


async def test_stream_that_runs_elsewhere_is_live_and_not_damaged(both: Both) -> None:
    home = House(both.store)
    *begun, last = mine("s1", created=CREATED + 1)
    await put(both.others, "s1", begun)
    await put(both.own, "cut", mine("cut", end=False))
    listed = await home.get("/wiretape/streams")
    assert [(row["id"], row["live"]) for row in listed.json["streams"]] == [("s1", True), ("cut", False)]
    assert [row["id"] for row in (await home.get("/wiretape/streams?live=1")).json["streams"]] == ["s1"]
    summary = (await home.get("/wiretape/streams/s1")).json
    assert (summary["live"], summary["damage"], summary["ending"]) == (True, [], None)
    (turn,) = (await home.get("/wiretape/streams/s1/conversation")).json["streams"]
    assert (turn["id"], turn["live"]) == ("s1", True)
    assert (await home.get("/wiretape/streams/cut")).json["damage"] != []
    await both.others.append("s1", last)
    assert [row["live"] for row in (await home.get("/wiretape/streams")).json["streams"]] == [False, False]
    summary = (await home.get("/wiretape/streams/s1")).json
    assert (summary["live"], summary["damage"], summary["ending"]) == (False, [], "completed")


async def test_tape_events_and_inspection_of_a_stream_elsewhere(both: Both) -> None:
    home, local = House(both.store), House(both.others)
    written = await put(both.others, "s1", mine("s1", call_id="call-1"))
    tape = await home.get("/wiretape/streams/s1/tape")
    assert tape.body == b"".join(map(encode, written))
    for path in ("s1", "s1/events", "s1/inspect", "s1/conversation"):
        assert (await home.get(f"/wiretape/streams/{path}")).body == (await local.get(f"/wiretape/streams/{path}")).body
    assert len(sse((await home.get("/wiretape/streams/s1/events")).body)) > 3


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("path", ["", "/events", "/tape", "/inspect", "/conversation"])
async def test_hidden_streams_look_alike_wherever_they_are(
    both: Both,
    path: str,
    away: bool,
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    home = House(both.store)
    await put(both.own, "here", stream_of("here", caller=OTHER))
    await put(both.others, "there", stream_of("there", caller=OTHER))
    both.others.why = "no server" * away
    answers: list[Any] = []
    for stream in ("here", "there", "nowhere"):
        for _ in range(2):  # the owner is remembered from the first look
            began = trio.current_time()
            answered = await home.get(f"/wiretape/streams/{stream}{path}")
            assert trio.current_time() - began == pytest.approx(NOT_FOUND_STEP_S)
            answers.append(answered)
    assert {answer.status for answer in answers} == {503 if away else 404}
    assert all(answer == answers[0] for answer in answers)


async def test_a_page_without_what_is_elsewhere_says_so(both: Both) -> None:
    home = House(both.store)
    await put(both.own, "s1", mine("s1"))
    assert "x-wiretape-partial" not in (await home.get("/wiretape/streams")).headers
    both.others.why = "no server"
    answered = await home.get("/wiretape/streams")
    assert [row["id"] for row in answered.json["streams"]] == ["s1"]
    assert answered.headers["x-wiretape-partial"] == "store"


async def test_operator_gets_404_for_what_is_nowhere(both: Both) -> None:
    home = House(both.store)
    for path in ("", "/events", "/tape", "/inspect"):
        assert (
            await home.get(f"/wiretape/streams/nowhere{path}", key="wiretape_operator_of-these-tests")
        ).status == 404


async def test_page_of_ended_streams_is_filled_from_both(both: Both) -> None:
    """A page of `live=0` leaves out what runs, and goes on until it is full."""
    home = House(both.store)
    for number in range(6):
        await put(both.others if number % 2 else both.own, f"s{number}", mine(f"s{number}", created=CREATED + number))
    await put(both.others, "runs", mine("runs", created=CREATED + 9, end=False))
    found, at = list[str](), ""
    while True:
        page = (await home.get(f"/wiretape/streams?live=0&limit=2{at}")).json
        found += [row["id"] for row in page["streams"]]
        if page["next"] is None:
            break
        at = f"&before={page['next']}"
    assert found == ["s5", "s4", "s3", "s2", "s1", "s0"]


async def test_followers_of_the_list_see_streams_elsewhere_begin_and_end(both: Both, autojump_clock: MockClock) -> None:
    del autojump_clock
    home = House(both.store)
    *begun, last = mine("s1")
    await put(both.others, "theirs", stream_of("theirs", caller=OTHER))
    got: list[tuple[str, bool]] = []
    async with home.asking("/wiretape/streams?follow=1") as client, trio.open_nursery() as nursery:

        async def read() -> None:
            answer = await client.response(until=lambda _: True)
            while part := await client.more(answer):
                got.extend((row["id"], row["live"]) for row in map(json.loads, part.splitlines()))

        nursery.start_soon(read)
        await put(both.others, "s1", begun)
        await trio.sleep(3)
        assert got == [("s1", True)]
        both.others.why = "no server"
        await trio.sleep(3)
        both.others.why = ""
        await both.others.append("s1", last)
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    assert got == [("s1", True), ("s1", False)]


@pytest.mark.parametrize("path", ["", "/events", "/tape", "/inspect"])
async def test_a_stream_that_was_read_before_is_refused_while_it_cannot_be_read(
    both: Both, path: str, autojump_clock: MockClock
) -> None:
    del autojump_clock
    home = House(both.store)
    await put(both.others, "s1", mine("s1"))
    assert (await home.get(f"/wiretape/streams/s1{path}")).status == 200
    both.others.why = "no server"
    refused = await home.get(f"/wiretape/streams/s1{path}")
    assert (refused.status, refused.json["error"]["code"]) == (503, "store_unreachable")
    both.others.why = ""
    await both.others.delete(["s1"])
    assert (await home.get(f"/wiretape/streams/s1{path}")).status == 404
