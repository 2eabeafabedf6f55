"""The whole proxy in memory: clients over the real connection class, upstreams that follow a script, virtual time

    async def test_it(autojump_clock: MockClock) -> None:
        async with house(Peer(text("hi"), text(" you"), finish(), DONE)) as home:
            answer = await home.ask()
            assert answer.ended == "chunked"
            assert home.ending() == ("completed", [])

Each connection to the upstream runs the next script, the last one again and again (tests/proxy/scripted.py). True HTTP
bytes go both ways on both sides, every timer is trio's, and nothing touches a socket, a file or a thread.

Leaving it checks what must hold in every case (failures.md 1): one ending and nothing after it (V1), what a client
was sent is what its tape emits (V8, comments excepted, up to what `gone` names), and no stream, connection or reader is
left (V4). A test asserts the exact ending with `home.ending()`.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import trio
import trio.testing

from tests.proxy.scripted import CONTEXT, Reset, Script, Upstream, chunk, request_of
from tests.support.http import Answer, Client, Harness, connected
from wiretape.events.core.json_text import dumps
from wiretape.events.core.settings import Settings
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record
from wiretape.proxy.config.model import Config, Route, Target, UpstreamSettings
from wiretape.proxy.relay.recording import Ended
from wiretape.proxy.serve import Assembly, assembled
from wiretape.proxy.server.asgi import ServerSettings
from wiretape.proxy.store.catalogue_row import CatalogueRow
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Store, StoreFullError
from wiretape.proxy.upstream.transport import UpstreamTransport

#: What the default request asks.
ASKED: Final[Mapping[str, Any]] = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}

#: The head of an upstream's event stream, in chunks.
#: When virtual time begins, in seconds since 1970.
EPOCH_S: Final = 1_700_000_000.0
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE: Final = b"data: [DONE]\n\n"


def frame(delta: Mapping[str, Any] | None = None, finish_reason: str | None = None, **more: Any) -> bytes:
    """One chunk as a frame; `more` are further members."""
    choice = {"index": 0, "delta": dict(delta or {}), "finish_reason": finish_reason}
    value = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}
    return b"data: %b\n\n" % dumps(value)


def role() -> bytes:
    """The first chunk, which holds no content."""
    return frame({"role": "assistant", "content": ""})


def text(content: str) -> bytes:
    """A piece of text."""
    return frame({"content": content})


def call(arguments: str, name: str | None = None, *, index: int = 0) -> bytes:
    """A piece of a tool call; with a name its first."""
    first = {"id": f"call_{index}", "type": "function"} if name else {}
    function = ({"name": name} if name else {}) | {"arguments": arguments}
    return frame({"tool_calls": [{"index": index, **first, "function": function}]})


def finish(reason: str = "stop") -> bytes:
    """The chunk that ends the choice."""
    return frame({}, reason)


def usage() -> bytes:
    """A usage-only chunk."""
    counts = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    return frame(choices=[], usage=counts)


End = Literal["final", "fin", "rst", "stall"]


class Peer:
    """An upstream that answers each request with a head and these pieces, one write each, and then ends somehow.

    The pieces are chunks if the head says so; empty ones are left out. `final`: the last chunk, and the connection
    stays. `fin`: it is closed. `rst`: it is reset. `stall`: nothing more until the other side leaves.
    """

    def __init__(
        self,
        *pieces: bytes,
        head: bytes = HEAD,
        end: End = "final",
        every_s: float = 0.0,
        before_s: float = 0.0,
        raw: bool = False,
    ) -> None:
        """`raw`: the pieces go out as they are, without chunks around them."""
        self.body = b"".join(pieces)
        self.requests: list[bytes] = []
        self.at: list[float] = []
        self._pieces = [piece for piece in pieces if piece]
        self._head = head
        self._end = end
        self._every_s = every_s
        self._before_s = before_s
        self._raw = raw or b"transfer-encoding" not in head.lower()

    async def __call__(self, stream: trio.abc.Stream) -> None:
        """Play one connection."""
        while asked := await request_of(stream):
            self.requests.append(asked)
            self.at.append(trio.current_time())
            await trio.sleep(self._before_s)
            if self._head:
                await stream.send_all(self._head)
            for piece in self._pieces:
                await trio.sleep(self._every_s)
                await stream.send_all(piece if self._raw else chunk(piece))
            if self._end == "stall":
                await stream.receive_some()
            if self._end == "rst":
                raise Reset
            if self._end != "final":
                return
            if not self._raw:
                await stream.send_all(b"0\r\n\r\n")


def at_once(*frames: bytes, head: bytes = HEAD, end: End = "final") -> Peer:
    """Return an upstream that writes head, frames and last chunk at once."""
    return Peer(head + b"".join(map(chunk, frames)) + b"0\r\n\r\n", head=b"", raw=True, end=end)


def answer(status: int, body: bytes = b"", *headers: str, kind: str = "application/json") -> Peer:
    """Return an upstream that answers with this and its length."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers, "", ""]
    return Peer(body, head="\r\n".join(lines).encode("latin-1"))


