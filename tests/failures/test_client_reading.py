"""Clients that read slowly, in bits, late, many at once, again, or not at all."""

from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from tests.failures.test_client_leaving import asked, busy, follow, silent
from tests.proxy.scripted import Script, chunk, request_of
from tests.support.house import ASKED, DONE, HEAD, House, Peer, call, finish, house, post, role, text
from tests.support.http import Answer, Client
from wiretape.events.emission.words import KEEPALIVE
from wiretape.events.emit import emit
from wiretape.proxy.limits import WINDOW_BYTES_MAX

PIECE: Final = text("a" * 10_000)
#: 3 MB, six times what waits for a client in memory.
MANY: Final = [PIECE] * 300


def waiting(home: House) -> int:
    """Bytes that wait for clients in memory."""
    lives: list[Any] = list(home.registry.live.values())
    return sum(len(part) for live in lives for part in live._parts)


async def sipped(client: Client, size: int, every_s: float) -> bytes:
    """All that comes, so many bytes at a time."""
    got = b""
    while True:
        await trio.sleep(every_s)
        data = await client.stream.receive_some(size)
        got += data
        if not data or got.endswith(b"\r\n0\r\n\r\n"):
            return got


class Recorded(Client):
    """A client whose bytes have come already."""

    def __init__(self, got: bytes) -> None:
        self._held = got

    async def _more(self) -> None:
        raise EOFError


async def answer_in(got: bytes) -> Answer:
    return await Recorded(got).response()


# -- C03, C04: who does not keep up -----------------------------------------------------------------------------------


@pytest.mark.case("C03")
@pytest.mark.parametrize(("how", "after_s"), [("cancel", 0), ("drain", 20), ("keep", 60)])
async def test_stalled_client_is_cut_after_30_s_without_delaying_the_relay(
    autojump_clock: MockClock, how: str, after_s: float
) -> None:
    async with house(Peer(*MANY, every_s=1), route={"on_client_gone": how, "drain_s": 20}) as home:
        client = await home.connect(capacity=1_000)
        await client.send(post())
        await trio.sleep(30.5)  # the first piece came after 1 s, and did not fit
        assert home.harness.open == 1
        assert (await home.kinds()).count("frame") == 30
        assert waiting(home) <= WINDOW_BYTES_MAX
        await trio.sleep(1)
        assert home.harness.open == 0
        assert "gone" in await home.kinds()
        cut = trio.current_time()
        assert await home.ending() == ("client_gone", [])
        assert trio.current_time() - cut == pytest.approx(after_s, abs=1)
        frames = (await home.kinds()).count("frame")
        assert frames == pytest.approx(31 + after_s, abs=1)


@pytest.mark.case("C03")
async def test_stalled_client_holds_a_bounded_part_of_a_stream(autojump_clock: MockClock) -> None:
    async with house(Peer(*MANY, finish(), DONE, every_s=0.01), route={"on_client_gone": "keep"}) as home:
        client = await home.connect(capacity=1_000)
        await client.send(post())
        most = 0
        while home.registry.live or not home.streams:
            await trio.sleep(0.01)
            most = max(most, waiting(home))
        assert most <= WINDOW_BYTES_MAX
        assert trio.current_time() < 5  # the stream ended in its own time
        assert await home.ending() == ("completed", [])
        await trio.sleep(31)
        assert home.harness.open == 0


@pytest.mark.case("C03")
async def test_stalled_reader_delays_no_other_reader(autojump_clock: MockClock) -> None:
    frames = [text(f"{number} " + "a" * 1_000) for number in range(100)]
    async with house(Peer(*frames, finish(), DONE, every_s=1)) as home:
        stalled = await home.connect(capacity=1_000)
        await stalled.send(post())
        await trio.sleep(0.5)
        follower = await follow(home)
        answered = await follower.response()
        follower.close()
        at = [when for when, piece in answered.pieces if b"aaa" in piece]
        assert at == [pytest.approx(number + 1, abs=0.01) for number in range(100)]
        assert await home.ending() == ("completed", [])


@pytest.mark.case("C03", "C22")
async def test_stalled_follower_is_cut_and_holds_nothing(autojump_clock: MockClock) -> None:
    async with house(Peer(*MANY, every_s=1)) as home:
        client = await home.connect()
        await client.send(post())
        await trio.sleep(1.5)
        await follow(home, capacity=1_000)
        await trio.sleep(1)
        client.close()
        await trio.sleep(25)
        assert busy(home) == 1
        await trio.sleep(6)
        assert busy(home) == 0
        assert await home.ending() == ("client_gone", [])


