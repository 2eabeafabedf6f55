"""What ASGI is to us: three callables over messages that are dicts"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

__all__ = ["App", "ClientConnection", "Receive", "Send"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]


class ClientConnection(Protocol):
    """What `scope["extensions"]["wiretape"]` offers an app beyond ASGI."""

    def abort(self) -> None:
        """End the answer so that the client can see that it is broken."""

    def on_left(self, callback: Callable[[], None] | None) -> None:
        """Call this once, as soon as the client has left or its connection has failed; None unsets it."""
