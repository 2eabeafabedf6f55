"""The store on disk: one file per stream, written before its content is delivered, found again after any crash.

A crash leaves tapes in live/: torn tails are cut off, every tape gets its `end`, and moves to its day. `mended` decides
about one tape by reading it. The disk's part is done for all tapes together, with one sync between steps: a power loss
at any moment leaves what the next start mends again.
"""

import hashlib
import os
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import trio

from wiretape.events.core.errors import TapeError
from wiretape.events.emit import Emitter
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import NO_KEYS, RECEIVED, Record, encode
from wiretape.events.tape.tape import Damage

from ..config.model import Keep
from .catalogue import Catalogue
from .catalogue_row import OPENING, Alike, CatalogueRow, StreamRow, Wanted
from .folder import Folder, day_of, tapes_in
from .store import (
    PAGE_MAX,
    WRITE_S,
    Filter,
    FolderRefusedError,
    Health,
    StoreError,
    StoreFullError,
    StreamMissingError,
    TapeBrokenError,
    WriteTimes,
)
from .tape_file import (
    ROUND_S,
    Committer,
    Durability,
    Patience,
    Sync,
    TapeBatches,
    TapeFile,
    TapeReader,
    best_sync,
    opened_for_reading,
)

__all__ = [
    "INLINE_BYTES_MAX",
    "FileStore",
    "Mended",
    "Recovered",
    "Shipping",
    "mend",
    "mended",
    "open_files",
    "recover",
]

_T = TypeVar("_T")

#: Larger batches are written in a thread: the loop may stall for 10 ms at most.
INLINE_BYTES_MAX: Final = 256 * 1024
#: Creating a file takes 20 us, and a thread for it 200 us of CPU, which pays if the last file took longer than this.
_INLINE_CREATION_S: Final = 0.002
#: Among these are `open`, `run` and `request`.
_OPENING_RECORDS: Final = 3
#: Descriptors open at once; macOS gives a process 256.
_PORTION: Final = 64


class Mended(NamedTuple):
    """What makes a tape whole."""

    #: Bytes to keep: up to the last LF. 0 if there is no whole line, so nothing was ever acknowledged.
    cut_at: int
    #: Bytes after them: a record that was never acknowledged.
    torn: int
    damage: tuple[Damage, ...]
    #: The line to append; empty where `end` was written and only the move is missing.
    end: bytes
    #: Seconds since 1970, 0 where `open` does not contain it.
    created: int


class Recovered(NamedTuple):
    """One tape that was found in live/, and where it went."""

    stream: str
    #: None where it was left alone (`refused`) or empty.
    path: Path | None = None
    torn: int = 0
    damage: tuple[Damage, ...] = ()
    #: Why this version must not touch it.
    refused: str = ""


@asynccontextmanager
async def open_files(
    root: Path,
    *,
    durability: Durability = "process",
    warn: Callable[[str], None],
    sync: Sync | None = None,
    round_s: float = ROUND_S,
    search: bool = True,
) -> AsyncGenerator["FileStore"]:
    """Recover and hold this folder. Raises FolderRefusedError with one line if that is impossible.

    With `search` the catalogue keeps the text of each answer.
    """
    sync = sync or best_sync()
    folder = await trio.to_thread.run_sync(Folder, root)
    try:
        recovered = await trio.to_thread.run_sync(recover, folder, sync)
        store = FileStore(
            folder, recovered, durability=durability, warn=warn, sync=sync, round_s=round_s, search=search
        )
        try:
            yield store
        finally:
            with trio.CancelScope(shield=True):  # bounded: one commit round and one batch of rows
                await store.aclose()
    finally:
        folder.close()


class Shipping(Protocol):
    """What copies tapes to elsewhere. It never blocks and never raises."""

    def shown(self, tape: TapeFile, lines: bytes | None, row: CatalogueRow | None) -> None:
        """Take one batch that readers see now. If its lines are missing, the tape has them; a row, the catalogue."""

    def released(self, stream: str) -> None:
        """Note that a tape gets no `end` before recovery."""

    def completed(self, row: StreamRow) -> None:
        """Take what reading the whole tape of an ended stream found."""

    def expired(self, streams: Sequence[str]) -> None:
        """Note that old tapes were removed."""

    def deleted(self, streams: Sequence[str]) -> None:
        """Remove what was copied, too."""


