"""The streams endpoints: a caller sees its own streams and learns nothing of others; followers lose nothing."""

import re
from collections.abc import AsyncGenerator, Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.control_cases import ME, OTHER, House, house, sse
from tests.proxy.store_cases import CREATED, Batch, flat, opened_files, put, stream_of
from tests.support.chat import DONE, finish, frame, text
from wiretape.events.core.settings import Profile
from wiretape.events.emit import Emitter, emit
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Damage, Recorder
from wiretape.proxy.api.streams import Following, StreamsApi, not_found, place_of
from wiretape.proxy.config.model import Keep
from wiretape.proxy.limits import FOLLOW_KEEPALIVE_S, NOT_FOUND_STEP_S, OWNERS_MAX
from wiretape.proxy.relay.http_responses import AnswerError
from wiretape.proxy.store.catalogue_row import digest
from wiretape.proxy.store.files import open_files
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import PAGE_MAX, Batches, Store, StreamMissingError


@pytest.fixture
async def home() -> AsyncGenerator[House]:
    async with house() as home:
        yield home


def mine(stream: str = "s1", **options: Any) -> list[Batch]:
    return stream_of(stream, caller=ME, **options)


# -- pages ------------------------------------------------------------------------------------------------------------


async def test_page_lists_the_callers_streams_latest_first(home: House) -> None:
    await put(home.store, "a", mine("a"))
    await put(home.store, "b", mine("b", created=CREATED + 1, end=False))
    home.runs("b")
    await put(home.store, "theirs", stream_of("theirs", caller=OTHER))
    answered = await home.get("/wiretape/streams")
    assert answered.status == 200
    assert [(row["id"], row["live"], row["ending"]) for row in answered.json["streams"]] == [
        ("b", True, None),
        ("a", False, "completed"),
    ]
    assert answered.json["next"] is None
    assert answered.json["streams"][1] == {
        "id": "a",
        "created": CREATED,
        "created_us": CREATED * 1_000_000,
        "route": "default",
        "dialect": "chat",
        "model": "m",
        "live": False,
        "ending": "completed",
        "flags": [],
        "input_tokens": None,
        "output_tokens": None,
        "first_frame_us": 1_000,
        "first_content_us": 1_000,
        "duration_us": 90_000,
        "status": None,
        "path": None,
        "attempts": 0,
        "lost": 0,
        "spark": None,
        "silence_us": None,
        "run": None,
        "turn": None,
        "repairs": 1,
        "tools": [],
    }


