"""Canonical frames of the Responses protocol: their names, how ours are built, and the state of the item they make."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ..core import model
from ..core.json_text import Path, as_list, as_object, joined_surrogates
from ..core.model import TextPiece
from ..emission.frames import Edit, Out

__all__ = [
    "ADDED",
    "CLIENT_CALLS",
    "DONE",
    "ENDS",
    "NO_USAGE",
    "OF_ITEM",
    "OF_PART",
    "PLACED",
    "PREFIXES",
    "SPOKEN",
    "TEXTS",
    "Item",
    "Kind",
    "Level",
    "Part",
    "begun",
    "corrected",
    "frame_value",
    "is_client_call",
    "item_frames",
    "kind_of",
    "named",
    "needed",
    "response_object",
]

ADDED: Final = "response.output_item.added"
DONE: Final = "response.output_item.done"
#: The frames that end an answer, with its status then.
ENDS: Final[Mapping[str, str]] = {f"response.{status}": status for status in ("completed", "incomplete", "failed")}
#: Events about tools that the upstream runs, of an item. openai-node raises on names that it does not know.
_HOSTED: Final = frozenset(
    f"response.{name}.{state}"
    for name, states in (
        ("code_interpreter_call", ("in_progress", "interpreting", "completed")),
        ("code_interpreter_call_code", ("delta", "done")),
        ("compaction", ("compacting",)),
        ("file_search_call", ("in_progress", "searching", "completed")),
        ("image_generation_call", ("in_progress", "generating", "partial_image", "completed")),
        ("mcp_call", ("in_progress", "completed", "failed")),
        ("mcp_list_tools", ("in_progress", "completed", "failed")),
        ("shell_call_command", ("added", "delta", "done")),
        ("shell_call_output_content", ("delta", "done")),
        ("web_search_call", ("in_progress", "searching", "completed")),
    )
    for state in states
)


class Level(IntEnum):
    """What the events of a text say of its part."""

    OPENED = 0
    PIECE = 1
    SAID = 2
    CLOSED = 3


class Kind(NamedTuple):
    """One kind of text that is streamed: its part, the item that it belongs to, and the names of its events."""

    #: The type of its part; empty if the text is a member of the item itself, or if we do not know the type.
    part: str
    item: str
    #: The member of the item that holds such parts, and the member of frames that numbers them.
    list: str
    index_key: str
    #: The member of its done event, of its part or of its item that holds the whole text; empty if we do not know it.
    member: str
    delta: str
    done: str
    event: Callable[..., TextPiece] | None


_KINDS: Final = tuple(
    Kind(part, item, at, f"{at}_index" * bool(at), member, f"response.{name}.delta", f"response.{name}.done", event)
    for part, item, at, member, name, event in (
        ("output_text", "message", "content", "text", "output_text", model.TextDelta),
        ("refusal", "message", "content", "refusal", "refusal", model.RefusalDelta),
        ("reasoning_text", "reasoning", "content", "text", "reasoning_text", model.ReasoningDelta),
        ("summary_text", "reasoning", "summary", "text", "reasoning_summary_text", model.ReasoningDelta),
        ("", "function_call", "", "arguments", "function_call_arguments", None),
        ("", "custom_tool_call", "", "input", "custom_tool_call_input", None),
        ("", "mcp_call", "", "arguments", "mcp_call_arguments", None),
    )
)
#: The kind of a part by its type, and that of the text of an item that has no parts.
OF_PART: Final[Mapping[str, Kind]] = {kind.part: kind for kind in _KINDS if kind.part}
OF_ITEM: Final[Mapping[str, Kind]] = {kind.item: kind for kind in _KINDS if not kind.part}
#: The kind of a part whose type we do not know, by its list.
_UNKNOWN: Final[Mapping[str, Kind]] = {
    OF_PART[part].list: OF_PART[part]._replace(part="", member="", event=None)
    for part in ("summary_text", "output_text")
}
#: The events of parts, by the member of the item that holds them.
_PARTS: Final[Mapping[str, str]] = {"summary": "response.reasoning_summary_part", "content": "response.content_part"}
#: Every event of a text, with its kind, or with that of an unknown part where the part says what it is.
SPOKEN: Final[Mapping[str, tuple[Level, Kind]]] = {
    **{kind.delta: (Level.PIECE, kind) for kind in _KINDS},
    **{kind.done: (Level.SAID, kind) for kind in _KINDS},
    **{f"{name}.added": (Level.OPENED, _UNKNOWN[parts]) for parts, name in _PARTS.items()},
    **{f"{name}.done": (Level.CLOSED, _UNKNOWN[parts]) for parts, name in _PARTS.items()},
}
#: Every event of an item.
PLACED: Final = frozenset({ADDED, DONE, "response.output_text.annotation.added", *SPOKEN, *_HOSTED})
#: Items that we can close: what they say is what was streamed.
TEXTS: Final = frozenset({"message", "reasoning"})
#: Calls that the client runs: the member with what it is to do, and the name of a tool that has only one.
CLIENT_CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "function_call": ("arguments", ""),
    "custom_tool_call": ("input", ""),
    "tool_search_call": ("arguments", "tool_search"),
    "local_shell_call": ("action", "local_shell"),
    "shell_call": ("action", "shell"),
    "apply_patch_call": ("operation", "apply_patch"),
    "computer_call": ("action", "computer"),
}
#: OpenAI checks the prefixes of ids that come back in a history.
PREFIXES: Final[Mapping[str, str]] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "tool_search_call": "tsc",
}
#: The members of a response that SDKs and the Open Responses schema want, with what they mean if nothing was said.
_DEFAULTS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("completed_at", "error", "incomplete_details", "instructions", "max_output_tokens", "usage")),
    **dict.fromkeys(("max_tool_calls", "previous_response_id", "prompt_cache_key", "safety_identifier")),
    **dict.fromkeys(("frequency_penalty", "presence_penalty"), 0.0),
    **dict.fromkeys(("temperature", "top_p"), 1.0),
    "background": False,
    "metadata": {},
    "output": [],
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "default",
    "store": False,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "truncation": "disabled",
}
#: Where the upstream counted nothing: without an object here opencode takes the finish for unknown, and asks for ever.
NO_USAGE: Final[Mapping[str, Any]] = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def frame_value(kind: str, **members: Any) -> dict[str, Any]:
    """Return the payload of a frame of ours; the writer numbers it."""
    return {"type": kind, "sequence_number": 0, **members}


def named(n: int, value: dict[str, Any], repair: str) -> Out:
    """Return a frame of ours."""
    return Out(n, value, repair=repair, event=value["type"].encode())


def response_object(response_id: str, created: int, model_name: str, **members: Any) -> dict[str, Any]:
    """Return a response with every member that clients want."""
    head = {"id": response_id, "object": "response", "created_at": created, "status": "in_progress"}
    return {**head, "model": model_name, **_DEFAULTS, **members}


def is_client_call(item: Mapping[str, Any]) -> bool:
    """Return whether an item is a call that the client runs, and not one that ran where the model is."""
    kind = item.get("type")
    if kind == "tool_search_call":
        return item.get("execution") == "client"
    if kind == "shell_call":
        return as_object(item.get("environment")).get("type") != "container_reference"
    return isinstance(kind, str) and kind in CLIENT_CALLS


def kind_of(part: Mapping[str, Any], parts: str, item_type: str = "") -> Kind:
    """Return the kind of a part of one of the lists of an item, which may have any type unless it is given."""
    kind = OF_PART.get(str(part.get("type")))
    known = kind is not None and kind.list == parts and item_type in ("", kind.item)
    return kind if kind is not None and known else _UNKNOWN[parts]


def begun(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item as it is added: what is streamed is still empty."""
    kind = item.get("type")
    empty: dict[str, Any] = {"summary": []} if kind == "reasoning" else {}
    for one in _KINDS:
        if one.item == kind and (one.list in item or one.part == "output_text"):
            empty[one.list] = list[Any]()
        elif one.item == kind and not one.list:
            empty[one.member] = ""
    return {**item, **({"status": "in_progress"} if "status" in item else {}), **empty}


