"""Workers of one data folder inside this process, each with a port of its own, so that a test can choose one."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import trio

from tests.proxy.scripted import Script, listening
from wiretape.events.core.json_text import dumps
from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.http1 import Dechunker
from wiretape.proxy.log import Log
from wiretape.proxy.serve import Running, running
from wiretape.proxy.server import server
from wiretape.proxy.workers.worker import Worker


class Said(NamedTuple):
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Team:
    """Workers by number."""

    def __init__(self, root: Path, workers: Mapping[int, Running]) -> None:
        self.root = root
        self.workers = workers
        self._streams: list[trio.SocketStream] = []

    def port(self, number: int) -> int:
        return int(self.workers[number].url.rpartition(":")[2])

    async def send(self, number: int, method: str, path: str, value: Any = None, *headers: str) -> trio.SocketStream:
        """A connection to a worker on which a request was sent."""
        self._streams.append(stream := await sent(self.port(number), method, path, value, *headers))
        return stream

    async def settle(self) -> None:
        """Let each worker write the rows of what has ended, which it does before it answers about them."""
        for number in self.workers:
            await self.get(number, "/wiretape/streams")

    def hang_up(self) -> None:
        """Close all connections."""
        for stream in self._streams:
            stream.socket.close()

    async def ask(self, number: int, method: str, path: str, value: Any = None, *headers: str) -> Said:
        """What a worker answers."""
        return await whole(await self.send(number, method, path, value, *headers))

    async def get(self, number: int, path: str, *headers: str) -> Said:
        return await self.ask(number, "GET", path, None, *headers)


def number_of(stream: str) -> int:
    """The worker that made an id: the byte after its time."""
    return int(stream, 32) >> 104 & 0xFF


async def sent(port: int, method: str, path: str, value: Any = None, *headers: str) -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    body = b"" if value is None else dumps(value)
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)
    return stream


async def whole(stream: trio.SocketStream) -> Said:
    """A response to its end; the body of one that was cut is what came."""
    data = b""
    with trio.fail_after(20):
        async with stream:
            async for part in stream:
                data += part
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if "transfer-encoding" in headers:
        dechunker = Dechunker()
        dechunker.feed(body)
        body = b"".join(dechunker.parts)
    return Said(int(first.split(" ")[1]), headers, body)


@asynccontextmanager
async def team(root: Path, script: Script, *numbers: int, count: int = 2, **settings: Any) -> AsyncGenerator[Team]:
    """Start these workers of so many; none given are all. A single one is no worker, but a server as without any."""
    async with listening(script) as (port, _), AsyncExitStack() as stack:
        target = Target(name="u", url=f"http://127.0.0.1:{port}/v1")
        routes = {"": Route(name="", targets=(target,), **settings.pop("route", {}))}
        config = replace(Config(data=root, routes=routes, workers=count, port=0, drain_s=0.0), **settings)
        root.mkdir(mode=0o700, exist_ok=True)  # noqa: ASYNC240 - a test's own
        log, workers = Log(None), dict[int, Running]()
        stack.callback(log.close)
        for number in numbers or range(count):
            sockets = tuple(server.listening("127.0.0.1", 0)) if count > 1 else ()
            worker = Worker(number, count, root, config.body_bytes_max, sockets) if sockets else None
            workers[number] = await stack.enter_async_context(running(config, log=log, worker=worker))
        together = Team(root, workers)
        stack.callback(together.hang_up)
        yield together
