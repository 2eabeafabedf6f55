"""The Responses dialect as one value."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ..core.json_text import apply, as_object, locate, parse
from ..emission.dialect import Counts
from .ask import earlier, read, sealed_items, write
from .compose import ResponsesComposer
from .earlier import CONTINUED, continues, is_kept, referenced, stream_of, with_items
from .places import ResponsesPlaces
from .repair import Repair
from .request import facts, results_in
from .whole import whole
from .write import ResponsesWriter

__all__ = ["Responses"]


#: Of the codes of errors, those that may pass: the others blame the request.
_STATUSES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "internal_error": 500,
        "internal_server_error": 500,
        "rate_limit_exceeded": 429,
        "server_error": 500,
        "server_is_overloaded": 503,
        "service_unavailable": 503,
        "slow_down": 429,
    }
)


class Responses:
    """The Responses dialect."""

    name = "responses"
    path = ResponsesPlaces.words.path.encode()
    reader = Repair
    writer = ResponsesWriter
    composer = ResponsesComposer
    #: The member of a request that holds the conversation.
    history = "input"
    #: The member of one of its messages that holds calls, if they are not part of its content.
    calls = ""
    key_header = b"authorization"
    needed_headers: tuple[tuple[bytes, bytes], ...] = ()
    #: The beginnings of headers that mean nothing to other dialects: codex sends them.
    own_headers = (b"openai-beta", b"originator", b"session-id", b"session_id", b"thread-id", b"x-codex-")
    #: Parameters of the query that mean nothing to other dialects.
    parameters: frozenset[bytes] = frozenset()
    #: HTTP statuses that its words for errors stand for.
    statuses = _STATUSES
    read = staticmethod(read)
    write = staticmethod(write)
    continued = CONTINUED
    continues = staticmethod(continues)
    is_kept = staticmethod(is_kept)
    stream_of = staticmethod(stream_of)
    referenced = staticmethod(referenced)
    with_items = staticmethod(with_items)
    turns = staticmethod(earlier)
    facts = staticmethod(facts)
    results_in = staticmethod(results_in)
    whole = staticmethod(whole)

    @staticmethod
    def counts(usage: Mapping[str, Any]) -> Counts:
        """Return what the usage of an upstream says."""
        asked, answered = as_object(usage.get("input_tokens_details")), as_object(usage.get("output_tokens_details"))
        return Counts(
            _count(usage.get("input_tokens")),
            _count(usage.get("output_tokens")),
            _count(asked.get("cached_tokens")),
            _count(asked.get("cache_write_tokens")),
            _count(answered.get("reasoning_tokens")),
        )

    @staticmethod
    def asks_usage(body: Any) -> None:
        """Return nothing: no request asks for it."""

    @staticmethod
    def unstreamed(body: bytes) -> bytes:
        """Return the body with a whole answer asked for instead of a stream."""
        return apply(body, locate(body, {("stream_options",): None, ("stream",): b"false"}))

    @staticmethod
    def unsealed(body: bytes) -> bytes:
        """Return the body without the thoughts that hold an envelope of ours."""
        return apply(body, locate(body, {("input", at): None for at in sealed_items(parse(body))}))

    @staticmethod
    def error_body(
        status: int, message: str, *, kind: str = "", code: str | None = None, param: str | None = None
    ) -> dict[str, Any]:
        """Return the body of an HTTP error."""
        kind = kind or ("invalid_request_error" if status < 500 else "server_error")
        return {"error": {"message": message, "type": kind, "param": param, "code": code or None}}


def _count(given: Any) -> int | None:
    return given if type(given) is int and given >= 0 else None
