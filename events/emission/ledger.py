"""The ledger: every difference between what came and what was emitted, named (law L8).

Live only the counts are kept. Asked for the whole (a sink is given), the ledger writes one `Repaired` event per
difference. The entries of a record are patches in order: each speaks of the bytes that the one before it left, the
first one of the frame as it came, and the result is all that was emitted on account of that record.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ..core.model import Event, Repaired
from ..core.splice import Edit, Op, apply, locate
from ..wire.sse import encode

__all__ = ["Ledger", "Sink"]

_DATA: Final = b"data: "


class Sink(Protocol):
    """Is told every event."""

    def __call__(self, event: Event, /) -> None: ...


class Ledger:
    """Counts of repairs by name and, with a sink, the entries."""

    def __init__(self, sink: Callable[[Repaired], None] | None = None) -> None:
        self.counts: dict[str, int] = {}
        self._sink = sink
        self._bytes: dict[int, bytes] = {}

    @property
    def whole(self) -> bool:
        """Whether entries are wanted, not only counts."""
        return self._sink is not None

    def size(self, n: int) -> int:
        """How many bytes the record gives so far; 0 while only counts are kept."""
        return len(self._bytes.get(n, b""))

    def came(self, n: int, raw: bytes) -> None:
        """A frame as it came."""
        if self._sink is not None:
            self._bytes[n] = raw

    def spliced(self, n: int, edits: Sequence[Edit], offset: int) -> None:
        """Edits of a payload that stands at `offset` of the frame."""
        for edit in edits:
            self.count(edit.repair)
            if self._sink is not None:
                at, size = edit.start + offset, edit.end - edit.start
                self._patch(n, edit.repair, at, size, edit.new)
                offset += len(edit.new) - size

    def edited(self, n: int, frame: bytes, ops: Sequence[Op]) -> bytes:
        """One of the record's frames, with these changes made."""
        if not ops:
            return frame
        payload = frame[len(_DATA) : -2]
        edits = locate(payload, ops)
        at = self._bytes[n].index(frame) if self.whole else 0
        self.spliced(n, edits, at + len(_DATA))
        return encode(apply(payload, edits))

    def replaced(self, n: int, repair: str, after: bytes) -> None:
        """The whole of what the record gave so far is now this."""
        self.count(repair)
        if self._sink is not None:
            self._patch(n, repair, 0, len(self._bytes.get(n, b"")), after)

    def withheld(self, n: int, repair: str) -> None:
        """Nothing of the record goes out."""
        self.replaced(n, repair, b"")

    def removed(self, n: int, repair: str, frame: bytes) -> None:
        """One of the record's frames does not go out after all."""
        self.count(repair)
        if self._sink is not None:
            self._patch(n, repair, self._bytes[n].index(frame), len(frame), b"")

    def added(self, n: int, repair: str, frame: bytes) -> None:
        """A frame of ours, on account of this record."""
        self.count(repair)
        if self._sink is not None:
            self._patch(n, repair, len(self._bytes.get(n, b"")), 0, frame)

    def flagged(self, n: int, repair: str) -> None:
        """Something that cannot be repaired, only told."""
        self.count(repair)
        if self._sink is not None:
            self._sink(Repaired(n=n, repair=repair, at=0, before=b"", after=b""))

    def aside(self, work: Callable[[], None]) -> None:
        """Do what no client gets anything of: it counts nowhere."""
        counts, sink = self.counts, self._sink
        self.counts, self._sink = {}, None
        work()
        self.counts, self._sink = counts, sink

    def count(self, repair: str) -> None:
        """One more of these."""
        self.counts[repair] = self.counts.get(repair, 0) + 1

    def _patch(self, n: int, repair: str, at: int, size: int, after: bytes) -> None:
        assert self._sink is not None
        current = self._bytes.get(n, b"")
        before = current[at : at + size]
        self._bytes[n] = current[:at] + after + current[at + size :]
        self._sink(Repaired(n=n, repair=repair, at=at, before=before, after=after))
