"""Clients that disconnect, at any moment and in any way: what is recorded, and when the upstream is closed."""

import random
from collections.abc import Callable
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from tests.laws.variants import FULL
from tests.proxy.scripted import chunk
from tests.support.house import DONE, HEAD, House, Peer, call, finish, house, post, role, text, usage
from tests.support.http import Client
from wiretape.events.emit import emit

#: Between two writes of the upstream; all writes take less than the drain after [DONE].
PACE_S: Final = 0.1
#: The upstream's writes, by what was just written when the client leaves half a pace later.
WRITES: Final = {
    "before the upstream's head": b"",
    "before the first byte": HEAD,
    "after the role, which is held": chunk(role()),
    "after text": chunk(text("hi")),
    "inside a call": chunk(call('{"path":', "write_file")),
    "after a call": chunk(call('"x"}')),
    "after the finish": chunk(finish("tool_calls")),
    "after usage": chunk(usage()),
    "after [DONE]": chunk(DONE),
    "after the end": b"0\r\n\r\n",
}
PLACES: Final = list(WRITES)
#: From here on the protocol's own terminator is on the tape.
FINISHED: Final = PLACES.index("after the finish")
ENDED: Final = PLACES.index("after [DONE]")

LEAVES: Final[dict[str, Callable[[Client], None]]] = {"FIN": Client.close, "RST": Client.rst}


def paced() -> Peer:
    """Return an upstream that makes one of the writes each pace."""
    return Peer(*WRITES.values(), head=b"", raw=True, every_s=PACE_S)


def silent(*frames: bytes, head: bytes = HEAD) -> Peer:
    """Return an upstream that sends these frames, and then nothing until the other side leaves."""
    return Peer(*frames, head=head, end="stall")


def busy(home: House) -> int:
    """Connections to the upstream that are not idle."""
    return len(home.upstream.still_open) - len(home.transport.pool)


async def left_at(
    home: House, at_s: float, leave: Callable[[Client], None], *headers: str, client: Client | None = None
) -> bytes:
    """Asks, reads until then, and leaves; what it got of the body's chunks."""
    client = client or await home.connect()
    await client.send(post({"model": "m", "stream": True, "messages": []}, *headers))
    got = b""
    with trio.move_on_at(at_s):
        while data := await client.receive():
            got += data
        await trio.sleep_forever()
    leave(client)
    return got


def body_of(got: bytes) -> bytes:
    """Of what a client read, whole chunks and the part of one."""
    _, _, rest = got.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


async def gone(home: House) -> list[int]:
    """What each `gone` record names."""
    return [record.keys["at"] for record in await home.tape() if record.kind == "gone"]


async def check_sent(home: House, got: bytes) -> None:
    """V8 up to `gone`, and V3: all of what it names was sent, and nothing that is not on the tape."""
    tape = await home.tape()
    body = body_of(got)
    assert emit(tape).startswith(body)
    for at in await gone(home):
        assert body.startswith(emit(tape[: at + 1]))


@pytest.mark.case("C01", "C02")
@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("place", PLACES)
async def test_disconnect_closes_the_upstream_at_once(autojump_clock: MockClock, place: str, leave: str) -> None:
    number = PLACES.index(place)
    async with house(paced(), route={"finish_grace_s": 60}) as home:
        got = await left_at(home, (number + 0.5) * PACE_S, LEAVES[leave])
        left = trio.current_time()
        await trio.sleep(0.05 if number != ENDED else 0.25)  # after [DONE] the rest of the body may still come
        assert busy(home) == 0
        assert not home.registry.live
        flags = ["no_done"] if FINISHED <= number < ENDED else []
        expected = "completed" if number >= FINISHED else "client_gone"
        assert await home.ending() == (expected, flags)
        assert len(await gone(home)) == (number < ENDED)
        assert trio.current_time() - left <= 0.25
        assert len(home.upstream.opened) == 1  # no retry for a client that has left
        await check_sent(home, got)


