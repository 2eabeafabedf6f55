"""Calls that wait for the finish of their choice, so that a call which is cut was never shown."""

from typing import Any, Final

from ..core.json_text import is_list
from ..core.limits import HELD_BYTES_MAX
from ..core.splice import Action, Op
from ..emission.ledger import Ledger
from ..emission.outbox import Outbox
from ..wire.sse import encode
from . import write
from .read import says_content
from .repair import Chunk

__all__ = ["HeldCalls"]

_CALLS: Final = ("tool_calls", "function_call")


class HeldCalls:
    """The held frames of one attempt, by choice."""

    def __init__(self, outbox: Outbox, ledger: Ledger) -> None:
        #: More than any stream holds: the caller ends it with the cause `limit`.
        self.overflow = False
        self._outbox = outbox
        self._ledger = ledger
        self._bytes = 0
        self._frames: dict[int, list[tuple[int, bytes]]] = {}

    def hold(self, chunk: Chunk, shown: set[int], lost: set[int], envelope: write.Envelope) -> tuple[bytes, bool]:
        """What of the chunk may go out now (nothing, the chunk, or what it says beside its calls), and whether that
        delivers content. Calls of choices that finish here go out with it if they are `shown`, and never if `lost`.
        """
        ops: list[Op] = []
        waiting: dict[int, dict[str, Any]] = {}
        delivers = False
        for place, choice in enumerate(chunk.value["choices"]):
            index, delta = choice["index"], choice["delta"]
            calls = {} if index in shown else {key: delta[key] for key in _CALLS if key in delta}
            ops += [Op("held_call", ("choices", place, "delta"), Action.DROP, key) for key in calls]
            delivers |= says_content({key: part for key, part in delta.items() if key not in calls})
            delivers |= bool(choice.get("finish_reason"))
            if calls and index not in lost:
                _join(waiting.setdefault(index, {}), calls)
        silent = not delivers and not chunk.value.get("usage") and "role" not in chunk.value["choices"][0]["delta"]
        if waiting and silent and len(chunk.value["choices"]) == 1:
            self._keep(chunk.value["choices"][0]["index"], chunk.n, chunk.frame)
            return b"", False
        for index, calls in waiting.items():  # frames of ours, as two go out for one that came
            frame = encode(write.chunk(envelope, index, calls))
            self._ledger.added(chunk.n, "held_call", frame)
            self._keep(index, chunk.n, frame)
        return self._ledger.edited(chunk.n, chunk.frame, ops), delivers

    def release(self, choice: int, *, shown: bool) -> None:
        """The choice has finished: its calls go out, or nobody will see them."""
        for n, frame in self._frames.pop(choice, []):
            if shown:
                self._outbox.send(n, frame)
            else:
                self._ledger.removed(n, "held_call_lost", frame)

    def drop_all(self) -> None:
        """The stream was cut."""
        for choice in list(self._frames):
            self.release(choice, shown=False)

    def waiting(self) -> list[int]:
        """The records whose calls wait; they wait no longer."""
        numbers = [n for frames in self._frames.values() for n, _ in frames]
        self._frames.clear()
        return numbers

    def _keep(self, choice: int, n: int, frame: bytes) -> None:
        self._bytes += len(frame)
        if self._bytes > HELD_BYTES_MAX:
            self.overflow = True
            self._ledger.removed(n, "held_call_lost", frame)
        else:
            self._frames.setdefault(choice, []).append((n, frame))


def _join(waiting: dict[str, Any], calls: dict[str, Any]) -> None:
    """Calls of one choice that stand in two entries of one chunk (Q27) wait together."""
    for key, part in calls.items():
        waiting[key] = [*waiting[key], *part] if key in waiting and is_list(part) else part
