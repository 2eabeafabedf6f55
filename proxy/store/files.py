"""The store on disk: one file a stream, written before anything of it is delivered, found again after any crash."""

import os
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from wiretape.events.tape.record import Record, encode

from ..config.model import Keep
from .catalogue import Catalogue
from .catalogue_row import AnswerRow, CatalogueRow, StreamRow, opened_row
from .durability import ROUND_S, Committer, Durability, Sync, best_sync
from .folder import Folder
from .following import EndedBatches, LiveBatches, LiveTape
from .linking import NOTHING_RUNS, Fate, Key, Link
from .recovery import Recovered, recover
from .retention import day_of, days_gone, oldest
from .store import PAGE_MAX, Filter, StoreError, StoreFullError, StreamMissingError, TapeBrokenError, checked_stream_id
from .tape_file import TapeFile, creation_error

__all__ = ["INLINE_BYTES_MAX", "FileStore", "open_files"]

#: Larger batches are written in a thread: the loop may stall for 10 ms at most.
INLINE_BYTES_MAX: Final = 256 * 1024
#: A name takes 20 us, and a thread for it 200 us of CPU; where the last one took longer than this, it is worth it.
_INLINE_NAME_S: Final = 0.002
#: `open`, `request` and what else stands before the first frame.
_OPENING_RECORDS: Final = 8


@asynccontextmanager
async def open_files(
    root: Path,
    *,
    durability: Durability = "process",
    warn: Callable[[str], None],
    sync: Sync | None = None,
    round_s: float = ROUND_S,
) -> AsyncGenerator["FileStore"]:
    """The store of this folder, recovered and held. Raises FolderRefusedError with one line where it cannot be had."""
    sync = sync or best_sync()
    folder = await trio.to_thread.run_sync(Folder, root)
    try:
        recovered = await trio.to_thread.run_sync(recover, folder, sync)
        store = FileStore(folder, recovered, durability=durability, warn=warn, sync=sync, round_s=round_s)
        try:
            yield store
        finally:
            with trio.CancelScope(shield=True):  # ends: one commit round and one batch of rows
                await store.aclose()
    finally:
        folder.close()