@pytest.mark.case("C01")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["drain", "keep", "resume"])
async def test_stream_continues_after_disconnect_if_configured(autojump_clock: MockClock, how: str, place: str) -> None:
    number = PLACES.index(place)
    route = {} if how == "resume" else {"on_client_gone": how}
    headers = ["X-Wiretape-Resume: on"] if how == "resume" else []
    async with house(paced(), route=route) as home:
        got = await left_at(home, (number + 0.5) * PACE_S, Client.close, *headers)
        assert await home.ending() == ("completed", [])
        assert len(await gone(home)) == (number < ENDED)
        await check_sent(home, got)
        assert b"[DONE]" in emit(await home.tape())


@pytest.mark.case("C01")
@pytest.mark.parametrize(
    ("route", "headers", "after_s"),
    [
        pytest.param({"on_client_gone": "drain"}, [], 30, id="drain"),
        pytest.param({"on_client_gone": "keep"}, [], 60, id="keep"),
        pytest.param({"on_client_gone": "keep", "keep_s": 0}, [], 0, id="keep for no time"),
        pytest.param({"on_client_gone": "drain"}, ["X-Wiretape-Resume: on"], 60, id="drain, and a resume announced"),
        pytest.param({}, ["X-Wiretape-Resume: on"], 60, id="cancel, and a resume announced"),
        pytest.param({}, ["X-Wiretape-Resume: yes"], 0, id="cancel, and a word that announces nothing"),
    ],
)
@pytest.mark.parametrize("place", PLACES[:FINISHED])
async def test_kept_stream_ends_when_the_client_does_not_return(
    autojump_clock: MockClock, route: dict[str, Any], headers: list[str], after_s: float, place: str
) -> None:
    number = PLACES.index(place)
    async with house(Peer(*[*WRITES.values()][: number + 1], head=b"", raw=True, end="stall"), route=route) as home:
        got = await left_at(home, 0.5, Client.close, *headers)
        left = trio.current_time()
        with trio.fail_after(after_s + 1):
            await home.settled()
        assert trio.current_time() - left == pytest.approx(after_s, abs=0.05)
        assert busy(home) == 0
        assert await home.ending() == ("client_gone", [])
        await check_sent(home, got)


@pytest.mark.case("C01", "C02")
@pytest.mark.parametrize("leave", LEAVES)
async def test_disconnect_during_a_write_is_noticed(autojump_clock: MockClock, leave: str) -> None:
    long = text("a" * 50_000)
    async with house(silent(*[long] * 3)) as home:
        client = await home.connect(capacity=1_000)
        await client.send(post())
        assert await client.receive()
        await trio.sleep(5)
        LEAVES[leave](client)
        await trio.sleep(0.05)
        assert busy(home) == 0
        assert await home.ending() == ("client_gone", [])
        (at,) = await gone(home)
        assert at < (await home.tape())[-2].n  # what was not wholly sent is not said to be


@pytest.mark.case("C05")
async def test_half_close_counts_as_disconnect(autojump_clock: MockClock) -> None:
    """It looks like a client that left, and the upstream must not go on for one that did."""
    async with house(Peer(text("hi"), every_s=1)) as home:
        client = await home.connect()
        await client.send(post())
        client.fin()
        await trio.sleep(0.05)
        assert busy(home) == 0
        assert await home.ending() == ("client_gone", [])
        with pytest.raises(EOFError):
            await client.response()


@pytest.mark.case("C01")
@pytest.mark.parametrize("place", ["while its upstream is connected", "between two attempts", "while it is sniffed"])
@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.2, 1.0])
async def test_disconnect_is_noticed_in_every_wait(autojump_clock: MockClock, place: str, after_s: float) -> None:
    script = {
        "while its upstream is connected": silent(head=b""),
        "between two attempts": Peer(head=b"", end="fin"),
        "while it is sniffed": silent(b" ", head=HEAD.replace(b"text/event-stream", b"text/plain")),
    }[place]
    async with house(script, route={"attempts": 10}) as home:
        client = await home.connect()
        await client.send(post())
        await trio.sleep(after_s)
        client.close()
        await trio.sleep(0.05)
        assert busy(home) == 0
        assert not home.registry.live
        assert await home.ending() == ("client_gone", [])


async def asked(home: House) -> None:
    """The default request, for a nursery."""
    await home.ask()


async def follow(home: House, *headers: str, after: str = "", capacity: int | None = None) -> Client:
    """Ask for the events of the stream that began last."""
    client = await home.connect(capacity=capacity)
    more = [f"Last-Event-ID: {after}"] if after else []
    await client.send(post(b"", *headers, *more, path=f"/wiretape/streams/{home.streams[-1]}/events", method="GET"))
    return client


