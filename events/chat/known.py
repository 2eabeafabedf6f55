"""One tool call as far as the upstream has told it, under the dense number and the one id that the client sees"""

from typing import Any, Final

from ..core.json_text import Boundary

__all__ = ["KnownCall"]

#: Pieces shorter than this repeat by chance: indentation, digits, escaped line ends (Q22).
_REPEATED_CHARS_MIN: Final = 8
#: As much of arguments as tells whether they are `{}`.
_HEAD_CHARS: Final = 4


class KnownCall:
    """A call under the dense number and the one id that the client sees."""

    # fmt: off
    __slots__ = (
        "announced", "bare", "boundary", "custom", "damaged", "early", "early_chars", "extras", "followed_by",
        "has_arguments", "head", "id", "last_piece", "name", "number", "opening", "place", "seed", "seed_dropped",
        "supplied", "told",
    )
    # fmt: on

    def __init__(self, number: int, place: int | None) -> None:
        self.number = number
        #: The upstream's index for it.
        self.place = place
        self.id = ""
        self.name = ""
        #: It takes free text, in which nothing is to be looked for; unknown until an entry says what it calls.
        self.custom: bool | None = None
        #: The client may know it: id and name are both there (Q17).
        self.announced = False
        self.has_arguments = False
        #: All its arguments so far are one `{}` that waits for what comes next; which then went on with it (Q20).
        self.seed = False
        self.seed_dropped = False
        #: They are `{}`, and that is out.
        self.bare = False
        self.boundary = Boundary()
        #: A part of it could not be read: it must not run.
        self.damaged = False
        #: The upstream closed it without a byte of arguments, and they became `{}`.
        self.supplied = False
        #: The same tool under another id, begun while this one had no arguments: perhaps this one under a new id.
        self.followed_by: KnownCall | None = None
        self.opening = ""
        #: Their first characters.
        self.head = ""
        self.last_piece = ""
        #: What came before its name: whether the fold knows of the call, pieces of arguments, other members.
        self.told = False
        self.early: list[str] = []
        self.early_chars = 0
        self.extras: dict[str, Any] = {}

    @property
    def complete(self) -> bool:
        """Its arguments are a whole JSON value, as far as one can say before the call is closed."""
        return self.boundary.complete and not self.seed

    @property
    def unfinished(self) -> bool:
        """Its arguments have begun and are not whole."""
        return self.has_arguments and not self.boundary.complete

    @property
    def says_more(self) -> bool:
        """Its arguments are more than none."""
        return self.has_arguments and not (self.supplied or self.head.strip() == "{}")

    def take(self, text: str) -> int | None:
        """The next piece of arguments; where in it a second value opens."""
        if text and not self.has_arguments:
            self.has_arguments = True
            self.opening = text.lstrip()[:1]
        if len(self.head) < _HEAD_CHARS:
            self.head += text[:_HEAD_CHARS]
        return None if self.custom else self.boundary.feed(text)

    def says(self, text: str) -> dict[str, Any]:
        """One more piece of arguments, as a member of an entry."""
        return {"custom": {"input": text}} if self.custom else {"function": {"arguments": text}}

    def says_again(self, text: str) -> bool:
        """Whether a piece is the one before it once more (Q22)."""
        return text == self.last_piece and len(text) >= _REPEATED_CHARS_MIN

    def more(self, entry: dict[str, Any]) -> str | None:
        """What an entry says that points at this call, if it is a piece of arguments in the middle of them, no more."""
        try:
            function = entry["function"]
            text = function["arguments"]
        except (KeyError, TypeError):
            return None
        if (
            self.custom is not False
            or len(entry) != 2
            or len(function) != 1
            or type(entry["index"]) is not int
            or type(text) is not str
            or not text
            or not self.announced
            or self.number != entry["index"]
            or self.boundary.complete
            or self.says_again(text)
            or "}" in text
            or "]" in text
        ):
            return None
        return text

    def forget_seed(self) -> None:
        """The `{}` was no argument."""
        self.seed = self.bare = self.has_arguments = False
        self.head = ""
        self.boundary = Boundary()
