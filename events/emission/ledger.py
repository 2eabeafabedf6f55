"""The ledger: every difference between what came and what was emitted, named (law L8).

Live, only the counts are kept. With a sink, every difference becomes a `Repaired` event, whose entries turn the parsed
frame that came into the parsed frames that were emitted.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from ..core.json_text import ABSENT
from ..core.model import Event, Repaired
from .edits import Edit

__all__ = ["Ledger", "Sink"]


class Sink(Protocol):
    """A receiver of every event."""

    def __call__(self, event: Event, /) -> None: ...


class Ledger:
    """Counts of repairs by name and, with a sink, the entries."""

    def __init__(self, sink: Callable[[Repaired], None] | None = None) -> None:
        self.counts: dict[str, int] = {}
        #: Nothing is counted while no client gets what is done.
        self.muted = False
        self._sink = sink

    def edited(self, n: int, edits: Iterable[Edit]) -> None:
        """Enter the edits of the payload of record `n`."""
        for repair, path, key, after, before in edits:
            self._enter(n, repair, path, key, before, after)

    def frame(self, n: int, repair: str, before: bytes | None, after: bytes | None) -> None:
        """Enter a whole frame that was added, withheld or replaced."""
        self._enter(n, repair, (), None, ABSENT if before is None else before, ABSENT if after is None else after)

    def noted(self, n: int, repair: str) -> None:
        """Enter something that was noticed and not changed."""
        self._enter(n, repair, (), None, ABSENT, ABSENT)

    def count(self, repair: str) -> None:
        """Count one more of these."""
        self.counts[repair] = self.counts.get(repair, 0) + 1

    def _enter(
        self, n: int, repair: str, path: tuple[str | int, ...], key: str | int | None, before: object, after: object
    ) -> None:
        if self.muted:
            return
        self.count(repair)
        if self._sink is not None:
            self._sink(Repaired(n=n, repair=repair, path=path, key=key, before=before, after=after))
