"""The blocks of a message under repair, one open at a time: order, starts and stops, and when a call is handed over."""

from collections.abc import Mapping
from typing import Any, Final

from ..core import limits
from ..core.json_text import ABSENT, as_object, as_text
from ..core.model import (
    Event,
    ForeignFrame,
    HandedOver,
    ToolArgumentsComplete,
    ToolArgumentsDelta,
    ToolCallDamaged,
    ToolCallStarted,
)
from ..emission.dialect import Context, Step
from ..emission.frames import Edit, Out
from . import frames
from .block import Block, delta_edits
from .frames import BLOCKS, DELTAS, OPENED, ours

__all__ = ["Blocks", "foreign"]

_TEXTS: Final = frozenset({"text_delta", "thinking_delta"})


def foreign(n: int, why: str = "foreign") -> Step:
    """Return a step without a frame: something was withheld, or deserves a flag."""
    return Step(n, [ForeignFrame(n=n, why=why)])


class Blocks:
    """The blocks of one attempt."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: A block has come.
        self.said = False
        self.open: Block | None = None
        #: Frames of blocks that began while another one was open, in order: they wait for its stop.
        self._queue: dict[int | None, list[Out]] = {}
        self._queued_bytes = 0
        #: The stop of a call whose input is no JSON: the next frame decides whether the call was cut.
        self._stop: Out | None = None
        #: Calls of the client so far, their ids, and the last call (or other block with input) at each index.
        self.calls = 0
        self._ids: set[str] = set()
        self._call_at: dict[int | None, int | None] = {}
        #: The index of a block that is withheld, as no reader knows its type.
        self._foreign: Any = ABSENT

    def withheld(self, n: int, came: bytes | None, repair: str) -> list[Step]:
        """Enter in the ledger that a frame is not sent."""
        self._context.ledger.frame(n, repair, came, None)
        return []

    def damaged(self, n: int, unread: bytes) -> list[Step]:
        """Return the step that keeps calls from running of which these bytes may have been a part."""
        call = self.open.call if self.open is not None else None
        if call is None and b"tool_use" not in unread and b"input_json" not in unread:
            return []
        return [Step(n, [ToolCallDamaged(n=n, choice=0, call=self._next_call() if call is None else call)])]

    def _next_call(self) -> int:
        self.calls += 1
        return self.calls - 1

    @property
    def in_doubt(self) -> bool:
        """Whether a call is open that may have been cut: its input is no JSON, or nothing at all (Q37)."""
        return self.open is not None and self.open.call is not None and not self.open.whole

    def frame(self, out: Out) -> list[Step]:
        """Read a frame of a block, now or when the block that is open has stopped."""
        n, value = out.n, out.value
        steps = self.decide()
        kind, index, block = value["type"], value.get("index"), self.open
        if type(index) is not int:
            index = None if block is None or kind == "content_block_start" else block.key
        if index == self._foreign and kind != "content_block_start":
            self._foreign = ABSENT if kind == "content_block_stop" else index
            return [*steps, *self.withheld(n, out.came, "foreign")]
        if block is not None and index != block.key:
            return [*steps, *self._wait(index, out)]
        return [*steps, *self._read(index, out), *self._drain()]

    def _wait(self, index: int | None, out: Out) -> list[Step]:
        """Keep a frame until the open block stops: readers mix up blocks that overlap (clients.md, LiteLLM)."""
        if index not in self._queue:
            if out.value["type"] == "content_block_stop":
                return self.withheld(out.n, out.came, "block_not_open")
            self._context.ledger.enter(out.n, "block_order")
        self._queue.setdefault(index, []).append(out)
        self._queued_bytes += out.size
        self._context.live.overflow |= self._queued_bytes > limits.HELD_BYTES_MAX
        return []

    def _drain(self) -> list[Step]:
        """Read the frames that waited, block by block, until one is still open."""
        steps: list[Step] = []
        while self._queue and self.open is None:
            index = next(iter(self._queue))
            for out in self._queue.pop(index):
                self._queued_bytes -= out.size
                steps += [*self.decide(), *self._read(index, out)]
        return steps

    def _read(self, index: int | None, out: Out) -> list[Step]:
        match out.value["type"]:
            case "content_block_start":
                return self._start(index, out)
            case "content_block_delta":
                return self._delta(index, out)
            case _ if self.open is None:
                return self.withheld(out.n, out.came, "block_not_open")
            case _:
                return self._stopped(self.open, out)

    def _start(self, index: int | None, out: Out) -> list[Step]:
        n = out.n
        given: Any = out.value.get("content_block")
        kind = as_text(as_object(given).get("type"))
        steps = self._close_open(n, cut=False)
        if kind not in BLOCKS:
            self._foreign = index
            return [*steps, *self.withheld(n, out.came, "foreign"), foreign(n)]
        if index == self._foreign:
            self._foreign = ABSENT
        self.said = True
        block = self.open = Block(index, kind)
        edits, started = block.start(given), list[Event]()
        if kind == "tool_use":
            started, more = self._begin_call(n, block, given)
            edits += more
        if block.takes_input:
            self._call_at[index] = block.call
        out.edit(edits)
        events = [*started, *block.events(n, out.value["content_block"], self._context.live.ran)]
        return [*steps, Step(n, events, out, delivers=kind not in OPENED, choices=(0,))]

    def _begin_call(self, n: int, block: Block, given: Mapping[str, Any]) -> tuple[list[Event], list[Edit]]:
        """Return the start of a call, and the edit for an id that is missing or that another call has."""
        block.call = self._next_call()
        call_id, name, edits = given.get("id"), given.get("name"), list[Edit]()
        if not isinstance(call_id, str) or not call_id or call_id in self._ids:
            call_id = f"toolu_{self._context.stream_id}_{block.call}"
            edits.append(Edit("call_id", ("content_block",), "id", call_id))
        self._ids.add(call_id)
        name = name if isinstance(name, str) else ""
        return [ToolCallStarted(n=n, choice=0, call=block.call, id=call_id, name=name)], edits

    def _delta(self, index: int | None, out: Out) -> list[Step]:
        n, block = out.n, self.open
        delta = as_object(out.value.get("delta"))
        kind = as_text(delta.get("type"))
        of = DELTAS.get(kind)
        edits = delta_edits(delta) if of is not None else None
        if of is None or edits is None:
            return [*self.withheld(n, out.came, "foreign"), foreign(n)]
        steps: list[Step] = []
        if block is None or (block.type != of.block if of.block else not block.takes_input):
            if not of.block or (block is not None and block.takes_input):
                return self._stray(index, out, kind)
            steps += self._close_open(n, cut=False)
            start = frames.block_start({"type": of.block, **BLOCKS[of.block]})
            steps += self._start(index, ours(n, start, "block_start_supplied"))
            block = self.open
            assert block is not None, "it was started"
        out.edit(edits)
        text = out.value["delta"][of.member] if of.member else ""
        plain = kind in _TEXTS and not steps and not block.seed
        if block.seed and (text or kind not in _TEXTS) and (unsaid := block.unsaid(text if kind in _TEXTS else "")):
            steps.append(self._supplied(n, block, OPENED[block.type], unsaid, "block_text"))
        events = block.said(n, kind, text)
        return [*steps, Step(n, events, out, bool(text or not of.member), (0,), plain)]

    def _stray(self, index: int | None, out: Out, kind: str) -> list[Step]:
        """Withhold a delta that has no block; input without a block belongs to a call that no client may run."""
        n = out.n
        self.withheld(n, out.came, "block_not_open")
        if kind != "input_json_delta":
            return [foreign(n, "block_not_open")]
        if not out.value["delta"].get("partial_json"):
            return []
        if index not in self._call_at:
            self._call_at[index] = self._next_call()
        call = self._call_at[index]
        return [] if call is None else [Step(n, [ToolCallDamaged(n=n, choice=0, call=call)])]

    def _supplied(self, n: int, block: Block, kind: str, text: str, repair: str) -> Step:
        delta = ours(n, frames.block_delta(kind, text), repair)
        return Step(n, block.said(n, kind, text), delta, delivers=True, choices=(0,))

    def _stopped(self, block: Block, out: Out) -> list[Step]:
        n = out.n
        steps: list[Step] = []
        if block.seed:
            steps.append(self._supplied(n, block, OPENED[block.type], block.unsaid(""), "block_text"))
        if block.given:
            steps.append(self._supplied(n, block, "input_json_delta", block.given, "block_input"))
        if block.call is None:
            self.open = None
            return [*steps, Step(n, (), out, choices=(0,))]
        self._stop = out
        return [*steps, *self.decide()] if block.whole or self._queue else steps

    def decide(self, *, cut: bool = False) -> list[Step]:
        """Send the stop of a call that waits, or withhold it where it would make a client run a call that was cut."""
        out, block = self._stop, self.open
        if out is None or block is None or block.call is None:
            return []
        self._stop = self.open = None
        n, call = out.n, block.call
        if cut and not block.text:  # to an SDK it is a call without arguments
            return self.withheld(n, out.came, "cut_call_stop")
        if cut:
            return [Step(n, (), out, choices=(0,))]
        events: list[Event] = [] if block.text else [ToolArgumentsDelta(n=n, choice=0, call=call, text="{}")]
        events += [ToolArgumentsComplete(n=n, choice=0, call=call), HandedOver(n=n, choice=0, call=call)]
        return [Step(n, events, out, delivers=True, choices=(0,))]

    def _close_open(self, n: int, *, cut: bool) -> list[Step]:
        """Stop a block that lacks its stop; a call that was cut stays open, so that no client runs it."""
        block = self.open
        if block is None:
            return []
        if self._stop is not None:
            return self.decide(cut=cut)
        if cut and block.call is not None:
            self.open = None
            return []
        steps = self._stopped(block, ours(n, frames.block_stop(), "block_stop_supplied"))
        return [*steps, *self.decide()]

    def close(self, n: int, *, cut: bool) -> list[Step]:
        """Stop every block that has begun: the message ends. Only the last one may have been cut."""
        steps = self._close_open(n, cut=cut and not self._queue)
        while self._queue:
            steps += self._drain()
            steps += self._close_open(n, cut=cut and not self._queue)
        return steps

    def lose(self) -> list[Step]:
        """Withhold what waits for a stop that does not come: the stream ends here, or nothing waits."""
        steps: list[Step] = []
        if self._stop is not None:
            self.withheld(self._stop.n, self._stop.came, "cut_call_stop")
            self._stop = self.open = None
        queue, self._queue = self._queue, {}
        for out in (out for outs in queue.values() for out in outs):
            self.withheld(out.n, out.came, "cut_block")
            given = as_object(out.value.get("content_block"))
            if given.get("type") == "tool_use":
                events, _ = self._begin_call(out.n, Block(None, "tool_use"), given)
                steps.append(Step(out.n, events))
        return steps
