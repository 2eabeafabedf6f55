"""One content block of a message under repair: what its start and its deltas mean, and what they lack."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.json_text import ABSENT, as_object, dumps, is_object, parse
from ..core.model import (
    Event,
    Proof,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolProgress,
)
from ..emission.frames import Edit
from ..folds.wire import Call
from .frames import BLOCKS, DELTAS, INPUT_BLOCKS, OPENED

__all__ = ["Block", "delta_edits"]

_BLOCK = ("content_block",)
_DELTA = ("delta",)


@dataclass(slots=True, eq=False)
class Block:
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
    def takes_input(self) -> bool:
        return self.type in INPUT_BLOCKS

    def start(self, block: Mapping[str, Any]) -> list[Edit]:
        """Return what its start needs: content goes into deltas, and members that SDKs demand are added."""
        edits: list[Edit] = []
        for member, empty in BLOCKS[self.type].items():
            if not isinstance(block.get(member), type(empty)) and member != "input":
                edits.append(Edit("block_member", _BLOCK, member, empty))
        if self.type in OPENED and (text := block.get(self.type)) and isinstance(text, str):
            self.seed = text
            edits.append(Edit("block_text", _BLOCK, self.type, ""))
        if self.takes_input and (given := block.get("input", ABSENT)) != {}:
            if given:
                self.given = given if isinstance(given, str) else dumps(given).decode()
            edits.append(Edit("block_input" if self.given else "block_member", _BLOCK, "input", {}))
        return edits

    def events(self, n: int, block: Mapping[str, Any], ran: Mapping[str, Call]) -> list[Event]:
        """Return what its start means, but for the start of a client's call; `ran` are the tools of the upstream."""
        match self.type:
            case "server_tool_use" | "mcp_tool_use" if (tool := _named(block.get("id"))) is not None:
                name = block.get("name")
                return [ToolProgress(n=n, id=tool, name=name if isinstance(name, str) else "", status="running")]
            case "redacted_thinking":
                return [Proof(n=n, choice=0, call=None, kind="redacted_thinking", value=block.get("data"))]
            case "thinking" if block.get("signature"):
                return [Proof(n=n, choice=0, call=None, kind="signature", value=block["signature"])]
            case _ if self.type.endswith("_tool_result") and (tool := _named(block.get("tool_use_id"))) is not None:
                content = as_object(block.get("content"))
                failed = block.get("is_error") is True or str(content.get("type")).endswith("_error")
                status = "failed" if failed else "completed"
                return [ToolProgress(n=n, id=tool, name=ran[tool].name if tool in ran else "", status=status)]
            case _:
                return []

    def said(self, n: int, kind: str, text: str) -> list[Event]:
        """Return what a delta means, and keep its input."""
        if not text:
            return []
        match kind:
            case "text_delta":
                return [TextDelta(n=n, choice=0, text=text)]
            case "thinking_delta":
                return [ReasoningDelta(n=n, choice=0, text=text)]
            case "signature_delta":
                return [Proof(n=n, choice=0, call=None, kind="signature", value=text)]
            case _:  # the others hold no text
                self.given = ""
                self.input.append(text)
                return [] if self.call is None else [ToolArgumentsDelta(n=n, choice=0, call=self.call, text=text)]

    def unsaid(self, text: str) -> str:
        """Return the text of the start that must precede this text: the part that no delta repeats."""
        seed = self.seed
        if text.startswith(seed):
            self.seed = ""
        elif text and seed.startswith(text):
            self.seed = seed[len(text) :]
        else:
            self.seed = ""
            return seed
        return ""

    @property
    def text(self) -> str:
        """Its input; to every reader white space alone is nothing."""
        return "".join(self.input).strip()

    @property
    def whole(self) -> bool:
        """Whether its input is JSON."""
        return parse(self.text.encode("utf-8", "replace")) is not ABSENT


def _named(given: Any) -> str | None:
    return given if isinstance(given, str) and given else None


def delta_edits(delta: Mapping[str, Any]) -> list[Edit] | None:
    """Return what a delta of a known type needs to hold text; None if it holds nothing that can be read."""
    kind = delta["type"]
    member = DELTAS[kind].member
    if not member:
        return [] if kind != "citations_delta" or is_object(delta.get("citation")) else None
    given = delta.get(member, ABSENT)
    if isinstance(given, str):
        return []
    if kind == "thinking_delta" and isinstance(text := delta.get("text"), str):
        return [Edit("delta_member", _DELTA, "text", ABSENT), Edit("delta_member", _DELTA, member, text)]
    if kind == "input_json_delta" and given is not ABSENT and given is not None:
        return [Edit("delta_member", _DELTA, member, dumps(given).decode())]
    return [Edit("delta_member", _DELTA, member, "")]
