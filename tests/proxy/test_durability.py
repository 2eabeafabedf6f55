"""Commit rounds: what waits becomes durable together, and what failed is never taken for durable."""

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from tests.proxy.store_cases import gathered, opened_files, put, stream_of
from wiretape.events.tape.record import Record
from wiretape.proxy.store.files import open_files
from wiretape.proxy.store.store import TapeBrokenError
from wiretape.proxy.store.tape_file import Durability, best_sync, fsync_each, syncfs_once


class Disk:
    """The sync of a scripted disk: which files were asked for in each round, and what it answers."""

    def __init__(self) -> None:
        self.rounds: list[set[str]] = []
        self.sick: set[str] = set()
        self.hold_s = 0.0

    def __call__(self, fds: Collection[int]) -> Mapping[int, str]:
        time.sleep(self.hold_s)
        names = {fd: Path(f"/proc/self/fd/{fd}").readlink().name for fd in fds}
        self.rounds.append(set(names.values()))
        return {fd: "Input/output error" for fd, name in names.items() if name in self.sick}


async def until(holds: Callable[[], object]) -> None:
    """Wait for a commit round, which happens in a thread."""
    with trio.fail_after(10):
        while not holds():  # noqa: ASYNC110 - the thread sets no event
            await trio.sleep(0.002)


async def test_an_end_hastens_a_round_of_all_written_tapes_and_closes_its_own(tmp_path: Path) -> None:
    disk = Disk()
    async with opened_files(tmp_path, sync=disk, round_s=60) as store:
        disk.rounds.clear()
        await put(store, "a", stream_of("a", end=False))
        await put(store, "b", stream_of("b"))
        await until(lambda: disk.rounds)
        assert disk.rounds == [{"live", "2026-11-18", "a.tape", "b.tape"}]
        await until(lambda: not any("b.tape" in str(path) for path in open_paths()))
        await trio.sleep(0.2)  # nothing was written: no round
        assert len(disk.rounds) == 1


def open_paths() -> list[str]:
    paths: list[str] = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            paths.append(str(link.readlink()))
        except OSError:
            continue
    return paths


async def test_with_durability_disk_nothing_is_shown_before_its_round(tmp_path: Path) -> None:
    disk = Disk()
    async with opened_files(tmp_path, durability="disk", sync=disk, round_s=60) as store:
        first, *_ = stream_of("a")
        await store.create("a")
        disk.hold_s = 0.1
        got: list[Record] = []

        async def follow() -> None:
            async for batch in store.follow("a"):
                assert any("a.tape" in names for names in disk.rounds)
                got.extend(batch)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await store.append("a", first)
            assert any("a.tape" in names for names in disk.rounds)
            await trio.testing.wait_all_tasks_blocked()
            assert got == first
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("durability", ["process", "disk"])
async def test_a_tape_that_did_not_become_durable_takes_no_more_writes(tmp_path: Path, durability: Durability) -> None:
    disk, said = Disk(), list[str]()
    async with open_files(tmp_path, durability=durability, warn=said.append, sync=disk, round_s=0.02) as store:
        batches = stream_of("sick")
        for name in ("sick", "well"):
            await store.create(name)
            await store.append(name, stream_of(name)[0])
        disk.sick = {"sick.tape"}

        async def go_on() -> None:
            for batch in batches[1:]:
                await store.append("sick", batch)
                await until(lambda: said)

        with pytest.raises(TapeBrokenError, match=r"sick\.tape: .*Input/output error"):
            await go_on()
        disk.sick = set()  # the kernel would answer the next call with success
        with pytest.raises(TapeBrokenError):
            await store.append("sick", batches[1])
        with pytest.raises(TapeBrokenError):
            await gathered(store.follow("sick"))
        for batch in stream_of("well")[1:]:
            await store.append("well", batch)
        assert store.health.failure == said[0]  # a disk that lied is not believed again
        assert len(said) == 1
        assert "sick.tape" in said[0]


@pytest.mark.parametrize("durability", ["process", "disk"])
async def test_a_sync_that_raises_breaks_its_round_and_wakes_appends(tmp_path: Path, durability: Durability) -> None:
    def sync(fds: Collection[int]) -> Mapping[int, str]:
        if any(Path(f"/proc/self/fd/{fd}").readlink().name == "a.tape" for fd in fds):
            raise ZeroDivisionError
        return {}

    said: list[str] = []
    async with open_files(tmp_path, durability=durability, warn=said.append, round_s=0.02, sync=sync) as store:
        await store.create("a")
        with trio.fail_after(5), contextlib.suppress(TapeBrokenError):
            await store.append("a", stream_of("a")[0])
            await until(lambda: said)
        with pytest.raises(TapeBrokenError, match="ZeroDivisionError"):
            await store.append("a", stream_of("a")[1])


class Power:
    """A disk that remembers what it was asked to make durable: what a power loss would leave."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.durable: dict[str, int] = {}

    def __call__(self, fds: Collection[int]) -> Mapping[int, str]:
        # Only what was asked for, or else a round that forgets a tape would not be found out.
        links = [Path(f"/proc/self/fd/{fd}") for fd in fds]
        sizes = {link.readlink().name: link.stat().st_size for link in links}
        self.durable.update({name: size for name, size in sizes.items() if name.endswith(".tape")})
        return {}

    def fail(self, into: Path) -> None:
        """The folder as it would be found: without the bytes that were not durable."""
        (into / "live").mkdir(parents=True)
        for path in self._root.rglob("*.tape"):
            (into / "live" / path.name).write_bytes(path.read_bytes()[: self.durable.get(path.name, 0)])


@pytest.mark.parametrize("durability", ["process", "disk"])
@pytest.mark.case("P05")
async def test_a_power_loss_takes_nothing_from_a_finished_round(tmp_path: Path, durability: Durability) -> None:
    """P05: at level `disk` that is all that was acknowledged."""
    power = Power(tmp_path / "data")
    async with opened_files(tmp_path / "data", durability=durability, sync=power, round_s=0.03) as store:
        acknowledged: dict[str, list[Record]] = {}

        async def write(stream: str) -> None:
            batches = stream_of(stream, reads=12)
            acknowledged[stream] = []
            await store.create(stream)
            for batch in batches[: 5 + len(acknowledged)]:
                await store.append(stream, batch)
                acknowledged[stream] += batch
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(write, f"s{number}")
        if durability == "process":
            await until(lambda: len(power.durable) == 12)
            await trio.sleep(0.1)  # two rounds: what was written before the first is durable after it
        power.fail(tmp_path / "after")
    async with opened_files(tmp_path / "after") as store:
        for stream, records in acknowledged.items():
            assert (await gathered(store.read(stream)))[: len(records)] == records


def test_each_sync_names_the_files_that_failed(tmp_path: Path) -> None:
    def failing(_: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    folder = os.open(tmp_path, os.O_RDONLY)
    reading, writing = os.pipe()  # a pipe takes no fsync: EINVAL
    try:
        assert best_sync()([folder]) == fsync_each([folder]) == {}
        assert list(fsync_each([folder, writing])) == [writing]
        assert syncfs_once(failing, [3, 4]) == dict.fromkeys([3, 4], os.strerror(errno.EIO))
    finally:
        for fd in (folder, reading, writing):
            os.close(fd)