@pytest.mark.case("C04")
@pytest.mark.parametrize("every_s", [0.0, 0.001, 1.0])
async def test_client_at_1_kb_a_second_gets_everything_from_the_tape(autojump_clock: MockClock, every_s: float) -> None:
    frames = [role(), *[text(f"{number:06} " + "b" * 9_000) for number in range(100)]]
    async with house(Peer(*frames, finish(), DONE, every_s=every_s)) as home:
        client = await home.connect(capacity=1_000)
        await client.send(post())
        got = b""
        async with trio.open_nursery() as nursery:

            async def sip() -> None:
                nonlocal got
                got = await sipped(client, 1_000, 1)

            nursery.start_soon(sip)
            await trio.sleep(every_s * 102 + 1)
            assert await home.ending() == ("completed", [])  # the upstream was not held up
            assert not waiting(home)
        client.close()
        answered = await answer_in(got)
        assert answered.ended == "chunked"
        assert answered.body == emit(await home.tape())
        assert trio.current_time() > 900


@pytest.mark.case("C04")
async def test_slow_client_that_catches_up_continues_live(autojump_clock: MockClock) -> None:
    """A client that was too slow, reads fast again, and gets every frame and keepalive in time."""
    burst, calm = [role(), *[PIECE] * 100], [text(f"calm {number}") for number in range(3)]

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(HEAD)
        for each in burst:
            await stream.send_all(chunk(each))
        for each in calm:
            await trio.sleep(40)
            await stream.send_all(chunk(each))
        await stream.send_all(chunk(finish()) + chunk(DONE) + b"0\r\n\r\n")

    async with house(script) as home:
        client = await home.connect(capacity=1_000)
        await client.send(post())
        await trio.sleep(5)
        answered = await client.response()
        client.close()
        home.answers.append(answered)
        assert answered.body.replace(b": keepalive\n\n", b"") == b"".join([*burst, *calm, finish(), DONE])
        comments = [round(at) for at, piece in answered.pieces if piece == b": keepalive\n\n"]
        assert comments == [15, 30, 55, 70, 95, 110]
        assert [round(at) for at, piece in answered.pieces if b"calm" in piece] == [40, 80, 120]


@pytest.mark.case("C04")
async def test_without_a_tape_the_upstream_waits_for_a_slow_client(autojump_clock: MockClock) -> None:
    """There is no log to read the rest from, and no room for it in memory."""
    body = bytes(range(256)) * 12_000
    served: list[float] = []

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for at in range(0, len(body), 48_000):
            await stream.send_all(body[at : at + 48_000])
            served.append(trio.current_time())
        await stream.receive_some()

    async with house(script, route={"tape": False, "idle_s": 40}, check=False) as home:
        client = await home.connect(capacity=10_000)
        await client.send(post(b"", path="/v1/files/1/content", method="GET"))
        got, most = b"", 0
        while not got.endswith(body[-5_000:]) or len(got) < len(body):
            await trio.sleep(1)
            most = max(most, waiting(home))
            got += await client.stream.receive_some(10_000)
        client.close()
        assert got.endswith(body)
        assert most <= WINDOW_BYTES_MAX + 64 * 1024
        await home.settled()


# -- C06, C07, C08: connections ---------------------------------------------------------------------------------------


@pytest.mark.case("C06")
async def test_pipelined_requests_are_answered_in_order_and_never_mixed(autojump_clock: MockClock) -> None:
    def script_of(word: str) -> Script:
        return Peer(*[text(f"{word}{number}") for number in range(5)], finish(), DONE, every_s=1)

    async with house(script_of("first"), script_of("second"), script_of("third")) as home:
        client = await home.connect()
        await client.send(post() + post() + post(b"", path="/wiretape/healthz", method="GET"))
        answers = [await client.response() for _ in range(3)]
        client.close()
        home.answers += answers[:2]
        assert [answered.ended for answered in answers] == ["chunked", "chunked", "length"]
        assert b"first4" in answers[0].body
        assert answers[2].body == b'{"alive":true}'
        assert len(home.streams) == 2
        names = [answered.header(b"x-wiretape-stream") for answered in answers[:2]]
        assert names == [name.encode() for name in home.streams]


