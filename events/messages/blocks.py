"""The blocks of a message under repair, one open at a time: their starts, deltas and stops, and calls handed over."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..core import limits, model
from ..core.json_text import ABSENT, as_object, as_text, dumps, is_object, parse
from ..core.model import Event
from ..emission.dialect import Context, Step
from ..emission.frames import Edit, Out
from ..emission.reading import TypedReader
from ..folds.wire import Call
from .frames import BLOCKS, DELTAS, INPUT_BLOCKS, block_delta, block_frame, ours

__all__ = ["Blocks"]

_TEXTS: Final = frozenset({"text_delta", "thinking_delta"})
_BLOCK: Final = ("content_block",)
#: Blocks whose content may come with their start, and the delta that it belongs in.
_OPENED: Final[Mapping[str, str]] = {"text": "text_delta", "thinking": "thinking_delta"}


@dataclass(slots=True, eq=False)
class _Block:
    """A block that has started and not stopped."""

    #: The index that the upstream gave it.
    key: int | None
    type: str
    #: The number of the client's call that it is.
    call: int | None = None
    #: Text of its start that no delta has repeated yet (Q124).
    seed: str = ""
    #: The input of its start as JSON text, while no delta brings one (Q123).
    given: str = ""
    #: Its input so far.
    input: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """Its input; to every reader white space alone is nothing."""
        return "".join(self.input).strip()

    @property
    def whole(self) -> bool:
        """Whether its input is JSON."""
        return parse(self.text.encode("utf-8", "replace")) is not ABSENT

    def start(self, block: Mapping[str, Any]) -> list[Edit]:
        """Return what its start needs: content goes into deltas, and members that SDKs demand are added."""
        needed = BLOCKS[self.type]
        wrong = [member for member, empty in needed.items() if not isinstance(block.get(member), type(empty))]
        edits = [Edit("block_member", _BLOCK, member, needed[member]) for member in wrong]
        if self.type in _OPENED and (text := block.get(self.type)) and isinstance(text, str):
            self.seed = text
            edits.append(Edit("block_text", _BLOCK, self.type, ""))
        if self.type in INPUT_BLOCKS and (given := block.get("input", ABSENT)) != {}:
            if given:
                self.given = given if isinstance(given, str) else dumps(given).decode()
            edits.append(Edit("block_input" if self.given else "block_member", _BLOCK, "input", {}))
        return edits

    def started(self, n: int, block: Mapping[str, Any], ran: Mapping[str, Call]) -> list[Event]:
        """Return what its start means, but for the start of a client's call; `ran` are the tools of the upstream."""
        match self.type:
            case "server_tool_use" | "mcp_tool_use" if tool := as_text(block.get("id")):
                return [model.ToolProgress(n=n, id=tool, name=as_text(block.get("name")), status="running")]
            case "redacted_thinking":
                return [model.Proof(n=n, choice=0, call=None, kind="redacted_thinking", value=block.get("data"))]
            case "thinking" if block.get("signature"):
                return [model.Proof(n=n, choice=0, call=None, kind="signature", value=block["signature"])]
            case _ if self.type.endswith("_tool_result") and (tool := as_text(block.get("tool_use_id"))):
                kind = str(as_object(block.get("content")).get("type"))
                status = "failed" if block.get("is_error") is True or kind.endswith("_error") else "completed"
                return [model.ToolProgress(n=n, id=tool, name=ran[tool].name if tool in ran else "", status=status)]
            case _:
                return []

    def said(self, n: int, kind: str, text: str) -> list[Event]:
        """Return what a delta means, and keep its input."""
        match kind:
            case _ if not text:
                return []
            case "text_delta":
                return [model.TextDelta(n=n, choice=0, text=text)]
            case "thinking_delta":
                return [model.ReasoningDelta(n=n, choice=0, text=text)]
            case "signature_delta":
                return [model.Proof(n=n, choice=0, call=None, kind="signature", value=text)]
            case _:  # the others hold no text
                self.given = ""
                self.input.append(text)
                return [] if self.call is None else [_arguments(n, self.call, text)]

    def unsaid(self, text: str) -> str:
        """Return the text of the start that must precede this text: the part that no delta repeats."""
        seed, self.seed = self.seed, ""
        if text and seed.startswith(text):
            self.seed = seed[len(text) :]
        return "" if text.startswith(seed) or self.seed else seed