def post(
    body: Any = ASKED, *headers: str, path: str = "/v1/chat/completions", method: str = "POST", version: str = "1.1"
) -> bytes:
    """A request's bytes; a value that is not bytes goes as JSON."""
    content = body if isinstance(body, bytes) else dumps(body)
    lines = [f"{method} {path} HTTP/{version}", "Host: 127.0.0.1:8787", f"Content-Length: {len(content)}"]
    if not any(line.lower().startswith("content-type:") for line in headers):
        lines.append("Content-Type: application/json")
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + content


class Watched(MemoryStore):
    """A store that counts the records of each write, and has no room for some."""

    def __init__(self, full: Callable[[Record], bool] = lambda _: False) -> None:
        super().__init__()
        self.writes: list[int] = []
        self._full = full

    async def append(self, stream: str, records: Sequence[Record], row: CatalogueRow | None = None) -> int:
        self.writes.append(len(records))
        if any(map(self._full, records)):
            raise StoreFullError("no room")
        return await super().append(stream, records, row)


class _Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []
        self.dropped = 0

    def info(self, event: str, /, **fields: object) -> None:
        self.lines.append(("info", event, fields))

    def warn(self, event: str, /, **fields: object) -> None:
        self.lines.append(("warn", event, fields))

    def error(self, event: str, /, **fields: object) -> None:
        self.lines.append(("error", event, fields))

    def ended(self, ended: Ended) -> None:
        self.lines.append(
            ("ended", ended.catalogue_row.stream.ending, {"cause": ended.cause, "attempts": ended.attempts})
        )