@pytest.mark.parametrize("live", ["", "&live=0"])
@pytest.mark.parametrize("limit", [1, 3, 7, 8])
async def test_pages_neither_skip_nor_repeat_and_a_full_last_one_has_no_next(
    home: House, limit: int, live: str
) -> None:
    for number in range(7):
        await put(home.store, f"s{number}", mine(f"s{number}", created=CREATED + number // 2))
    await put(home.store, "x", mine("x", created=CREATED + 2, end=False))
    home.runs("x")
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await home.get(f"/wiretape/streams?limit={limit}{live}{cursor}")).json
        assert 1 <= len(page["streams"]) <= limit
        seen += [row["id"] for row in page["streams"]]
        cursor = page["next"] and f"&before={page['next']}"
    assert seen == ["s6", *(["x"] if not live else []), "s5", "s4", "s3", "s2", "s1", "s0"]


async def test_filters_select_streams(home: House) -> None:
    await put(home.store, "a", mine("a", model="m1", route="r1"))
    await put(home.store, "b", mine("b", model="m1", route="r2"))
    await put(home.store, "c", mine("c", model="m2", route="r2", end=False))
    home.runs("c")
    filters = {
        "model=m1": ["a", "b"],
        "route=r2": ["b", "c"],
        "live=1": ["c"],
        "live=true": ["c"],
        "live=0": ["a", "b"],
        "ending=completed": ["a", "b"],
        "ending=truncated": [],
        "model=m1&route=r2": ["b"],
        "model=%27%20OR%201=1": [],
        "unknown=1": ["a", "b", "c"],
    }
    for query, found in filters.items():
        answered = await home.get(f"/wiretape/streams?{query}")
        assert sorted(row["id"] for row in answered.json["streams"]) == found, query


async def test_a_tape_without_an_end_that_nothing_writes_to_is_damaged_and_not_live(home: House) -> None:
    """The streams of a server that was killed, when nothing has recovered them."""
    await put(home.store, "cut", mine("cut", call_id="call-1")[:-2])
    (row,) = (await home.get("/wiretape/streams")).json["streams"]
    assert (row["live"], row["ending"]) == (False, None)
    assert (await home.get("/wiretape/streams?live=1")).json["streams"] == []
    said = (await home.get("/wiretape/streams/cut")).json
    assert (said["live"], said["ending"]) == (False, None)
    assert said["damage"] == [{"at": None, "reason": "the tape has no end"}]
    assert said["warnings"] == [{"code": "damaged", "calls": []}]
    home.runs("cut")
    said = (await home.get("/wiretape/streams/cut")).json
    assert (said["live"], said["damage"], said["warnings"]) == (True, [], [])


async def test_bad_parameters_are_named(home: House) -> None:
    limits = ["0", str(PAGE_MAX + 1), "-1", "1e2", "%D9%A3", ""]
    refused = [("limit", limit) for limit in limits]
    refused += [("before", cursor) for cursor in ("junk", "1.../etc", "99999999999999999999.a")]
    refused += [("live", "maybe"), ("live", "1&ending=completed"), ("ending", "broken")]
    for param, value in refused:
        answered = await home.get(f"/wiretape/streams?{param}={value}")
        assert (answered.status, answered.json["error"]["param"]) == (400, param), value


# -- one stream -------------------------------------------------------------------------------------------------------


async def test_call_shows_its_state_and_the_stream_that_answered_it(home: House) -> None:
    results = [{"id": "call-1", "name": "look_up", "arguments": digest("{}")}]
    await put(home.store, "s1", mine(call_id="call-1"))
    await put(home.store, "theirs", stream_of("theirs", caller=OTHER, messages=3, created=CREATED + 1, results=results))
    said = (await home.get("/wiretape/streams/s1")).json["tools"]
    assert [(call["state"], call["answered_by"]) for call in said] == [("running", None)]
    await put(home.store, "s2", mine("s2", messages=3, created=CREATED + 2, results=results))
    (call,) = (await home.get("/wiretape/streams/s1")).json["tools"]
    assert (call["state"], call["answered_by"], call["duration_ms"]) == ("completed", "s2", 1_995)
    assert call["moves"][-1]["state"] == "running"  # of its own stream
    (result,) = (await home.get("/wiretape/streams/s2")).json["results"]
    assert result == results[0]


# -- C21 --------------------------------------------------------------------------------------------------------------

HIDDEN = ["unknown", "../theirs", "..%2ftheirs", "%2e%2e/theirs", "theirs/", "theirs/nothing", "a%00b", "x" * 129, "."]


@pytest.mark.parametrize("path", ["theirs", "theirs/events", "theirs/tape", *HIDDEN, "%F0%9F%92%A5"])
async def test_hidden_streams_all_look_alike(home: House, path: str, autojump_clock: MockClock) -> None:
    del autojump_clock
    await put(home.store, "theirs", stream_of("theirs", caller=OTHER))
    began = trio.current_time()
    answered = await home.get(f"/wiretape/streams/{path}")
    assert trio.current_time() - began == pytest.approx(NOT_FOUND_STEP_S)
    assert (answered.status, answered.body) == (404, not_found().body)
    assert answered.headers == (await home.get("/wiretape/streams/never-was")).headers


@pytest.mark.parametrize("asked", [OWNERS_MAX - 1, OWNERS_MAX])
async def test_owners_are_remembered_up_to_a_bound(asked: int) -> None:
    store = MemoryStore()
    await put(store, "s1", mine(reads=0))
    api = StreamsApi(store, House(store).running)
    await api.one(ME, "s1", {})
    owners = api._owners  # pyright: ignore[reportPrivateUsage] - a bound inside
    owners |= {f"x{number}": OTHER for number in range(asked - 2)}
    await put(store, "s2", mine("s2", reads=0))
    await put(store, "s3", mine("s3", reads=0))
    for stream in ("s2", "s3"):
        await api.one(ME, stream, {})
    assert len(owners) == OWNERS_MAX
    assert ("s1" in owners) == (asked < OWNERS_MAX)
    assert (await api.one(ME, "s1", {}))["id"] == "s1"
    with pytest.raises(AnswerError):
        await api.one(OTHER, "s3", {})


async def test_tape_without_an_owner_is_hidden(home: House) -> None:
    await home.store.create("empty")
    await put(home.store, "headless", [[Recorder().record("request", 0, {})]])
    for stream in ("empty", "headless"):
        assert (await home.get(f"/wiretape/streams/{stream}")).status == 404


# -- events -----------------------------------------------------------------------------------------------------------


def ids_of(records: list[Record], profile: Profile | None = None) -> list[tuple[str, bytes]]:
    """Return each frame a client got, with its id."""
    emitter = Emitter(profile)
    return [
        (f"{record.n}.{ordinal}", given) for record in records for ordinal, given in enumerate(emitter.feed(record))
    ]


async def test_reader_resumes_after_its_last_id(home: House) -> None:
    batches = mine(call_id="call-1")
    await put(home.store, "s1", batches)
    whole = ids_of(flat(batches))
    for at, (name, _) in enumerate(whole):
        assert sse((await home.get("/wiretape/streams/s1/events", last_event_id=name)).body) == whole[at + 1 :]
        assert sse((await home.get(f"/wiretape/streams/s1/events?last_event_id={name}")).body) == whole[at + 1 :]
    assert (await home.get("/wiretape/streams/s1/events", last_event_id="999.0")).body == b""
    both = await home.get(f"/wiretape/streams/s1/events?last_event_id={whole[0][0]}", last_event_id=whole[2][0])
    assert sse(both.body) == whole[3:], "the header overrides the parameter"
    junk = ["", "x", "5", "5.", ".5", "-1.0", "5.0.0", "5.x", "05.0", "9" * 19 + ".0", "٣.٠", "null"]  # noqa: RUF001
    assert [place_of(text) for text in junk] == [None] * len(junk)
    assert (place_of(" 0.0 "), place_of("1" * 18 + ".3")) == ((0, 0), (int("1" * 18), 3))
    assert sse((await home.get("/wiretape/streams/s1/events", last_event_id="junk")).body) == whole


async def test_events_in_another_profile(home: House) -> None:
    recorder = Recorder()
    opening = {"format": 1, "stream": "s1", "dialect": "chat", "profile": "strict", "created": 7, "caller": ME}
    records = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": {"stream": True}})]
    upstream = [b": ping\n\n", frame({"role": "assistant", "content": "a"}), b"\xff: x\n\n"]
    for t, data in enumerate(
        [*upstream, text("b", role=True), b"event: ping\r\nid: 77\r\ndata: {}\r\n\r\n", finish(), DONE]
    ):
        records += recorder.read(t + 1, data)
    records.append(recorder.end(99, {"cause": "eof", "ending": "completed", "flags": []}))
    await put(home.store, "s1", [records])
    strict = sse((await home.get("/wiretape/streams/s1/events?profile=strict")).body)
    assert strict == ids_of(records)
    transparent = (await home.get("/wiretape/streams/s1/events?profile=transparent")).body
    assert transparent.startswith(b": ping\n\nid: 3.0\ndata: {")
    assert b"event: ping\r\nid: 77\r\ndata: {}\nid: 6.0\n\n" in transparent, "the last of two ids counts"
    answered = await home.get("/wiretape/streams/s1/events?profile=loose")
    assert (answered.status, answered.json["error"]["param"]) == (400, "profile")


async def test_body_of_a_plain_exchange_comes_as_bytes_events(home: House) -> None:
    recorder = Recorder()
    opening = {"format": 1, "stream": "s1", "dialect": "", "profile": "transparent", "created": 7, "caller": ME}
    records = [recorder.record("open", 0, opening)]
    records += [recorder.body(1, b'{"a":\n'), recorder.body(2, b'"\xff"}\n\n'), recorder.body(3, b"data: 1\n\ntail\n")]
    records.append(recorder.end(4, {"cause": "eof", "ending": "completed", "flags": []}))
    await put(home.store, "s1", [records])
    assert (await home.get("/wiretape/streams/s1/events")).body == (
        b'event: wiretape.bytes\nid: 1.0\ndata: {"text":"{\\"a\\":\\n"}\n\n'
        b'event: wiretape.bytes\nid: 2.0\ndata: {"b64":"Iv8ifQoK"}\n\n'
        b'event: wiretape.bytes\nid: 3.0\ndata: {"text":"data: 1\\n\\ntail\\n"}\n\n'
    )


async def test_error_response_comes_with_its_status(home: House) -> None:
    recorder = Recorder()
    opening = {"format": 1, "stream": "s1", "dialect": "chat", "profile": "strict", "created": 7, "caller": ME}
    records = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": {"stream": True}})]
    records.append(recorder.record("commit", 1, {"status": 429}, b'{"error":{}}'))
    records.append(recorder.end(4, {"cause": "status", "ending": "upstream_error", "flags": []}))
    await put(home.store, "s1", [records])
    assert sse((await home.get("/wiretape/streams/s1/events")).body) == [
        ("2.0", b'event: wiretape.bytes\ndata: {"status":429,"text":"{\\"error\\":{}}"}\n\n')
    ]


async def test_byte_order_mark_and_blank_lines_keep_the_first_frame_intact(home: House) -> None:
    recorder = Recorder()
    opening = {"format": 1, "stream": "s1", "dialect": "", "profile": "transparent", "created": 7, "caller": ME}
    records = [recorder.record("open", 0, opening)]
    records += recorder.read(1, b"\xef\xbb\xbf\n\ndata: 1\n\n\n\ndata: 2\n\n")
    await put(home.store, "s1", [records])
    await home.store.release("s1")
    assert (await home.get("/wiretape/streams/s1/events")).body == b"id: 1.0\ndata: 1\n\nid: 2.0\ndata: 2\n\n"


# -- the tape ---------------------------------------------------------------------------------------------------------


async def ended(store: Store, root: str, stream: str) -> Path:
    """Return the path of an ended tape; `expire` waits for the commit round that moves it."""
    await store.expire(0, Keep())
    (path,) = Path(root).glob(f"2*/{stream}.tape")  # noqa: ASYNC240 - a test folder
    return path


async def test_tape_is_sent_byte_for_byte() -> None:
    with TemporaryDirectory() as root:
        async with opened_files(Path(root)) as store:
            home = House(store)
            for stream, batches in {"s1": mine(call_id="call-1"), "s2": mine("s2", reads=3_000)}.items():
                *begun, last = batches
                await put(store, stream, begun)
                live = (Path(root) / "live" / f"{stream}.tape").read_bytes()
                assert (await home.get(f"/wiretape/streams/{stream}/tape")).body == live
                await store.append(stream, last)
                path = await ended(store, root, stream)
                answered = await home.get(f"/wiretape/streams/{stream}/tape")
                assert answered.headers["content-type"] == "application/x-ndjson"
                assert answered.body == path.read_bytes()
                assert answered.body == b"".join(encode(record) for record in flat(batches))


async def test_damage_is_reported_in_a_last_line() -> None:
    with TemporaryDirectory() as root:
        async with opened_files(Path(root)) as store:
            home = House(store)
            await put(store, "s1", mine())
            path = await ended(store, root, "s1")
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join([*lines[:3], lines[3].replace(b"word", b"sword"), *lines[4:]]))
            *kept, said = (await home.get("/wiretape/streams/s1/tape")).body.splitlines(keepends=True)
            assert kept == [*lines[:3], *lines[4:]]
            at = sum(map(len, lines[:3]))
            wrong = f'{{"at":{at},"reason":"checksum does not match"}}'
            assert re.match(rb'\{"damage":\[' + re.escape(wrong.encode()), said)
            assert (await home.get("/wiretape/streams/s1")).json["damage"][0]["at"] == at
            events = (await home.get("/wiretape/streams/s1/events")).body
            assert events.rpartition(b"event: wiretape.damage\ndata: ")[2].startswith(b'{"damage":[{"at":%d' % at)


