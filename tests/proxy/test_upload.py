"""Uploads that are relayed while they arrive: failures in the middle are reported and recorded."""

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.failures.judged import connecting
from tests.proxy.scripted import Fake, opening, request_of, reset
from tests.support.house import House, Watched, house, post
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record
from wiretape.proxy.limits import UPLOAD_TIMEOUT_S
from wiretape.proxy.server.asgi import ServerSettings
from wiretape.proxy.server.server import listening, serve
from wiretape.proxy.store.catalogue_row import CatalogueRow
from wiretape.proxy.store.memory import MemoryStore
from wiretape.replay.matching.match import Deck, Miss, Row, Taken
from wiretape.replay.playback.script import Request
from wiretape.replay.seal import seal
from wiretape.replay.sealed.files import parse

PATH = "/v1/files"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def head(length: int) -> bytes:
    return post(b"", path=PATH).replace(b"Content-Length: 0", b"Content-Length: %d" % length)


async def taking(stream: trio.abc.Stream) -> None:
    """Takes what comes, and says nothing."""
    while await stream.receive_some():
        pass


async def after(stream: trio.abc.Stream) -> None:
    """Answer once the upload is complete."""
    await request_of(stream)
    await stream.send_all(OK)
    await request_of(stream)


async def hashed(home: House) -> list[tuple[dict[str, Any], bytes | None]]:
    return [(dict(record.keys), record.raw) for record in await home.tape() if record.kind == "upload"]


@pytest.mark.parametrize("chunked", [False, True])
async def test_hashed_uploads_record_no_pieces(chunked: bool, autojump_clock: MockClock) -> None:
    async with house(after, config={"requests": "hash"}) as home:
        body = b"PRIVATE-" * 50_000
        client = await home.connect()
        whole = head(len(body)) + body
        if chunked:
            whole = whole.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked", 1)
            whole = whole.replace(body, b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        await client.send(whole)
        assert (await client.response()).status == 200
        client.close()
        assert await home.ending() == ("completed", [])
        assert await hashed(home) == [({"bytes": len(body), "sha256": sha256(body).hexdigest()}, None)]
        assert not any(b"PRIVATE" in (record.raw or b"") for record in await home.tape())
        kinds = await home.kinds()
        assert kinds.index("upload") < kinds.index("head")


@pytest.mark.parametrize("answers", [False, True], ids=["the client leaves", "the upstream answers"])
async def test_hash_of_a_partial_upload_is_marked(answers: bool, autojump_clock: MockClock) -> None:
    async def early(stream: trio.abc.Stream) -> None:
        while not (await stream.receive_some()).endswith(b"x"):
            pass
        if answers:
            await stream.send_all(OK)
        await taking(stream)

    async with house(early, config={"requests": "hash"}) as home:
        client = await home.connect()
        await client.send(head(1_500_000) + b"x" * 50_000)
        await trio.sleep(1)
        client.close()
        assert await home.ending() == ("completed" if answers else "client_gone", [])
        part = {"bytes": 50_000, "sha256": sha256(b"x" * 50_000).hexdigest(), "part": True}
        assert await hashed(home) == [(part, None)]


async def test_hashed_upload_can_be_sealed_and_matched(autojump_clock: MockClock) -> None:
    async with house(after, config={"requests": "hash"}) as home:
        body = b"PRIVATE-" * 50_000
        await home.ask(body, path=PATH)
        await home.settled()
        [records] = parse(seal([await home.tape()])).streams
        assert emit(records) == b"{}"
        for asked, found in ((b"other", Miss), (body, Taken)):
            assert isinstance(Deck([Row(records)]).take(Request(b"POST", PATH.encode(), [], asked)), found)


async def test_slow_upload_has_no_total_deadline(autojump_clock: MockClock) -> None:
    async with house(after, route={"first_byte_s": 20.0}) as home:
        client = await home.connect()
        await client.send(head(1_500_000))
        for _ in range(30):
            await trio.sleep(UPLOAD_TIMEOUT_S / 4)
            await client.send(b"x" * 50_000)
        assert (await client.response()).status == 200
        client.close()


async def test_stalled_upload_is_given_up(autojump_clock: MockClock) -> None:  # C16
    async with house(taking) as home:
        client = await home.connect()
        await client.send(head(1_500_000) + b"x" * 50_000)
        answered = await client.response()
        assert (answered.status, answered.at <= UPLOAD_TIMEOUT_S + 1) == (408, True)
        assert await home.ending() == ("limit", [])
        client.close()


class Stuck(Fake):
    """An upstream that takes the head, no more, and says nothing."""

    _head = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        del data
        if self._head:
            await trio.sleep_forever()
        self._head = True
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(("sends", "resets"), [(650_000, False), (40_000_000, True)], ids=["leaves", "is killed"])
async def test_disconnect_is_noticed_with_a_full_receive_buffer(sends: int, resets: bool) -> None:
    """On real sockets: the reader waits for room, and the client's end comes after bytes that are not read.

    What neither the kernel here nor the one there can send on keeps the end back: then only a reset is heard.
    """
    async with house(taking) as home, trio.open_nursery() as nursery:
        upstream = Stuck()
        connecting(home, opening(upstream))
        sockets = listening("127.0.0.1", 0)
        stop = trio.Event()
        app, reaper = home.assembly.app, home.assembly.reaper
        await nursery.start(partial(serve, app, sockets, settings=ServerSettings(), reaper=reaper, shutdown=stop))
        client = await trio.open_tcp_stream(*sockets[0].getsockname()[:2])
        await client.send_all(head(50_000_000))
        with trio.move_on_after(0.5):
            await client.send_all(b"x" * sends)
        await trio.sleep(0.1)
        left = trio.current_time()
        if resets:
            reset(client)
        await client.aclose()
        with trio.fail_after(5):
            await home.settled()
        assert await home.ending() == ("client_gone", [])
        assert upstream.closed_at <= left + 0.5
        stop.set()
    for each in sockets:
        each.close()


class _Threaded(MemoryStore):
    """Writes a piece as the store of files writes a long one, while others go on; and like it knows one writer."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = False

    async def append(self, stream: str, records: Sequence[Record], row: CatalogueRow | None = None) -> int:
        assert not self.writing, "two tasks write"
        self.writing = True
        try:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.1 if records[-1].kind in ("upload", "attempt") else 0)
            return await super().append(stream, records, row)
        finally:
            self.writing = False


@pytest.mark.parametrize("on_client_gone", ["cancel", "drain", "keep"])
@pytest.mark.parametrize("after_s", [0.02, 0.05, 0.15, 0.25, 0.35])
async def test_disconnect_during_a_write_is_recorded_once(
    after_s: float, on_client_gone: str, autojump_clock: MockClock
) -> None:
    async with house(taking, store=_Threaded(), route={"on_client_gone": on_client_gone}) as home:
        client = await home.connect()
        await client.send(head(1_500_000))
        with trio.move_on_after(after_s):
            while True:
                await client.send(b"x" * 30_000)
                await trio.sleep(0.04)
        client.close()
        assert await home.ending() == ("client_gone", [])
        assert (await home.kinds()).count("gone") == 1
        assert [event for level, event, _ in home.log if level == "error"] == []


async def test_log_failure_during_an_upload_stops_it(autojump_clock: MockClock) -> None:
    async with house(taking, store=Watched(lambda record: record.kind == "upload"), check=False) as home:
        answered = await home.ask(b"x" * 400_000, path=PATH)
        assert answered.status == 503
        assert b'"code":"log_failure"' in answered.body
