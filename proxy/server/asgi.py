"""What the apps see of the server: plain ASGI, its settings, and one task for all deadlines.

A read or a send needs no cancel scope of its own: a check is called when its deadline may have passed; mostly the
deadline has moved on by then. A `fail_after` for each send costs 8 us, this costs nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import floor, inf
from typing import Any, Final

import trio

from ..limits import LATE_S, SHUTDOWN_DRAIN_S, SHUTDOWN_GRACE_S

__all__ = ["App", "Check", "Reaper", "Receive", "Send", "ServerSettings", "together"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]


def _silent(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of one server."""

    graceful_s: float = SHUTDOWN_DRAIN_S + SHUTDOWN_GRACE_S
    """How long responses may go on after a shutdown began; then they are cancelled."""
    connections_max: int = 2**31
    """Clients at once."""
    log: Callable[[str], None] = _silent
    """Called with one line, without a line end."""
    on_refused: Callable[[int], None] = _silent
    """Called with the status of each request that was refused before it reached the app."""
    on_limited: Callable[[str, str], None] = _silent
    """Called with the name of a limit and one sentence, each time that the limit closes or refuses something."""


#: Between two calls of one check: one that asked to be called again at once would never end.
_STEP_S: Final = 0.001

Check = Callable[[float], float | None]
"""Called with trio's time in the reaper's task. It acts without waiting, returns when to be called again (None: never),
and must not raise.
"""


def together(now: float, by: float) -> float:
    """Return a time shared by all checks that are due in the same quarter of a second, not later than `by`.

    5,000 idle connections, each with its own time, woke the process 170 times a second and cost 1.2 % of a core.
    """
    at = floor(by * 4) / 4 if by < inf else by
    return at if at > now else by


class Reaper:
    """A queue of checks. `run` it in one task; `watch` from anywhere in trio's thread."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Check]] = []
        self._order = count()
        self._nap = trio.CancelScope()

    def watch(self, check: Check, at: float) -> None:
        """Call `check` at this time."""
        at = max(at, trio.current_time())  # a deadline already passed does not mean that this process was suspended
        heappush(self._due, (at, next(self._order), check))
        self._nap.deadline = min(self._nap.deadline, at)

    async def run(self) -> None:
        """Call checks, for ever."""
        while True:
            with trio.CancelScope(deadline=self._due[0][0] if self._due else inf) as self._nap:
                await trio.sleep_forever()
            if trio.current_time() > self._nap.deadline + LATE_S:  # this process was stopped, not its peers
                await trio.sleep(LATE_S)  # first read what came meanwhile
            self._look(trio.current_time())

    def _look(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            _, order, check = heappop(self._due)
            again = check(now)
            if again is not None:
                heappush(self._due, (max(again, now + _STEP_S), order, check))