class FileStore:
    """To be had from `open_files`, which also closes it."""

    def __init__(
        self,
        folder: Folder,
        recovered: Sequence[Recovered],
        *,
        durability: Durability,
        warn: Callable[[str], None],
        sync: Sync,
        round_s: float,
    ) -> None:
        #: What the start found in live/.
        self.recovered = recovered
        #: Why writing fails: until there is room again, or for good.
        self.failure: str | None = None
        self._full = False
        #: Why nothing that is written arrives any more.
        self.gone: str | None = None
        self._folder = folder
        self._durable = durability == "disk"
        self._warn = warn
        self._live: dict[str, LiveTape] = {}
        self._large = trio.CapacityLimiter(4)  # threads that write a large body; more would only share the disk
        # Names are made in a thread where they may have to wait: during a sync, for up to 10 ms, or where the last one
        # took its time. More threads would only wait for the same journal.
        self._names = trio.CapacityLimiter(4)
        self._named_s = 0.0
        self._catalogue = Catalogue(folder, warn)
        self._committer = Committer(
            folder.fd,
            sync,
            watch=folder.lost,
            move=partial(_move, folder),
            on_closed=self._moved,
            on_lost=self._lost,
            on_gone=self._has_gone,
            round_s=round_s,
        )

    @property
    def full(self) -> bool:
        """Whether what fails now may succeed when it is tried again."""
        return self._full and self.gone is None

    async def create(self, stream: str) -> None:
        """Begin a tape; its name becomes durable with its first round."""
        checked_stream_id(stream)
        if self.gone is not None:
            raise TapeBrokenError(self.gone)
        if stream in self._live:
            raise StoreError(f"{stream} has a tape already")
        try:
            # Cancelled before it begins or not at all, so no tape is left behind that nobody knows of.
            await trio.lowlevel.checkpoint_if_cancelled()
            if self._committer.syncing or self._named_s > _INLINE_NAME_S:
                tape = await trio.to_thread.run_sync(self._begin, stream, limiter=self._names)
            else:
                tape = self._begin(stream)
        except FileExistsError as error:
            raise StoreError(f"{stream} has a tape already") from error
        except OSError as error:
            failure = creation_error(stream, error)
            self._failed(failure)
            raise failure from error
        self._live[stream] = LiveTape(stream, tape)

    def waits_for(self, records: Sequence[Record]) -> bool:
        """For a round, or for a thread."""
        return self._durable or _size(records) > INLINE_BYTES_MAX

    async def append(self, stream: str, records: Sequence[Record], row: CatalogueRow | None = None) -> int:
        """Write one batch."""
        live = self._live.get(stream)
        if live is None or live.tape.ended:
            raise StreamMissingError(f"{stream} is not open")
        if live.tape.broken is not None:
            raise TapeBrokenError(live.tape.broken)
        assert not live.writing, f"two tasks append to {stream}"
        assert records[0].n == live.next_n or (live.lost and records[0].n > live.next_n), f"{stream} is out of order"
        at, ended = live.tape.size, records[-1].kind == "end"
        live.writing = True
        try:
            await self._write(live, records)
            self._written(live, records)
            if ended:
                self._end(stream, live, row)
        except StoreError as error:
            live.lost = True
            self._failed(error)
            raise
        finally:
            live.writing = False
        self._committer.mark(live.tape)
        try:
            if self._durable:
                with trio.CancelScope(shield=True):  # one round: what is written is shown
                    await self._committer.committed(live.tape)
            live.show(records, at)
        finally:
            if ended:
                live.close()
        return live.tape.size - at

    async def release(self, stream: str) -> None:
        """No more will come; its tape stays in live/ for recovery."""
        live = self._live.get(stream)
        if live is not None and not live.tape.ended:
            del self._live[stream]
            live.tape.ended = True
            self._committer.mark(live.tape)
            live.close()

    def read(self, stream: str, from_n: int = 0) -> LiveBatches | EndedBatches:
        """What is there now."""
        return self._batches(stream, from_n, waits=False)

    def follow(self, stream: str, from_n: int = 0) -> LiveBatches | EndedBatches:
        """What is there, and what comes."""
        return self._batches(stream, from_n, waits=True)

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """One page of the catalogue, with the live streams among it."""
        limit = min(limit, PAGE_MAX)
        live_rows = (live.row for live in self._live.values() if not live.tape.ended)
        rows = {row.stream: row for row in live_rows if which.admits(row)}
        for row in await self._catalogue.list(which, limit):
            rows[row.stream] = row
        return sorted(rows.values(), key=lambda row: row.place, reverse=True)[:limit]

    async def find_calls(
        self, answers: Sequence[AnswerRow], running: Mapping[Key, Sequence[AnswerRow]] = NOTHING_RUNS
    ) -> Sequence[Link | None]:
        """Among the calls of all streams that have ended."""
        return await self._catalogue.find_calls(answers, running)

    async def fates(self, stream: str, now: float) -> Mapping[str, Fate]:
        """Of a stream that has ended."""
        return await self._catalogue.fates(stream, now)

    async def expire(self, now: float, keep: Keep) -> Sequence[str]:
        """Remove what is too old or too much, and its rows."""
        if any(live.tape.ended for live in self._live.values()):
            await self._committer.through()
        live_bytes = sum(live.tape.size for live in self._live.values())
        gone = await trio.to_thread.run_sync(partial(_expire, self._folder, live_bytes, now, keep))
        if gone:
            await self._catalogue.forget(gone)
        return gone

    async def aclose(self) -> None:
        """The last round; streams that have not ended are left to recovery."""
        for stream in list(self._live):
            await self.release(stream)
        await trio.to_thread.run_sync(self._committer.stop)
        await trio.to_thread.run_sync(self._catalogue.close)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _begin(self, stream: str) -> TapeFile:
        if self._folder.ended_path(stream) is not None:
            raise FileExistsError
        began = time.perf_counter()
        tape = TapeFile(self._folder.live_path(stream))
        self._named_s = time.perf_counter() - began
        return tape

    async def _write(self, live: LiveTape, records: Sequence[Record]) -> None:
        if _size(records) <= INLINE_BYTES_MAX:
            live.tape.write(b"".join(map(encode, records)))
        else:
            with trio.CancelScope(shield=True):  # whoever is cancelled here must know that it is written
                await trio.to_thread.run_sync(_write_large, live.tape, records, limiter=self._large)

    def _written(self, live: LiveTape, records: Sequence[Record]) -> None:
        live.next_n = records[-1].n + 1
        if records[0].n < _OPENING_RECORDS:
            _describe(live, records)
        if self._full:
            self.failure, self._full = None, False

    def _failed(self, error: StoreError) -> None:
        """A disk that is full may have room again; one that lied about a write is not believed again."""
        if self.failure is None or self._full:
            self.failure, self._full = str(error), isinstance(error, StoreFullError)

    def _end(self, stream: str, live: LiveTape, row: CatalogueRow | None) -> None:
        """The next commit round moves it to its day; until then it is read as it lies. The catalogue has it at once."""
        live.tape.created = live.row.created
        live.tape.ended = True
        self._catalogue.enter(stream, live.tape.path, row)

    def _moved(self, tapes: Collection[TapeFile]) -> None:
        """A commit round has closed them. One that could not be moved is whole, and the next start moves it."""
        for tape in tapes:
            live = self._live.get(tape.stream)
            if live is None or live.tape is not tape:
                continue  # released
            del self._live[tape.stream]
            if tape.stuck:
                self._warn(f"{tape.name} has ended and could not be moved to its day: {tape.stuck}")
        self._catalogue.write()

    def _batches(self, stream: str, from_n: int, *, waits: bool) -> LiveBatches | EndedBatches:
        live = self._live.get(stream)
        if live is not None:
            return LiveBatches(live, from_n, waits=waits)
        find = partial(self._folder.ended_path, checked_stream_id(stream))
        if find() is None:
            raise StreamMissingError(f"there is no stream {stream}")
        return EndedBatches(stream, find, from_n)

    def _lost(self, tapes: Collection[TapeFile]) -> None:
        """A commit round failed: what stands on these tapes may vanish, and their followers are told."""
        for tape in tapes:
            assert tape.broken is not None
            self._failed(TapeBrokenError(tape.broken))
            self._warn(tape.broken)
        lost = set(tapes)
        for live in self._live.values():
            if live.tape in lost:
                live.close()

    def _has_gone(self, reason: str) -> None:
        self.gone = reason
        self._failed(TapeBrokenError(reason))
        self._warn(reason)
        for live in self._live.values():
            live.tape.broken = reason
            live.close()


