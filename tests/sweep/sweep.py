"""Fail the N-th call of a kind in a real proxy process, for each N of a scenario, and judge what is left

    python -m tests.sweep                      # all, and docs/internals/faults.md
    python -m tests.sweep run open EMFILE 7    # one

The scenario: a stream with a tool call, a slow stream, a whole body, a request of 300 KB, a resume, a list from the
catalogue, an expiry. All at once, so that a fault has others to harm. Then the fault is over, and a plain stream must
be served and taped. A restart is swept by itself: its faults may keep it from starting, with one line, and the next
start finds everything.
"""

import errno
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import trio

from tests.laws.checker import lines_of, transcript_of
from tests.proxy.scripted import Script, chunk, request_of
from tests.support.house import DONE, HEAD, call, finish, post, role, text, usage
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Reader, Recorder

SOURCE: Final = Path(__file__).with_name("faults.c")
KINDS: Final = ("open", "write", "sync", "rename", "socket", "accept", "thread")
ERRORS: Final = ("EMFILE", "ENOMEM", "ENOSPC", "EIO", "EINTR")
#: Of a thread that cannot start, the reason is never more than this.
THREAD_ERRORS: Final = ("EAGAIN",)
_FIELDS: Final = struct.Struct(f"6i{len(KINDS)}i256s")
_OLD: Final = "2020-01-01"
#: How long a fault lasts that is more than one call.
_MOMENT_S: Final = 0.15
#: A whole answer that is not a stream.
_CHOICE: Final = b'{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}'
_WHOLE: Final = b'{"object":"chat.completion","choices":[%b]}' % _CHOICE


class Fault(NamedTuple):
    """The call that fails; with `on` every later one too, until the scenario is over."""

    kind: str
    error: str
    nth: int
    on: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.error} {self.nth}{'+' if self.on else ''}"


@dataclass(slots=True)
class Result:
    """What a fault did."""

    fault: Fault | None
    hits: int
    about: str
    counts: dict[str, int]
    #: How each request came out.
    outcomes: dict[str, str] = field(default_factory=dict[str, str])
    #: A sync of tapes failed.
    lasting: bool = False
    wrong: list[str] = field(default_factory=list[str])


class Control:
    """The memory that the library in the child shares with us."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_FIELDS.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FIELDS.size)

    def arm(self, fault: Fault | None, *, now: bool = True) -> None:
        """Count from now on, or from the mark in the child, and fail that call."""
        number = -1 if fault is None else KINDS.index(fault.kind)
        code = 0 if fault is None else int(getattr(errno, fault.error))
        nth, on = (0, False) if fault is None else (fault.nth, fault.on)
        self._memory[:] = _FIELDS.pack(0, number, nth, code, on, 0, *[0] * len(KINDS), b"")
        if now:
            self._memory[:4] = struct.pack("i", 1)

    def disarm(self) -> None:
        """The fault is over."""
        self._memory[:4] = bytes(4)

    @property
    def hits(self) -> int:
        """How many calls have failed."""
        return int(_FIELDS.unpack(self._memory[:])[5])

    @property
    def about(self) -> str:
        """The path of the first."""
        found: bytes = _FIELDS.unpack(self._memory[:])[-1]
        return found.partition(b"\0")[0].decode("utf-8", "replace")

    @property
    def counts(self) -> dict[str, int]:
        """Calls of each kind so far."""
        return dict(zip(KINDS, _FIELDS.unpack(self._memory[:])[6:-1], strict=True))


def compiled(folder: Path) -> Path | None:
    """Build the library; None without a C compiler."""
    library = folder / "faults.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        return None
    return library


# -- the upstream -----------------------------------------------------------------------------------------------------


async def upstream(stream: trio.abc.Stream) -> None:
    """Answer as the model's name says, and close, so that each request needs a socket."""
    if asked := await request_of(stream):
        if b'"whole"' in asked:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_WHOLE)
            await stream.send_all(head + _WHOLE)
            return
        await stream.send_all(HEAD + chunk(role()))
        for number in range(8 if b'"slow"' in asked else 2):
            await stream.send_all(chunk(text(f"word {number} ")))
            await trio.sleep(0.02 if b'"slow"' in asked else 0.002)
        if b'"tool"' in asked:
            await stream.send_all(chunk(call('{"path":', "write_file")))
            await stream.send_all(chunk(call('"x"}')) + chunk(finish("tool_calls")))
        else:
            await stream.send_all(chunk(finish()))
        await stream.send_all(chunk(usage()) + chunk(DONE) + b"0\r\n\r\n")


