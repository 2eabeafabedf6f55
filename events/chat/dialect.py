"""The chat completions dialect as one value."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ..emission.dialect import Counts
from .ask import read, write
from .compose import ChatComposer, counts_of
from .places import ChatPlaces
from .repair import Repair
from .request import asks_usage, facts, refuses_usage, results_in, unsealed, unstreamed, with_usage
from .whole import whole
from .write import ChatWriter

__all__ = ["Chat"]

_NO_STATUSES: Final[Mapping[str, int]] = MappingProxyType({})


class Chat:
    """The chat completions dialect."""

    name = "chat"
    path = ChatPlaces.words.path.encode()
    reader = Repair
    writer = ChatWriter
    composer = ChatComposer
    read = staticmethod(read)
    write = staticmethod(write)
    #: The member of a request that holds the conversation.
    history = "messages"
    #: The member of one of its messages that holds calls, if they are not part of its content.
    calls = "tool_calls"
    key_header = b"authorization"
    needed_headers: tuple[tuple[bytes, bytes], ...] = ()
    own_headers: tuple[bytes, ...] = ()
    #: Parameters of the query that mean nothing to other dialects.
    parameters: frozenset[bytes] = frozenset()
    #: HTTP statuses that its words for errors stand for.
    statuses = _NO_STATUSES
    read = staticmethod(read)
    write = staticmethod(write)
    facts = staticmethod(facts)
    results_in = staticmethod(results_in)
    asks_usage = staticmethod(asks_usage)
    with_usage = staticmethod(with_usage)
    refuses_usage = staticmethod(refuses_usage)
    unsealed = staticmethod(unsealed)
    unstreamed = staticmethod(unstreamed)

    @staticmethod
    def continues(body: Any) -> str:  # noqa: ARG004 - its answers are not continued by id
        """Return the id of the answer that a request continues."""
        return ""

    @staticmethod
    def referenced(body: Any) -> dict[str, str]:  # noqa: ARG004 - its history is always sent whole
        """Return the ids of what a request names instead of repeating it, and those of their answers."""
        return {}

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

    def counts(self, usage: Mapping[str, Any]) -> Counts:
        """Return what the usage of an upstream counts."""
        return counts_of(usage)

    def whole(self, values: Iterable[Any]) -> dict[str, Any]:
        """Return the completion that canonical chunks make together."""
        return whole(values)
