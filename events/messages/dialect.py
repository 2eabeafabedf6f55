"""The Messages dialect as one value."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ..core.json_text import Path, apply, as_object, locate, parse
from ..core.results import Results
from ..core.settings import Facts
from ..emission.dialect import Counts
from . import request
from .ask import read, sealed_blocks, write
from .compose import MessagesComposer
from .estimate import estimated_tokens
from .places import MessagesPlaces
from .repair import Repair
from .whole import whole
from .write import MessagesWriter

__all__ = ["Messages"]

#: Anthropic's word for each status of an HTTP error.
_ERRORS: Final[Mapping[int, str]] = MappingProxyType(
    {
        400: "invalid_request_error",
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        504: "timeout_error",
        529: "overloaded_error",
    }
)


class Messages:
    """The Anthropic Messages dialect."""

    name = "messages"
    path = MessagesPlaces.words.path.encode()
    #: The member of a request that holds the conversation.
    history = "messages"
    #: The member of one of its messages that holds calls, if they are not part of its content.
    calls = ""
    reader = Repair
    writer = MessagesWriter
    composer = MessagesComposer
    read = staticmethod(read)
    write = staticmethod(write)
    key_header = b"x-api-key"
    needed_headers = ((b"anthropic-version", b"2023-06-01"),)
    #: The beginnings of headers that mean nothing to other dialects.
    own_headers = (b"anthropic-", b"x-claude-", b"x-app", b"x-stainless-")
    #: Parameters of the query that mean nothing to other dialects.
    parameters = frozenset({b"beta"})
    #: HTTP statuses that its words for errors stand for.
    statuses: Mapping[str, int] = MappingProxyType({"api_error": 500} | {word: code for code, word in _ERRORS.items()})
    estimated_tokens = staticmethod(estimated_tokens)

    def counts(self, usage: Mapping[str, Any]) -> Counts:
        """Return what usage says, with the cached tokens inside the input: here they are counted next to it."""
        read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
        fresh, details = _count(usage, "input_tokens"), as_object(usage.get("output_tokens_details"))
        reasoning = _count(details, "thinking_tokens")
        asked = None if fresh is None else fresh + (read or 0) + (written or 0)
        return Counts(asked, _count(usage, "output_tokens"), read, written, reasoning)

    def whole(self, values: Iterable[Any]) -> dict[str, Any]:
        """Return the whole message that canonical frames make."""
        return whole(values)

    def facts(self, body: Any) -> Facts:
        """Return what emission must know of a request."""
        return request.facts(body)

    def results_in(self, body: Any) -> Results | None:
        """Return the tool results that a request brings."""
        return request.results_in(body)

    def asks_usage(self, body: Any) -> None:
        """Return nothing: usage is part of every answer."""

    def unstreamed(self, body: bytes) -> bytes:
        """Return the body with a whole answer asked for instead of a stream."""
        return apply(body, locate(body, {("stream",): b"false"}))

    def unsealed(self, body: bytes) -> bytes:
        """Return the body without the thoughts that hold an envelope of ours."""
        sealed: dict[Path, bytes | None] = {
            ("messages", at, "content", block): None for at, block in sealed_blocks(parse(body))
        }
        return apply(body, locate(body, sealed))

    def continues(self, body: Any) -> str:  # noqa: ARG002 - its answers are not continued by id
        """Return the id of the answer that a request continues."""
        return ""

    def referenced(self, body: Any) -> dict[str, str]:  # noqa: ARG002 - its history is always sent whole
        """Return the ids of what a request names instead of repeating it, and those of their answers."""
        return {}

    def error_body(
        self, status: int, message: str, *, kind: str = "", code: str | None = None, param: str | None = None
    ) -> dict[str, Any]:
        """Return the body of an HTTP error; the status decides its type, since clients know only Anthropic's words."""
        word = _ERRORS.get(status) or ("invalid_request_error" if status < 500 else "api_error")
        more = {key: member for key, member in (("code", code or kind), ("param", param)) if member}
        return {"type": "error", "error": {"type": word, "message": message, **more}}


def _count(counts: Mapping[str, Any], key: str) -> int | None:
    count = counts.get(key)
    return count if type(count) is int and count >= 0 else None
