"""Frames on their way to the client: none goes out before one that carries content."""

from collections.abc import Callable

from ..core.limits import UNDELIVERED_BYTES_MAX
from .ledger import Ledger

__all__ = ["Outbox"]


class Outbox:
    """Until content is delivered another attempt may come, also behind a keepalive, so everything waits till then."""

    def __init__(self, ledger: Ledger) -> None:
        #: Content has gone out, so no other attempt may follow.
        self.delivered = False
        self._ledger = ledger
        self._out: list[bytes] = []
        self._waiting: list[tuple[int, bytes]] = []
        self._waiting_bytes = 0

    def take(self) -> list[bytes]:
        """What may go out now."""
        out, self._out = self._out, []
        return out

    def send(self, n: int, frame: bytes) -> None:
        """A frame on account of record `n`."""
        if self.delivered:
            self._out.append(frame)
            return
        self._waiting.append((n, frame))
        self._waiting_bytes += len(frame)
        if self._waiting_bytes > UNDELIVERED_BYTES_MAX:
            self.deliver()

    def keep(self, n: int, part: bytes) -> None:
        """A part of an answer that was asked for whole: only its status lets it out."""
        if self.delivered:
            self._out.append(part)
        else:
            self._waiting.append((n, part))

    def add(self, n: int, repair: str, frame: bytes) -> None:
        """A frame of ours."""
        self._ledger.added(n, repair, frame)
        self.send(n, frame)

    def deliver(self) -> None:
        """Content is there: all that waits goes out."""
        self.delivered = True
        self._out += [frame for _, frame in self._waiting]
        self._waiting.clear()

    def aside(self, work: Callable[[], None]) -> None:
        """Do what no client gets anything of: what it sends goes nowhere."""
        kept = self.delivered, self._out, self._waiting, self._waiting_bytes
        self.delivered, self._out, self._waiting, self._waiting_bytes = False, [], [], 0
        self._ledger.aside(work)
        self.delivered, self._out, self._waiting, self._waiting_bytes = kept

    def waiting(self) -> list[int]:
        """The records whose frames wait; they wait no longer."""
        numbers = [n for n, _ in self._waiting]
        self._waiting.clear()
        self._waiting_bytes = 0
        return numbers
