"""One chunk under repair: the changes, the frames that are sent with it, and the tool calls that it mentions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ..core.json_text import ABSENT, Boundary, dumps
from ..core.model import Event
from ..core.splice import Places
from ..emission.frames import Edit, Out, Path
from .chunk import Envelope, call_members, chunk, function_of

__all__ = ["Draft", "Entry", "KnownCall"]

#: As much of arguments as shows whether they are `{}`.
_HEAD_CHARS: Final = 4


@dataclass(slots=True, eq=False)
class KnownCall:
    """A call under the dense number and the one id that the client sees."""

    number: int
    #: The upstream's index for it.
    place: int | None = None
    id: str = ""
    name: str = ""
    #: It takes free text, in which nothing is searched; unknown until an entry says what it calls.
    custom: bool | None = None
    #: The client may know it: id and name have both come (Q17).
    announced: bool = False
    #: A part of the call could not be read: it must not run.
    damaged: bool = False
    #: The upstream closed it without a byte of arguments, and they became `{}`.
    supplied: bool = False
    #: The same tool under another id, begun while this one had no arguments: perhaps this one under a new id.
    followed_by: "KnownCall | None" = None
    has_arguments: bool = False
    #: Their first characters after white space, and the last piece.
    head: str = ""
    last_piece: str = ""
    boundary: Boundary = field(default_factory=Boundary)
    #: All of them so far is one `{}`, which waits for what comes next; which was then left out (Q20).
    seed: bool = False
    seed_dropped: bool = False
    #: They are `{}`, and that is out.
    bare: bool = False
    #: What came before the name: pieces of arguments, and other members.
    early: list[str] = field(default_factory=list[str])
    early_chars: int = 0
    extras: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def unfinished(self) -> bool:
        """Its arguments have begun and are not whole."""
        return self.has_arguments and not self.boundary.complete

    def take(self, text: str) -> int | None:
        """Add a piece of arguments; return where in it a second value opens."""
        self.has_arguments = self.has_arguments or bool(text)
        if len(self.head) < _HEAD_CHARS:
            self.head = (self.head + text).lstrip()[:_HEAD_CHARS]
        return None if self.custom else self.boundary.feed(text)

    def entry(self, text: str) -> dict[str, Any]:
        """Return an entry of `tool_calls` with one more piece of arguments."""
        return {"index": self.number, **call_members(custom=bool(self.custom), arguments=text)}

    def forget_seed(self) -> None:
        """Take the `{}` back: it was not an argument."""
        self.seed = self.bare = self.has_arguments = False
        self.seed_dropped = True
        self.head = ""
        self.boundary = Boundary()


class Entry:
    """An entry of `tool_calls`, read without trusting it: what cannot be used counts as absent."""

    def __init__(self, path: Path, given: dict[str, Any]) -> None:
        index, call_id = given.get("index"), given.get("id")
        self.path = path
        self.given = given
        self.index = index if type(index) is int else None
        self.id = call_id if isinstance(call_id, str) and call_id != "null" else ""  # Q4: the text "null"
        #: The member with the name and the arguments or, of a custom tool, the input.
        self.function, custom = function_of(given)
        self.settle(custom=custom)
        fields = self.function or {}
        name, arguments = fields.get("name"), fields.get(self.arguments)
        self.name = name if isinstance(name, str) else ""
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else dumps(arguments).decode()
        #: The arguments as the text that the client will see.
        self.text = arguments

    def settle(self, *, custom: bool) -> None:
        """Set the kind of tool: the member that is read, the one that is ignored, and the key of the arguments."""
        self.custom = custom
        self.member, self.other = ("custom", "function") if custom else ("function", "custom")
        self.arguments = "input" if custom else "arguments"

    def may_be_of(self, call: KnownCall) -> bool:
        """Return whether entry and call are both of a function or both of a custom tool; metadata may be of either."""
        return self.function is None or call.custom in (None, self.custom)


class Draft:
    """One chunk under repair. Its value stays as it came; changes are collected, at most one per member."""

    def __init__(self, value: dict[str, Any], envelope: Envelope, out: Out) -> None:
        self.n = out.n
        self.value = value
        self.envelope = envelope
        #: The frame that carries it.
        self.out = out
        #: Chunks of ours that go out before and after this one, with the names of their repairs.
        self.before: list[tuple[str, dict[str, Any]]] = []
        self.after: list[tuple[str, dict[str, Any]]] = []
        self.events: list[Event] = []
        #: Repairs that only note something.
        self.flags: list[str] = []
        #: It has more than text of an open choice, or something that may be repaired otherwise when it comes again.
        self.unique = False
        #: A choice of this chunk finished.
        self.finished = False
        #: The upstream's finish reason, if it is one that says it failed.
        self.failure = ""
        #: What decides about arguments of this chunk that may be mere seeds (Q20).
        self.seeds: list[Callable[[], None]] = []
        #: The last entry of this chunk for each call that it mentions.
        self.touched: dict[KnownCall, Entry] = {}
        self.edits: dict[tuple[Path, str | int], Edit] = {}
        self._places: Places | None = None

    def ours(self, choice: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        """Return a chunk of ours for `before` or `after`."""
        return chunk(self.envelope, choice, delta, finish)

    def set(self, repair: str, path: Path, key: str, value: Any) -> None:
        """Replace or insert a member."""
        self.edits[path, key] = Edit(repair, path, key, value)

    def drop(self, repair: str, path: Path, key: str | int) -> None:
        """Remove a member, or an element of the list at `path`."""
        self.edits[path, key] = Edit(repair, path, key, ABSENT)

    def quote(self, repair: str, path: Path, key: str) -> None:
        """Replace a value by a string with its own JSON text: 12 by "12"."""
        self._places = self._places or Places(self.out.payload or dumps(self.value))
        self.set(repair, path, key, self._places.text((*path, key)).decode())

    def say(self, entry: Entry, repair: str, key: str, text: str) -> None:
        """Set the name or the arguments of an entry of `tool_calls`."""
        if entry.function is None:
            self.set(repair, entry.path, entry.member, {key: text})
        elif entry.function.get(key) == text:  # leave it as it came after all
            self.edits.pop(((*entry.path, entry.member), key), None)
        else:
            self.set(repair, (*entry.path, entry.member), key, text)
