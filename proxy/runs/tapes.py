"""The tapes of runs, on whichever machine each turn was recorded."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import replace

import trio

from wiretape.events.chat.run_request import history_of
from wiretape.events.emit import Summariser
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.tape.record import Record

from ..limits import SLICE_RECORDS
from ..memory import Charge
from ..relay.app import Registry
from ..relay.stream_request import in_thread_if_large
from ..store.catalogue_row import StreamRow
from ..store.store import PAGE_MAX, Filter, Store, StoreError, StreamMissingError, TapeBrokenError, UnreachableError
from .live import Live

__all__ = ["RunTapes"]


class RunTapes:
    """Reads runs; `registry` knows the turns that run here."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    async def rows(self, which: Filter) -> list[StreamRow]:
        """Return all turns of a run, the first one first. Tapes that were cut before that are left out."""
        rows = [*await self._store.list(which, PAGE_MAX)]
        more = len(rows) == PAGE_MAX
        while more:
            page = await self._store.list(replace(which, before=rows[-1]), PAGE_MAX)
            rows += page
            more = len(page) == PAGE_MAX
        # A turn whose machine died before anybody knew it was begun again, and the later tape counts.
        turns = {row.turn: row for row in sorted(rows, key=lambda row: row.place) if row.turn}
        return [turns[turn] for turn in sorted(turns)]

    async def load(self, which: Filter, held: Charge) -> Live:
        """Return a run as its tapes have it, or raise `StreamMissingError`."""
        rows = await self.rows(which)
        if not rows or rows[0].turn != 1:  # unknown, or its beginning has expired
            raise StreamMissingError(which.run)
        live = Live(which.run or "", rows[0].caller, rows[0].route)
        await self._read(live, rows, held)
        return live

    async def catch_up(self, live: Live, held: Charge) -> None:
        """Read what other machines have recorded of a run that does not run here."""
        await self._read(live, await self.rows(Filter(run=live.run_id)), held)

    async def _read(self, live: Live, rows: Sequence[StreamRow], held: Charge) -> None:
        open_ = [row.stream for row in rows if not row.ending]
        elsewhere = await self._store.running(open_)
        if open_ and self._store.partial:
            raise UnreachableError(self._store.partial)
        try:
            for row in rows:
                if row.stream != live.stream and (row.turn or 0) <= live.fold.turn:
                    continue
                runs = row.stream in elsewhere
                async for records in self.records(row.stream, held, live.last_n(row.stream), elsewhere=runs):
                    live.read(row.stream, records)
                if not live.whole:
                    live.elsewhere = row.stream if runs else ""
                    break
        except UnreachableError:
            raise
        except StoreError:  # expired meanwhile
            raise StreamMissingError(live.run_id) from None

    async def records(
        self, stream: str, held: Charge | None, from_n: int = 0, *, follow: bool = False, elsewhere: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        """Yield the records of a turn; if it is cut and nothing writes to it, also the end that recovery will write."""
        last: Record | None = None
        batches = self._store.follow(stream, from_n) if follow else self._store.read(stream, from_n)
        batches.held = held
        with suppress(TapeBrokenError):
            async for batch in batches:
                last = batch[-1]
                for at in range(0, len(batch), SLICE_RECORDS):
                    if at:
                        await trio.lowlevel.checkpoint()
                    yield batch[at : at + SLICE_RECORDS]
        cut = not elsewhere and (follow or stream not in self._registry.live)
        if cut and last is not None and last.kind != "end":
            yield [Record(last.n + 1, last.t, "end", {"cause": "crashed", "ending": "crashed", "flags": []})]

    async def conversation(self, live: Live, held: Charge) -> list[object]:
        """Return the messages of a finished run, with its answer."""
        last, _ = await self.last_turn(live, held)
        start = b""
        async for records in self.records(live.fold.streams[0], held):
            start = next((record.raw or b"" for record in records if record.kind == "run"), start)
        return await in_thread_if_large(last, lambda: history_of(start, last, live.fold.output))

    async def last_turn(self, live: Live, held: Charge) -> tuple[bytes, StreamSummary]:
        """Return the request of the last turn that asked the model, and its summary."""
        for stream in reversed(live.fold.streams):
            summarised, request = Summariser(), b""
            async for records in self.records(stream, held):
                summarised.feed(*records)
                request = next((record.raw or b"" for record in records if record.kind == "request"), request)
            if request:
                return request, summarised.summary
        raise StreamMissingError(live.run_id)
