"""A connection to a peer that stops reading: its response is still read, and the rest of the request is not sent."""

from collections.abc import AsyncGenerator, AsyncIterable

import pytest
import trio

from tests.proxy.scripted import OK
from wiretape.proxy.limits import SEND_BYTES_MAX
from wiretape.proxy.upstream.connect import Origin
from wiretape.proxy.upstream.connection import Connection, Outgoing
from wiretape.proxy.upstream.errors import ResetError, TruncatedError

ORIGIN = Origin(tls=False, host="upstream.test", port=80)


class Deaf(trio.abc.Stream):
    """A stream that takes so many sends and then breaks; after that, or at once, it gives these reads and is reset."""

    def __init__(self, sends: int, *reads: bytes, waits: bool = True) -> None:
        self._left, self._reads = sends, list(reads)
        self._broken = trio.Event()
        if not waits:
            self._broken.set()
        self.sent: list[bytes] = []

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if len(self.sent) == self._left:
            self._broken.set()
            raise trio.BrokenResourceError
        self.sent.append(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        del max_bytes
        await self._broken.wait()
        if not self._reads:
            raise trio.BrokenResourceError
        return self._reads.pop(0)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Pieces:
    """A body whose generator notes that it was closed."""

    def __init__(self) -> None:
        self.closed = False

    async def _each(self) -> AsyncGenerator[bytes]:
        try:
            for _ in range(10):
                yield b"piece"
        finally:
            self.closed = True

    def __aiter__(self) -> AsyncGenerator[bytes]:
        return self._each()


def request(body: bytes | AsyncIterable[bytes]) -> Outgoing:
    length = (b"Content-Length", b"%d" % len(body)) if isinstance(body, bytes) else (b"Transfer-Encoding", b"chunked")
    return Outgoing(ORIGIN, b"POST", b"/", ((b"Host", b"a"), length), body)


@pytest.mark.parametrize("sends", [0, 1, 2])
@pytest.mark.parametrize("body", [b"{}", b"x" * 10 * SEND_BYTES_MAX, Pieces()], ids=["small", "large", "pieces"])
async def test_peer_that_stops_reading_is_still_read(body: bytes | Pieces, sends: int) -> None:
    stream = Deaf(min(sends, 0 if body == b"{}" else 2), OK)
    connection = Connection(ORIGIN, stream)
    await connection.send(request(body))
    assert connection.exchange.head is not None
    assert not connection.reusable, "h11 has framed what the socket never took"


@pytest.mark.parametrize("body", [b"{}", b"x" * 10 * SEND_BYTES_MAX], ids=["small", "large"])
@pytest.mark.parametrize(("reads", "fault"), [((), ResetError), ((b"",), TruncatedError)])
async def test_silent_peer_that_stops_reading_is_a_fault(
    body: bytes, reads: tuple[bytes, ...], fault: type[Exception]
) -> None:
    connection = Connection(ORIGIN, Deaf(0, *reads))
    with pytest.raises(fault):
        await connection.send(request(body))
    assert not connection.exchange.started


async def test_unfinished_body_generator_is_closed() -> None:
    body = Pieces()
    await Connection(ORIGIN, Deaf(2, OK)).send(request(body))
    assert body.closed


async def test_connection_is_not_reused_after_early_response() -> None:
    connection = Connection(ORIGIN, Deaf(100, OK, waits=False))
    await connection.send(request(Pieces()))
    assert connection.exchange.end is not None
    assert not connection.reusable


async def test_connection_is_reused_after_complete_exchange() -> None:
    stream = Deaf(100, OK, OK, waits=False)
    connection = Connection(ORIGIN, stream)
    for _ in range(2):
        await connection.send(request(b"{}"))
        assert connection.reusable
    assert stream.sent == [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"] * 2
