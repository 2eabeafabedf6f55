"""Play scripts to the real proxy in virtual time."""

from collections.abc import Awaitable, Callable, Sequence

import trio

from tests.proxy.scripted import Reset
from tests.support.house import ASKED, house
from wiretape.events.core.json_text import dumps
from wiretape.events.core.settings import Profile, Settings
from wiretape.events.tape.record import Record, encode
from wiretape.replay.playback.script import Request, Script
from wiretape.replay.playback.server import Upstream
from wiretape.replay.sealed.files import parse

ASKING = Request(b"POST", b"/v1/chat/completions", (), dumps(ASKED))
#: Headers that the client sets itself.
_OF_THE_CONNECTION = {b"host", b"content-length", b"connection", b"content-type", b"transfer-encoding"}


def peer(*scripts: Script) -> Callable[[trio.abc.Stream], Awaitable[None]]:
    """Return the peer of any connection: it plays these scripts in turn, the last one again and again."""
    waiting = list(scripts)

    async def serve(stream: trio.abc.Stream) -> None:
        upstream = Upstream(lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0])
        await upstream.serve(_Open(stream))
        if upstream.seen and upstream.seen[-1].ended == "reset":
            raise Reset

    return serve


async def taped(
    *scripts: Script, request: Request = ASKING, profile: Profile = "transparent", attempts: int = 1
) -> Sequence[Record]:
    """Return the tape that the proxy makes, under an autojump clock."""
    settings = Settings(profile=profile)
    async with house(peer(*scripts), settings=settings, route={"attempts": attempts, "idle_s": 30.0}) as home:
        path, method = request.target.decode(), request.method.decode()
        await home.ask(request.body, *_lines(request), path=path, method=method)
        await home.settled()
        written = b"".join(encode(record) for record in await home.tape())
    return parse(written).streams[0]


def _lines(request: Request) -> list[str]:
    pairs = [(name, value) for name, value in request.headers if name.lower() not in _OF_THE_CONNECTION]
    return [f"{name.decode('latin-1')}: {value.decode('latin-1')}" for name, value in pairs]


class _Open(trio.abc.Stream):
    """A stream that only the house closes, as a reset or not."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
