"""The interface between the server and its apps: plain ASGI, and one extension of ours."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

__all__ = ["App", "ClientConnection", "Receive", "Send"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]


class ClientConnection(Protocol):
    """The extension `scope["extensions"]["wiretape"]`: what ASGI cannot say about the client's connection."""

    def abort(self) -> None:
        """End the response so that the client can see that it is not complete; later sends do nothing."""

    def on_left(self, callback: Callable[[], None] | None) -> None:
        """Set what is called, once, as soon as the client is seen to have left, even while no `receive` is pending.

        It is called at once if that was seen already, and never after the response is complete.
        """
