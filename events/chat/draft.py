"""One chunk under repair: the changes, the frames that are sent with it, and the tool calls that it mentions."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ..core.json_text import ABSENT, Boundary, dumps
from ..core.model import Event
from ..core.splice import Places
from ..emission.edits import Edit, Path
from .request import said_in
from .write import Envelope

__all__ = ["Draft", "Entry", "KnownCall"]

#: Pieces shorter than this repeat by chance: indentation, digits, escaped line ends (Q22).
_REPEATED_CHARS_MIN: Final = 8
#: As much of arguments as tells whether they are `{}`.
_HEAD_CHARS: Final = 4


class KnownCall:
    """A call under the dense number and the one id that the client sees."""

    # fmt: off
    __slots__ = (
        "announced",
        "bare",
        "boundary",
        "custom",
        "damaged",
        "early",
        "early_chars",
        "extras",
        "followed_by",
        "has_arguments",
        "head",
        "id",
        "last_piece",
        "name",
        "number",
        "opening",
        "place",
        "reported",
        "seed",
        "seed_dropped",
        "supplied",
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
        #: The client may know it: id and name have both come (Q17).
        self.announced = False
        self.has_arguments = False
        #: All its arguments so far are one `{}` that waits for what comes next; which then went on with it (Q20).
        self.seed = False
        self.seed_dropped = False
        #: They are `{}`, and that is out.
        self.bare = False
        self.boundary = Boundary()
        #: A part of the call could not be read: it must not run.
        self.damaged = False
        #: The upstream closed it without a byte of arguments, and they became `{}`.
        self.supplied = False
        #: The same tool under another id, begun while this one had no arguments: perhaps this one under a new id.
        self.followed_by: KnownCall | None = None
        self.opening = ""
        #: Their first characters.
        self.head = ""
        self.last_piece = ""
        #: What came before its name: whether the live state knows the call, pieces of arguments, other members.
        self.reported = False
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
        """Add a piece of arguments; return where in it a second value opens."""
        if text and not self.has_arguments:
            self.has_arguments = True
            self.opening = text.lstrip()[:1]
        if len(self.head) < _HEAD_CHARS:
            self.head += text[:_HEAD_CHARS]
        return None if self.custom else self.boundary.feed(text)

    def says(self, text: str) -> dict[str, Any]:
        """Return one more piece of arguments as a member of an entry."""
        return {"custom": {"input": text}} if self.custom else {"function": {"arguments": text}}

    def says_again(self, text: str) -> bool:
        """Return whether a piece is the one before it once more (Q22)."""
        return text == self.last_piece and len(text) >= _REPEATED_CHARS_MIN

    def forget_seed(self) -> None:
        """Take the `{}` back: it was not an argument."""
        self.seed = self.bare = self.has_arguments = False
        self.head = ""
        self.boundary = Boundary()


class Entry(NamedTuple):
    """An entry of `tool_calls`, read without trusting it: what cannot be used counts as absent."""

    path: Path
    given: dict[str, Any]
    #: Its `index`; the name would hide a method of tuples.
    place: int | None
    id: str
    name: str
    #: The arguments as the text that the client will see.
    text: str
    #: The member with the name and the arguments or, of a custom tool, the input.
    function: dict[str, Any] | None
    custom: bool

    @staticmethod
    def of(path: Path, given: dict[str, Any]) -> "Entry":
        """Read the JSON object at `path`."""
        index, call_id = given.get("index"), given.get("id")
        function, custom = said_in(given)
        fields: dict[str, Any] = {} if function is None else function
        name, arguments = fields.get("name"), fields.get("input" if custom else "arguments")
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else dumps(arguments).decode()
        return Entry(
            path,
            given,
            index if type(index) is int else None,
            call_id if isinstance(call_id, str) and call_id != "null" else "",  # Q4: the text "null"
            name if isinstance(name, str) else "",
            arguments,
            function,
            custom,
        )

    @property
    def member(self) -> str:
        """The member with the name and the arguments."""
        return "custom" if self.custom else "function"

    @property
    def other(self) -> str:
        """The member that is ignored."""
        return "function" if self.custom else "custom"

    @property
    def arguments(self) -> str:
        """The key of the arguments in its member."""
        return "input" if self.custom else "arguments"

    def may_be_of(self, call: KnownCall) -> bool:
        """Return whether entry and call are both of a function or both of a custom tool; metadata may be of either."""
        return self.function is None or call.custom in (None, self.custom)

    @property
    def opens_value(self) -> bool:
        """Whether its text could be the beginning of whole arguments."""
        return self.text.lstrip()[:1] in ("{", "[")


class Draft:
    """One chunk under repair. Its value stays as it came; changes are collected, at most one per member."""

    # fmt: off
    __slots__ = (
        "_edits", "_payload", "_places", "after", "before", "envelope", "events", "failure", "finished", "first",
        "flags", "n", "seeds", "touched", "value",
    )
    # fmt: on

    def __init__(self, n: int, value: dict[str, Any], envelope: Envelope, payload: bytes) -> None:
        self.n = n
        self.value = value
        self.envelope = envelope
        #: Chunks of ours that go out before and after this one, with the names of their repairs.
        self.before: list[tuple[str, dict[str, Any]]] = []
        self.after: list[tuple[str, dict[str, Any]]] = []
        self.events: list[Event] = []
        #: Repairs that only note something.
        self.flags: list[str] = []
        #: It brought something that is repaired otherwise when it comes again: a role, a list that is sent once.
        self.first = False
        #: A choice of this chunk finished.
        self.finished = False
        #: The upstream's finish reason, if it is one that says it failed.
        self.failure = ""
        #: What decides about arguments of this chunk that may be mere seeds (Q20).
        self.seeds: list[Callable[[], None]] = []
        #: The last entry of this chunk for each call that it mentions.
        self.touched: dict[KnownCall, Entry] = {}
        self._edits: dict[tuple[Path, str | int], Edit] = {}
        self._payload = payload
        self._places: Places | None = None

    @property
    def edits(self) -> list[Edit]:
        """The changes."""
        return list(self._edits.values())

    @property
    def changed(self) -> bool:
        """Whether more than edits of the chunk is due."""
        return bool(self.before or self.after or self.flags or self.failure)

    def set(self, repair: str, path: Path, key: str, value: Any) -> None:
        """Replace or insert a member."""
        self._edits[path, key] = Edit(repair, path, key, value)

    def drop(self, repair: str, path: Path, key: str) -> None:
        """Remove a member."""
        self._edits[path, key] = Edit(repair, path, key, ABSENT)

    def omit(self, repair: str, path: Path, place: int) -> None:
        """Remove an element of the list at `path`."""
        self._edits[path, place] = Edit(repair, path, place, ABSENT)

    def quote(self, repair: str, path: Path, key: str) -> None:
        """Replace a value by a string with its own JSON text: 12 by "12"."""
        if self._payload:
            self._places = self._places or Places(self._payload)
            text = self._places.text(path, key).decode()
        else:  # a chunk of ours
            value: Any = self.value
            for step in (*path, key):
                value = value[step]
            text = dumps(value).decode()
        self.set(repair, path, key, text)

    def keep(self, path: Path, key: str) -> None:
        """Leave a member as it came after all."""
        self._edits.pop((path, key), None)

    def say(self, entry: Entry, repair: str, key: str, text: str) -> None:
        """Set the name or the arguments of an entry of `tool_calls`."""
        if entry.function is None:
            self.set(repair, entry.path, entry.member, {key: text})
        elif entry.function.get(key) == text:
            self.keep((*entry.path, entry.member), key)
        else:
            self.set(repair, (*entry.path, entry.member), key, text)