@asynccontextmanager
async def listening(script: Script) -> AsyncGenerator[int]:
    """The upstream on a port; it outlives all connections."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # the proxy left
                await script(stream)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


# -- one proxy --------------------------------------------------------------------------------------------------------


class Proxy:
    """One process, and the requests to it."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.port = 0

    async def listens(self) -> bool:
        """Whether it came so far."""
        said = b""
        assert self.process.stdout is not None
        while said.count(b"\n") < 3 and (data := await self.process.stdout.receive_some()):
            said += data
        if b"http" not in said:
            return False
        self.port = int(said.split(b"\n")[0].rpartition(b":")[2].partition(b"/")[0])
        return True

    async def ask(self, request: bytes, within_s: float = 5.0) -> bytes:
        """Everything that comes until the answer is whole or the connection ends."""
        got = bytearray()
        with trio.move_on_after(within_s):
            try:
                async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                    await stream.send_all(request.replace(b"127.0.0.1:8787", b"127.0.0.1:%d" % self.port))
                    while not whole(got) and (data := await stream.receive_some()):
                        got += data
            except (trio.BrokenResourceError, OSError):
                got += b""
            return bytes(got)
        return bytes(got) + b"<too late>"

    async def get(self, path: str, *headers: str) -> bytes:
        """GET one of Wiretape's own paths."""
        return await self.ask(post(b"", *headers, path=path, method="GET"))

    async def stop(self) -> int:
        """SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        with trio.move_on_after(10):
            return await self.process.wait()
        self.process.kill()
        return -1


def whole(got: bytes | bytearray) -> bool:
    """Whether an answer has ended by its length or its last chunk."""
    answer = transcript_of(bytes(got))
    return answer is not None and answer.whole


def request(model: str, *, stream: bool = True, size: int = 2) -> bytes:
    """A chat request."""
    return post({"model": model, "stream": stream, "messages": [{"role": "user", "content": "h" * size}]})


class Bench:
    """An upstream, a library, a data folder, and a proxy that is started again when a fault was a lasting one."""

    def __init__(self, folder: Path, library: Path, port: int) -> None:
        self.data = folder / "data"
        self.log = folder / "log"
        self.control = Control(folder / "control")
        #: Tapes whose end could not be written while a fault lasted. Their clients know, and the next start ends them.
        self.unended: set[str] = set()
        self._folder = folder
        self._library = library
        self._upstream = f"http://localhost:{port}/v1"
        self.proxy: Proxy | None = None

    async def start(self, fault: Fault | None = None) -> Proxy | None:
        """Start a proxy; None if the fault kept it from listening."""
        self.control.arm(fault, now=False)
        options = {
            "--upstream": self._upstream, "--port": "0", "--data": str(self.data),
            "--drain-s": "1", "--keepalive-s": "0.2",
        }  # fmt: skip
        command = [
            sys.executable,
            "-m",
            "tests.sweep.child",
            "serve",
            *(each for pair in options.items() for each in pair),
        ]
        with self.log.open("ab") as file:
            process = await trio.lowlevel.open_process(
                command,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**os.environ, "LD_PRELOAD": str(self._library), "FAULTS_CONTROL": str(self._folder / "control")},
            )
        proxy = Proxy(process)
        with trio.move_on_after(20):
            if await proxy.listens():
                self.proxy = proxy
                return proxy
        process.kill()
        await process.wait()
        return None

    async def stop(self) -> int:
        """End the proxy, if there is one; return its exit code."""
        proxy, self.proxy = self.proxy, None
        return 0 if proxy is None else await proxy.stop()

    # -- one fault ----------------------------------------------------------------------------------------------------

    async def run(self, fault: Fault | None) -> Result:
        """Play the scenario with this fault, and judge it."""
        proxy = self.proxy or await self.start()
        assert proxy is not None, "it starts without a fault"
        known = await self._plain(proxy)
        assert isinstance(known, str), known
        self._age()
        self.control.arm(fault)
        got: dict[str, bytes] = {}

        async def ask(name: str, asked: bytes) -> None:
            got[name] = await proxy.ask(asked)

        async with trio.open_nursery() as nursery:
            for model in ("tool", "slow"):
                nursery.start_soon(ask, model, request(model))
            nursery.start_soon(ask, "whole", request("whole", stream=False))
            nursery.start_soon(ask, "large", request("large", size=300_000))
            nursery.start_soon(ask, "resume", post(b"", path=f"/wiretape/streams/{known}/events", method="GET"))
            nursery.start_soon(ask, "list", post(b"", path="/wiretape/streams", method="GET"))
            if fault is not None and fault.on:
                await trio.sleep(_MOMENT_S)
                self.control.disarm()
        await trio.sleep(0.06)  # the last round, and an expiry
        result = self._result(fault)
        result.outcomes = {name: outcome(name, raw) for name, raw in got.items()}
        if fault is not None and fault.on and fault.kind == "write":
            failed = (transcript_of(raw) for name, raw in got.items() if " " in result.outcomes[name])
            self.unended |= {answer.headers.get("x-wiretape-stream", "") for answer in failed if answer is not None}
        await self._judge(proxy, result)
        for name, raw in got.items():
            result.wrong += self._taped(name, raw)
        if result.wrong:
            await self.stop()
        self._clear()
        return result

    async def start_with(self, fault: Fault | None) -> Result:
        """Start a proxy with this fault, on a folder with a torn tape; a fault may prevent it, with one line."""
        await self.stop()
        torn, records = self._torn()
        said = self.log.stat().st_size if self.log.exists() else 0
        self._age()
        proxy = await self.start(fault)
        result = self._result(fault)
        result.outcomes = {"start": "whole" if proxy is not None else "refused"}
        lines = self.log.read_bytes()[said:].splitlines()
        silent = any(b"not_announced" in line for line in lines)  # it runs, and could not say so on stdout
        if b"Traceback" in b"".join(lines) or (
            proxy is None and not silent and sum(line.startswith(b"wiretape:") for line in lines) != 1
        ):
            result.wrong.append(f"it said {b' / '.join(lines)[-300:]!r}")
        proxy = proxy or await self.start()
        assert proxy is not None, "the next start comes without a fault"
        if not isinstance(plain := await self._plain(proxy), str) and not result.lasting:
            result.wrong.append(f"the next stream: {plain[-80:].decode()}")
        paths = list(self.data.glob(f"2*/{torn}.tape"))
        found = Reader().feed(paths[0].read_bytes()) if paths else []
        if found[: len(records)] != records or found[-1].kind != "end":
            result.wrong.append(f"the torn tape was recovered as {len(found)} of {len(records)} records and an end")
        await self._settle(proxy, result)
        self._clear()
        return result

    async def stop_with(self, fault: Fault | None) -> Result:
        """Stop a proxy with this fault while a stream runs."""
        proxy = self.proxy or await self.start()
        assert proxy is not None, "it starts without a fault"
        got: list[bytes] = []

        async def ask(proxy: Proxy) -> None:
            got.append(await proxy.ask(request("slow")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, proxy)
            await trio.sleep(0.05)
            self.control.arm(fault)
            code = await self.stop()
        result = self._result(fault)
        result.outcomes = {"slow": outcome("slow", got[0])}
        result.wrong += self._taped("slow", got[0])
        if code != 0:
            result.wrong.append(f"it ended with code {code}")
        proxy = await self.start()
        assert proxy is not None, "the next start comes without a fault"
        await self._settle(proxy, result)
        result.wrong += self._taped("slow", got[0])
        self._clear()
        return result

    def _result(self, fault: Fault | None) -> Result:
        """Take what the library counted; the fault is over."""
        control = self.control
        result = Result(fault, control.hits, control.about, control.counts)
        control.disarm()
        if fault is not None and fault.kind == "sync" and fault.error != "EINTR" and result.hits:
            result.lasting = "catalogue.db" not in result.about
        return result

    def _torn(self) -> tuple[str, list[Record]]:
        """Leave what a crash leaves: a tape in live/ without an end, and half a line."""
        name, stream = "torn", b"{}"
        recorder = Recorder()
        opened = {"format": 1, "stream": name, "dialect": "chat", "profile": "strict", "created": int(time.time())}
        records = [recorder.record("open", 0, opened), recorder.record("request", 0, {}, stream)]
        records += recorder.read(1_000, role() + text("hi"))
        (self.data / "live").mkdir(parents=True, exist_ok=True, mode=0o700)
        whole = b"".join(map(encode, records))
        (self.data / "live" / f"{name}.tape").write_bytes(whole + whole[:40])
        return name, records

    def _clear(self) -> None:
        for path in self.data.glob("2*/*.tape"):
            path.unlink()

    async def _plain(self, proxy: Proxy) -> str | bytes:
        """Return the id of a plain stream that came whole, else what came."""
        raw = await proxy.ask(request("plain"))
        answer = transcript_of(raw)
        return answer.headers["x-wiretape-stream"] if answer and outcome("plain", raw) == "whole" else raw

    def _age(self) -> None:
        """Put an old tape into the folder, which must expire."""
        day = self.data / _OLD
        day.mkdir(exist_ok=True, mode=0o700)
        (day / "old.tape").write_bytes(b"{}\n")

    async def _judge(self, proxy: Proxy, result: Result) -> None:
        """Whether it recovers, or after a failed sync refuses until it is started again."""
        if proxy.process.returncode is not None:
            result.wrong.append(f"it ended with code {proxy.process.returncode}")
            self.proxy = None
            return
        plain, ready = await self._plain(proxy), transcript_of(await proxy.get("/wiretape/readyz"))
        refused = isinstance(plain, bytes) and b"503" in plain[:20] and b"log_failure" in plain
        if result.lasting:
            if not refused or ready is None or ready.status != 503:
                result.wrong.append(f"after a failed sync a stream began: {plain!r}")
            await self.stop()
            return
        if isinstance(plain, bytes):
            result.wrong.append(f"the next stream: {plain[-80:].decode()}")
        if ready is None or ready.status != 200:
            result.wrong.append(f"not ready: {None if ready is None else ready.body!r}")
        harmed = sorted(f"{name} {how}" for name, how in result.outcomes.items() if how != "whole")
        if len(harmed) > 1 and not (result.fault and result.fault.on):
            result.wrong.append(f"harmed: {', '.join(harmed)}")
        result.wrong += [f"{one}" for one in harmed if " error" not in one]
        await self._settle(proxy, result)

    async def _settle(self, proxy: Proxy, result: Result) -> None:
        """Wait until the running proxy has done what is left to do."""
        unsettled: list[str] = []
        with trio.move_on_after(2):
            while unsettled := await self._unsettled(proxy):  # noqa: ASYNC110 - another process does it
                await trio.sleep(0.03)
            return
        result.wrong += unsettled

    async def _unsettled(self, proxy: Proxy) -> list[str]:
        """What a running proxy still has to do."""
        left: list[str] = []
        live = [path.name for path in (self.data / "live").iterdir() if path.stem not in self.unended]
        if live:
            left.append(f"left in live/: {live}")
        if (self.data / _OLD).exists():
            left.append("an old tape did not expire")
        answer = transcript_of(await proxy.get("/wiretape/streams?limit=100"))
        listed = (
            []
            if answer is None or answer.status != 200
            else [each["id"] for each in json.loads(answer.body)["streams"]]
        )
        missing = {path.stem for path in self.data.glob("2*/*.tape") if b'"k":"open"' in path.read_bytes()} - {
            *listed,
            "torn",
        }
        if missing:
            left.append(f"not in the catalogue: {len(missing)}")
        return left

    def _taped(self, name: str, raw: bytes) -> list[str]:
        """What is wrong with the tape of an answer, or what of the answer is not on it."""
        answer = transcript_of(raw)
        stream = "" if answer is None else answer.headers.get("x-wiretape-stream", "")
        if answer is None or answer.status != 200 or not stream or name == "resume":
            return []
        paths = list(self.data.glob(f"*/{stream}.tape"))
        if len(paths) != 1:
            return [f"{name}: {len(paths)} tapes"]
        data = paths[0].read_bytes()
        records = Reader().feed(data)
        damage: list[str] = []
        if paths[0].parent.name != "live":
            damage = lines_of(data)[1]
            if not records or records[-1].kind != "end":
                damage.append("no end")
            elif "log_failure" in records[-1].keys["flags"]:
                damage = [each for each in damage if each != "numbers have gaps"]  # what could not be written
        sent = answer.body.partition(b'data: {"error"')[0]
        if b'"status":"dropped"' in sent:
            sent = sent[: sent.rindex(b"event: ")]
        emitted = _WHOLE if name == "whole" else emit(records)
        return [*damage, *([] if emitted.startswith(sent) else [f"{name}: delivered, and not on its tape"])]


def outcome(name: str, raw: bytes) -> str:
    """Return `whole`, `error` if the client got a clear error, else what came."""
    answer = transcript_of(raw)
    if answer is not None and not answer.whole and name == "whole" and answer.headers.get("content-length"):
        return "error by a cut"
    if answer is None or not answer.whole:
        return f"cut after {raw[-60:]!r}"
    if answer.status >= 400:
        return f"error {answer.status}"
    if b'"error"' in answer.body:
        return "error in the stream"
    if name == "whole":
        return "whole" if answer.body == _WHOLE else "other bytes"
    if name == "list":
        return "whole" if b'"streams"' in answer.body else "other bytes"
    return "whole" if b"[DONE]" in answer.body else "no terminator"
