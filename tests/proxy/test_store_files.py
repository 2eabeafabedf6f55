"""Tapes on a real disk: kills, full disks, second processes, permissions."""

import fcntl
import os
import random
import stat
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.proxy.store_cases import flat, gathered, opened_files, put, stream_of
from tests.proxy.store_child import batches_of
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader
from wiretape.proxy.config.model import Keep
from wiretape.proxy.store.files import open_files, recover
from wiretape.proxy.store.folder import Folder, holder
from wiretape.proxy.store.store import Filter, FolderRefusedError, StoreError, StoreFullError, TapeBrokenError
from wiretape.proxy.store.tape_file import TapeFile, best_sync

FULL = os.environ.get("WIRETAPE_LAWS") == "full"
KILLS = 200 if FULL else 6


def child(*arguments: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.proxy.store_child", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def killed(mode: str, root: Path, chance: random.Random) -> dict[str, int]:
    """What a child acknowledged until it was killed: the number of the last record of each stream."""
    with child(mode, root) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(chance.randint(1, 400))]
        time.sleep(chance.random() * 0.02)  # a kill has no better moment than a random one
        process.kill()
        said += process.stdout.read().splitlines()
    acknowledged: dict[str, int] = {}
    for line in said:
        stream, n = line.split()
        acknowledged[stream.decode()] = int(n)
    assert acknowledged
    return acknowledged


def lost_after_recovery(root: Path, acknowledged: dict[str, int]) -> list[str]:
    """Streams that lack an acknowledged record; asserts that every tape is whole."""
    folder = Folder(root)
    try:
        recover(folder, best_sync())
        lost: list[str] = []
        tapes = {stream: Path(path) for stream, path in folder.ended()}
        assert list(folder.live_tapes()) == []
    finally:
        folder.close()
    for stream, last_n in acknowledged.items():
        records = whole(tapes[stream].read_bytes()) if stream in tapes else []
        if records[: last_n + 1] != flat(batches_of(stream))[: last_n + 1]:
            lost.append(stream)
    return lost


def whole(tape: bytes) -> list[Record]:
    reader = Reader()
    records = reader.feed(tape)
    assert (reader.damage, reader.torn) == ([], b"")
    assert reader.ended
    return records


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["process", "disk"])
def test_a_kill_loses_no_acknowledged_record(tmp_path: Path, mode: str) -> None:
    chance = random.Random(0)  # noqa: S311 - a seed, so that a failure can be repeated
    kills = KILLS if mode == "process" else max(2, KILLS // 10)
    for number in range(kills):
        root = tmp_path / str(number)
        assert lost_after_recovery(root, killed(mode, root, chance)) == [], f"kill {number}"


@pytest.mark.slow
def test_the_kill_check_finds_what_a_buffered_writer_loses(tmp_path: Path) -> None:
    chance = random.Random(0)  # noqa: S311 - a seed, so that a failure can be repeated
    lost = [
        stream
        for number in range(3)
        for stream in lost_after_recovery(tmp_path / str(number), killed("buffered", tmp_path / str(number), chance))
    ]
    assert lost


def test_the_lock_counts_and_not_the_pid_in_it(tmp_path: Path) -> None:
    Folder(tmp_path).close()
    assert (tmp_path / "lock").read_bytes() == b"", "another process may get our pid"
    (tmp_path / "lock").write_text(f"{os.getpid()}\n")
    assert holder(tmp_path) is None
    folder = Folder(tmp_path)
    assert holder(tmp_path) == os.getpid()
    assert refused(tmp_path) == f"data folder {tmp_path} is in use by another process (pid {os.getpid()})"
    (tmp_path / "lock").write_text("")
    assert holder(tmp_path) == 0, "held, by an unknown process"
    folder.close()
    with (tmp_path / "lock").open("rb") as looked:  # a suspended reader delays a start for a bounded time
        fcntl.flock(looked, fcntl.LOCK_SH)
        assert refused(tmp_path) == f"data folder {tmp_path} is in use by another process (pid unknown)"


def refused(root: Path) -> str:
    with pytest.raises(FolderRefusedError) as error:
        Folder(root)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unusable_folder_is_refused_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused(tmp_path / "file" / "data")
    assert "exists" in refused(tmp_path / "file")
    (tmp_path / "data" / "lock").mkdir(parents=True)
    assert "Is a directory" in refused(tmp_path / "data")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "live").write_text("")
    assert "exists" in refused(tmp_path / "other")
    if os.geteuid():
        (tmp_path / "shut").mkdir(mode=0o500)
        assert "Permission denied" in refused(tmp_path / "shut")
    refused(Path("/proc/data"))


@pytest.mark.parametrize("umask", [0o000, 0o022])
async def test_files_and_folders_are_private_to_their_owner(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        root = tmp_path / "data"
        async with opened_files(root) as store:
            for stream in ("live", "ended"):
                await put(store, stream, stream_of(stream, end=stream == "ended"))
            await store.fates("ended", 0)
            await store.expire(0, Keep())  # nothing, but what has ended lies where it stays
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}
    finally:
        os.umask(before)
    folders = {"data", "live", "2026-11-18"}
    assert {name for name, mode in modes.items() if mode == 0o700} == folders
    assert {name: mode for name, mode in modes.items() if name not in folders and mode != 0o600} == {}
    assert {"live.tape", "ended.tape", "catalogue.db", "lock"} < modes.keys()