@pytest.mark.case("C06", "C01")
@pytest.mark.parametrize("behind", [1, 100, 200_000])
async def test_pipelined_bytes_do_not_hide_a_disconnect(autojump_clock: MockClock, behind: int) -> None:
    async with house(silent(text("hi"))) as home:
        client = await home.connect()
        await client.send(post() + (post() * 2_000)[:behind])
        await trio.sleep(5)
        client.close()
        await trio.sleep(0.05)
        assert busy(home) == 0
        assert len(home.streams) == 1
        assert await home.ending() == ("client_gone", [])


@pytest.mark.case("C07")
@pytest.mark.parametrize(
    ("headers", "version", "ended"),
    [
        pytest.param(["Connection: close"], "1.1", "chunked", id="Connection: close"),
        pytest.param([], "1.0", "close", id="HTTP/1.0"),
        pytest.param(["Connection: keep-alive"], "1.0", "close", id="HTTP/1.0 that would stay"),
    ],
)
async def test_connection_close_ends_the_connection_with_the_last_byte(
    autojump_clock: MockClock, headers: list[str], version: str, ended: str
) -> None:
    async with house(Peer(role(), text("hi"), finish(), DONE, every_s=1)) as home:
        client = await home.connect()
        await client.send(post(ASKED, *headers, version=version))
        answered = await client.response()
        home.answers.append(answered)
        assert answered.ended == ended
        with trio.fail_after(1):
            assert await client.receive() == b""
        await trio.lowlevel.checkpoint()
        assert home.harness.open == 0
        assert await home.ending() == ("completed", [])


@pytest.mark.case("C08")
async def test_an_idle_connection_is_closed_after_75_s(autojump_clock: MockClock) -> None:
    async with house(Peer(text("hi"), finish(), DONE)) as home:
        client = await home.connect()
        for idle_s in (9, 70):  # the first request has 10 s
            await trio.sleep(idle_s)
            await client.send(post())
            assert (await client.response()).ended == "chunked"
        began = trio.current_time()
        assert await client.receive() == b""
        assert trio.current_time() - began == pytest.approx(75, abs=0.5)
        assert home.harness.open == 0


# -- C22: readers of the events of a stream ---------------------------------------------------------------------------

FRAMES: Final = [
    *(role(), text("hi"), call("{", "look"), call("}"), finish("tool_calls")),
]


def ids(body: bytes) -> list[str]:
    return [line[4:].decode() for line in body.split(b"\n") if line.startswith(b"id: ")]


def without_ids(body: bytes) -> bytes:
    return b"".join(line + b"\n" for line in body.split(b"\n")[:-1] if not line.startswith(b"id: "))


def behind(body: bytes, name: str) -> bytes:
    """Return the events after the one with this id; comments do not count."""
    blocks = [block for block in body.split(b"\n\n") if block and not block.startswith(b":")]
    at = next(number for number, block in enumerate(blocks) if b"id: " + name.encode() in block.split(b"\n"))
    return b"".join(block + b"\n\n" for block in blocks[at + 1 :])


async def followed(home: House, *headers: str, after: str = "") -> bytes:
    client = await follow(home, *headers, after=after)
    answered = await client.response()
    client.close()
    assert (answered.status, answered.ended) == (200, "chunked")
    return answered.body.replace(b": keepalive\n\n", b"")


@pytest.mark.case("C22")
async def test_early_late_and_final_followers_get_the_same_bytes(autojump_clock: MockClock) -> None:
    async with house(Peer(*FRAMES, DONE, every_s=10), route={"finish_grace_s": 60}) as home:
        bodies: list[bytes] = []

        async def reader(at_s: float) -> None:
            await trio.sleep_until(at_s)
            bodies.append(await followed(home))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, home)
            for at_s in (1, 1, 15, 25.5, 40, 49.9, 50, 55, 60, 60.1, 500):
                nursery.start_soon(reader, at_s)
        assert len(bodies) == 11
        assert len(set(bodies)) == 1
        assert without_ids(bodies[0]) == emit(await home.tape()).replace(KEEPALIVE, b"")
        assert len(set(ids(bodies[0]))) == len(ids(bodies[0])) == len(FRAMES) + 2  # a frame that says a tool runs
        assert await home.ending() == ("completed", [])


