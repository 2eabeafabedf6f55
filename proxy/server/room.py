"""Room for connections: how many there may be, what they may hold, and which of them make way when there is no more.

A connection that answers a request never makes way for another one. Those that wait for a request, or are still
receiving one, do: first those of the address that has most of them, so that no single address can keep the others out.
Clients that share an address, as those of a reverse proxy do, lose nothing as long as there is room for all.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..limits import HEADS_BYTES_MAX, SHUTDOWN_DRAIN_S, SHUTDOWN_GRACE_S

__all__ = ["Guest", "Room", "ServerSettings"]


def _silent(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of one server."""

    graceful_s: float = SHUTDOWN_DRAIN_S + SHUTDOWN_GRACE_S
    """How long responses may go on after a shutdown began; then they are cancelled."""
    connections_max: int = 2**31
    """Clients at once; below the descriptor limit, because streams need descriptors of their own."""
    log: Callable[[str], None] = _silent
    """Called with one line, without a line end."""
    on_refused: Callable[[int], None] = _silent
    """Called with the status of each request that was refused before it reached the app."""
    on_limited: Callable[[str, str], None] = _silent
    """Called with the name of a limit and one sentence, each time that the limit cuts something short."""


class Guest(Protocol):
    """A connection, as the room sees it."""

    address: str
    """Of the client, or its network."""
    held_bytes: int
    """Of an incomplete request head."""

    @property
    def can_go(self) -> int:
        """2 if it waits for a request, 1 if it receives one, 0 if it answers one."""
        ...

    @property
    def waits_since(self) -> float:
        """When it began to wait for a request, or to receive one."""
        ...

    def make_way(self) -> None:
        """Close the connection at once, and release its descriptor."""
        ...

    def retire(self) -> None:
        """End when the response that is under way is complete."""
        ...


class Room:
    """All open connections of a server."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.guests: dict[Guest, None] = {}
        self._heads_bytes = 0

    def enter(self, guest: Guest) -> bool:
        """Admit a connection; return False if there is no room for it and none can make way."""
        if len(self.guests) >= self.settings.connections_max and not self._crowded():
            return False
        self.guests[guest] = None
        return True

    def leave(self, guest: Guest) -> None:
        """Forget a connection that is closed."""
        self.hold(guest, 0)
        self.guests.pop(guest, None)

    def hold(self, guest: Guest, held_bytes: int) -> None:
        """Account for the bytes of an incomplete head; the connection that holds most makes way if it is too much."""
        self._heads_bytes += held_bytes - guest.held_bytes
        guest.held_bytes = held_bytes
        if self._heads_bytes > HEADS_BYTES_MAX:
            self._dismiss(max(self.guests, key=lambda each: each.held_bytes))
            what = f"Request heads in progress hold more than {HEADS_BYTES_MAX} bytes: closed the largest."
            self.settings.on_limited("heads_bytes", what)

    def _crowded(self) -> bool:
        """Close the oldest of the connections that can go; some at once, because each search looks at all of them."""
        can_go = [guest for guest in self.guests if guest.can_go]
        if not can_go:
            return False
        [(address, count)] = Counter(guest.address for guest in can_go).most_common(1)
        theirs = [guest for guest in can_go if guest.address == address]
        theirs.sort(key=lambda guest: (-guest.can_go, guest.waits_since))
        for guest in theirs[: 1 + count // 16]:
            self._dismiss(guest)
            what = f"No room for more than {self.settings.connections_max} connections: closed one that was idle."
            self.settings.on_limited("connections", what)
        return True

    def _dismiss(self, guest: Guest) -> None:
        guest.make_way()
        self.leave(guest)
