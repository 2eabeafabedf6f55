"""Calls that wait for the finish of their choice, so that a call which is cut was never shown."""

from typing import Any, Final

from ..ledger import Ledger
from ..limits import HELD_BYTES_MAX
from ..splice import Action, Op
from ..sse import encode
from . import write
from .outbox import Outbox
from .repair import Chunk

__all__ = ["HeldCalls"]

_CALLS: Final = ("tool_calls", "function_call")


class HeldCalls:
    """The held chunks of one attempt, by choice."""

    def __init__(self, outbox: Outbox, ledger: Ledger) -> None:
        #: More than any stream holds: the caller ends it with the cause `limit`.
        self.overflow = False
        self._outbox = outbox
        self._ledger = ledger
        self._bytes = 0
        self._chunks: dict[int, list[Chunk]] = {}

    def hold(self, chunk: Chunk, finished: set[int], broken: set[int], envelope: write.Envelope) -> bytes:
        """What of the chunk may go out now: nothing, the chunk, or what it says beside its calls.

        Of a choice that `finished` the calls go out with the chunk, unless they are `broken`.
        """
        ops: list[Op] = []
        waiting: list[int] = []
        for place, choice in enumerate(chunk.value["choices"]):
            index = choice["index"]
            keys = [key for key in _CALLS if key in choice["delta"]]
            if not keys or (index in finished and index not in broken):
                continue
            if index not in finished:
                waiting.append(index)
            ops += [Op("held_call", ("choices", place, "delta"), Action.DROP, key) for key in keys]
        if waiting and len(chunk.value["choices"]) == 1 and not _speaks_beside_calls(chunk.value):
            self._keep(waiting[0], chunk)
            return b""
        for index in waiting:
            self._keep(index, self._calls_alone(chunk, index, envelope))
        return self._ledger.edited(chunk.n, chunk.frame, ops)

    def release(self, choice: int, *, shown: bool) -> None:
        """The choice has finished: its calls go out, or nobody will see them."""
        for chunk in self._chunks.pop(choice, []):
            if shown:
                self._outbox.send(chunk.n, chunk.frame)
            else:
                self._ledger.removed(chunk.n, "held_call_lost", chunk.frame)

    def drop_all(self) -> None:
        """The stream was cut."""
        for choice in list(self._chunks):
            self.release(choice, shown=False)

    def waiting(self) -> list[int]:
        """The records whose calls wait; they wait no longer."""
        numbers = [chunk.n for chunks in self._chunks.values() for chunk in chunks]
        self._chunks.clear()
        return numbers

    def _keep(self, choice: int, chunk: Chunk) -> None:
        self._bytes += len(chunk.frame)
        if self._bytes > HELD_BYTES_MAX:
            self.overflow = True
            self._ledger.removed(chunk.n, "held_call_lost", chunk.frame)
        else:
            self._chunks.setdefault(choice, []).append(chunk)

    def _calls_alone(self, chunk: Chunk, index: int, envelope: write.Envelope) -> Chunk:
        """The calls of one choice out of a chunk that says more: a frame of ours, as two go out for one that came."""
        choice = next(choice for choice in chunk.value["choices"] if choice["index"] == index)
        delta = {key: choice["delta"][key] for key in _CALLS if key in choice["delta"]}
        frame = encode(write.chunk(envelope, index, delta))
        self._ledger.added(chunk.n, "held_call", frame)
        return Chunk(chunk.n, chunk.value, frame)


def _speaks_beside_calls(value: dict[str, Any]) -> bool:
    """A role counts: it must not come behind the text that follows."""
    delta = value["choices"][0]["delta"]
    return bool(value.get("usage")) or any(part for key, part in delta.items() if key not in _CALLS)
