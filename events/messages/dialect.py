"""The Messages dialect as one value."""

from collections.abc import Mapping
from typing import Any

from ..core.json_text import as_object
from ..emission.dialect import Counts, Spoken, count_in
from .ask import read, write
from .compose import MessagesComposer
from .frames import ERRORS
from .places import MessagesPlaces
from .repair import Repair
from .request import estimated_tokens, facts, results_in, unsealed
from .whole import whole
from .write import MessagesWriter

__all__ = ["Messages"]


class Messages(Spoken):
    """The Anthropic Messages dialect."""

    name = "messages"
    path = MessagesPlaces.words.path.encode()
    #: The member of a request that holds the conversation.
    history = "messages"
    key_header = b"x-api-key"
    needed_headers = ((b"anthropic-version", b"2023-06-01"),)
    own_headers = (b"anthropic-", b"x-claude-", b"x-app", b"x-stainless-")
    parameters = frozenset({b"beta"})
    statuses: Mapping[str, int] = {"api_error": 500} | {word: code for code, word in ERRORS.items()}
    reader = Repair
    writer = MessagesWriter
    composer = MessagesComposer
    read = staticmethod(read)
    write = staticmethod(write)
    whole = staticmethod(whole)
    facts = staticmethod(facts)
    results_in = staticmethod(results_in)
    unsealed = staticmethod(unsealed)
    estimated_tokens = staticmethod(estimated_tokens)

    def counts(self, usage: Mapping[str, Any]) -> Counts:
        """Return what usage says, with the cached tokens inside the input: here they are counted next to it."""
        read, written = (count_in(usage, f"cache_{word}_input_tokens") for word in ("read", "creation"))
        fresh, details = count_in(usage, "input_tokens"), as_object(usage.get("output_tokens_details"))
        asked = None if fresh is None else fresh + (read or 0) + (written or 0)
        return Counts(asked, count_in(usage, "output_tokens"), read, written, count_in(details, "thinking_tokens"))

    def error_body(
        self, status: int, message: str, *, kind: str = "", code: str | None = None, param: str | None = None
    ) -> dict[str, Any]:
        """Return the body of an HTTP error; the status decides its type, since clients know only Anthropic's words."""
        word = ERRORS.get(status) or ("invalid_request_error" if status < 500 else "api_error")
        more = {key: member for key, member in (("code", code or kind), ("param", param)) if member}
        return {"type": "error", "error": {"type": word, "message": message, **more}}