class Blocks(TypedReader):
    """The part of a reader that reads the blocks of a message."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: A block has come.
        self._said = False
        self._open: _Block | None = None
        #: Frames of blocks that began while another one was open, in order: they wait for its stop.
        self._queue: dict[int | None, list[Out]] = {}
        self._queued_bytes = 0
        #: The stop of a call whose input is no JSON: the next frame decides whether the call was cut.
        self._stop: Out | None = None
        #: Calls of the client so far, their ids, and the last call (or other block with input) at each index.
        self._calls = 0
        self._ids: set[str] = set()
        self._call_at: dict[int | None, int | None] = {}
        #: The index of a block that is withheld, as no reader knows its type.
        self._foreign: Any = ABSENT

    def _damage(self, unread: bytes) -> None:
        call = self._open.call if self._open is not None else None
        if call is not None or b"tool_use" in unread or b"input_json" in unread:
            self._damaged(self._n, self._next_call() if call is None else call)

    def _damaged(self, n: int, call: int) -> None:
        self._steps.append(Step(n, [model.ToolCallDamaged(n=n, choice=0, call=call)]))

    def _next_call(self) -> int:
        self._calls += 1
        return self._calls - 1

    @property
    def _in_doubt(self) -> bool:
        """Whether a call is open that may have been cut: its input is no JSON, or nothing at all (Q37)."""
        return self._open is not None and self._open.call is not None and not self._open.whole

    def _block(self, out: Out) -> None:
        """Read a frame of a block, now or when the block that is open has stopped."""
        self._decide()
        kind, index, block = out.value["type"], out.value.get("index"), self._open
        starts = kind == "content_block_start"
        if type(index) is not int:
            index = None if block is None or starts else block.key
        if index == self._foreign and not starts:
            self._foreign = ABSENT if kind == "content_block_stop" else index
            self._withhold(out, "foreign")
        elif block is not None and index != block.key:
            self._wait(index, out)
        else:
            self._read_block(index, out)
            self._drain()

    def _wait(self, index: int | None, out: Out) -> None:
        """Keep a frame until the open block stops: readers mix up blocks that overlap (clients.md, LiteLLM)."""
        if index not in self._queue:
            if out.value["type"] == "content_block_stop":
                self._withhold(out, "block_not_open")
                return
            self._context.ledger.enter(out.n, "block_order")
        self._queue.setdefault(index, []).append(out)
        self._queued_bytes += out.size
        self._context.live.overflow |= self._queued_bytes > limits.HELD_BYTES_MAX

    def _drain(self) -> None:
        """Read the frames that waited, block by block, until one is still open."""
        while self._queue and self._open is None:
            index = next(iter(self._queue))
            for out in self._queue.pop(index):
                self._queued_bytes -= out.size
                self._decide()
                self._read_block(index, out)

    def _read_block(self, index: int | None, out: Out) -> None:
        match out.value["type"]:
            case "content_block_delta":
                self._delta(index, out)
            case "content_block_start":
                self._start(index, out)
            case _ if self._open is None:
                self._withhold(out, "block_not_open")
            case _:
                self._stopped(self._open, out)

    def _start(self, index: int | None, out: Out) -> None:
        given: Any = out.value.get("content_block")
        kind = as_text(as_object(given).get("type"))
        self._close_open(out.n, cut=False)
        if kind not in BLOCKS:
            self._foreign = index
            self._withhold(out, "foreign", "foreign")
            return
        if index == self._foreign:
            self._foreign = ABSENT
        self._said = True
        block = self._open = _Block(index, kind)
        edits = block.start(given)
        events = [self._begin_call(out.n, block, given, edits)] if kind == "tool_use" else []
        if kind in INPUT_BLOCKS:
            self._call_at[index] = block.call
        out.edit(edits)
        events += block.started(out.n, out.value["content_block"], self._context.live.ran)
        self._step(events, out, delivers=kind not in _OPENED)

    def _begin_call(self, n: int, block: _Block, given: Mapping[str, Any], edits: list[Edit]) -> Event:
        """Return the start of a call, and add the edit for an id that is missing or that another call has."""
        call = block.call = self._next_call()
        call_id = given.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in self._ids:
            call_id = f"toolu_{self._context.stream_id}_{call}"
            edits.append(Edit("call_id", _BLOCK, "id", call_id))
        self._ids.add(call_id)
        return model.ToolCallStarted(n=n, choice=0, call=call, id=call_id, name=as_text(given.get("name")))

    def _delta(self, index: int | None, out: Out) -> None:
        n, block, delta = out.n, self._open, as_object(out.value.get("delta"))
        kind = as_text(delta.get("type"))
        of = DELTAS.get(kind)
        edits = None if of is None else _edits(kind, of.member, delta)
        if of is None or edits is None:
            self._withhold(out, "foreign", "foreign")
            return
        takes_input = block is not None and block.type in INPUT_BLOCKS
        if block is None or not (block.type == of.block if of.block else takes_input):
            if not of.block or takes_input:
                self._stray(index, out, kind)
                return
            self._close_open(n, cut=False)
            start = block_frame("start", content_block={"type": of.block, **BLOCKS[of.block]})
            self._start(index, ours(n, start, "block_start_supplied"))
            block = self._open
            assert block is not None, "it was started"
        out.edit(edits)
        text, plain = out.value["delta"][of.member] if of.member else "", kind in _TEXTS and not block.seed
        if block.seed and (text or kind not in _TEXTS) and (unsaid := block.unsaid(text if kind in _TEXTS else "")):
            self._supply(n, block, _OPENED[block.type], unsaid, "block_text")
        self._step(block.said(n, kind, text), out, delivers=bool(text or not of.member), plain=plain)

    def _stray(self, index: int | None, out: Out, kind: str) -> None:
        """Withhold a delta that has no block; input without a block belongs to a call that no client may run."""
        is_input = kind == "input_json_delta"
        self._withhold(out, "block_not_open", "" if is_input else "block_not_open")
        if is_input and out.value["delta"].get("partial_json"):
            if index not in self._call_at:
                self._call_at[index] = self._next_call()
            if (call := self._call_at[index]) is not None:
                self._damaged(out.n, call)

    def _supply(self, n: int, block: _Block, kind: str, text: str, repair: str) -> None:
        self._step(block.said(n, kind, text), ours(n, block_delta(kind, text), repair), delivers=True)

    def _stopped(self, block: _Block, out: Out) -> None:
        if block.seed:
            self._supply(out.n, block, _OPENED[block.type], block.unsaid(""), "block_text")
        if block.given:
            self._supply(out.n, block, "input_json_delta", block.given, "block_input")
        if block.call is None:
            self._open = None
            self._step((), out)
            return
        self._stop = out
        if block.whole or self._queue:
            self._decide()

    def _decide(self, *, cut: bool = False) -> None:
        """Send the stop of a call that waits, or withhold it where it would make a client run a call that was cut."""
        out, block = self._stop, self._open
        if out is None or block is None or block.call is None:
            return
        self._stop = self._open = None
        n, call = out.n, block.call
        if not cut:
            empty = [] if block.text else [_arguments(n, call, "{}")]
            complete = model.ToolArgumentsComplete(n=n, choice=0, call=call)
            self._step([*empty, complete, model.HandedOver(n=n, choice=0, call=call)], out, delivers=True)
        elif block.text:
            self._step((), out)
        else:  # to an SDK it is a call without arguments
            self._withhold(out, "cut_call_stop")

    def _close_open(self, n: int, *, cut: bool) -> None:
        """Stop a block that lacks its stop; a call that was cut stays open, so that no client runs it."""
        block = self._open
        if self._stop is not None:
            self._decide(cut=cut)
        elif block is not None and cut and block.call is not None:
            self._open = None
        elif block is not None:
            self._stopped(block, ours(n, block_frame("stop"), "block_stop_supplied"))
            self._decide()

    def _close(self, n: int, *, cut: bool) -> None:
        """Stop every block that has begun: the message ends. Only the last one may have been cut."""
        self._close_open(n, cut=cut and not self._queue)
        while self._queue:
            self._drain()
            self._close_open(n, cut=cut and not self._queue)

    def _lose(self) -> None:
        """Withhold what waits for a stop that does not come: the stream ends here, or nothing waits."""
        if self._stop is not None:
            self._withhold(self._stop, "cut_call_stop")
            self._stop = self._open = None
        queue, self._queue = self._queue, {}
        for out in (out for outs in queue.values() for out in outs):
            self._withhold(out, "cut_block")
            given = as_object(out.value.get("content_block"))
            if given.get("type") == "tool_use":
                self._steps.append(Step(out.n, [self._begin_call(out.n, _Block(None, "tool_use"), given, [])]))


def _arguments(n: int, call: int, text: str) -> Event:
    return model.ToolArgumentsDelta(n=n, choice=0, call=call, text=text)


def _edits(kind: str, member: str, delta: Mapping[str, Any]) -> list[Edit] | None:
    """Return what a delta of a known type needs to hold text; None if it holds nothing that can be read."""
    if not member:
        return [] if kind != "citations_delta" or is_object(delta.get("citation")) else None
    given, text = delta.get(member), delta.get("text")
    if isinstance(given, str):
        return []
    if kind == "thinking_delta" and isinstance(text, str):
        return [Edit("delta_member", ("delta",), "text", ABSENT), Edit("delta_member", ("delta",), member, text)]
    if kind == "input_json_delta" and given is not None:
        return [Edit("delta_member", ("delta",), member, dumps(given).decode())]
    return [Edit("delta_member", ("delta",), member, "")]
