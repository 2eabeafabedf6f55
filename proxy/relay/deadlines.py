"""When a relay must look up from what it waits for: signals from other tasks, and deadlines."""

from math import inf

import trio

from ..server.reaper import Reaper, together
from .stream_request import StreamRequest

__all__ = ["Signals"]


class Signals:
    """What others want of a relay, and the times at which it needs attention though nothing came.

    The relay attends to them between two batches. A read moves a deadline by setting a number.
    """

    def __init__(self, request: StreamRequest, reaper: Reaper, now: float) -> None:
        self.wanted: set[str] = set()
        #: What the relay waits in, if it waits for anything that may be interrupted.
        self.waiting: trio.CancelScope | None = None
        #: When the upstream last sent something with a meaning, and when the client was last sent anything.
        self.progress_at = now
        self.published_at = now
        #: The upstream has sent something since it was asked.
        self.progressed = False
        #: The client wants to know that it is waited for.
        self.keepalives = request.streams and not request.verbatim
        #: When to stop waiting for the terminator, and when to end the stream if it has no readers then.
        self.grace_at = self.leave_at = inf
        self.over = False
        self._route = request.route
        self._reaper = reaper
        reaper.watch(self._silence, self._next_look(now))

    def send(self, signal: str) -> None:
        """`left`: a reader has gone. `shutdown`: the proxy stops. `look`: a deadline may have passed."""
        self.wanted.add(signal)
        if self.waiting is not None:
            self.waiting.cancel()

    def attempt(self, now: float) -> None:
        """Begin to wait for the first byte."""
        self.progress_at, self.progressed, self.grace_at = now, False, inf

    def grace(self, now: float) -> None:
        """Wait a moment for the terminator: every choice has its finish reason."""
        self.grace_at = now + self._route.finish_grace_s
        self._reaper.watch(self._passed, self.grace_at)

    def leave(self, at: float) -> None:
        """End the stream at this time if it has no readers then."""
        self.leave_at = at
        self._reaper.watch(self._passed, at)

    @property
    def silent_s(self) -> float:
        """How long the upstream may be silent now."""
        return self._route.idle_s if self.progressed else self._route.first_byte_s

    @property
    def stall_at(self) -> float:
        """When the upstream counts as stalled."""
        return self.progress_at + self.silent_s

    @property
    def keepalive_at(self) -> float:
        """When a keepalive is due."""
        return self.published_at + self._route.keepalive_s if self.keepalives else inf

    def _silence(self, now: float) -> float | None:
        if self.over:
            return None
        due = min(self.stall_at, self.keepalive_at)
        if due > now:
            return min(due, self._next_look(now))
        self.send("look")
        return now + min(1.0, self._route.keepalive_s)

    def _next_look(self, now: float) -> float:
        """No deadline that a read sets meanwhile is sooner."""
        route = self._route
        return together(now, now + min(route.first_byte_s, route.idle_s, route.keepalive_s if self.keepalives else inf))

    def _passed(self, _: float) -> None:
        if not self.over:
            self.send("look")
