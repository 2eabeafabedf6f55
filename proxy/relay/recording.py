"""The writing side of one stream's tape: recorder, emitter, summary and store in step.

A record is emitted before it is written, and its frames are handed out after: nothing is delivered that is not on the
tape (L6). After a failure `close` leaves a tape that ends, if the store still takes anything.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import trio

from wiretape.events.emit import EMITTER_VERSION, Emitter
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.tape.record import FORMAT, NO_KEYS, Record
from wiretape.events.tape.tape import Recorder

from ..config.model import Config
from ..security.headers import taped_request
from ..security.trace import Trace
from ..store.catalogue_row import CatalogueRow, row_of
from ..store.memory import MemoryStore
from ..store.store import Store, StoreError
from .http_responses import Answer
from .stream_request import StreamRequest, Upload, history_keys

__all__ = ["Closing", "Ended", "Recording"]

_RECORDED_SETTINGS: Final = ("on_partial", "tools", "tool_events", "reasoning", "cumulative", "think", "emoji")
#: The turn of a stream that a single task writes: nothing to wait for.
_ALONE: Final = nullcontext()


class Ended(NamedTuple):
    """What log and metrics get of a stream that has ended."""

    catalogue_row: CatalogueRow
    attempts: int
    tape_bytes: int
    cause: str
    #: Why no attempt was left, in words.
    why: str = ""
    #: The upstream's dialect, if it is not the client's.
    crossed: str = ""
    #: None only in tests.
    trace: Trace | None = None
    summary: StreamSummary | None = None
    repairs: Mapping[str, int] = MappingProxyType({})
    silence_s: float = 0.0


class Closing(NamedTuple):
    """What a client is still to be sent after the tape, or our own reading, failed."""

    #: The bytes that follow those published; None if nothing can determine how the stream ended.
    rest: bytes | None
    #: Whether the status that was not written before is on the tape after all, with its frames.
    committed: bool
    #: Whether the end is, as it was meant.
    as_meant: bool


class Recording:
    """The tape of one running stream."""

    def __init__(self, stream: str, store: Store | None, began: float, trace: Trace, *, serve_on: bool) -> None:
        """`serve_on` lets the stream go on without its tape."""
        self.stream = stream
        self.recorder = Recorder(skim=True)
        self.emitter = Emitter()
        #: None if nothing is taped: by configuration, or after the log failed and the stream goes on.
        self.store = store
        #: What the catalogue gets of the stream, once it has ended.
        self.catalogue_row: CatalogueRow | None = None
        #: Set once the tape exists.
        self.begun = trio.Event()
        #: Why the stream goes on without a tape (`on_log_failure = serve`).
        self.untaped = ""
        self.written_bytes = 0
        #: Held from a record's number to its write by whichever task writes while another one may .
        self.turn: AbstractAsyncContextManager[None] = _ALONE
        #: Our own reading of a record failed, and the record still waits to be written.
        self.failed = False
        self._serve_on = serve_on
        self.began = began
        self.trace = trace
        #: What the stream resulted in so far, without what needs events.
        self.summary = StreamSummary()
        self._waiting: list[Record] = []

    @property
    def rows(self) -> CatalogueRow:
        """The rows of the stream so far, with the silence since its last record."""
        rows = row_of(self.stream, self.summary, self.emitter.ledger.counts)
        return rows._replace(stream=replace(rows.stream, silence_us=self.t() - self.summary.t))

    def t(self, at: float | None = None) -> int:
        """Return the microseconds from the stream's beginning until now, or until a time of trio's clock."""
        return int(((trio.current_time() if at is None else at) - self.began) * 1_000_000)

    def record(
        self, kind: str, keys: Mapping[str, Any] = NO_KEYS, body: bytes | None = None, *, is_json: bool = False
    ) -> Record:
        """Make the next record; with `is_json` the body is known to be JSON."""
        t = int((trio.current_time() - self.began) * 1_000_000)
        return self.recorder.record(kind, t, keys, body, is_json=is_json)

    def later(self, *records: Record) -> None:
        """Write records that emit nothing together with the next ones."""
        self.emitted(records)
        self._waiting += records

    def emitted(self, records: Sequence[Record], before: Sequence[Record] = ()) -> list[bytes]:
        """Return the frames that records emit. If that fails, they and those `before` them still wait to be written."""
        frames: list[bytes] = []
        emitter, summarise = self.emitter, self.summary.take
        try:
            for record in records:
                frames += emitter.feed(record)
                summarise(record, emitter.wire)
        except Exception:
            self._waiting += [*before, *records]
            self.failed = True
            raise
        return frames

    def read(self, t: int, data: bytes, *, more: bool = False) -> tuple[list[Record], list[bytes]]:
        """Return the frames that a read completed, as records and as what they emit.

        A large read may be passed in slices, each but the first with `more`.
        """
        records = self.recorder.read(t, data, more=more)
        return records, self.emitted(records)

    def begin(self, request: StreamRequest, arrived_us: int) -> list[Record]:
        """Make the `open` record, and the `run` record of a turn."""
        settings, route, turn, trace = request.settings, request.route, request.turn, self.trace
        chosen = {name: getattr(settings, name) for name in _RECORDED_SETTINGS}
        from_caller = {"parent": trace.parent, "sampled": trace.sampled} if trace.parent else {}
        opened = {
            "format": FORMAT,
            "stream": self.stream,
            "dialect": request.dialect,
            "profile": settings.profile,
            "created": arrived_us // 1_000_000,
            "created_us": arrived_us,
            "settings": {**chosen, "synthesise": route.synthesise, "hermes": route.hermes},
            "software": "wiretape",
            "emitter": EMITTER_VERSION,
            "route": route.name,
            "caller": request.caller,
            "trace": {"id": trace.id, "span": trace.server} | from_caller,
        }
        if turn is None:
            return [self.record("open", opened)]
        opened |= {"run": turn.run} | ({"session": turn.session} if turn.session else {})
        return [self.record("open", opened), self.record("run", turn.keys, turn.body, is_json=True)]

    def opening(self, request: StreamRequest, config: Config, arrived_us: int, sha256: str) -> list[Record]:
        """Make the first records: `open`, `run`, `request`, and `history` if our markers came back."""
        records = self.begin(request, arrived_us)
        headers = taped_request(request.headers, config.secrets)
        keys: dict[str, Any] = {"method": request.method, "path": request.recorded_path, "headers": headers}
        if request.dialect:
            keys["facts"] = request.facts.to_keys()
            keys["messages"] = request.contents.messages
        body = request.body if isinstance(request.body, bytes) else None
        if body is None:
            keys["streamed"] = True
        elif config.requests == "hash":
            keys |= {"bytes": len(body), "sha256": sha256}
            body = None
        is_json = bool(request.dialect) and request.plain is None
        records.append(self.record("request", keys, body or None, is_json=is_json))
        if request.contents.marks:
            records.append(self.record("history", history_keys(request, whole=config.requests == "full")))
        return records

    async def put(self, record: Record) -> list[bytes]:
        """Emit and write one record; return its frames."""
        frames = self.emitted([record])
        await self.write([record])
        return frames

    async def upload(self, upload: Upload, heard: Callable[[], None], *, hashed: bool) -> AsyncGenerator[bytes]:
        """Yield the pieces of an upload, each once it is on the tape; or in the end record what they were together."""
        await self.begun.wait()
        digest, size = sha256(), 0
        try:
            async for data in upload:
                heard()
                size += len(data)
                if hashed:
                    digest.update(data)
                else:
                    async with self.turn:  # cancelled before it has a number, or once it is written
                        await self.put(self.recorder.record("upload", self.t(), body=data, verbatim=False))
                yield data
        finally:
            if hashed:
                part = {} if upload.whole else {"part": True}
                self.later(self.record("upload", {"bytes": size, "sha256": digest.hexdigest(), **part}))

    async def note(self, notes: list[tuple[str, Mapping[str, Any], bytes | None]]) -> None:
        """Write what other tasks want on the tape, and empty the list."""
        while notes:
            await self.put(self.record(*notes.pop(0)))

    async def write(self, records: Sequence[Record]) -> None:
        """Append records that were emitted, and those that wait for them."""
        if self._waiting:
            records = [*self._waiting, *records]
            self._waiting = []
        if not records:
            return
        row = None
        if records[-1].kind == "end":
            row = self.catalogue_row = row_of(self.stream, self.summary, self.emitter.ledger.counts)
        if self.store is None:
            return
        try:
            self.written_bytes += await self.store.append(self.stream, records, row)
        except StoreError as error:
            if row is not None:
                self._waiting = list(records)  # the end is tried once more
            await self._go_on_without(error)
        except Exception:
            self._waiting, self.failed = list(records), True
            raise

    async def create(self) -> None:
        """Begin the tape."""
        if self.store is not None:
            try:
                await self.store.create(self.stream)
            except StoreError as error:
                await self._go_on_without(error)
        self.begun.set()

    async def _go_on_without(self, error: StoreError) -> None:
        """Drop the tape if the user accepts the price (L6 is given up), which the ending reports; else raise."""
        if not self._serve_on:
            raise error
        assert self.store is not None
        store, self.store = self.store, None
        self.untaped = str(error)
        if self.catalogue_row is not None:  # it is the end itself
            row = self.catalogue_row.stream
            self.catalogue_row = self.catalogue_row._replace(stream=replace(row, flags=(*row.flags, "untaped")))
        await _release(store, self.stream)

    async def close(
        self, published_bytes: int, flag: str, answer: Answer | None = None, *, closed: str, held: bool = False
    ) -> Closing:
        """End a tape after the log or our own reading failed; return what the client gets after what was published.

        The live emitter has had records that the tape has not, or is what failed, so a fresh one reads the tape. The
        `end` is written if there is room for it; else recovery writes its own. `answer` is recorded before it, unless
        another status was `held` and can be written now.
        """
        store, self.store = self.store or MemoryStore(), None
        waiting, self._waiting = self._waiting, []
        written = bool(waiting) and await self._append(store, waiting)
        as_meant = ended = written and waiting[-1].kind == "end"
        committed = written and held
        fresh, live = Emitter(), self.summary
        emitter: Emitter | None = fresh
        self.summary = StreamSummary()
        try:
            rest = await _emitted_after(store, self.stream, published_bytes, fresh, self.summary)
        except Exception:  # noqa: BLE001 - what failed once may fail on every look; the tape ends all the same
            emitter, rest = None, None
        if rest is None and flag == "log_failure" and not self.emitter.wire.finished:
            # The tape cannot even be read. The live emitter knows more than was published, but nothing false.
            emitter, rest = self.emitter, b""
            self.summary = live
        ending, flags = ("internal", ()) if emitter is None else emitter.ending("internal")
        keys = {"cause": "internal", "ending": ending, "flags": [*flags, flag], "answer": closed}
        if self.recorder.ended:  # it is the end itself that could not be written, or emitted
            records = [] if ended else [Record(0, self.t(), "end", keys)]
        else:
            records = self.recorder.rest(self.t())
            if answer is not None and not committed:
                records.append(self.record("commit", {"status": answer.status}, answer.body))
            records.append(self.recorder.end(self.t(), keys))
            ended = await self._append(store, records)
        if not ended:
            await _release(store, self.stream)  # followers must not wait for what will never be written
        if emitter is None or rest is None:
            return Closing(None, committed, as_meant)
        for record in records:
            if ended or record.kind != "rest":  # the beginning of a frame that is lost, too
                rest += b"".join(emitter.feed(record))
                self.summary.take(record, emitter.wire)
        self.catalogue_row = row_of(self.stream, self.summary, emitter.ledger.counts)
        return Closing(rest, committed, as_meant)

    async def _append(self, store: Store, records: Sequence[Record]) -> bool:
        try:
            self.written_bytes += await store.append(self.stream, records)
        except Exception:  # noqa: BLE001 - the client gets an ending in any case
            return False
        return True


async def _emitted_after(
    store: Store, stream: str, published_bytes: int, emitter: Emitter, summary: StreamSummary
) -> bytes | None:
    """Return what the tape emits after so many bytes; None if it cannot be read so far."""
    at, rest = 0, b""
    with suppress(StoreError):
        async for records in store.read(stream):
            for record in records:
                data = b"".join(emitter.feed(record))
                summary.take(record, emitter.wire)
                rest, at = rest + data[max(0, published_bytes - at) :], at + len(data)
    return rest if at >= published_bytes else None


async def _release(store: Store, stream: str) -> None:
    """Give up a tape; it stays as it is until the next start recovers it."""
    with suppress(StoreError):
        await store.release(stream)
