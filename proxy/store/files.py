"""The store on disk: one file per stream, written before its content is delivered, found again after any crash."""

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
from .catalogue_row import AnswerRow, CatalogueRow, StreamRow
from .durability import ROUND_S, Committer, Durability, Sync, best_sync
from .folder import Folder
from .linking import NOTHING_RUNS, Fate, Key, Link, find_calls
from .recovery import Recovered, recover
from .store import (
    PAGE_MAX,
    Filter,
    Health,
    StoreError,
    StoreFullError,
    StreamMissingError,
    TapeBrokenError,
    checked_stream_id,
)
from .tape_file import LiveTape, TapeBatches, TapeFile, TapeReader, creation_error, opened_for_reading

__all__ = ["INLINE_BYTES_MAX", "FileStore", "open_files"]

#: Larger batches are written in a thread: the loop may stall for 10 ms at most.
INLINE_BYTES_MAX: Final = 256 * 1024
#: Creating a file takes 20 us, and a thread for it 200 us of CPU, which pays if the last file took longer than this.
_INLINE_CREATION_S: Final = 0.002
#: `open`, `request` and other records before the first frame.
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
    """Recover and hold this folder. Raises FolderRefusedError with one line if that is impossible."""
    sync = sync or best_sync()
    folder = await trio.to_thread.run_sync(Folder, root)
    try:
        recovered = await trio.to_thread.run_sync(recover, folder, sync)
        store = FileStore(folder, recovered, durability=durability, warn=warn, sync=sync, round_s=round_s)
        try:
            yield store
        finally:
            with trio.CancelScope(shield=True):  # bounded: one commit round and one batch of rows
                await store.aclose()
    finally:
        folder.close()


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
    ) -> None:
        #: What the start found in live/.
        self.recovered = recovered
        self.health = Health()
        self._folder = folder
        self._durable = durability == "disk"
        self._warn = warn
        self._live: dict[str, LiveTape] = {}
        #: Threads that write large bodies or create files; more would only wait for the same disk.
        self._threads = trio.CapacityLimiter(4)
        self._creation_s = 0.0
        self._catalogue = Catalogue(folder, warn)
        self._committer = Committer(
            folder, sync, on_closed=self._closed, on_lost=self._lost, on_gone=self._gone, round_s=round_s
        )

    async def create(self, stream: str) -> None:
        """Begin a tape. Its name becomes durable with its first commit round."""
        checked_stream_id(stream)
        if self.health.gone:
            raise TapeBrokenError(self.health.failure)
        if stream in self._live:
            raise StoreError(f"{stream} has a tape already")
        try:
            # Cancelled before the file exists or not at all, so that it leaves no unknown tape.
            await trio.lowlevel.checkpoint_if_cancelled()
            if self._committer.syncing or self._creation_s > _INLINE_CREATION_S:  # it may block for up to 10 ms
                tape = await trio.to_thread.run_sync(self._begin, stream, limiter=self._threads)
            else:
                tape = self._begin(stream)
        except FileExistsError as error:
            raise StoreError(f"{stream} has a tape already") from error
        except OSError as error:
            failure = creation_error(stream, error)
            self._failed(failure)
            raise failure from error
        self._live[stream] = LiveTape(stream, tape)

    def _begin(self, stream: str) -> TapeFile:
        if self._folder.ended_path(stream) is not None:
            raise FileExistsError
        began = time.perf_counter()
        tape = TapeFile(self._folder.live_path(stream))
        self._creation_s = time.perf_counter() - began
        return tape

    async def append(self, stream: str, records: Sequence[Record], row: CatalogueRow | None = None) -> int:
        """Write one batch."""
        live = self._live.get(stream)
        if live is None or live.tape.ended:
            raise StreamMissingError(f"{stream} is not open")
        if live.tape.broken is not None:
            raise TapeBrokenError(live.tape.broken)
        assert not live.writing, f"two tasks append to {stream}"
        assert records[0].n == live.next_n or (live.lost and records[0].n > live.next_n), f"{stream} is out of order"
        tape, ended = live.tape, records[-1].kind == "end"
        before, size = tape.size, 0
        for record in records:
            size += len(record.raw or b"")
        live.writing = True
        try:
            if size <= INLINE_BYTES_MAX:
                tape.write(b"".join(map(encode, records)))
            else:
                with trio.CancelScope(shield=True):  # a cancelled caller must know that the batch is written
                    await trio.to_thread.run_sync(
                        lambda: tape.write(b"".join(map(encode, records))), limiter=self._threads
                    )
        except StoreError as error:
            live.lost = True
            self._failed(error)
            raise
        finally:
            live.writing = False
        if self.health.full:
            self.health = Health()
        live.next_n = records[-1].n + 1
        if records[0].n < _OPENING_RECORDS:
            live.describe(records)
        if ended:
            # The next commit round moves the tape to its day; until then it is read where it is. The catalogue knows
            # the stream at once.
            tape.created = live.row.created
            tape.ended = True
            self._catalogue.enter(stream, tape.path, row)
        if ended or not tape.dirty:
            self._committer.mark(tape)
        try:
            if self._durable:
                with trio.CancelScope(shield=True):  # one round: what is written is shown
                    await self._committer.committed(tape)
            live.shown = tape.size
            live.wake()
        finally:
            if ended:
                live.close()
        return tape.size - before

    async def release(self, stream: str) -> None:
        """Give up a stream; its tape stays in live/ for recovery."""
        live = self._live.get(stream)
        if live is not None and not live.tape.ended:
            del self._live[stream]
            live.tape.ended = True
            self._committer.mark(live.tape)
            live.close()

    def read(self, stream: str, from_n: int = 0) -> TapeBatches:
        """Return the records written so far."""
        return self._batches(stream, from_n, waits=False)

    def follow(self, stream: str, from_n: int = 0) -> TapeBatches:
        """Return the records written so far and those still to come."""
        return self._batches(stream, from_n, waits=True)

    def _batches(self, stream: str, from_n: int, *, waits: bool) -> TapeBatches:
        live = self._live.get(stream)
        if live is not None:
            return TapeBatches(stream, TapeReader(live.tape.open), from_n, live, waits=waits)
        if self._folder.ended_path(checked_stream_id(stream)) is None:
            raise StreamMissingError(f"there is no stream {stream}")
        return TapeBatches(stream, TapeReader(partial(self._open_ended, stream)), from_n, None, waits=waits)

    def _open_ended(self, stream: str) -> int:
        path = self._folder.ended_path(stream)
        if path is None:
            raise FileNotFoundError
        return opened_for_reading(path)

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """Return one page of the catalogue, including the live streams."""
        limit = min(limit, PAGE_MAX)
        live_rows = (live.row for live in self._live.values() if not live.tape.ended)
        rows = {row.stream: row for row in live_rows if which.admits(row)}
        nothing: Sequence[StreamRow] = ()
        for row in await self._catalogue.ask(lambda book: book.page(which, limit), nothing):
            rows[row.stream] = row
        return sorted(rows.values(), key=lambda row: row.place, reverse=True)[:limit]

    async def find_calls(
        self, answers: Sequence[AnswerRow], running: Mapping[Key, Sequence[AnswerRow]] = NOTHING_RUNS
    ) -> Sequence[Link | None]:
        """Look among the calls of all streams that have ended."""
        nothing: list[Link | None] = [None] * len(answers)
        return await self._catalogue.ask(lambda book: find_calls(book.alike, answers, running), nothing)

    async def fates(self, stream: str, now: float) -> Mapping[str, Fate]:
        """Return the fates of the calls of a stream that has ended."""
        return await self._catalogue.ask(lambda book: book.fates(stream, now), {})

    async def expire(self, now: float, keep: Keep) -> Sequence[str]:
        """Remove tapes that are too old or too many, and their rows."""
        if any(live.tape.ended for live in self._live.values()):
            await self._committer.through()
        live_bytes = sum(live.tape.size for live in self._live.values())
        gone = await trio.to_thread.run_sync(self._folder.expire, live_bytes, now, keep)
        if gone:
            await self._catalogue.ask(lambda book: book.forget(gone), None)
        return gone

    async def aclose(self) -> None:
        """Make the last commit round. Streams that have not ended are left to recovery."""
        for stream in list(self._live):
            await self.release(stream)
        await trio.to_thread.run_sync(self._committer.stop)
        await trio.to_thread.run_sync(self._catalogue.close)

    # -- failures and commit rounds -----------------------------------------------------------------------------------

    def _failed(self, error: StoreError) -> None:
        """Remember the failure: a full disk may have room again, one that lied about a write is not believed again."""
        if not self.health.failure or self.health.full:
            self.health = Health(str(error), full=isinstance(error, StoreFullError))

    def _closed(self, tapes: Collection[TapeFile]) -> None:
        """Forget the tapes that a commit round closed. One that could not be moved is intact and moves at a start."""
        for tape in tapes:
            live = self._live.get(tape.stream)
            if live is None or live.tape is not tape:
                continue  # released
            del self._live[tape.stream]
            if tape.stuck:
                self._warn(f"{tape.name} has ended and could not be moved to its day: {tape.stuck}")
        self._catalogue.write()

    def _lost(self, tapes: Collection[TapeFile]) -> None:
        """End the followers of tapes that a commit round failed to make durable: their last bytes may vanish."""
        for tape in tapes:
            assert tape.broken is not None
            self._failed(TapeBrokenError(tape.broken))
            self._warn(tape.broken)
        lost = set(tapes)
        for live in self._live.values():
            if live.tape in lost:
                live.close()

    def _gone(self, reason: str) -> None:
        self.health = Health(reason, gone=True)
        self._warn(reason)
        for live in self._live.values():
            live.tape.broken = reason
            live.close()
