"""The Responses dialect as one value."""

import re
from collections.abc import Mapping
from typing import Any, Final

from ..core.json_text import apply, as_list, as_object, is_object, locate, parse
from ..emission.dialect import Counts, Spoken, count_in
from .ask import earlier, read, sealed_items, write
from .compose import ResponsesComposer
from .places import ResponsesPlaces
from .repair import Repair
from .request import facts, results_in
from .whole import whole
from .write import ResponsesWriter

__all__ = ["Responses"]

#: The ids of crossed responses and of their items are ours.
_OWN: Final = re.compile(r"resp_([A-Za-z0-9-]{1,128})", re.ASCII)
_ITEM: Final = re.compile(r"[a-z]+_([A-Za-z0-9-]{1,128})_[0-9]+", re.ASCII)
_REFERENCE: Final = "item_reference"
#: Of the codes of errors, those that may pass: the others blame the request.
_STATUSES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("internal_error", "internal_server_error", "server_error"), 500),
    **dict.fromkeys(("rate_limit_exceeded", "slow_down"), 429),
    **dict.fromkeys(("server_is_overloaded", "service_unavailable"), 503),
}


class Responses(Spoken):
    """The Responses dialect."""

    name = "responses"
    path = ResponsesPlaces.words.path.encode()
    #: The member of a request that holds the conversation.
    history = "input"
    #: codex sends them.
    own_headers = (b"openai-beta", b"originator", b"session-id", b"session_id", b"thread-id", b"x-codex-")
    statuses = _STATUSES
    reader = Repair
    writer = ResponsesWriter
    composer = ResponsesComposer
    read = staticmethod(read)
    write = staticmethod(write)
    turns = staticmethod(earlier)
    whole = staticmethod(whole)
    facts = staticmethod(facts)
    results_in = staticmethod(results_in)
    #: The member of a request that names an earlier response.
    continued = "previous_response_id"

    def stream_of(self, response_id: str) -> str:
        """Return the stream that a response of ours was, or nothing."""
        found = _OWN.fullmatch(response_id)
        return found[1] if found else ""

    def continues(self, body: dict[str, Any]) -> str:
        """Return the id of the response that a request continues, or nothing."""
        given: Any = body.get(self.continued)
        return given if isinstance(given, str) else ""

    def is_kept(self, body: dict[str, Any]) -> bool:
        """Return whether later requests may continue the response to this one."""
        return body.get("store") is not False

    def referenced(self, body: dict[str, Any]) -> dict[str, str]:
        """Return the ids of items that a request names instead of repeating them, and that of the response of each.

        Vercel's `ai` names them, unless it was asked not to store; the upstream knows its own.
        """
        items = [item for item in map(as_object, as_list(body.get("input"))) if item.get("type") == _REFERENCE]
        matches = [_ITEM.fullmatch(item["id"]) for item in items if isinstance(item.get("id"), str)]
        return {match[0]: f"resp_{match[1]}" for match in matches if match}

    def with_items(self, body: dict[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request with these items, by id, in place of their names."""
        items = [
            found.get(str(item.get("id")), item) if is_object(item) and item.get("type") == _REFERENCE else item
            for item in as_list(body.get("input"))
        ]
        return {**body, "input": items} if items else body

    def unsealed(self, body: bytes) -> bytes:
        """Return the body without the thoughts that hold an envelope of ours."""
        return apply(body, locate(body, {("input", at): None for at in sealed_items(parse(body))}))

    def counts(self, usage: Mapping[str, Any]) -> Counts:
        """Return what the usage of an upstream says."""
        asked, answered = as_object(usage.get("input_tokens_details")), as_object(usage.get("output_tokens_details"))
        cached, written = count_in(asked, "cached_tokens"), count_in(asked, "cache_write_tokens")
        thought = count_in(answered, "reasoning_tokens")
        return Counts(count_in(usage, "input_tokens"), count_in(usage, "output_tokens"), cached, written, thought)

    def unstreamed(self, body: bytes) -> bytes:
        return apply(body, locate(body, {("stream_options",): None, ("stream",): b"false"}))

    def error_body(
        self, status: int, message: str, *, kind: str = "", code: str | None = None, param: str | None = None
    ) -> dict[str, Any]:
        """Return the body of an HTTP error."""
        kind = kind or ("invalid_request_error" if status < 500 else "server_error")
        return {"error": {"message": message, "type": kind, "param": param, "code": code or None}}