@pytest.mark.case("C01", "C22")
async def test_upstream_is_closed_when_the_last_reader_leaves(autojump_clock: MockClock) -> None:
    async with house(Peer(*[text(str(number)) for number in range(1_000)], every_s=1)) as home:
        client = await home.connect()
        await client.send(post())
        await trio.sleep(3.5)
        followers = [await follow(home) for _ in range(2)]
        await trio.sleep(1)
        client.close()
        await trio.sleep(3)
        followers[0].rst()
        await trio.sleep(3)
        assert busy(home) == 1
        assert await home.kinds() == [
            *("open", "request", "attempt", "head", "frame", "commit"),
            *["frame"] * 3,
            "gone",
            *["frame"] * 6,
        ]
        followers[1].close()
        await trio.sleep(0.05)
        assert busy(home) == 0
        assert await home.ending() == ("client_gone", [])


@pytest.mark.case("C01", "C22")
async def test_client_that_returns_in_time_keeps_the_upstream(autojump_clock: MockClock) -> None:
    frames = [text(str(number)) for number in range(200)]
    async with house(Peer(*frames, finish(), DONE, every_s=1)) as home:
        client = await home.connect()
        await client.send(post({"model": "m", "stream": True, "messages": []}, "X-Wiretape-Resume: on"))
        await trio.sleep(3.5)
        client.close()
        for _ in range(3):  # each time it is nearly given up
            await trio.sleep(50)
            follower = await follow(home)
            await trio.sleep(1)
            follower.close()
        follower = await follow(home)
        answered = await follower.response()
        follower.close()
        assert answered.ended == "chunked"
        assert await home.ending() == ("completed", [])
        said = b"".join(line + b"\n" for line in answered.body.split(b"\n") if not line.startswith(b"id: "))
        assert said.rstrip(b"\n") == emit(await home.tape()).rstrip(b"\n")


@pytest.mark.case("C01")
async def test_disconnect_ends_other_exchanges_too(autojump_clock: MockClock) -> None:
    async with house(silent(b"a part")) as home:
        client = await home.connect()
        await client.send(post(b"", path="/v1/models", method="GET"))
        await trio.sleep(1)
        client.close()
        await trio.sleep(0.05)
        assert busy(home) == 0
        assert await home.ending() == ("client_gone", [])


@pytest.mark.case("C01")
async def test_disconnect_before_the_body_is_complete_starts_no_stream(autojump_clock: MockClock) -> None:
    async with house(silent(head=b"")) as home:
        client = await home.connect()
        await client.send(post()[:-3])
        await trio.sleep(1)
        client.close()
        await trio.sleep(1)
        assert (home.streams, home.upstream.opened, home.harness.open) == ([], [], 0)


@pytest.mark.case("C01")
@pytest.mark.parametrize("upload_s", [0.5, 5.5])
async def test_interrupted_upload_ends_its_upstream_request(autojump_clock: MockClock, upload_s: float) -> None:
    async with house(silent(head=b"")) as home:
        client = await home.connect()
        head = post(b"", "Transfer-Encoding: chunked", path="/v1/files").replace(b"Content-Length: 0\r\n", b"")
        await client.send(head)
        for _ in range(int(upload_s) + 1):
            await client.send(chunk(b"x" * 1_000))
            await trio.sleep(1)
        client.close()
        await trio.sleep(0.05)
        assert busy(home) == 0
        assert await home.ending() == ("client_gone", [])


@pytest.mark.case("C01")
@pytest.mark.slow
async def test_random_disconnects_leave_no_tasks_or_connections(autojump_clock: MockClock) -> None:
    """F1: each leaving is a cancel; a pool that loses a connection to each is an outage by design."""
    chance = random.Random(1)  # noqa: S311 - a seed, so that a failure can be repeated
    async with house(paced()) as home, trio.open_nursery() as nursery:

        async def one() -> None:
            await trio.sleep(chance.random() * 5)
            await left_at(home, trio.current_time() + chance.random() * 1.2, chance.choice([*LEAVES.values()]))

        for _ in range(300 if FULL else 100):
            nursery.start_soon(one)
    assert not home.upstream.still_open
    assert home.harness.open == 0