async def test_tape_failure_is_reported_to_its_follower() -> None:
    broken = Event()

    def sync(fds: Collection[int]) -> Mapping[int, str]:
        return dict.fromkeys(fds, "Input/output error") if broken.is_set() else {}

    with TemporaryDirectory() as root:
        async with open_files(Path(root), warn=lambda _: None, sync=sync, round_s=0.01) as store:
            home = House(store)
            *begun, _ = mine()
            await put(store, "s1", begun[:-1])
            async with home.asking("/wiretape/streams/s1/events") as client:
                answer = await client.response(until=lambda so_far: bool(so_far.pieces))
                broken.set()
                await store.append("s1", begun[-1])
                while await client.more(answer):
                    pass
    assert answer.body.endswith(b"\n\n")
    last = answer.body[answer.body.rindex(b"event: ") :]
    assert last.startswith(b'event: wiretape.error\ndata: {"error":{"code":"tape_broken"')


class Vanishing(MemoryStore):
    """A store whose tapes fail after the first batch of the second read."""

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self.fault = fault
        self.opened = 0

    def read(self, stream: str, from_n: int = 0) -> Any:
        self.opened += 1
        batches = super().read(stream, from_n)
        return batches if self.opened == 1 else _Vanishing(batches, self.fault)

    def follow(self, stream: str, from_n: int = 0) -> Any:
        return _Vanishing(super().follow(stream, from_n), self.fault)