class FileStore:
    """A store of tape files; `open_files` makes and closes it."""

    def __init__(
        self,
        folder: Folder,
        recovered: Sequence[Recovered],
        *,
        durability: Durability,
        warn: Callable[[str], None],
        sync: Sync,
        round_s: float,
        search: bool,
    ) -> None:
        #: What the start found in live/.
        self.recovered = recovered
        #: Gets what is written, from the beginning on; set it before the first stream.
        self.shipping: Shipping | None = None
        self.health = Health()
        self.partial, self.late_s, self.shared = "", 0.0, None
        self.write_times = WriteTimes()
        self._folder = folder
        self._durable = durability == "disk"
        self._warn = warn
        self._live: dict[str, TapeFile] = {}
        #: Threads that write large bodies or create files; more would only wait for the same disk.
        self._threads = trio.CapacityLimiter(4)
        self._creation_s = 0.0
        self._patience = Patience(warn)
        self.on_read: Callable[[StreamRow], None] = lambda _: None
        self._catalogue = Catalogue(folder, warn, self._was_read, search=search)
        self._committer = Committer(folder, sync, self._committed, self._gone, warn, round_s)

    def _was_read(self, row: StreamRow) -> None:
        self.on_read(row)
        if self.shipping is not None:
            self.shipping.completed(row)

    async def create(self, stream: str) -> None:
        """Begin a tape. Its name becomes durable with its first commit round."""
        if self.health.gone:
            raise TapeBrokenError(self.health.failure)
        # Cancelled before the file exists or not at all, so that it leaves no unknown tape.
        await trio.lowlevel.checkpoint_if_cancelled()
        begin = partial(self._begin, stream)
        try:
            if self._committer.syncing or self._creation_s > _INLINE_CREATION_S:  # it may block for up to 10 ms
                tape = await self._patience.in_thread(begin, self._threads)
            else:
                tape = begin()
        except StoreFullError as error:
            tape = await self._again(error, begin)
        self._live[stream] = tape

    def _begin(self, stream: str) -> TapeFile:
        began = time.perf_counter()
        tape = TapeFile(self._folder.live_path(stream))
        self._creation_s = time.perf_counter() - began
        return tape

    async def append(self, stream: str, records: Sequence[Record], row: CatalogueRow | None = None) -> int:
        """Write one batch."""
        began = time.perf_counter()
        tape = self._live.get(stream)
        if tape is None or tape.ended:
            raise StreamMissingError(f"{stream} is not open")
        if tape.broken is not None:
            raise TapeBrokenError(tape.broken)
        assert records[0].n == tape.next_n or (tape.lost and records[0].n > tape.next_n), f"{stream} is out of order"
        before, size, ended = tape.size, 0, records[-1].kind == "end"
        lines: bytes | None = None
        for record in records:
            size += len(record.raw or b"")
        try:
            if size <= INLINE_BYTES_MAX:
                lines = b"".join(map(encode, records))
                tape.write(lines)
            else:
                with trio.CancelScope(shield=True):  # a cancelled caller must know that the batch is written
                    await self._patience.in_thread(lambda: tape.write(b"".join(map(encode, records))), self._threads)
        except StoreError as error:
            tape.lost, lines = True, None
            with trio.CancelScope(shield=True):
                await self._again(error, lambda: tape.write(b"".join(map(encode, records))))
            tape.lost = False
        if self.health.full:
            self.health = Health()
        tape.next_n = records[-1].n + 1
        if records[0].n < _OPENING_RECORDS:
            for record in records[:_OPENING_RECORDS]:
                if record.kind in OPENING:
                    tape.opening[record.kind] = record.keys
        if ended:
            created = tape.opening.get("open", NO_KEYS).get("created")
            tape.created = created if type(created) is int else 0
            tape.ended = True
            self._catalogue.enter(stream, tape.path, row)
        if not tape.dirty:
            tape.dirty = True
            self._committer.written.append(tape)
        if ended:
            self._committer.hasten()
        try:
            if self._durable:
                with trio.CancelScope(shield=True):  # one round: what is written is shown
                    await self._committer.through()
                if tape.broken is not None:
                    raise TapeBrokenError(tape.broken)
            tape.shown = tape.size
            if tape.followed is not None:
                tape.wake()
            if self.shipping is not None:
                self.shipping.shown(tape, lines, row)
        finally:
            if ended:
                tape.hide()
        took_s = time.perf_counter() - began
        self.write_times.counts[bisect_left(WRITE_S, took_s)] += 1
        self.write_times.sum_s += took_s
        return tape.size - before

    async def release(self, stream: str) -> None:
        """Give up a stream; its tape stays in live/ for recovery."""
        tape = self._live.get(stream)
        if tape is not None and not tape.ended:
            del self._live[stream]
            tape.ended = True
            self._committer.written.append(tape)
            self._committer.hasten()
            tape.hide()
            if self.shipping is not None:
                self.shipping.released(stream)

    def opened(self, stream: str) -> int:
        """Return a descriptor of a tape, wherever it is. Raises FileNotFoundError."""
        return self._open(stream, self._folder.live_path(stream))

    def read(self, stream: str, from_n: int = 0) -> TapeBatches:
        """Return the records written so far."""
        return self._batches(stream, from_n, waits=False)

    def follow(self, stream: str, from_n: int = 0) -> TapeBatches:
        """Return the records written so far and those still to come."""
        return self._batches(stream, from_n, waits=True)

    def _batches(self, stream: str, from_n: int, *, waits: bool) -> TapeBatches:
        if not self.holds(stream):
            raise StreamMissingError(f"there is no stream {stream}")
        live = self._live.get(stream)
        opened = partial(self._open, stream, None if live is None else live.path)
        return TapeBatches(stream, opened, from_n, live, self._patience, waits=waits)

    def _open(self, stream: str, path: str | None) -> int:
        """Return a descriptor of the tape, which may have moved to its day meanwhile."""
        with suppress(FileNotFoundError):
            if path is not None:
                return opened_for_reading(path)
        path = self._folder.ended_path(stream)
        if path is None:
            raise FileNotFoundError
        return opened_for_reading(path)

    def holds(self, stream: str) -> bool:
        """Return whether the folder has the stream."""
        return stream in self._live or self._folder.ended_path(stream) is not None

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """Return one page of the catalogue, including the live streams."""
        limit = min(limit, PAGE_MAX)
        live_rows = (live.row for live in self._live.values() if not live.ended)
        rows = {row.stream: row for row in live_rows if which.admits(row)}
        nothing: Sequence[StreamRow] = ()
        for row in await self._catalogue.ask(lambda book: book.page(which, limit, whole=which.of_runs), nothing):
            rows[row.stream] = row
        return sorted(rows.values(), key=lambda row: row.place, reverse=True)[:limit]

    async def alike(self, wanted: Sequence[Wanted]) -> Sequence[Alike]:
        """Look among the calls and results of all streams that have ended."""
        nothing: list[Alike] = [([], []) for _ in wanted]
        return await self._catalogue.ask(lambda book: [book.alike(one) for one in wanted], nothing)

    async def rows(self, streams: Sequence[str]) -> Mapping[str, CatalogueRow]:
        """Return all rows of streams that have ended."""
        nothing: Mapping[str, CatalogueRow] = {}
        return await self._catalogue.ask(lambda book: book.known(streams), nothing)

    async def running(self, streams: Collection[str]) -> Collection[str]:
        """Return nothing: no other process writes to these tapes."""
        del streams
        return ()

    async def recent(self) -> Sequence[StreamRow]:
        """Return nothing: nothing runs elsewhere."""
        return ()

    async def expire(self, now: float, keep: Keep) -> Sequence[str]:
        """Remove tapes that are too old or too many, and their rows; and believe that there is room again."""
        if self.health.full:  # a balancer sends no stream that could find out while this is set
            self.health = Health()
        if any(live.ended for live in self._live.values()):
            await self._committer.through()
        live_bytes = sum(live.size for live in self._live.values())
        gone = await trio.to_thread.run_sync(self._folder.expire, live_bytes, now, keep)
        self._catalogue.write()
        if gone:
            await self._catalogue.ask(lambda book: book.forget(gone), None)
            if self.shipping is not None:
                self.shipping.expired(gone)
        return gone

    async def delete(self, streams: Sequence[str]) -> None:
        """Remove tapes that have ended, and their rows."""
        if any(live.ended for live in self._live.values()):
            await self._committer.through()
        await trio.to_thread.run_sync(self._folder.delete, streams)
        await self._catalogue.ask(lambda book: book.forget(streams), None)
        if self.shipping is not None:
            self.shipping.deleted(streams)

    async def aclose(self) -> None:
        """Make the last commit round. Streams that have not ended are left to recovery."""
        for stream in list(self._live):
            await self.release(stream)
        await self._patience.in_thread(self._committer.stop)
        await self._patience.in_thread(self._catalogue.close)

    # -- failures and commit rounds -----------------------------------------------------------------------------------

    async def _again(self, error: StoreError, work: Callable[[], _T]) -> _T:
        """Try again what met a fault that passes; if it stays, or is another one, health reports it."""
        try:
            return await self._patience.again(error, work)
        except StoreError as last:
            if not self.health.failure or self.health.full:
                self.health = Health(str(last), full=True)
            raise

    def _committed(self, over: Collection[TapeFile], lost: Collection[TapeFile]) -> None:
        """Forget the tapes that are over, and end the followers of those whose last bytes may vanish."""
        for tape in lost:
            assert tape.broken is not None
            if not self.health.failure or self.health.full:
                self.health = Health(tape.broken)  # a disk that lied about a write is not believed again
            self._warn(tape.broken)
            tape.hide()
        for tape in over:
            if self._live.get(tape.stream) is tape:  # not if it was released
                del self._live[tape.stream]
        self._catalogue.write()

    def _gone(self, reason: str) -> None:
        self.health = Health(reason, gone=True)
        self._warn(reason)
        for live in self._live.values():
            live.broken = reason
            live.hide()


