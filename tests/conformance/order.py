"""Order checkers of our own for Responses and Messages streams: brackets, indexes, identities, one ending.

They read bytes with nothing of Wiretape's, and hold the rules that the official SDKs and vLLM's validator enforce
together. A stream of theirs is a list of (event name, payload).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from tests.laws.said import payloads

__all__ = ["CHECKERS", "frames_of", "messages_faults", "responses_faults"]

#: A lifecycle frame of ours; its payload has a type that every reader skips.
CARD: Final = "hermes.tool.progress"

Frames = list[tuple[str, dict[str, Any]]]


def frames_of(body: bytes) -> Frames:
    """Return the frames that have a payload; what is not a JSON object becomes a payload without a type."""
    found: Frames = []
    for event, data in payloads(body):
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        found.append((event, cast("dict[str, Any]", value) if isinstance(value, dict) else {"unreadable": data}))
    return found


# -- Responses --------------------------------------------------------------------------------------------------------

_TERMINAL: Final = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "error": "",
}
_OPENING: Final = ("response.created", "response.queued", "response.in_progress")
#: The kind of part that a family of events writes into, the type of its item, and the member that its `done` repeats.
_IN_PARTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "response.output_text": ("output_text", "message", "text"),
    "response.refusal": ("refusal", "message", "refusal"),
    "response.reasoning_text": ("reasoning_text", "reasoning", "text"),
    "response.reasoning": ("reasoning_text", "reasoning", "text"),
    "response.reasoning_summary_text": ("summary_text", "reasoning", "text"),
}
#: The type of the item that a family of events writes into, and the member that its `done` repeats.
_IN_ITEMS: Final[Mapping[str, tuple[str, str]]] = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
    "response.mcp_call_arguments": ("mcp_call", "arguments"),
    "response.code_interpreter_call_code": ("code_interpreter_call", "code"),
}
_PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "response.content_part": ("content", "content_index"),
    "response.reasoning_summary_part": ("summary", "summary_index"),
}
#: Only these may come without an id of their own.
_ID_FREE: Final = ("function_call", "custom_tool_call")


class _Stream(ABC):
    """One stream, frame by frame, and what is out of order in it."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._ended = ""

    @abstractmethod
    def take(self, event: str, value: dict[str, Any]) -> None:
        """Take the next frame."""

    def fault(self, rule: str, detail: object = "") -> None:
        self.faults.append(f"{rule}: {detail}"[:200])

    def of(self, body: bytes) -> list[str]:
        """Return the faults of a whole body."""
        for event, value in frames_of(body):
            self.take(event, value)
        if not self._ended:
            self.fault("there is an end")
        return self.faults


@dataclass(slots=True)
class _Part:
    kind: str
    text: str = ""
    #: Its text is done, and the part itself.
    said: bool = False
    closed: bool = False


@dataclass(slots=True)
class _Item:
    type: str
    id: Any
    call_id: Any
    #: Arguments, input or code.
    text: str = ""
    said: bool = False
    closed: bool = False
    parts: dict[str, list[_Part]] = field(default_factory=lambda: {"content": [], "summary": []})

    @property
    def open_part(self) -> _Part | None:
        """Return its last part, unless that is closed."""
        return next((part for parts in self.parts.values() for part in parts if not part.closed), None)