class _Wrapped:
    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self.damage = list[Damage]()

    def __aiter__(self) -> Any:
        return self


class _Vanishing(_Wrapped):
    def __init__(self, batches: Batches, fault: Exception) -> None:
        super().__init__(batches)
        self._fault = fault
        self._begun = False

    async def __anext__(self) -> list[Record]:
        if self._begun:
            raise self._fault
        self._begun = True
        return await anext(self.batches)


@pytest.mark.parametrize("fault", [StreamMissingError("expired"), OSError(5, "Input/output error")])
async def test_tape_that_vanishes_while_sent_is_marked_incomplete(fault: Exception) -> None:
    home = House(Vanishing(fault))
    await put(home.store, "s1", mine())
    sent = (await home.get("/wiretape/streams/s1/tape")).body
    whole = b"".join(encode(record) for record in flat(mine()))
    assert sent.startswith(whole)
    assert sent[len(whole) :].startswith(b'{"damage":[{"at":null,')
    followed = (await home.get("/wiretape/streams/s1/events")).body
    assert followed.startswith(b"id: 2.0\n")
    assert b"event: wiretape.error\n" in followed
    if isinstance(fault, StreamMissingError):
        answered = await home.get("/wiretape/streams/s1")
        assert (answered.status, answered.body) == (404, not_found().body)


# -- followers that wait through silences -----------------------------------------------------------------------------


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


class _Forgetful(_Wrapped):
    cancellable = False
    _cancelled = False

    async def __anext__(self) -> list[Record]:
        try:
            if self._cancelled:
                self._cancelled = False
                await anext(self.batches)
            return await anext(self.batches)
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
