"""The rows of the list as streams begin, have content, end, and were read. Each is encoded once for all followers."""

from collections import deque
from collections.abc import AsyncGenerator
from math import inf
from typing import Final, NamedTuple

import trio

from wiretape.events.core.json_text import dumps

from ..api.streams import StreamsApi, row_json
from ..limits import FOLLOW_KEEPALIVE_S, FOLLOWED_ROWS_MAX
from ..relay.app import Registry
from ..relay.recording import Ended
from ..security.access import OPERATOR
from ..store.catalogue_row import StreamRow
from ..store.store import Store
from .feed import ALIVE

__all__ = ["Changes"]

#: How often running streams are looked at: no stream pays for being watched.
_TICK_S: Final = 0.2
#: How often those elsewhere are, which costs a question.
_ELSEWHERE_S: Final = 1.0


class _Shown(NamedTuple):
    caller: str
    has_content: bool
    line: bytes


def _shown(row: StreamRow) -> _Shown:
    return _Shown(row.caller, row.first_content_us is not None, dumps(row_json(row, live=not row.ending)) + b"\n")


class Changes:
    """What followers of the list are still to get."""

    def __init__(self) -> None:
        self._followers: list[deque[_Shown]] = []
        self._running: dict[str, _Shown] = {}
        self._elsewhere: dict[str, _Shown] = {}
        self._looked_at = self._asked_at = -inf

    def ended(self, ended: Ended) -> None:
        """Note a stream that ended; one without a tape is not in the list."""
        if ended.tape_bytes:
            self.note(ended.catalogue_row.stream)

    def note(self, row: StreamRow) -> None:
        """Note the row of a stream that has ended."""
        self._running.pop(row.stream, None)
        if self._followers:
            self._tell(_shown(row))

    def _tell(self, shown: _Shown) -> None:
        for rows in self._followers:
            rows.append(shown)

    def _look(self, registry: Registry) -> dict[str, _Shown]:
        """Return the running streams, looked at once a tick, and until they have content."""
        if trio.current_time() >= self._looked_at + _TICK_S:
            self._looked_at, known = trio.current_time(), self._running
            self._running = {stream: known[stream] for stream in registry.live if stream in known}
            for stream, delivery in registry.live.items():
                if stream not in known or (not known[stream].has_content and delivery.published_n):
                    found = registry.rows(stream)
                    if found is not None and found.stream.caller:  # its tape has begun
                        self._running[stream] = _shown(found.stream)
        return self._running

    async def _look_elsewhere(self, store: Store) -> None:
        """Note the streams of other processes that began, had content or ended."""
        if trio.current_time() >= self._asked_at + _ELSEWHERE_S:
            self._asked_at = trio.current_time()
            rows, known = await store.recent(), self._elsewhere
            self._elsewhere = {row.stream: _shown(row) for row in rows}
            for stream, shown in self._elsewhere.items():
                if known.get(stream) != shown:
                    self._tell(shown)

    async def follow(self, streams: StreamsApi, caller: str) -> AsyncGenerator[bytes]:
        """Yield whole rows of the caller's streams: those that run, and each that changes."""
        registry, changed, spoke_at = streams.registry, deque[_Shown](), trio.current_time()
        seen: dict[str, bool] = {}  # the running streams, and whether they had content
        changed += self._elsewhere.values()
        self._followers.append(changed)
        try:
            while len(changed) <= FOLLOWED_ROWS_MAX:  # else the reader is too slow, and reads the list again
                await self._look_elsewhere(streams.store)
                running = self._look(registry)
                changed += [shown for stream, shown in running.items() if seen.get(stream) != shown.has_content]
                seen = {stream: shown.has_content for stream, shown in running.items()}
                mine = [shown.line for shown in changed if caller in (OPERATOR, shown.caller)]
                changed.clear()
                if mine:
                    spoke_at = trio.current_time()
                    yield b"".join(mine)
                if registry.draining and not registry.live:
                    return
                await trio.sleep(_TICK_S)
                if trio.current_time() >= spoke_at + FOLLOW_KEEPALIVE_S:
                    spoke_at = trio.current_time()
                    yield ALIVE
        finally:
            self._followers.remove(changed)
