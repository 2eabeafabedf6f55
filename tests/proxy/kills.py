"""Real kill -9 of a proxy under load: every byte a client got is on the tape that the next start finds (P04)

    python -m tests.proxy.kills 200             # figures; 1 where a frame was lost
    python -m tests.proxy.kills 20 buffered     # the negative control, which has to lose some

One data folder is used throughout: each process recovers what the one before left, and is killed in turn.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from tests.house.tree import ROOT
from tests.laws.checker import check, lines_of, transcript_of
from tests.proxy.scripted import chunk, listening, request_of
from tests.support.house import DONE, HEAD, call, finish, post, role, text
from wiretape.events.emit import emit
from wiretape.events.tape.tape import Reader

CLIENTS: Final = 10


@dataclass(slots=True)
class Figures:
    """Of all kills together."""

    kills: int = 0
    answers: int = 0
    frames: int = 0
    #: Streams that ran when the process was killed.
    running: int = 0
    torn: int = 0
    #: Seconds from the start of a process to its listening, and of that what opening the data folder took.
    starts_s: list[float] = field(default_factory=list[float])
    recoveries_s: list[float] = field(default_factory=list[float])
    wrong: list[str] = field(default_factory=list[str])


class Proxy:
    """A proxy process."""

    def __init__(self, upstream: str, data: Path, *more: str) -> None:
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.proxy.serve_child", upstream, str(data), *more],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.said: dict[str, Any] = self._line()
        self.start_s = time.perf_counter() - began
        self.port = int(self.said["url"].rpartition(":")[2])

    def held(self) -> dict[str, Any]:
        """What it has now."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"?")
        self.process.stdin.flush()
        return self._line()

    def end(self) -> None:
        """As a user ends it."""
        with self.process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)

    def kill(self) -> None:
        """Nothing in it can prevent that."""
        with self.process as process:
            process.kill()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said


async def upstream(chance: random.Random, stream: trio.abc.Stream) -> None:
    """Streams of any length at any pace, of which some end in a call."""
    while await request_of(stream):
        pace_s = chance.choice([0.0, 0.0005, 0.003])
        await stream.send_all(HEAD + chunk(role()))
        for number in range(chance.choice([3, 40, 400])):
            await trio.sleep(pace_s)
            await stream.send_all(chunk(text(f"word {number} " * chance.choice([1, 1, 30]))))
        if chance.random() < 0.5:
            await stream.send_all(chunk(call('{"path":"x"}', "write_file")) + chunk(finish("tool_calls")))
        else:
            await stream.send_all(chunk(finish()))
        await stream.send_all(chunk(DONE) + b"0\r\n\r\n")


async def _asking(port: int, got: list[bytearray]) -> None:
    """Send one request after the other and keep every result."""
    with suppress(OSError):
        while True:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                raw = bytearray()
                got.append(raw)
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(post(path="/v1/chat/completions"))
                    while not raw.endswith(b"\r\n0\r\n\r\n"):
                        data = await stream.receive_some()
                        if not data:
                            break
                        raw += data


def _started(url: str, data: Path, mode: Sequence[str], figures: Figures) -> Proxy:
    proxy = Proxy(url, data, *mode)
    figures.starts_s.append(proxy.start_s)
    figures.recoveries_s.append(proxy.said["ready_s"])
    figures.torn += sum(size > 0 for size in proxy.said["torn"])
    return proxy


async def _killed(proxy: Proxy, chance: random.Random) -> list[bytes]:
    """What its clients had got when it died."""
    got: list[bytearray] = []
    async with trio.open_nursery() as nursery:
        for _ in range(CLIENTS):
            nursery.start_soon(_asking, proxy.port, got)
        while not any(got):  # noqa: ASYNC110 - a busy machine takes its time for the first bytes
            await trio.sleep(0.001)
        await trio.sleep(chance.random() * 0.4)  # a kill has no better moment than a random one
        proxy.kill()
        await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
    return [bytes(raw) for raw in got]


def _judge(data: Path, ran: set[str], got: Sequence[bytes], figures: Figures) -> None:
    """After the next start."""
    tapes = {path.stem: path for path in data.glob("*/*.tape")}
    if any(path.parent.name == "live" for path in tapes.values()):
        figures.wrong.append("a tape is left in live/")
    for raw in got:
        answer = transcript_of(raw)
        if answer is None:
            continue
        stream = answer.headers["x-wiretape-stream"]
        figures.answers += 1
        figures.frames += answer.body.count(b"\n\n")
        tape = tapes[stream].read_bytes() if stream in tapes else b""
        if not emit(Reader().feed(tape)).startswith(answer.body):
            figures.wrong.append(f"L6: {stream} was given {len(answer.body)} bytes, of which some are not on its tape")
        figures.wrong += [f"{stream}: {what}" for what in check(tape, raw, left=not answer.whole)]
    for stream in ran & tapes.keys():
        lines, _ = lines_of(tapes[stream].read_bytes())
        figures.running += 1
        end = lines[-1].keys
        ended = (end["cause"], end["ending"])
        if ended not in (("crashed", "crashed"), ("crashed", "completed"), ("closed", "completed")):
            figures.wrong.append(f"V1: {stream} ran, and ended as {ended}")
    for path in tapes.values():  # the next kill has its own
        path.unlink()


async def killed(kills: int, data: Path, *mode: str, seed: int = 0) -> Figures:
    """Kills so many processes, one after the other."""
    chance = random.Random(seed)  # noqa: S311 - a seed, so that a failure can be repeated
    figures = Figures()
    async with listening(partial(upstream, chance)) as (port, _):
        url = f"http://127.0.0.1:{port}/v1"
        proxy = _started(url, data, mode, figures)
        while figures.kills < kills:
            got = await _killed(proxy, chance)
            figures.kills += 1
            ran = {path.stem for path in (data / "live").glob("*.tape")}
            proxy = _started(url, data, mode, figures)
            _judge(data, ran, got, figures)
        proxy.end()
    return figures


def main() -> int:
    """Figures."""
    mode = sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        figures = trio.run(partial(killed, int(sys.argv[1]), Path(folder), *mode))
    starts, recoveries = sorted(figures.starts_s), sorted(figures.recoveries_s)
    middle_s, longest_s = starts[len(starts) // 2], starts[-1]
    middle_ms, longest_ms = recoveries[len(recoveries) // 2] * 1_000, recoveries[-1] * 1_000
    lines = [
        *figures.wrong[:10],
        f"{figures.kills} kills, {figures.running} streams ran, {figures.torn} torn tails",
        f"{figures.answers} answers with {figures.frames} frames against their tapes: {len(figures.wrong)} faults",
        f"listens again after {middle_s:.2f} s (longest {longest_s:.2f})",
        f"of that all that is behind the imports, with the recovery: {middle_ms:.0f} ms (longest {longest_ms:.0f})",
    ]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
