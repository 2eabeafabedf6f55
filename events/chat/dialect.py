"""The chat completions dialect as one value."""

from collections.abc import Mapping
from typing import Any

from ..core.json_text import apply, locate
from ..emission.dialect import Spoken
from . import request
from .ask import read, write
from .compose import ChatComposer, counts_of
from .places import ChatPlaces
from .repair import Repair
from .whole import whole
from .write import ChatWriter

__all__ = ["Chat"]


class Chat(Spoken):
    """The chat completions dialect."""

    name = "chat"
    path = ChatPlaces.words.path.encode()
    reader = Repair
    writer = ChatWriter
    composer = ChatComposer
    #: The member of a request that holds the conversation.
    history = "messages"
    calls = "tool_calls"
    read = staticmethod(read)
    write = staticmethod(write)
    facts = staticmethod(request.facts)
    results_in = staticmethod(request.results_in)
    with_usage = staticmethod(request.with_usage)
    refuses_usage = staticmethod(request.refuses_usage)
    unsealed = staticmethod(request.unsealed)
    counts = staticmethod(counts_of)
    whole = staticmethod(whole)

    def asks_usage(self, body: Mapping[str, Any]) -> bool | None:
        return request.asks_usage(body)

    def unstreamed(self, body: bytes) -> bytes:
        return apply(body, locate(body, {("stream_options",): None, ("stream",): b"false"}))

    @staticmethod
    def error_body(
        status: int,  # noqa: ARG004 - its clients read the status alone
        message: str,
        *,
        kind: str,
        code: str | None,
        param: str | None,
    ) -> dict[str, Any]:
        """Return the body of an HTTP error."""
        return {"error": {"message": message, "type": kind, "param": param, "code": code}}