class House:
    """A running proxy, as a test sees it."""

    def __init__(self, assembly: Assembly, harness: Harness, upstream: Upstream, log: _Log, streams: list[str]) -> None:
        self.assembly = assembly
        self.harness = harness
        self.upstream = upstream
        self.registry = assembly.registry
        self.store: Store = assembly.services.store
        self.transport: UpstreamTransport = assembly.services.transport
        #: Every stream so far, in order.
        self.streams = streams
        #: (level, event, fields) of each line.
        self.log = log.lines
        self.answers: list[Answer] = []

    async def connect(self, *, capacity: int | None = None) -> Client:
        """A client with a connection of its own."""
        return await self.harness(capacity=capacity)

    async def ask(self, body: Any = ASKED, *headers: str, path: str = "/v1/chat/completions", **how: Any) -> Answer:
        """One request on a connection of its own, and its whole answer."""
        client = await self.connect()
        await client.send(post(body, *headers, path=path, **how))
        answered = await client.response(method=how.get("method", "POST"))
        self.answers.append(answered)
        client.close()
        return answered

    async def settled(self) -> None:
        """Until no stream runs any more."""
        while self.registry.live:
            await next(iter(self.registry.live.values())).ended.wait()
            await trio.testing.wait_all_tasks_blocked()

    async def tape(self, stream: str | None = None) -> list[Record]:
        """Of the stream, or of the one that began last."""
        name = stream or self.streams[-1]
        return [record async for batch in self.store.read(name) for record in batch]

    async def ending(self, stream: str | None = None) -> tuple[str, list[str]]:
        """The one ending, and the flags."""
        await self.settled()
        last = (await self.tape(stream))[-1]
        assert last.kind == "end", f"the tape ends with {last.kind}"
        return last.keys["ending"], list(last.keys["flags"])

    async def kinds(self, stream: str | None = None) -> list[str]:
        """The kinds of its records, in order."""
        return [record.kind for record in await self.tape(stream)]

    async def check(self) -> None:
        """What must hold in every case, once all streams have ended."""
        with trio.fail_after(4_000):
            await self.settled()
        for stream in self.streams:
            tape = await self.tape(stream)
            ends = [record.n for record in tape if record.kind == "end"]
            assert ends == [len(tape) - 1], f"V1: {stream} has its end at {ends} of {len(tape)} records"
            assert [record.n for record in tape] == list(range(len(tape)))
        for answered in self.answers:
            await self._check_sent(answered)
        with trio.fail_after(60):  # what goes is closed within 2 s; what is idle stays
            while self.harness.open or len(self.upstream.still_open) > len(self.transport.pool):  # noqa: ASYNC110
                await trio.sleep(0.1)

    async def _check_sent(self, answered: Answer) -> None:
        """V8."""
        stream = answered.header(b"x-wiretape-stream")
        if stream is None:
            return
        sent = answered.body
        emitted = emit(await self.tape(stream.decode()))
        if answered.ended in ("chunked", "length", "close", "none"):
            assert sent == emitted or answered.ended == "none", "V8: the client was sent what its tape emits"
        else:
            assert emitted.startswith(sent), "V8: the client was sent a beginning of what its tape emits"


@asynccontextmanager
async def house(
    *scripts: Script,
    route: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    config: Mapping[str, Any] | None = None,
    store: Store | None = None,
    upstream: UpstreamSettings | None = None,
    server: ServerSettings | None = None,
    targets: Sequence[Target] | None = None,
    ids: list[str] | None = None,
    check: bool = True,
) -> AsyncGenerator[House]:
    """`route` and `config` change members of the default route and of the configuration. `ids`: the streams of an
    earlier house over the same store.
    """
    given = tuple(targets or [Target(name="upstream", url="http://127.0.0.1:9/v1")])
    way = replace(Route(name="", targets=given, settings=settings or Settings()), **dict(route or {}))
    made = replace(Config(data=Path("unused"), durability="none", routes={"": way}), **dict(config or {}))
    ids = [] if ids is None else ids
    log = _Log()

    def new_id() -> str:
        ids.append(f"stream-{len(ids):020d}")
        return ids[-1]

    async with trio.open_nursery() as nursery:
        peers = Upstream(nursery, scripts)
        transport = UpstreamTransport(upstream, open_tcp=peers.open_tcp, context=CONTEXT)
        memory = store or MemoryStore()
        async with (
            assembled(
                made,
                store=memory,
                transport=transport,
                log=log,
                salt=b"s" * 32,
                wall=_wall,
                elapsed=trio.current_time,
                new_id=new_id,
            ) as assembly,
            connected(assembly.app, settings=server, reaper=assembly.reaper) as harness,
        ):
            home = House(assembly, harness, peers, log, ids)
            yield home
            if check:
                await home.check()
        assert not assembly.registry.live, "V4: no stream is left"
        assert not peers.still_open, "V4: no connection to an upstream is left"
        assert not assembly.services.memory.held_bytes, "V4: no memory is charged any more"
        nursery.cancel_scope.cancel()


def _wall() -> float:
    """Seconds since 1970 in virtual time."""
    return EPOCH_S + trio.current_time()