async def test_a_reader_of_a_live_tape_reports_damage_with_its_place(tmp_path: Path) -> None:
    begun = stream_of("s1", reads=10, end=False)
    async with opened_files(tmp_path) as store:
        await put(store, "s1", begun)
        path = tmp_path / "live" / "s1.tape"
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines[:4], lines[4].replace(b"word", b"wore"), *lines[5:]]))
        batches = store.read("s1")
        records = await gathered(batches)
        assert [record.n for record in records] == [n for n in range(len(lines)) if n != 4]
        assert [(damage.at, damage.reason) for damage in batches.damage] == [
            (len(b"".join(lines[:4])), "checksum does not match"),
            (len(b"".join(lines[:5])), "records 4 to 4 are missing"),
        ]


async def test_a_live_tape_removed_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    async with opened_files(tmp_path) as store:
        await put(store, "s1", stream_of("s1", end=False))
        reader = store.read("s1")
        (tmp_path / "live" / "s1.tape").rename(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match="gone"):
            await anext(reader)
        (tmp_path / "elsewhere").rename(tmp_path / "live" / "s1.tape")


# -- one file ---------------------------------------------------------------------------------------------------------


def test_a_short_write_leaves_the_tape_intact_or_closes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tape, real = TapeFile(str(tmp_path / "a.tape")), os.write
    tape.write(b"one\n")

    def short(fd: int, data: bytes) -> int:
        return real(fd, data[:2])

    def refuse(_: int, __: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(StoreFullError, match=r"no room for 4 bytes at byte 4, 2 were taken"):
        tape.write(b"two\n")
    assert Path(tape.path).read_bytes() == b"one\n"
    monkeypatch.setattr(os, "ftruncate", refuse)
    for _ in range(2):
        with pytest.raises(TapeBrokenError, match="could not be cut off"):
            tape.write(b"two\n")
    assert Path(tape.path).read_bytes() == b"one\ntw"
    os.close(tape.fd)


async def test_a_tape_that_cannot_be_moved_is_reported_and_moves_at_the_next_start(tmp_path: Path) -> None:
    said: list[str] = []
    day = tmp_path / "2026-11-18"
    async with open_files(tmp_path, warn=said.append) as store:
        await store.create("s1")
        day.write_text("in the way")
        for batch in stream_of("s1"):
            await store.append("s1", batch)
    assert ["could not be moved" in line for line in said] == [True]
    with pytest.raises(FolderRefusedError, match="cannot be recovered: File exists"):
        async with opened_files(tmp_path):
            pass
    day.unlink()
    async with opened_files(tmp_path) as store:
        assert await gathered(store.read("s1")) == flat(stream_of("s1"))


async def test_an_ended_tape_is_never_replaced_by_one_of_the_same_id(tmp_path: Path) -> None:
    said: list[str] = []
    for body in (b'{"first":1}', b'{"second":1}'):
        async with open_files(tmp_path, warn=said.append) as store:
            await put(store, "s1", stream_of("s1", body=body))
    assert ["exists already" in line for line in said] == [True]
    assert b'{"first":1}' in (tmp_path / "2026-11-18" / "s1.tape").read_bytes()
    assert b'{"second":1}' in (tmp_path / "live" / "s1.tape").read_bytes()


@pytest.mark.slow
async def test_expiry_never_holds_a_list_of_all_tapes(tmp_path: Path) -> None:
    """Lists made once a minute took 17 MB at 28,000 tapes in a soak."""
    async with opened_files(tmp_path) as store:
        await store.list(Filter())  # the catalogue has looked for tapes, and reads none of these meanwhile
        for day in (tmp_path / "2026-11-17", tmp_path / "2026-11-18"):
            day.mkdir()
        for n in range(3_000):
            path = tmp_path / "2026-11-18" / f"s{n:031}.tape"
            path.write_bytes(b"{}")
            os.utime(path, (n, n))
        tracemalloc.start()
        try:
            gone = await store.expire(0, Keep(days=None, bytes=2 * 3_000 - 10))
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert list(gone) == [f"s{n:031}" for n in range(5)]
        assert peak_bytes < 100_000, f"{peak_bytes:,} bytes for 3,000 tapes"


async def test_foreign_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    foreign = [tmp_path / "2026-11-18" / "notes.txt", tmp_path / "2026-13-99" / "x.tape", tmp_path / "notes.txt"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (tmp_path / "2026-11-18" / "folder.tape").mkdir()
    async with opened_files(tmp_path) as store:
        await put(store, "s1", stream_of("s1"))
        assert list(await store.expire(0, Keep(bytes=0))) == ["s1"]
        assert await store.list(Filter()) == []
    assert [path.read_text() for path in foreign] == ["mine"] * 3