@pytest.mark.case("C22")
@pytest.mark.parametrize("at_s", [12, 25, 35, 45, 55, 70], ids=str)
async def test_follower_resumes_after_any_past_id(autojump_clock: MockClock, at_s: float) -> None:
    async with house(Peer(*FRAMES, DONE, every_s=10), route={"finish_grace_s": 60}) as home:
        resumed: dict[str, bytes] = {}

        async def reader(name: str) -> None:
            resumed[name] = await followed(home, after=name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, home)
            await trio.sleep(at_s)
            sofar = await home.tape()
            names = {f"{record.n}.{ordinal}" for record in sofar for ordinal in range(2)}
            for name in names:
                nursery.start_soon(reader, name)
        whole = await followed(home)
        known = [name for name in ids(whole) if name in names]
        assert known or at_s < 20
        for name in known:
            assert resumed[name] == behind(whole, name), name


@pytest.mark.case("C22")
@pytest.mark.parametrize(
    "name",
    [
        "junk",
        "1",
        "1.",
        ".1",
        "-1.0",
        "1.0.0",
        "01.0",
        "1e3.0",
        "٣.0".encode().decode("latin-1"),
        "9" * 400,
        "1.0\t2.0",
    ],
    ids=ascii,
)
async def test_unknown_resume_id_starts_from_the_beginning(autojump_clock: MockClock, name: str) -> None:
    async with house(Peer(*FRAMES, DONE, every_s=10), route={"finish_grace_s": 60}) as home:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, home)
            await trio.sleep(25)
            live = await followed(home, after=name)
        assert live == await followed(home) == await followed(home, after=name)


@pytest.mark.case("C22")
async def test_future_resume_id_is_awaited_and_sent_once(autojump_clock: MockClock) -> None:
    async with house(Peer(*FRAMES, DONE, every_s=10), route={"finish_grace_s": 60}) as home:
        bodies: dict[str, bytes] = {}

        async def reader(name: str) -> None:
            bodies[name] = await followed(home, after=name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, home)
            await trio.sleep(25)
            for n in range(15):
                nursery.start_soon(reader, f"{n}.0")
            nursery.start_soon(reader, "999999999999999999.999999999")
        whole = await followed(home)
        for name in set(ids(whole)) & bodies.keys():
            assert bodies[name] == behind(whole, name), name
        assert bodies["999999999999999999.999999999"] == b""
        assert await followed(home, after="14.0") == b""


@pytest.mark.case("C22")
async def test_followers_of_a_cut_stream_get_its_error(autojump_clock: MockClock) -> None:
    async with house(Peer(role(), text("hi"), call("{", "look"), every_s=10, end="fin")) as home:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, home)
            await trio.sleep(5)
            live = await followed(home)
        assert b'"code":"truncated"' in live
        assert live == await followed(home)
        assert await followed(home, after=ids(live)[-1]) == b""
        assert await followed(home, after=ids(live)[-2]) == behind(live, ids(live)[-2]) != b""
        assert await home.ending() == ("truncated", [])


@pytest.mark.case("C21")
@pytest.mark.parametrize("what", ["", "/events", "/tape"])
async def test_missing_and_foreign_streams_look_the_same(autojump_clock: MockClock, what: str) -> None:
    async with house(Peer(text("hi"), finish(), DONE)) as home:
        await home.ask(ASKED, "Authorization: Bearer one")
        own = home.streams[-1]
        other = own.upper() + "é".encode().decode("latin-1")
        tried = [own, "x" * 22, "../" + own, "..%2f" + own, own + "%00", other, ".."]
        answers: list[tuple[int, bytes, float]] = []
        for stream in tried:
            began = trio.current_time()
            path = f"/wiretape/streams/{stream}{what}"
            answered = await home.ask(b"", "Authorization: Bearer two", path=path, method="GET")
            if answered.status != 400:  # not a request at all
                answers.append((answered.status, answered.body, round(answered.at - began, 4)))
        assert len(answers) >= 5
        assert len(set(answers)) == 1, answers
        assert answers[0][0] == 404
        mine = await home.ask(b"", "Authorization: Bearer one", path=f"/wiretape/streams/{own}{what}", method="GET")
        home.answers.clear()
        assert mine.status == 200
