"""Faults that pass: descriptors, memory, threads and room that are missing for a moment break no tape."""

import ctypes
import errno
import os
import resource
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.failures.test_process_disk import checked, filed, going_on, readiness
from tests.proxy.store_cases import flat, gathered, put, stream_of
from tests.proxy.test_durability import until
from tests.support.house import DONE, Peer, finish, post, role, text
from wiretape.proxy.config.model import Keep
from wiretape.proxy.store.files import INLINE_BYTES_MAX, open_files
from wiretape.proxy.store.store import Filter, Health, StoreError, StoreFullError
from wiretape.proxy.store.tape_file import TapeFile, syncfs_once


@contextmanager
def no_descriptors() -> Generator[None]:
    """Let every call that needs a new descriptor fail with EMFILE; those that are open stay."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def failing(real: Callable[..., Any], code: int, name: str, times: int = 1) -> Callable[..., Any]:
    """Wrap a function of the operating system: so many calls on this file fail."""
    left = times

    def called(*given: Any, **named: Any) -> Any:
        nonlocal left
        path = f"/proc/self/fd/{given[0]}" if isinstance(given[0], int) else given[0]
        if left and Path(path).resolve().name == name:
            left -= 1
            raise OSError(code, os.strerror(code))
        return real(*given, **named)

    return called


async def test_a_moment_without_descriptors_breaks_no_tape_and_refuses_no_later_stream(tmp_path: Path) -> None:
    """One failed `open` in a commit round once broke every tape of the round, and all later streams until a restart."""
    go = trio.Event()
    async with filed(tmp_path, going_on(go), Peer(role(), text("a"), finish(), DONE)) as (home, store):
        client = await home.connect()
        await client.send(post())
        await until(lambda: any((tmp_path / "live").iterdir()))
        await trio.sleep(0.1)  # its first round is over
        statuses: list[int] = []

        async def ask() -> None:
            statuses.append((await home.ask()).status)

        async with trio.open_nursery() as nursery:
            with no_descriptors():
                nursery.start_soon(ask)
                await trio.sleep(0.2)  # four commit rounds
        assert statuses == [200], "it waited for a descriptor"
        go.set()
        answered = await client.response()
        client.close()
        assert b"[DONE]" in answered.body
        assert store.health == Health()
        assert (await readiness(home))[0] == 200
        assert (await home.ask()).body.endswith(DONE)
        await home.settled()
        await until(lambda: not any((tmp_path / "live").iterdir()))
    assert set(checked(tmp_path, [answered]).values()) == {"completed"}


async def test_an_ended_tape_waits_in_live_for_a_descriptor_and_then_moves(tmp_path: Path) -> None:
    said: list[str] = []
    async with open_files(tmp_path, warn=said.append, round_s=0.02) as store:
        await store.list(Filter())  # the catalogue is open
        await store.create("s1")
        with no_descriptors():
            for batch in stream_of("s1"):
                await store.append("s1", batch)
            await until(said.__len__)
        await until((tmp_path / "2026-11-18" / "s1.tape").exists)
        assert await gathered(store.read("s1")) == flat(stream_of("s1"))
        assert store.health == Health()
    assert said == ["s1.tape has ended and could not be moved to its day: Too many open files"]


async def test_a_slow_reader_waits_for_a_descriptor(tmp_path: Path) -> None:
    said: list[str] = []
    async with open_files(tmp_path, warn=said.append) as store:
        records = await put(store, "s1", stream_of("s1", end=False))
        got: list[Any] = []

        async def read() -> None:
            got.extend(await gathered(store.read("s1")))

        async with trio.open_nursery() as nursery:
            with no_descriptors():
                nursery.start_soon(read)
                await until(said.__len__)
        assert got == records
    assert said[0].startswith("trying again: ")


@pytest.mark.parametrize("code", [errno.ENOMEM, errno.EAGAIN, errno.EINTR])
async def test_a_write_without_memory_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    said: list[str] = []
    async with open_files(tmp_path, warn=said.append) as store:
        first, *rest = stream_of("s1")
        await put(store, "s1", [first])
        monkeypatch.setattr(os, "write", failing(os.write, code, "s1.tape", 2))
        for batch in rest:
            await store.append("s1", batch)
        monkeypatch.undo()
        assert await gathered(store.read("s1")) == flat([first, *rest])
    assert [line.startswith("trying again: s1.tape: writing failed") for line in said] == [True]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_a_failed_write_leaves_its_tape_and_all_others_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Only a failed sync is lasting: this one is cut off, reported, and forgotten when a write succeeds."""
    async with open_files(tmp_path, warn=lambda _: None) as store:
        first, second, *_ = stream_of("s1")
        await put(store, "s1", [first])
        monkeypatch.setattr(os, "write", failing(os.write, code, "s1.tape"))
        with pytest.raises(StoreFullError):
            await store.append("s1", second)
        assert store.health.full
        await store.append("s1", second)
        assert store.health == Health()
        assert await gathered(store.read("s1")) == [*first, *second]


async def test_readiness_returns_without_a_new_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A balancer sends no stream to a server that is not ready, so none would ever find out."""
    async with open_files(tmp_path, warn=lambda _: None) as store:
        monkeypatch.setattr(os, "open", failing(os.open, errno.ENOSPC, "s1.tape"))
        with pytest.raises(StoreFullError):
            await store.create("s1")
        assert store.health.full
        await store.expire(0, Keep())
        assert store.health == Health()


async def test_without_a_thread_large_batches_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    said: list[str] = []
    large = stream_of("s1", body=b'{"a":"%b"}' % (b"x" * INLINE_BYTES_MAX))
    async with open_files(tmp_path, warn=said.append) as store:
        monkeypatch.setattr(trio.to_thread, "run_sync", no_thread)
        records = await put(store, "s1", large)
        assert await gathered(store.read("s1")) == records
        monkeypatch.undo()
    assert said == ["trying again: can't start new thread"]


async def test_a_catalogue_that_could_not_be_written_catches_up_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def broken(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", broken)
    async with open_files(tmp_path, warn=said.append, round_s=0.02) as store:
        await put(store, "s1", stream_of("s1"))
        await until(said.__len__)
        monkeypatch.undo()
        await put(store, "s2", stream_of("s2"))
        with trio.fail_after(5):
            while len(await store.list(Filter())) < 2:  # noqa: ASYNC110 - the catalogue's thread sets no event
                await trio.sleep(0.01)
    assert said == [
        "catalogue.db cannot be used; what it lacks is added later from the tapes: unable to open database file"
    ]


def test_an_interrupted_sync_is_repeated_and_a_failed_one_is_not() -> None:
    codes = [errno.EINTR, errno.EINTR, 0, errno.EIO, 0]

    def syncfs(_: int) -> int:
        code = codes.pop(0)
        ctypes.set_errno(code)
        return -1 if code else 0

    assert syncfs_once(syncfs, [3]) == {}
    assert syncfs_once(syncfs, [3]) == {3: os.strerror(errno.EIO)}
    assert codes == [0]


def test_a_tape_is_never_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "s1.tape").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match="has a tape already"):
        TapeFile(str(tmp_path / "s1.tape"))
    assert (tmp_path / "victim").read_text() == "mine"
