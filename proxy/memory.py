"""One account of the bytes that clients and upstreams make this process hold, against `memory_max_bytes`.

Bytes are charged before they are held. Two sums are compared with the limit: the memory of an idle process and all that
is charged, some of which is still to come; and the memory in use, since not everything is charged. The last part of the
room is left to small charges, so that a few large requests never keep all others out.
"""

import resource
from collections.abc import Callable
from math import inf
from pathlib import Path

import trio

from .limits import MEMORY_RESERVED_BYTES, MEMORY_SAMPLE_S, MEMORY_SMALL_BYTES

__all__ = ["Charge", "Memory", "resident_bytes"]


def resident_bytes() -> int:
    """Return the memory of this process; 0 if the system does not report it."""
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[1]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


class Memory:
    """The account of one process."""

    def __init__(self, max_bytes: int | None = None, resident: Callable[[], int] = resident_bytes) -> None:
        """Without `max_bytes` nothing is refused."""
        self.held_bytes = 0
        self._max_bytes = max_bytes
        self._resident = resident
        self._idle_bytes = resident()
        #: The memory in use when it was last sampled, less what was charged then, and when that was.
        self._uncharged_bytes = 0
        self._sampled_at = -inf

    def allows(self, size: int, *, spare: bool) -> bool:
        """Return whether there is room for so many bytes more; `spare` adds the part that is left to small holders."""
        if self._max_bytes is None:
            return True
        now = trio.current_time()
        if now >= self._sampled_at + MEMORY_SAMPLE_S:
            self._uncharged_bytes, self._sampled_at = self._resident() - self.held_bytes, now
        reserved = min(MEMORY_RESERVED_BYTES, self._max_bytes // 8) * (1 if spare else 2)
        # What a peak left in use when nothing is held is free inside the allocator: it refuses no small holder.
        in_use = self._uncharged_bytes if self.held_bytes or not spare else 0
        return max(self._idle_bytes, in_use) + self.held_bytes + size + reserved <= self._max_bytes


class Charge:
    """What one holder is charged for: a connection, a request with its stream, a reader of a tape.

    Use it from trio's thread only.
    """

    __slots__ = ("_memory", "_small_bytes", "held_bytes")

    def __init__(self, memory: Memory, *, small_bytes: int = MEMORY_SMALL_BYTES) -> None:
        """Up to `small_bytes` it may use the part of the room that is left to small holders."""
        self.held_bytes = 0
        self._small_bytes = small_bytes
        self._memory = memory

    def add(self, size: int) -> bool:
        """Charge more bytes, or return False: there is no room, and nothing was charged."""
        if not self._memory.allows(size, spare=self.held_bytes + size <= self._small_bytes):
            return False
        self.held_bytes += size
        self._memory.held_bytes += size
        return True

    def remove(self, size: int) -> None:
        """Release some of the bytes."""
        assert 0 <= size <= self.held_bytes, "only what was charged can be released"
        self.held_bytes -= size
        self._memory.held_bytes -= size

    def release(self) -> None:
        """Release all of them; more may be added later."""
        self._memory.held_bytes -= self.held_bytes
        self.held_bytes = 0
