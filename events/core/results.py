"""Tool results in a request, in any dialect."""

from collections.abc import Iterable
from typing import NamedTuple

from .limits import RESULTS_MAX

__all__ = ["Result", "Results"]


class Result(NamedTuple):
    """One result. An orphan answers no call of the last assistant message, and has no name and no arguments."""

    id: str
    name: str
    #: A preview, as long as a lifecycle frame may show.
    output: str
    #: Only the Messages protocol has a word for this; some clients of the others send `is_error` all the same.
    failed: bool = False
    orphan: bool = False
    #: The arguments of the call, as the history repeats them.
    arguments: str = ""


class Results(NamedTuple):
    """The results of one request, in the order of its messages, each id once."""

    results: list[Result]
    #: How many messages (items, on Responses) precede the assistant message that they answer.
    after: int
    #: Results beyond those that are kept.
    more: int

    @staticmethod
    def of(given: Iterable[Result], after: int) -> "Results":
        """Return the first result of each id, as many as are kept."""
        found: dict[str, Result] = {}
        more = 0
        for result in given:
            if result.id not in found and len(found) == RESULTS_MAX:
                more += 1
            else:
                found.setdefault(result.id, result)
        return Results([*found.values()], after, more)
