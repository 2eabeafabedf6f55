"""`python -m tests.soak [--seconds 600]`: the soak, its verdict, and an exit status that says whether all is flat."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import trio

from .clients import Received, Soaker
from .tapes import checked
from .upstream import KINDS, SoakUpstream

_SAMPLE_S: Final = 5.0

#: Until then memory may grow: buffers, caches, the allocator's arenas.
_WARM_UP_SHARE: Final = 0.25
#: Between the means of the first and the last third after it; 100 bytes left of each stream are 3 MB in ten minutes.
_GROWTH_MB_MAX: Final = 1.5
#: A short soak is all warm-up, so that it sees only what leaks by the kilobyte.
_SHORT_S: Final = 300.0
_SHORT_GROWTH_MB_MAX: Final = 12.0

#: For what is still kept or drained when the last client has gone.
_SETTLE_S: Final = 30.0


class Sample(NamedTuple):
    """One look at the proxy's process. Connections to the upstream that wait for a request are not counted."""

    rss_mb: float
    descriptors: int
    tasks: int


class Soak:
    """One run."""

    def __init__(self, seconds: float, streams: int, seed: int, data: Path) -> None:
        self._seconds, self._streams, self._seed, self._data = seconds, streams, seed, data
        self._upstream = SoakUpstream(seed)
        self._tasks = 0
        self._port = 0
        self._ready = trio.Event()
        self.received: list[Received] = []
        self.errors: list[str] = []
        self.samples: list[Sample] = []
        self.baseline: Sample | None = None
        self.end: Sample | None = None

    async def run(self) -> None:
        """Run baseline, load and rest, then stop the proxy."""
        async with trio.open_nursery() as nursery:
            upstream_port = await nursery.start(self._upstream.run)
            command = [sys.executable, "-m", "tests.soak.served", str(upstream_port), str(self._data)]
            process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
            try:
                nursery.start_soon(self._listen, process)
                with trio.fail_after(60):
                    await self._ready.wait()
                await self._clients(1, 30.0, list(KINDS))
                self.baseline = await self._rested(process.pid)
                _tell("at rest", self.baseline, 0)
                with trio.CancelScope() as sampling:
                    async with trio.open_nursery() as load:
                        load.start_soon(self._sample, process.pid)
                        await self._clients(self._streams, self._seconds)
                        sampling.cancel()
                self.end = await self._rested(process.pid)
                _tell("at rest", self.end, len(self.received))
                process.terminate()
                with trio.fail_after(40):
                    if status := await process.wait():
                        self.errors.append(f"the proxy ended with status {status}")
            finally:
                if process.returncode is None:
                    process.kill()
            nursery.cancel_scope.cancel()

    async def _clients(self, count: int, seconds: float, kinds: list[str] | None = None) -> None:
        until = trio.current_time() + seconds
        async with trio.open_nursery() as nursery:
            for n in range(count):
                number = -1 if kinds else n
                nursery.start_soon(Soaker(self._port, self._seed, number, self.received, self.errors).run, until, kinds)

    async def _listen(self, process: trio.Process) -> None:
        assert process.stdout is not None
        seen = b""
        async for data in process.stdout:
            *lines, seen = (seen + data).split(b"\n")
            for line in lines:
                if line.startswith(b"{"):
                    self._tasks = json.loads(line)["tasks"]
                else:
                    self._port = int(line.rpartition(b":")[2])
                    self._ready.set()

    async def _sample(self, pid: int) -> None:
        while True:
            await trio.sleep(_SAMPLE_S)
            self.samples.append(self._look(pid))
            _tell(f"{len(self.samples) * _SAMPLE_S:4.0f} s", self.samples[-1], len(self.received))

    def _look(self, pid: int) -> Sample:
        rss_kb = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").partition("VmRSS:")[2].split()[0]
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir())) - self._upstream.open
        return Sample(int(rss_kb) * 1024 / 1e6, descriptors, self._tasks)

    async def _rested(self, pid: int) -> Sample:
        """Return a sample once descriptors and tasks have not fallen for eight seconds, or the time is up."""
        last, same = self._look(pid), 0
        with trio.move_on_after(_SETTLE_S):
            while same < 8:
                await trio.sleep(1)
                now = self._look(pid)
                same = 0 if now.descriptors < last.descriptors or now.tasks < last.tasks else same + 1
                last = now
        return last


def growth_mb(samples: list[Sample]) -> float:
    """Return the growth of memory after the warm-up."""
    settled = samples[int(len(samples) * _WARM_UP_SHARE) :]
    third = max(1, len(settled) // 3)
    return statistics.mean(s.rss_mb for s in settled[-third:]) - statistics.mean(s.rss_mb for s in settled[:third])


def _tell(what: str, sample: Sample, streams: int) -> None:
    figures = f"{sample.rss_mb:6.1f} MB {sample.descriptors:4} descriptors {sample.tasks:4} tasks"
    sys.stderr.write(f"{what:8} {figures} {streams:7,} streams\n")


def _verdict(soak: Soak, seconds: float, data: Path) -> list[str]:
    assert soak.baseline is not None
    assert soak.end is not None
    tapes = checked(data, soak.received)
    grown = growth_mb(soak.samples)
    sys.stdout.write(
        f"{tapes.tapes:,} streams ({tapes.compared:,} compared with what their clients got), endings "
        f"{dict(tapes.endings.most_common())}\n"
        f"memory {soak.baseline.rss_mb:.1f} MB at rest before, {soak.end.rss_mb:.1f} MB after; after the warm-up "
        f"{grown:+.2f} MB\n"
        f"descriptors {soak.baseline.descriptors} before, {soak.end.descriptors} after; "
        f"tasks {soak.baseline.tasks} before, {soak.end.tasks} after\n"
    )
    bar = _GROWTH_MB_MAX if seconds >= _SHORT_S else _SHORT_GROWTH_MB_MAX
    wrong = [*soak.errors, *tapes.wrong]
    if grown > bar:
        wrong.append(f"memory grew by {grown:.2f} MB after the warm-up; the bar is {bar} MB")
    left = {what: getattr(soak.end, what) - getattr(soak.baseline, what) for what in ("descriptors", "tasks")}
    return [*wrong, *(f"{count} {what} are left over" for what, count in left.items() if count > 0)]


def main() -> None:
    """Print a line each five seconds, and the verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="an empty folder for the tapes, which are kept")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wiretape-soak-") as temporary:
        data = asked.keep or Path(temporary)
        soak = Soak(asked.seconds, asked.streams, asked.seed, data)
        trio.run(soak.run)
        wrong = _verdict(soak, asked.seconds, data)
    for line in wrong[:40]:
        sys.stdout.write(f"WRONG {line}\n")
    if wrong:
        sys.exit(f"THE SOAK FAILED: {len(wrong)} things are wrong (seed {asked.seed})")


if __name__ == "__main__":
    main()
