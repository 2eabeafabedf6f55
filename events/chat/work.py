"""One chunk under repair: what to change in it, and what comes out beside it"""

from typing import Any, Protocol

from ..core.json_text import dumps
from ..core.model import Event
from ..core.splice import Action, Op, Path
from .entry import Entry
from .known import KnownCall
from .write import Envelope

__all__ = ["Work", "say"]


class _Seeding(Protocol):
    """The calls of a choice: whether a `{}` among them was a seed, so that each one is (Q20)."""

    seeding: bool


class Work:
    """One chunk under repair: what to change in it, and what comes out beside it."""

    # fmt: off
    __slots__ = (
        "_ops", "after", "base", "before", "envelope", "events", "failure", "finished", "flags", "n", "seeds",
        "touched", "value",
    )
    # fmt: on

    def __init__(self, n: int, value: dict[str, Any], envelope: Envelope, *, base: int = 0) -> None:
        self.n = n
        #: Where the chunk's frame stands among the bytes of its record.
        self.base = base
        self.value = value
        self.envelope = envelope
        self._ops: dict[tuple[Path, str], Op] = {}
        #: Frames of our own that go before and behind the chunk: the name of the repair and the payload.
        self.before: list[tuple[str, bytes]] = []
        self.after: list[tuple[str, bytes]] = []
        self.events: list[Event] = []
        self.flags: list[str] = []
        #: A choice of this chunk finished.
        self.finished = False
        #: The upstream's finish was one that says it failed.
        self.failure = ""
        #: Entries of this chunk whose arguments may be mere seeds (Q20), and whose they are.
        self.seeds: list[tuple[Entry, KnownCall, _Seeding]] = []
        #: The last entry of this chunk for each call that it speaks of.
        self.touched: dict[KnownCall, Entry] = {}

    @property
    def ops(self) -> list[Op]:
        """The changes, at most one a member."""
        return list(self._ops.values())

    def op(self, repair: str, path: Path, action: Action, key: str = "", value: bytes = b"") -> None:
        """One more change; it takes the place of an earlier one of the same member."""
        self._ops[path, key] = Op(repair, path, action, key, value)

    def keep(self, path: Path, key: str) -> None:
        """No change of this member after all."""
        self._ops.pop((path, key), None)

    def settle(self) -> None:
        """Nothing more can show what the `{}` of this chunk are: seeds, if any `{}` of their choice was one (Q20)."""
        for entry, call, calls in self.seeds:
            if call.seed and calls.seeding:
                call.forget_seed()
                call.seed_dropped = True
            if call.seed_dropped:
                say(self, entry, "arguments_seed", "arguments", "")
            call.seed = call.seed_dropped = False


def say(work: Work, entry: Entry, repair: str, key: str, text: str) -> None:
    """A member of what the entry says its name and arguments in says this."""
    if entry.function is None:
        work.op(repair, entry.path, Action.SET, entry.member, dumps({key: text}))
    elif entry.function.get(key) == text:
        work.keep((*entry.path, entry.member), key)
    else:
        work.op(repair, (*entry.path, entry.member), Action.SET, key, dumps(text))
