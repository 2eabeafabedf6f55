"""When a stream must be looked at though nothing came: silence either way, grace after a finish, a reader that left

A read moves a deadline by setting a number; the reaper asks when the earliest of them may have passed.
"""

from collections.abc import Callable
from math import inf

from ..server.reaper import Reaper, together
from .stream_request import Order

__all__ = ["Deadlines"]


def _nobody() -> None:
    pass


class _Watch:
    """What the reaper holds, so that a stream that is over (120 KB of it) is held by nobody."""

    __slots__ = ("look",)

    def __init__(self, look: Callable[[float], float | None]) -> None:
        self.look: Callable[[float], float | None] | None = look

    def __call__(self, now: float) -> float | None:
        return None if self.look is None else self.look(now)


class Deadlines:
    """`look` is called when one may have passed; from `over` on no more."""

    def __init__(self, order: Order, reaper: Reaper, now: float, look: Callable[[], None]) -> None:
        #: The last word of the upstream that says anything, and the last bytes that the client was shown.
        self.progress_at = now
        self.shown_at = now
        #: The upstream has said something since it was asked.
        self.progressed = False
        #: The client wants to hear that it is waited for.
        self.keepalives = order.streams and not order.verbatim
        self.grace_at = inf
        self.leave_at = inf
        self._route = order.route
        self._reaper = reaper
        self._look = look
        self._watch = _Watch(self._silence)
        self._once = _Watch(self._passed)
        reaper.watch(self._watch, self._look_by(now))

    def over(self) -> None:
        """The stream has ended; who is called holds this, and need not be found by a collection."""
        self._watch.look = self._once.look = None
        self._look = _nobody

    def attempt(self, now: float) -> None:
        """The upstream is asked."""
        self.progress_at, self.progressed, self.grace_at = now, False, inf

    def progress(self, at: float) -> None:
        """It has said something."""
        self.progress_at, self.progressed = at, True

    def grace(self, now: float) -> None:
        """It has said its last word but for the terminator."""
        self.grace_at = now + self._route.finish_grace_s
        self._reaper.watch(self._once, self.grace_at)

    def leave(self, at: float) -> None:
        """Nobody reads it; so long it goes on."""
        self.leave_at = at
        self._reaper.watch(self._once, at)

    @property
    def silent_s(self) -> float:
        """How long the upstream may say nothing, as things stand."""
        return self._route.idle_s if self.progressed else self._route.first_byte_s

    @property
    def stall_at(self) -> float:
        """Then it has stalled."""
        return self.progress_at + self.silent_s

    @property
    def keepalive_at(self) -> float:
        """Then a comment is due."""
        return self.shown_at + self._route.keepalive_s if self.keepalives else inf

    def _silence(self, now: float) -> float:
        """About the two deadlines that move with every read."""
        due = min(self.stall_at, self.keepalive_at)
        if due > now:
            return min(due, self._look_by(now))
        self._look()
        return now + min(1.0, self._route.keepalive_s)

    def _look_by(self, now: float) -> float:
        """No deadline that a read sets meanwhile is sooner."""
        route = self._route
        return together(now, now + min(route.first_byte_s, route.idle_s, route.keepalive_s if self.keepalives else inf))

    def _passed(self, _: float) -> None:
        self._look()
