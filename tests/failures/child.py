"""Real proxy processes before an upstream in the test's own, over sockets, in real time."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from socket import SO_RCVBUF, SOL_SOCKET
from typing import Any, Final

import trio

from tests.proxy.scripted import Script, chunk, listening, request_of
from tests.support.house import HEAD, post, role, text
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader

COMMAND: Final = [sys.executable, "-m", "wiretape"]


class Child:
    """One proxy; `lines` are what it says when it listens, first the base URL."""

    def __init__(self, process: trio.Process, said: bytes, data: Path) -> None:
        self.process = process
        self.lines = said.decode().splitlines()
        self.url = self.lines[0]
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])
        self.data = data
        #: All of its log so far.
        self.log = b""
        self.logged = trio.Event()
        self._sockets: list[trio.socket.SocketType] = []

    async def connect(self, *, buffer: int = 0) -> trio.SocketStream:
        """One connection; with a buffer, one that takes so little."""
        sock = trio.socket.socket()
        self._sockets.append(sock)
        if buffer:
            sock.setsockopt(SOL_SOCKET, SO_RCVBUF, buffer)
        await sock.connect(("127.0.0.1", self.port))
        return trio.SocketStream(sock)

    def hang_up(self) -> None:
        """All connections that there are."""
        for sock in self._sockets:
            sock.close()

    def signal(self, number: signal.Signals) -> None:
        """Only to the process that was started here."""
        self.process.send_signal(number)

    async def exited(self, within_s: float) -> tuple[int, float]:
        """Return its exit code, and after how long; it has said no more on stdout."""
        began = trio.current_time()
        with trio.fail_after(within_s):
            code = await self.process.wait()
            assert self.process.stdout is not None
            assert await self.process.stdout.receive_some() == b""
        return code, trio.current_time() - began

    async def stop(self, *clients: trio.SocketStream) -> None:
        """Stop it with SIGTERM while these clients read to their ends."""
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(answered, client)
            self.signal(signal.SIGTERM)
            assert (await self.exited(8))[0] == 0

    async def keep_log(self) -> None:
        """Reads its stderr to the end."""
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            self.log += data
        self.logged.set()


@asynccontextmanager
async def serving(
    root: Path,
    script: Script,
    environment: Mapping[str, str] | None = None,
    *,
    stderr: Any = subprocess.PIPE,
    before: Sequence[str] = (),
) -> AsyncGenerator[Child]:
    """`before` is a command that starts it, such as one that sets limits."""
    async with listening(script) as (port, _), trio.open_nursery() as nursery:
        given = ["--upstream", f"http://127.0.0.1:{port}/v1", "--port", "0", "--data", str(root)]
        process = await trio.lowlevel.open_process(
            [*before, *COMMAND, "serve", *given],
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=root.parent,
            env={**os.environ, **(environment or {})},
        )
        try:
            assert process.stdout is not None
            said = b""
            with trio.fail_after(30):
                while said.count(b"\n") < 3:
                    data = await process.stdout.receive_some()
                    assert data, "it did not start"
                    said += data
            child = Child(process, said, root)
            if process.stderr is not None:
                nursery.start_soon(child.keep_log)
            yield child
            child.hang_up()
        finally:
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
        nursery.cancel_scope.cancel()


def endless(every_s: float = 0.05) -> Script:
    """A stream that never ends by itself."""

    async def script(stream: trio.abc.Stream) -> None:
        while await request_of(stream):
            await stream.send_all(HEAD + chunk(role()))
            while True:
                await stream.send_all(chunk(text("word ")))
                await trio.sleep(every_s)

    return script


async def asking(child: Child, *, buffer: int = 0) -> trio.SocketStream:
    """A client whose stream has begun; with a buffer, one that reads so little."""
    stream = await child.connect(buffer=buffer)
    request = post().replace(b"127.0.0.1:8787", b"127.0.0.1:%d" % child.port)
    await stream.send_all(request)
    with trio.fail_after(10):
        await stream.receive_some(1)
    return stream


async def answered(stream: trio.SocketStream) -> bytes:
    """What else comes, to the end."""
    parts: list[bytes] = []
    try:
        while data := await stream.receive_some():
            parts.append(bytes(data))
    except trio.BrokenResourceError:
        parts.append(b"<reset>")
    return b"".join(parts)


def ended_tapes(root: Path) -> list[list[Record]]:
    """All tapes, each whole and with one end; none is live."""
    assert list((root / "live").iterdir()) == []
    found: list[list[Record]] = []
    for path in sorted(root.glob("2*/*.tape")):
        reader = Reader()
        records = reader.feed(path.read_bytes())
        assert (reader.torn, reader.damage) == (b"", [])
        assert [record.kind for record in records].count("end") == 1
        assert records[-1].kind == "end"
        found.append(records)
    return found