def _part_frames(head: Mapping[str, Any], kind: Kind, index: int, part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the frames of a whole part by their level; `head` says of which item."""
    head = {**head, kind.index_key: index} if kind.list else head
    is_text, text, name = kind.part == "output_text", part.get(kind.member), _PARTS.get(kind.list)
    notes, logprobs = ({"annotations": list[Any]()}, {"logprobs": list[Any]()}) if is_text else ({}, {})
    empty = {kind.member: ""} if kind.member else {}
    text = text if isinstance(text, str) else ""
    return [
        frame_value(f"{name}.added", **head, part={**part, **empty, **notes}),
        frame_value(kind.delta, **head, delta=text, **logprobs),
        frame_value(kind.done, **head, **{kind.member: text}, **logprobs),
        frame_value(f"{name}.done", **head, part=part),
    ]


def needed(kind: Kind, part: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those of the frames of a whole part that its kind needs: a text without parts has those in the middle."""
    opened, delta, done, closed = part
    text = [*([delta] if delta["delta"] else []), *([done] if kind.member else [])]
    return [opened, *text, closed] if kind.list else text


def item_frames(item: Mapping[str, Any], place: int) -> list[dict[str, Any]]:
    """Return the frames of a whole item."""
    values = [frame_value(ADDED, output_index=place, item=begun(item))]
    head, kind = {"item_id": item.get("id", ""), "output_index": place}, OF_ITEM.get(item["type"])
    if kind is not None and isinstance(item.get(kind.member), str):
        values += needed(kind, _part_frames(head, kind, 0, item))
    for parts in _PARTS:
        for index, part in enumerate(map(as_object, as_list(item.get(parts)))):
            kind = kind_of(part, parts, item["type"])
            values += needed(kind, _part_frames(head, kind, index, part))
    return [*values, frame_value(DONE, output_index=place, item=item)]


_REPAIRS: Final[Mapping[str, str]] = {"id": "item_id", "item_id": "item_id", "call_id": "call_id"}


def corrected(given: Mapping[str, Any], path: Path, due: Mapping[str, Any]) -> list[Edit]:
    """Return the edits that give an object at a path the ids and indexes that are due."""
    return [Edit(_REPAIRS.get(key, "part_index"), path, key, new) for key, new in due.items() if given.get(key) != new]


@dataclass(slots=True, eq=False)
class Part:
    """A text that is streamed: a part of an item, or the arguments of a call."""

    kind: Kind
    index: int
    #: The upstream's index for it, None for a part that it never opened.
    theirs: Any
    #: The part as it was opened.
    given: Mapping[str, Any]
    pieces: list[str] = field(default_factory=list[str])
    annotations: list[Any] = field(default_factory=list[Any])
    #: How far its events have come.
    level: Level = Level.OPENED

    @property
    def said(self) -> bool:
        """Whether its done event has come."""
        return self.level >= Level.SAID

    @property
    def text(self) -> str:
        """The text so far."""
        text = "".join(self.pieces)
        return text if text.isascii() else joined_surrogates(text)

    def whole(self) -> dict[str, Any]:
        """Return the part as far as it has come."""
        notes = {"annotations": self.annotations} if self.kind.part == "output_text" else {}
        return {**self.given, self.kind.member: self.text, **notes} if self.kind.member else {**self.given}


@dataclass(slots=True, eq=False)
class Item:
    """One output item under the id that the client sees."""

    place: int
    #: The item as it was added, and later as it was done.
    value: Mapping[str, Any]
    id: str = field(init=False)
    type: str = field(init=False)
    #: The number of a call that the client runs.
    number: int | None = None
    #: We closed it or its continuation ourselves: the upstream's own frames that close it say something else.
    split: bool = False
    ended: bool = False
    #: Its parts by the member that holds them, or its own text; and the text that goes on.
    lists: dict[str, list[Part]] = field(default_factory=lambda: {"": [], **{name: [] for name in _PARTS}})
    part: Part | None = None

    def __post_init__(self) -> None:
        self.id, self.type = str(self.value.get("id") or ""), self.value["type"]
        if self.type in OF_ITEM:
            self.open_part(OF_ITEM[self.type], {}, None)

    def open_part(self, kind: Kind, given: Mapping[str, Any], theirs: Any) -> Part:
        """Return a new part at the end of its list."""
        part = self.part = Part(kind, len(self.lists[kind.list]), theirs, given)
        self.lists[kind.list].append(part)
        return part

    def take(self, value: Mapping[str, Any]) -> None:
        """Follow a canonical frame of this item, but for its start."""
        event, part = value["type"], self.part
        if event == DONE:
            self.value, self.ended, self.part = value["item"], True, None
            return
        level, kind = SPOKEN.get(event, (None, OF_PART["output_text"]))
        if level is Level.OPENED:
            self.open_part(kind_of(value["part"], kind.list), value["part"], None)
            return
        assert part is not None, "a text is inside its part"
        if level is None:
            part.annotations.append(value.get("annotation"))
        elif level is Level.PIECE:
            part.pieces.append(value["delta"])
        else:
            part.level = level
            self.part = None if level is Level.CLOSED else part

    def frames(self, kind: Kind, part: Mapping[str, Any], index: int | None = None) -> list[dict[str, Any]]:
        """Return the frames of a part, of the next one if no index is given."""
        head = {"item_id": self.id, "output_index": self.place}
        return _part_frames(head, kind, len(self.lists[kind.list]) if index is None else index, part)

    def ids(self, given: Mapping[str, Any], path: Path) -> list[Edit]:
        """Return the edits that give the ids that the client knows to a repetition of this item (Q111)."""
        call_id = self.value.get("call_id")
        return corrected(given, path, {"id": self.id, **({} if call_id is None else {"call_id": call_id})})

    def closing_part(self) -> list[dict[str, Any]]:
        """Return the frames that are still due of the open part."""
        part = self.part
        if part is None:
            return []
        _, _, done, closed = self.frames(part.kind, part.whole(), part.index)
        text = [done] if part.kind.member and not part.said else []
        return [*text, closed] if part.kind.list else text

    def whole(self, status: str) -> dict[str, Any]:
        """Return the item as far as it has come."""
        given = {"status": status} if "status" in self.value or self.type != "reasoning" else {}
        listed = {name: [part.whole() for part in parts] for name, parts in self.lists.items() if name and parts}
        own = {part.kind.member: part.text for part in self.lists[""]}
        return {**self.value, **given, **listed, **own}

    def closing(self, status: str) -> list[dict[str, Any]]:
        """Return the frames that close it as it is."""
        return [*self.closing_part(), frame_value(DONE, output_index=self.place, item=self.whole(status))]
