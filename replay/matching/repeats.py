"""Whoever asks again after a broken answer gets the same stream; everyone else goes on

By key it is given back, since whoever asks for it again says so. By position the next request of its path would get it,
whatever it asks: there only the same request is the same one again.
"""

from ..playback.script import Request
from .key import key_of
from .match import Deck, Miss, Taken, blank

__all__ = ["Again"]


class Again:
    """A deck, and which of its answers were broken by a fault."""

    def __init__(self, deck: Deck) -> None:
        self._deck = deck
        #: By what was asked.
        self._broken: dict[str, Taken] = {}

    def take(self, request: Request) -> Taken | Miss:
        """As the deck does."""
        if self._broken:
            again = self._broken.pop(_key(request), None)
            if again is not None:
                return again
        return self._deck.take(request)

    def broke(self, request: Request, taken: Taken) -> None:
        """What answered it is none."""
        if self._deck.how == "key":
            self._deck.give_back(taken)
        else:
            self._broken[_key(request)] = taken


def _key(request: Request) -> str:
    request = blank(request)
    return key_of(request.method.decode("latin-1"), request.target.decode("latin-1"), request.body)