# -- recovery --------------------------------------------------------------------------------------------------------


def mended(path: Path) -> Mended:
    """Return what makes this tape whole. Raises TapeError if its format is newer than this version reads."""
    reader = TapeReader(lambda: opened_for_reading(path))
    emitter, summary, wire = Emitter(), StreamSummary(), Wire()
    sha256, unreadable = hashlib.sha256(), False
    last: Record | None = None
    for record in reader:
        last = record
        if not unreadable:
            try:
                emitter.feed(record)
                wire = emitter.wire
            except Exception:  # noqa: BLE001 - a bug in our reading; the tape gets its end all the same
                unreadable = True
        summary.take(record, wire)
        if record.kind == "attempt":
            sha256 = hashlib.sha256()
        elif record.kind in RECEIVED:
            sha256.update(record.raw or b"")
    end = b""
    if not reader.ended:
        # The time is that of the last record: when the process died is unknown.
        n, t = (last.n + 1, last.t) if last is not None else (0, 0)
        ending, flags = ("crashed", ("failed_here",)) if unreadable else emitter.ending("crashed")
        counts = {"bytes": summary.received_bytes, "frames": summary.frames, "sha256": sha256.hexdigest()}
        end = encode(Record(n, t, "end", {"cause": "crashed", "ending": ending, "flags": list(flags), **counts}))
    created = summary.opening.get("created")
    torn = path.stat().st_size - reader.at
    return Mended(reader.at, torn, tuple(reader.damage), end, created if type(created) is int else 0)