class _Responses(_Stream):
    """One Responses stream, frame by frame."""

    def __init__(self) -> None:
        super().__init__()
        self._id: Any = None
        self._sequence: int | None = None
        self._items: list[_Item] = []
        self._opened: list[str] = []

    def take(self, event: str, value: dict[str, Any]) -> None:
        kind = str(value.get("type"))
        if self._ended:
            self.fault("nothing after the end", f"{kind} after {self._ended}")
            return
        if event not in (kind, CARD if kind == "keepalive" else kind):
            self.fault("the event line repeats the type", f"{event!r} for {kind}")
        self._number(kind, value)
        if kind == "keepalive":
            if not self._opened:
                self.fault("created comes first", kind)
        elif kind in _OPENING:
            self._opening(kind, value)
        elif kind in _TERMINAL:
            self._end(kind, value)
        elif not self._opened:
            self.fault("created comes first", kind)
        elif not kind.startswith("response."):
            self.fault("every type is known", kind)
        else:
            self._inside(kind, value)

    def _number(self, kind: str, value: dict[str, Any]) -> None:
        number = value.get("sequence_number")
        due = (0, 1) if self._sequence is None else (self._sequence + 1,)
        if number not in due or isinstance(number, bool):
            self.fault("sequence numbers have no gap", f"{number} after {self._sequence} at {kind}")
        if isinstance(number, int):
            self._sequence = number

    def _opening(self, kind: str, value: dict[str, Any]) -> None:
        if kind in self._opened or bool(self._opened) == (kind == _OPENING[0]):
            self.fault("created comes first", f"{kind} after {self._opened}")
        if self._items:
            self.fault("a snapshot never replaces items", kind)
        self._opened.append(kind)
        self._response(kind, value)

    def _response(self, kind: str, value: dict[str, Any]) -> dict[str, Any]:
        response = _object(value.get("response"))
        if not response.get("id") or self._id not in (None, response["id"]):
            self.fault("the response id never changes", f"{response.get('id')} after {self._id}")
        self._id = self._id or response.get("id")
        due = _TERMINAL.get(kind) or {"response.queued": "queued"}.get(kind)
        if due and response.get("status") != due:
            self.fault("the status fits the event", f"{response.get('status')} in {kind}")
        return response

    def _inside(self, kind: str, value: dict[str, Any]) -> None:
        family, _, verb = kind.rpartition(".")
        if kind == "response.output_item.added":
            self._added(value)
            return
        item = self._item_of(kind, value)
        if item is None:
            return
        if kind == "response.output_item.done":
            self._done(item, value)
        elif family in _PARTS:
            self._part(item, family, verb, value)
        elif kind in ("response.output_text.annotation.added", "response.output_text_annotation.added"):
            self._in_part(item, "response.output_text", "annotation", value)
        elif family in _IN_PARTS:
            self._in_part(item, family, verb, value)
        elif family in _IN_ITEMS:
            self._in_item(item, family, verb, value)
        elif item.type != family.removeprefix("response."):  # the state of a tool that the upstream runs
            self.fault("every type is known", f"{kind} in {item.type}")

    def _added(self, value: dict[str, Any]) -> None:
        item, index = _object(value.get("item")), value.get("output_index")
        if index != len(self._items):
            self.fault("output_index counts the items", f"{index} instead of {len(self._items)}")
        if self._items and not self._items[-1].closed:
            self.fault("one open item", f"{item.get('type')} inside {self._items[-1].type}")
        made = _Item(str(item.get("type")), item.get("id"), item.get("call_id"))
        if not made.id and made.type not in _ID_FREE:
            self.fault("items have an id", made.type)
        if made.id and made.id in [other.id for other in self._items]:
            self.fault("ids are unique", made.id)
        if made.call_id and (made.type, made.call_id) in [(other.type, other.call_id) for other in self._items]:
            self.fault("call ids are unique", made.call_id)
        self._items.append(made)

    def _item_of(self, kind: str, value: dict[str, Any]) -> _Item | None:
        """Return the open item that the event must be about."""
        index = value.get("output_index")
        if not self._items or index != len(self._items) - 1 or self._items[-1].closed:
            self.fault("events are about the open item", f"{kind} at {index} of {len(self._items)}")
            return None
        item = self._items[-1]
        if "item" not in value and value.get("item_id") != (item.id or value.get("item_id")):
            self.fault("item_id is the item's id", f"{value.get('item_id')} in {item.id}")
        return item

    def _part(self, item: _Item, family: str, verb: str, value: dict[str, Any]) -> None:
        place, index_name = _PARTS[family]
        parts, index, kind = item.parts[place], value.get(index_name), _object(value.get("part")).get("type")
        if verb == "added":
            if index != len(parts) or item.open_part is not None:
                self.fault("parts are dense and one is open", f"{index} instead of {len(parts)} in {item.type}")
            parts.append(_Part(str(kind)))
            return
        part = parts[-1] if parts else None
        if part is None or part.closed or index != len(parts) - 1 or part.kind != kind:
            self.fault("a part is done once", f"{kind} at {index}")
            return
        text = _object(value.get("part")).get("refusal" if kind == "refusal" else "text")
        if not part.said and part.kind in ("output_text", "refusal", "summary_text", "reasoning_text"):
            self.fault("a text is done before its part", kind)
        if text != part.text:
            self.fault("done repeats the deltas", f"{text!r:.60} instead of {part.text!r:.60}")
        part.closed = True

    def _in_part(self, item: _Item, family: str, verb: str, value: dict[str, Any]) -> None:
        kind, item_type, member = _IN_PARTS[family]
        place, index_name = _PARTS[
            "response.reasoning_summary_part" if kind == "summary_text" else "response.content_part"
        ]
        parts, part = item.parts[place], item.open_part
        if item.type != item_type or part is None or part.kind != kind or value.get(index_name) != len(parts) - 1:
            self.fault("text is inside its part", f"{family}.{verb} in {item.type}")
        elif part.said:
            self.fault("nothing follows done", f"{family}.{verb}")
        elif verb == "delta":
            part.text += str(value.get("delta"))
        elif verb == "done":
            part.said = True
            if value.get(member) != part.text:
                self.fault("done repeats the deltas", f"{value.get(member)!r:.60} instead of {part.text!r:.60}")

    def _in_item(self, item: _Item, family: str, verb: str, value: dict[str, Any]) -> None:
        item_type, member = _IN_ITEMS[family]
        if item.type != item_type:
            self.fault("text is inside its item", f"{family}.{verb} in {item.type}")
        elif item.said:
            self.fault("nothing follows done", f"{family}.{verb}")
        elif verb == "delta":
            item.text += str(value.get("delta"))
        else:
            item.said = True
            if value.get(member) != item.text:
                self.fault("done repeats the deltas", f"{value.get(member)!r:.60} instead of {item.text!r:.60}")

    def _done(self, item: _Item, value: dict[str, Any]) -> None:
        done = _object(value.get("item"))
        same = (item.type, item.id or done.get("id"), item.call_id or done.get("call_id"))
        if (done.get("type"), done.get("id"), done.get("call_id")) != same:
            self.fault("done keeps type, id and call_id", f"{done.get('type')} {done.get('id')} for {same}")
        item.id, item.call_id = same[1:]
        if item.open_part is not None:
            self.fault("parts are done before their item", item.open_part.kind)
        for kind, member in _IN_ITEMS.values():
            if item.type == kind and kind in _ID_FREE and (done.get(member) != item.text or not item.said):
                self.fault("done repeats the deltas", f"{done.get(member)!r:.60} instead of {item.text!r:.60}")
        if item.type == "message":
            texts = [part.get("text", part.get("refusal")) for part in map(_object, done.get("content") or ())]
            if texts != [part.text for part in item.parts["content"]]:
                self.fault("done repeats the deltas", f"{texts!r:.80}")
        item.closed = True

    def _end(self, kind: str, value: dict[str, Any]) -> None:
        self._ended = kind
        if kind == "error":
            return
        response = self._response(kind, value)
        open_items = [item for item in self._items if not item.closed]
        if kind == "response.completed" and (open_items or not self._opened):
            self.fault("every item is done", [item.type for item in open_items])
        due = [(item.type, item.id) for item in self._items if item.closed]
        output = [(each.get("type"), each.get("id")) for each in map(_object, response.get("output") or ())]
        open_ones = [(item.type, item.id) for item in open_items]
        if output != due and (kind == "response.completed" or output != due + open_ones):
            self.fault("output repeats the items", f"{output} instead of {due}")


