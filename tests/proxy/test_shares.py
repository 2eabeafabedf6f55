"""Shares of the places for streams: uploads and single keys leave some to others."""

import re

import pytest
import trio
from trio.testing import MockClock

from tests.failures.test_client_leaving import silent
from tests.proxy.scripted import chunk
from tests.support.house import DONE, HEAD, House, finish, house, post, role, text
from tests.support.http import Client
from wiretape.proxy.config.model import Key, Secret
from wiretape.proxy.limits import CONNECTIONS_SPARE, DESCRIPTORS_RESERVED, LIMITED_LOG_S
from wiretape.proxy.relay.app import places_that_fit


async def upstream(stream: trio.abc.Stream) -> None:
    """Answer a chat; take an upload, and say nothing."""
    if b"/v1/files" not in bytes(await stream.receive_some()):
        await stream.send_all(HEAD + b"".join(map(chunk, (role(), text("hi"), finish(), DONE))) + b"0\r\n\r\n")
    while await stream.receive_some():
        pass


def limits_in(home: House) -> dict[str, int]:
    text = home.assembly.metrics.text().decode()
    found = re.findall(r'wiretape_limited_total\{limit="(\w+)"\} (\d+)', text)
    return {limit: int(count) for limit, count in found}


async def test_dripping_uploads_leave_half_of_the_places_to_others(autojump_clock: MockClock) -> None:
    async with house(upstream, config={"streams_max": 8}) as home:
        upload = post(b"", path="/v1/files").replace(b"Content-Length: 0", b"Content-Length: 1000000")
        clients = [await home.connect() for _ in range(8)]
        for client in clients:
            await client.send(upload)
        await trio.sleep(1)
        assert len(home.registry.live) == 4
        for client in clients[4:]:
            refused = await client.response()
            assert (refused.status, refused.header(b"retry-after")) == (503, b"1")
        assert (await home.ask()).status == 200
        assert limits_in(home) == {"uploads": 4}
        await clients[0].send(b"x" * 1_000_000)  # a complete one holds no place of an upload
        await trio.sleep(1)
        more = await home.connect()
        await more.send(upload)
        await trio.sleep(1)
        assert limits_in(home) == {"uploads": 4}
        for client in (*clients, more):
            client.close()
        await home.settled()


@pytest.mark.parametrize("several", [False, True])
async def test_one_key_of_several_gets_three_quarters_of_the_places(autojump_clock: MockClock, several: bool) -> None:
    keys = tuple(Key(name, Secret(name * 40)) for name in ("a", "b")[: 1 + several])
    async with house(silent(role(), text("hi")), config={"streams_max": 8, "keys": keys}) as home:

        async def status(key: str) -> bytes:
            client = await home.connect()
            await client.send(
                post().replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer %b\r\n\r\n" % (key * 40).encode(), 1)
            )
            await trio.sleep(1)
            clients.append(client)
            return (await client.receive()).split(b" ")[1]

        clients: list[Client] = []
        statuses = [await status("a") for _ in range(9)]
        assert statuses.count(b"200") == (6 if several else 8)
        if several:
            assert [await status("b") for _ in range(3)] == [b"200", b"200", b"503"]
            assert limits_in(home) == {"key_share": 3}
        for client in clients:
            client.close()
        await home.settled()


@pytest.mark.parametrize("descriptors", [118, 256, 1_024, 20_000])
def test_streams_and_connections_fit_below_the_descriptor_limit(
    monkeypatch: pytest.MonkeyPatch, descriptors: int
) -> None:
    def limits(_what: int) -> tuple[int, int]:
        return descriptors, descriptors

    monkeypatch.setattr("resource.getrlimit", limits)
    for wanted in (1, 10, 1_000, 10**6):
        streams, connections = places_that_fit(wanted)
        assert streams == wanted or 3 * (streams + 1) > descriptors - DESCRIPTORS_RESERVED - 2 * CONNECTIONS_SPARE
        assert connections >= streams + CONNECTIONS_SPARE
        # Each stream has an upstream and a tape besides, and connections are refused; the reserve is never used.
        assert connections + CONNECTIONS_SPARE + 2 * streams <= descriptors - DESCRIPTORS_RESERVED
        assert wanted < 10**6 or {118: 10, 1_024: 312}.get(descriptors, streams) == streams


async def test_limit_is_logged_once_a_minute(autojump_clock: MockClock) -> None:
    async with house(upstream, config={"streams_max": 2}) as home:
        upload = post(b"", path="/v1/files").replace(b"Content-Length: 0", b"Content-Length: 1000000")
        first = await home.connect()
        await first.send(upload + b"x" * 500_000)
        await trio.sleep(1)
        for _ in range(20):
            client = await home.connect()
            await client.send(upload)
            assert (await client.response()).status == 503
            await trio.sleep(LIMITED_LOG_S / 20 + 0.01)
            if _ % 10 == 0:
                await first.send(b"x")
        assert limits_in(home) == {"uploads": 20}
        assert [fields["limit"] for _, event, fields in home.log if event == "limit"] == ["uploads"]
        client = await home.connect()
        await client.send(upload)
        assert (await client.response()).status == 503
        assert [fields["limit"] for _, event, fields in home.log if event == "limit"] == ["uploads"] * 2
        first.close()
        await home.settled()
