"""Tapes on a real disk: second processes, permissions, short writes, retention."""

import fcntl
import os
import stat
import tracemalloc
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from tests.proxy.store_cases import fates_in, flat, gathered, opened_files, put, stream_of
from wiretape.proxy.config.model import Keep
from wiretape.proxy.store.files import open_files
from wiretape.proxy.store.folder import Folder, Kept, expired, holder
from wiretape.proxy.store.store import Filter, FolderRefusedError, StoreError, StoreFullError, TapeBrokenError
from wiretape.proxy.store.tape_file import TapeFile


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
    assert "lock in it is a link or not a file" in refused(tmp_path / "data")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "live").write_text("")
    assert "exists" in refused(tmp_path / "other")
    if os.geteuid():
        (tmp_path / "shut").mkdir(mode=0o500)
        assert "Permission denied" in refused(tmp_path / "shut")
    refused(Path("/proc/data"))


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o720])
def test_a_data_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(mode)
    assert refused(tmp_path / "data").endswith("other users may write to it: run chmod go-w on it")
    assert list((tmp_path / "data").iterdir()) == []
    (tmp_path / "data").chmod(mode & ~0o022)
    Folder(tmp_path / "data").close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_data_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    os.chown(tmp_path / "data", 12345, -1)
    assert "it belongs to another user (uid 12345): run chown 0 on it" in refused(tmp_path / "data")


@pytest.mark.parametrize("way", ["link", "second name", "pipe", "folder"])
@pytest.mark.parametrize("name", ["lock", "caller.salt", "catalogue.db", "catalogue.db-wal", "catalogue.db-shm"])
def test_a_link_or_pipe_in_place_of_a_file_is_refused_and_not_touched(tmp_path: Path, name: str, way: str) -> None:
    """`lock` as a link once emptied the file that it led to."""
    victim, data = tmp_path / "victim", tmp_path / "data"
    victim.write_text("mine")
    data.mkdir()
    make = {"link": Path.symlink_to, "second name": Path.hardlink_to, "pipe": _pipe, "folder": _folder}[way]
    make(data / name, victim)
    assert refused(data) == f"data folder {data} cannot be used: {name} in it is a link or not a file: remove it"
    assert holder(data) is None
    assert victim.read_text() == "mine"


def _pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path, _: Path) -> None:
    path.mkdir()


def test_live_as_a_link_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "live").symlink_to(tmp_path / "elsewhere")
    assert str(tmp_path / "data" / "live") in refused(tmp_path / "data")


async def test_a_stray_link_pipe_or_folder_in_live_is_named_and_left_alone(tmp_path: Path) -> None:
    victim, live = tmp_path / "victim", tmp_path / "data" / "live"
    victim.write_text("mine")
    live.mkdir(parents=True)
    (live / "s1.tape").symlink_to(victim)
    os.mkfifo(live / "s2.tape")
    (live / "s3.tape").mkdir()
    async with opened_files(tmp_path / "data") as store:
        found = {tape.stream: tape.refused for tape in store.recovered}
        assert found == {name: f"{live / name}.tape is a link or not a file: remove it" for name in ("s1", "s2", "s3")}
        await put(store, "s4", stream_of("s4"))
    assert victim.read_text() == "mine"
    assert sorted(path.name for path in live.iterdir()) == ["s1.tape", "s2.tape", "s3.tape"]


@pytest.mark.parametrize("umask", [0o000, 0o022])
async def test_files_and_folders_are_private_to_their_owner(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        root = tmp_path / "data"
        async with opened_files(root) as store:
            for stream in ("live", "ended"):
                await put(store, stream, stream_of(stream, end=stream == "ended"))
            await fates_in(store, "ended", 0)
            await store.expire(0, Keep())  # nothing, but what has ended lies where it stays
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}
    finally:
        os.umask(before)
    folders = {"data", "live", "2026-11-18"}
    assert {name for name, mode in modes.items() if mode == 0o700} == folders
    assert {name: mode for name, mode in modes.items() if name not in folders and mode != 0o600} == {}
    assert {"live.tape", "ended.tape", "catalogue.db", "lock"} < modes.keys()


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


NOW = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()


Tapes = dict[date, list[Kept]]


def tapes(*days: tuple[int, str, int]) -> Tapes:
    """Day of November, ids of one letter in the order of their writing, size of each."""
    return {
        date(2026, 11, day): [Kept(float(place), letter, size) for place, letter in enumerate(letters)][::-1]
        for day, letters, size in days
    }


TABLE: list[tuple[str, Tapes, int, Keep, str]] = [
    ("nothing is there", {}, 0, Keep(), ""),
    ("a week and today", tapes((11, "a", 1), (18, "b", 1)), 0, Keep(), ""),
    ("more than a week", tapes((10, "a", 1), (11, "b", 1)), 0, Keep(), "a"),
    ("of one day only", tapes((17, "a", 1), (18, "b", 1)), 0, Keep(days=0), "a"),
    ("for ever", tapes((1, "a", 1)), 0, Keep(days=None), ""),
    ("just enough room", tapes((17, "ab", 5), (18, "cd", 5)), 0, Keep(bytes=20), ""),
    ("a byte too much takes the whole oldest day", tapes((17, "ab", 5), (18, "cd", 5)), 0, Keep(bytes=19), "ab"),
    ("and then the next one", tapes((16, "ab", 5), (17, "cd", 5), (18, "ef", 5)), 0, Keep(bytes=19), "abcd"),
    ("of the last day its oldest", tapes((18, "abcd", 5)), 0, Keep(bytes=14), "ab"),
    ("live tapes count", tapes((17, "ab", 5), (18, "cd", 5)), 1, Keep(bytes=20), "ab"),
    ("and never go", tapes((18, "ab", 5)), 100, Keep(bytes=20), "ab"),
    ("age first, then room", tapes((1, "a", 90), (17, "b", 5), (18, "c", 5)), 0, Keep(bytes=10), "a"),
    ("without bounds", tapes((1, "a", 1 << 60)), 1 << 60, Keep(days=None, bytes=None), ""),
    ("of the future", tapes((25, "a", 1)), 0, Keep(), ""),
    ("of many that are old a quarter, the oldest", tapes((1, "abc", 1), (2, "defgh", 1)), 0, Keep(), "ab"),
    ("a quarter over two days", tapes((1, "a", 1), (2, "bcdefgh", 1)), 0, Keep(), "ab"),
]


@pytest.mark.parametrize(("found", "live_bytes", "keep", "gone"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_which_tapes_expire(found: Tapes, live_bytes: int, keep: Keep, gone: str) -> None:
    expiring = expired(found, found.__getitem__, live_bytes, NOW, keep)
    assert "".join(stream for streams in expiring.values() for stream in streams) == gone