def _describe(live: LiveTape, records: Sequence[Record]) -> None:
    for record in records:
        if record.kind == "open":
            live.opening = record.keys
        if record.kind in ("open", "request"):
            live.row = opened_row(live.row.stream, live.opening, record.keys)


def _size(records: Sequence[Record]) -> int:
    size = 0
    for record in records:
        if record.raw is not None:
            size += len(record.raw)
    return size


def _write_large(tape: TapeFile, records: Sequence[Record]) -> None:
    tape.write(b"".join(map(encode, records)))


def _move(folder: Folder, tapes: Collection[TapeFile]) -> None:
    """Those that have their `end`; what was only released stays for recovery."""
    for tape in tapes:
        if tape.created is not None:
            try:
                _move_one(folder, tape, tape.created)
            except OSError as error:
                tape.stuck = error.strerror or "its name cannot be changed"


def _move_one(folder: Folder, tape: TapeFile, created: int) -> None:
    day = day_of(created or os.stat(tape.path).st_mtime)  # noqa: PTH116 - a tape's path is text
    path = folder.day_path(day, tape.stream)
    for _ in range(2):
        try:
            tape.move(path)
        except FileNotFoundError:  # the first of its day, or the day expired meanwhile: to ask each time took 25 us
            folder.make_day(day)
        else:
            return
    tape.move(path)


def _expire(folder: Folder, live_bytes: int, now: float, keep: Keep) -> Sequence[str]:
    """Holds what goes and no more: a list of all tapes took 0.6 KB each, once a minute, and what was laid between
    does not let so much memory go back.
    """
    sizes = {day: size for day in folder.days() if (size := folder.size_of(day)) is not None}
    days, excess = days_gone(sizes, live_bytes, now, keep)
    gone = {day: [tape.stream for tape in folder.tapes_of(day)] for day in days}
    first = min(sizes.keys() - gone.keys(), default=None)
    if first is not None and excess:
        gone[first] = oldest(folder.tapes_of(first), excess)
    for day, streams in gone.items():
        for stream in streams:
            folder.remove(day, stream)
    return [stream for streams in gone.values() for stream in streams]