def mend(path: Path) -> None:
    """Cut and end a tape. Raises OSError and TapeError."""
    _write(path, mended(path))


def recover(folder: Folder, sync: Sync) -> list[Recovered]:
    """Mend every tape in live/. Raises FolderRefusedError if the disk prevents it."""
    recovered: list[Recovered] = []
    found: list[tuple[str, Path, Mended]] = []
    try:
        strays = [path for path in folder.live.glob("*.tape") if path.is_symlink() or not path.is_file()]
        recovered += [Recovered(path.stem, refused=f"{path} is a link or not a file: remove it") for path in strays]
        for stream, entry in sorted(tapes_in(folder.live), key=itemgetter(0)):
            path = Path(entry.path)
            try:
                found.append((stream, path, mended(path)))
            except TapeError as error:
                recovered.append(Recovered(stream, refused=str(error)))
        # Cut and end the tapes; durable before anything moves. One descriptor at a time: there may be thousands.
        changed = [(path, what) for _, path, what in found if what.torn or what.end]
        for path, what in changed:
            _write(path, what)
        _commit([folder.live, *(path for path, _ in changed)], sync)
        recovered += [_moved(folder, stream, path, what) for stream, path, what in found]
        _commit([folder.root, folder.live, *{tape.path.parent for tape in recovered if tape.path}], sync)
    except OSError as error:
        raise FolderRefusedError(f"data folder {folder.root} cannot be recovered: {error.strerror}") from error
    return recovered


def _write(path: Path, what: Mended) -> None:
    with path.open("ab", buffering=0) as file:
        file.truncate(what.cut_at)
        if what.cut_at and file.write(what.end) != len(what.end):
            raise OSError(0, f"no room to end {path.name}")


def _moved(folder: Folder, stream: str, path: Path, what: Mended) -> Recovered:
    if not what.cut_at:
        path.unlink()
        return Recovered(stream, None, what.torn)
    day = day_of(what.created or path.stat().st_mtime)
    os.close(folder.opened_day(day))
    target = Path(folder.day_path(day, stream))
    if target.exists():
        return Recovered(stream, refused=f"{target} exists already")
    path.rename(target)
    return Recovered(stream, target, what.torn, what.damage)


def _commit(paths: Sequence[Path], sync: Sync) -> None:
    for at in range(0, len(paths), _PORTION):
        fds = list(map(opened_for_reading, paths[at : at + _PORTION]))
        try:
            failed = sync(fds)
        finally:
            for fd in fds:
                os.close(fd)
        if failed:
            raise OSError(0, next(iter(failed.values())))