def responses_faults(body: bytes) -> list[str]:
    """Return what is out of order in the bytes of a Responses stream."""
    return _Responses().of(body)


# -- Messages ---------------------------------------------------------------------------------------------------------

#: The deltas of each kind of block; the others have none.
_DELTAS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
    "server_tool_use": ("input_json_delta",),
    "mcp_tool_use": ("input_json_delta",),
    "compaction": ("compaction_delta",),
}
_CUT: Final = ("max_tokens", "refusal", "model_context_window_exceeded")


@dataclass(slots=True)
class _Block:
    type: str
    id: Any
    json: str = ""
    given: Any = None
    signed: bool = False


class _Messages(_Stream):
    """One Messages stream, frame by frame."""

    def __init__(self) -> None:
        super().__init__()
        self._started = False
        self._open: _Block | None = None
        self._blocks: list[_Block] = []
        self._stop: Any = None
        self._takers: Mapping[str, Callable[[dict[str, Any]], None]] = {
            "message_start": self._start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._delta,
            "message_stop": self._end,
        }

    def take(self, event: str, value: dict[str, Any]) -> None:
        kind = str(value.get("type"))
        if self._ended:
            self.fault("nothing after the end", f"{kind} after {self._ended}")
            return
        if event not in (kind, CARD if kind == "ping" else kind):
            self.fault("the event line repeats the type", f"{event!r} for {kind}")
        if kind == "ping":
            return
        if kind == "error":
            self._ended = kind
            error = _object(value.get("error"))
            if not (error.get("type") and error.get("message")):
                self.fault("an error has type and message", error)
            return
        if self._started == (kind == "message_start"):
            self.fault("message_start comes first, once", kind)
        take = self._takers.get(kind)
        if take is None:
            self.fault("every type is known", kind)
        else:
            take(value)

    def _start(self, value: dict[str, Any]) -> None:
        self._started = True
        message = _object(value.get("message"))
        due: dict[str, Any] = {
            "type": "message",
            "role": "assistant",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        for name, is_due in {**due, "stop_reason": None, "stop_sequence": None}.items():
            if message.get(name, 0) != is_due:
                self.fault("message_start opens an empty message", f"{name} is {message.get(name)!r}")
        if not message.get("id") or not isinstance(message.get("model"), str):
            self.fault("message_start names the message", message.get("id"))
        self._usage(message, "input_tokens", "output_tokens")

    def _usage(self, value: dict[str, Any], *names: str) -> None:
        usage = _object(value.get("usage"))
        if any(type(usage.get(name)) is not int for name in names):
            self.fault("usage is in both places", usage)

    def _block_start(self, value: dict[str, Any]) -> None:
        block = _object(value.get("content_block"))
        if self._open is not None:
            self.fault("one open block", f"{block.get('type')} inside {self._open.type}")
        if value.get("index") != len(self._blocks):
            self.fault("indexes are dense", f"{value.get('index')} instead of {len(self._blocks)}")
        if self._stop is not None:
            self.fault("nothing between the last message_delta and message_stop", block.get("type"))
        self._open = _Block(str(block.get("type")), block.get("id"), given=block.get("input"))
        if self._open.id and self._open.id in [other.id for other in self._blocks]:
            self.fault("ids are unique", self._open.id)
        if self._open.type == "tool_use" and not (self._open.id and block.get("name")):
            self.fault("calls have id and name", block)
        self._blocks.append(self._open)

    def _at_open(self, value: dict[str, Any], what: str) -> _Block | None:
        if self._open is None or value.get("index") != len(self._blocks) - 1:
            self.fault("events are about the open block", f"{what} at {value.get('index')}")
            return None
        return self._open

    def _block_delta(self, value: dict[str, Any]) -> None:
        delta = _object(value.get("delta"))
        kind = str(delta.get("type"))
        block = self._at_open(value, kind)
        if block is None:
            return
        if kind not in _DELTAS.get(block.type, ()):
            self.fault("deltas match their block", f"{kind} in {block.type}")
        if block.signed:
            self.fault("one signature, last", kind)
        block.signed |= kind == "signature_delta"
        if kind == "input_json_delta":
            block.json += str(delta.get("partial_json"))

    def _block_stop(self, value: dict[str, Any]) -> None:
        self._at_open(value, "stop")
        self._open = None

    def _delta(self, value: dict[str, Any]) -> None:
        self._stop = _object(value.get("delta")).get("stop_reason") or self._stop
        # A call that is cut by its length never stops, or clients would run it.
        if self._open is not None and (self._open.type, self._stop in _CUT) != ("tool_use", True):
            self.fault("blocks stop before message_delta", self._open.type)
        self._usage(value, "output_tokens")

    def _end(self, value: dict[str, Any]) -> None:
        self._ended = str(value["type"])
        calls = [block for block in self._blocks if block.type == "tool_use"]
        if self._stop is None:
            self.fault("message_delta names a stop_reason before message_stop", self._stop)
        if (self._stop == "tool_use" and not calls) or (self._stop == "end_turn" and calls):
            self.fault("the stop_reason fits the calls", f"{self._stop} with {len(calls)} calls")
        for block in calls if self._stop == "tool_use" else ():
            if not (_is_object(block.json) or (not block.json and isinstance(block.given, dict))):
                self.fault("arguments of a call are whole", block.json[-60:])


def messages_faults(body: bytes) -> list[str]:
    """Return what is out of order in the bytes of a Messages stream."""
    return _Messages().of(body)


# -- chat completions -------------------------------------------------------------------------------------------------


def chat_faults(body: bytes) -> list[str]:
    """Return what is out of order in the bytes of a chat stream of one choice that was crossed."""
    faults: list[str] = []
    heads: set[str] = set()
    roles = 0
    finish = ended = ""
    calls: list[Any] = []
    for event, value in frames_of(body):
        if ended:
            faults.append(f"nothing after the end: {value} after {ended}"[:200])
        if value.get("unreadable") == "[DONE]" or "error" in value:
            ended = "error" if "error" in value else "[DONE]"
            continue
        if event not in ("", CARD):
            faults.append(f"chunks have no event line: {event}")
        heads.add(json.dumps([value.get(name) for name in ("id", "object", "created", "model")]))
        for choice in map(_object, value.get("choices") or ()):
            delta = _object(choice.get("delta"))
            roles += "role" in delta
            if finish and (delta or choice.get("finish_reason")):
                faults.append(f"nothing after the finish: {delta}"[:200])
            if event != CARD and not roles:
                faults.append("the role comes first: " + str(delta)[:100])
            finish = finish or choice.get("finish_reason") or ""
            faults += _call_faults(calls, delta)
    if len(heads) != 1 or roles != 1:
        faults += [f"one head and one role: {heads}, {roles} roles"] if heads else []
    if ended == "[DONE]" and (not finish or (finish == "tool_calls") != bool(calls)) and finish not in _CHAT_CUT:
        faults.append(f"the finish fits the calls: {finish} with {len(calls)} calls")
    return faults if ended else [*faults, "there is an end: "]


_CHAT_CUT: Final = ("length", "content_filter")


def _call_faults(calls: list[Any], delta: dict[str, Any]) -> list[str]:
    """Note the calls of a delta, and return what is wrong with their numbers."""
    faults: list[str] = []
    for call in delta.get("tool_calls") or ():
        if call.get("id"):
            if call.get("index") != len(calls) or call["id"] in calls or call.get("type") not in ("function", "custom"):
                faults.append(f"calls are numbered as they begin: {call}"[:200])
            calls.append(call["id"])
        elif call.get("index") != len(calls) - 1:
            faults.append(f"one open call: {call}"[:200])
    return faults


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


CHECKERS: Final[Mapping[str, Callable[[bytes], list[str]]]] = {
    "chat": chat_faults,
    "responses": responses_faults,
    "messages": messages_faults,
}


def tally(faults: Iterable[str]) -> dict[str, int]:
    """Count faults by their rule."""
    counts: dict[str, int] = {}
    for each in faults:
        rule = each.partition(":")[0]
        counts[rule] = counts.get(rule, 0) + 1
    return counts
