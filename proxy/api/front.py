"""The one ASGI application: Wiretape's own paths go to the control surface, all others to the streaming path."""

from collections.abc import Callable
from typing import Any, Final

from ..config.model import Config
from ..relay.http_responses import send_answer
from ..security.access import refusal
from ..security.keys import Keys
from ..server.asgi import App

__all__ = ["front"]

_OWN: Final = b"/wiretape/"


def front(config: Config, keys: Keys, hot: App, control: App, *, on_refused: Callable[[int], None]) -> App:
    """Decided on the raw path, which is the one that access was decided on (CVE-2026-48710)."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http", "the connection class lets nothing else through"
        path: bytes = scope["raw_path"]
        if not path.startswith(_OWN):
            await hot(scope, receive, send)
            return
        method, query, version = scope["method"], scope["query_string"], scope["http_version"]
        refused = refusal(config, keys, method, path, query, scope["headers"], http_version=version)
        if refused is None:
            await control(scope, receive, send)
        else:
            on_refused(refused.status)
            await send_answer(send, refused, head=scope["method"] == "HEAD")

    return app
