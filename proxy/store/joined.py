"""The streams of this process and of others as one store.

Everything is written to the own store, and read from it first. What other processes have comes from a `Source`; while
it cannot be reached, what is here is served, and `partial` says so.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import trio

from ..limits import ELSEWHERE_LATE_S, SOURCE_WAIT_S
from .catalogue_row import Alike, AnswerRow, CallRow, CatalogueRow, StreamRow, Wanted
from .store import (
    PAGE_MAX,
    Batches,
    Filter,
    Health,
    SearchError,
    Shared,
    Source,
    Store,
    StreamMissingError,
    UnreachableError,
    WriteTimes,
)

__all__ = ["JoinedStore"]

_T = TypeVar("_T")


class JoinedStore:
    """A store whose streams are those of its own store and those of a source. One that both have is the own one."""

    def __init__(self, own: Store, source: Source, shared: Shared | None = None) -> None:
        self._own = own
        self._source = source
        self.late_s, self.shared = ELSEWHERE_LATE_S, shared
        self._why = ""
        self.on_read: Callable[[StreamRow], None] = lambda _: None
        own.on_read = lambda row: self.on_read(row)  # noqa: PLW0108 - which may be set later
        self.create, self.append, self.release = own.create, own.append, own.release
        self.expire, self.delete, self.aclose = own.expire, own.delete, own.aclose

    @property
    def partial(self) -> str:
        """Why the last answer lacks what other processes have."""
        return self._why or self._own.partial

    @property
    def health(self) -> Health:
        """Whether the own store can write."""
        return self._own.health

    @property
    def write_times(self) -> WriteTimes:
        """How long its writes took."""
        return self._own.write_times

    def read(self, stream: str, from_n: int = 0) -> Batches:
        """Return the records written so far."""
        try:
            return self._own.read(stream, from_n)
        except StreamMissingError:
            return self._source.read(stream, from_n)

    def follow(self, stream: str, from_n: int = 0) -> Batches:
        """Return the records written so far and those still to come."""
        try:
            return self._own.follow(stream, from_n)
        except StreamMissingError:
            return self._source.follow(stream, from_n)

    def holds(self, stream: str) -> bool:
        """Return whether the own store has the stream."""
        return self._own.holds(stream)

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """Return one page of both. A run is found whole or not at all: raise `UnreachableError`."""
        limit = min(limit, PAGE_MAX)
        rows = {row.stream: row for row in await self._own.list(which, limit)}
        nothing: Sequence[StreamRow] = ()
        theirs = await self._asked(lambda: self._source.list(which, limit), nothing, whole=which.of_runs)
        others = {row.stream: row for row in theirs if row.stream not in rows}
        # A stream that ended here but is not on the own page belongs on no page, even if others list it.
        known = await self._own.rows([*others])
        rows |= {stream: row for stream, row in others.items() if stream not in known}
        return sorted(rows.values(), key=lambda row: row.place, reverse=True)[:limit]

    async def alike(self, wanted: Sequence[Wanted]) -> Sequence[Alike]:
        """Return what both have."""
        nothing: Sequence[Alike] = ()
        own = await self._own.alike(wanted)
        theirs = await self._asked(lambda: self._source.alike(wanted), nothing) if wanted else nothing
        return [_joined(*both) for both in zip(own, theirs, strict=True)] if theirs else own

    async def rows(self, streams: Sequence[str]) -> Mapping[str, CatalogueRow]:
        """Return the rows that the own store has, and of the other streams those of the source."""
        nothing: Mapping[str, CatalogueRow] = {}
        own = await self._own.rows(streams)
        missing = [stream for stream in streams if stream not in own]
        theirs = await self._asked(lambda: self._source.rows(missing), nothing) if missing else nothing
        return {**theirs, **own}

    async def running(self, streams: Collection[str]) -> Collection[str]:
        """Return what runs elsewhere."""
        nothing: Collection[str] = ()
        own = await self._own.running(streams)
        return {*own, *await self._asked(lambda: self._source.running(streams), nothing)} if streams else nothing

    async def recent(self) -> Sequence[StreamRow]:
        """Return what others report."""
        nothing: Sequence[StreamRow] = ()
        return [*await self._own.recent(), *await self._asked(self._source.recent, nothing)]

    async def _asked(self, question: Callable[[], Awaitable[_T]], nothing: _T, *, whole: bool = False) -> _T:
        """Ask the source; without an answer in time return `nothing` and note why, or raise if it must be `whole`."""
        answer, why = nothing, f"no answer within {SOURCE_WAIT_S:g} s"
        with trio.move_on_after(SOURCE_WAIT_S):
            try:
                answer, why = await question(), ""
            except (UnreachableError, SearchError) as unable:
                why = str(unable)
        if why and whole:
            raise UnreachableError(why)
        self._why = why
        return answer


def _joined(own: Alike, theirs: Alike) -> Alike:
    calls: dict[Any, CallRow] = {(call.stream, call.call): call for calls in (theirs[0], own[0]) for call in calls}
    answers: dict[Any, AnswerRow] = {(each.stream, each.call): each for side in (theirs[1], own[1]) for each in side}
    return [*calls.values()], [*answers.values()]
