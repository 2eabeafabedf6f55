"""What ASGI is to us: three callables over messages that are dicts"""

from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["App", "Receive", "Send"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
