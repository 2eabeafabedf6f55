"""The ASGI application: decide access once, then route to the control app or the relay."""

from collections.abc import Awaitable, Callable
from typing import Any

from ..config.model import Config
from ..http_headers import Headers
from ..relay.http_responses import refused, send_answer
from ..security.access import OWN_PATHS, Admission, Refusal, admit
from ..security.keys import Keys
from ..server.asgi import App

__all__ = ["RelayApp", "front"]


#: The streaming path: answers one admitted request.
RelayApp = Callable[[Admission, Any, Any, Any], Awaitable[None]]


def front(config: Config, keys: Keys, relay: RelayApp, control: App, *, on_refused: Callable[[int], None]) -> App:
    """Return the application. Access and routing both look at the raw path, so they agree (CVE-2026-48710)."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http", "the connection class lets nothing else through"
        admitted = admit(
            config,
            keys,
            scope["method"],
            scope["raw_path"],
            scope["query_string"],
            Headers(scope["headers"]),
            http_version=scope["http_version"],
        )
        if isinstance(admitted, Refusal):
            on_refused(admitted.status)
            await send_answer(send, refused(admitted), head=scope["method"] == "HEAD")
        elif scope["raw_path"].startswith(OWN_PATHS):
            await control({**scope, "caller": admitted.caller}, receive, send)
        else:
            await relay(admitted, scope, receive, send)

    return app
