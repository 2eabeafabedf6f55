"""The examples of docs/examples before a real proxy: a page in Chromium and a Python program. Both lose connections."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import trio

from tests.failures.child import serving
from tests.house.tree import ROOT
from tests.proxy.scripted import chunk, listening, request_of
from tests.support.chromium import CHROMIUM, browsing
from tests.support.house import DONE, HEAD, call, finish, frame, role, text, usage

pytestmark = pytest.mark.slow

EXAMPLES: Final = ROOT / "docs/examples"
KEY: Final = "wt-" + "k" * 40
#: What the model does in its two turns, before and after `go`.
TURNS: Final = (
    (
        (role(), frame({"reasoning_content": "They ask for "})),
        (
            frame({"reasoning_content": "the weather."}),
            call('{"city":', "get_weather"),
            call(' "Bern"}'),
            finish("tool_calls"),
            usage(),
            DONE,
        ),
    ),
    ((role(), text("It is ")), (text("raining "), text("in <Bern>."), finish(), usage(), DONE)),
)


class Model:
    """An upstream that thinks, calls a tool, and answers once it has the output; each turn stops until `go`."""

    def __init__(self) -> None:
        self.asked: list[dict[str, object]] = []
        self._go = trio.Event()

    def go(self) -> None:
        """Finish the turn that has stopped."""
        self._go.set()
        self._go = trio.Event()

    async def __call__(self, stream: trio.abc.Stream) -> None:
        while asked := await request_of(stream):
            before, after = TURNS[len(self.asked)]
            go = self._go
            self.asked.append(json.loads(asked.partition(b"\r\n\r\n")[2]))
            await stream.send_all(HEAD + b"".join(map(chunk, before)))
            await go.wait()
            await stream.send_all(b"".join(map(chunk, after)) + b"0\r\n\r\n")


class Cable:
    """The way to the proxy, which can be cut; `sent` is all that the client sent."""

    def __init__(self, port: int) -> None:
        self.sent = b""
        self._port = port
        self._scopes: list[trio.CancelScope] = []

    def cut(self) -> None:
        """Lose every connection; new ones work."""
        for scope in self._scopes:
            scope.cancel()

    async def __call__(self, stream: trio.abc.Stream) -> None:
        with trio.CancelScope() as scope:
            self._scopes.append(scope)
            async with await trio.open_tcp_stream("127.0.0.1", self._port) as other, trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, other, stream)
                await self._pump(stream, other)
                nursery.cancel_scope.cancel()

    async def _pump(self, source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
        while data := await source.receive_some():
            if isinstance(sink, trio.SocketStream) and sink.socket.getpeername()[1] == self._port:
                self.sent += data
            await sink.send_all(data)


class World(NamedTuple):
    """A proxy before the model, the cable to it, and the page's address."""

    model: Model
    cable: Cable
    base: str
    page: str


@asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[World]:
    async def page(stream: trio.abc.Stream) -> None:
        body = (EXAMPLES / "runs.html").read_bytes()
        while await request_of(stream):
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
            await stream.send_all(head.encode() + body)

    with trio.fail_after(60):
        async with listening(page) as (page_port, _):
            origin = f"http://127.0.0.1:{page_port}"
            environment = {"WIRETAPE_KEY": KEY, "WIRETAPE_CORS_ORIGINS": origin}
            model = Model()
            async with serving(folder / "data", model, environment) as child:
                cable = Cable(child.port)
                async with listening(cable) as (port, _):
                    yield World(model, cable, f"http://127.0.0.1:{port}/v1", f"{origin}/runs.html")


def resumed(sent: bytes) -> bool:
    """Return whether the client came back with the id of an event that it had."""
    ids = [line.partition(b":")[2].strip() for line in sent.split(b"\r\n") if line.lower().startswith(b"last-event-id")]
    return len(ids) > 1 and ids[-1].isdigit() and int(ids[-1]) > 0


def test_examples_are_short() -> None:
    page, program = ((EXAMPLES / name).read_text(encoding="utf-8").splitlines() for name in ("runs.html", "runs.py"))
    assert len(page) < 80
    assert len([line for line in program if line and not line.startswith('"""')]) <= 25


@pytest.mark.skipif(CHROMIUM is None, reason="UNTESTED: no Chromium found (Debian: apt-get install chromium)")
async def test_page_shows_a_run_live_and_resumes_it(tmp_path: Path) -> None:
    async with world(tmp_path) as it, browsing(it.page) as page:
        await page.read(f"$('base').value = '{it.base}', $('key').value = '{KEY}', $('form').requestSubmit()")
        await page.until("$('reasoning').textContent === 'They ask for '")
        it.model.go()
        await page.until("$('text').textContent === 'It is '")
        assert await page.read("document.querySelector('.tool.done').textContent") == "get_weather Bern"
        assert await page.read("$('reasoning').textContent") == "They ask for the weather."
        it.cable.cut()
        it.model.go()
        await page.until("$('status').textContent === 'run.completed'")
        assert await page.read("$('text').textContent") == "It is raining in <Bern>."
        assert await page.read("document.querySelectorAll('.tool').length") == 1
    check(it)


async def test_program_prints_a_run_live_and_resumes_it(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-W", "error", str(EXAMPLES / "runs.py"), "What is the weather in Bern?"],
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENAI_BASE_URL": it.base, "OPENAI_API_KEY": KEY},
        )
        assert process.stdout is not None
        printed = b""
        try:
            async for data in process.stdout:
                printed += data
                if printed.endswith(b"They ask for \n"):
                    it.model.go()
                if printed.endswith(b"It is \n"):
                    it.cable.cut()
                    it.model.go()
            assert await process.wait() == 0
        finally:
            process.kill()  # or it would try to connect for ever
    assert [line for line in printed.decode().splitlines() if not line.startswith("{")] == [
        *("They ask for ", "the weather.", "It is ", "raining ", "in <Bern>.")
    ]
    check(it)


def check(it: World) -> None:
    """Check what the upstream was asked, and that the client resumed."""
    assert resumed(it.cable.sent)
    assert len(it.model.asked) == len(TURNS)
    messages = it.model.asked[1]["messages"]
    assert isinstance(messages, list)
    assert messages[-1] == {"role": "tool", "tool_call_id": "call_0", "content": "12 degrees and rain in Bern"}
