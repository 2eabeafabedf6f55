"""What the frames of a stream mean to a client that reads plainly, in each dialect, by the standard library alone.

It imports nothing of Wiretape, so that what it says does not hang on the parsers that it judges.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

__all__ = ["CARD", "DIALECTS", "Said", "objects", "payloads", "said"]

_DONE: Final = "[DONE]"
#: The name of a lifecycle frame of ours.
CARD: Final = "hermes.tool.progress"


@dataclass(slots=True)
class Said:
    """What frames mean."""

    #: By (choice, kind): text, reasoning, refusal.
    texts: dict[tuple[int, str], str] = field(default_factory=lambda: defaultdict(str))
    #: Arguments by (choice, call id), and the names of the calls.
    calls: dict[tuple[int, str], str] = field(default_factory=lambda: defaultdict(str))
    names: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])
    #: The ids of calls whose last frame came, in a dialect that has such a frame.
    handed: list[str] = field(default_factory=list[str])
    #: Those of them that no lifecycle frame had reported as running.
    unannounced: list[str] = field(default_factory=list[str])
    #: The ids of calls whose arguments are free text.
    custom: set[str] = field(default_factory=set[str])
    #: In the words of chat.
    finishes: list[str] = field(default_factory=list[str])
    usages: list[Any] = field(default_factory=list[Any])
    errors: list[Any] = field(default_factory=list[Any])
    #: (call id, status) of lifecycle frames.
    told: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    #: Terminators.
    done: int = 0
    #: Payloads after a terminator or an error.
    behind: int = 0
    #: There was something that this reader does not understand as others may.
    odd: bool = False

    def hand(self, call_id: str) -> None:
        """Note the last frame of a call."""
        self.handed.append(call_id)
        if (call_id, "running") not in self.told:
            self.unannounced.append(call_id)

    @property
    def runnable(self) -> set[str]:
        """Return the ids of calls that a client of a dialect with a last frame may run."""
        by_id = {call_id: text for (_, call_id), text in self.calls.items()}
        return {call_id for call_id in self.handed if call_id in self.custom or _is_json(by_id.get(call_id) or "{}")}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def payloads(stream: bytes) -> Iterable[tuple[str, str]]:
    """(event, data) of each block that is whole and has data."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    text = re.sub(r"\r\n|\r", "\n", text)
    for block in text.split("\n\n")[:-1]:
        event = ""
        data: list[str] = []
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                data.append(value)
            elif name == "event":
                event = value
        if "\n".join(data):
            yield event, "\n".join(data)


def said(frames: Iterable[tuple[str, str]], dialect: str = "chat") -> Said:
    """Return what these frames mean in one dialect."""
    found = Said()
    take = _READERS[dialect](found)
    for event, data in frames:
        if found.done or found.errors:
            found.behind += 1
            continue
        if data == _DONE:
            found.done += dialect == "chat"
            continue
        try:
            value = _object(json.loads(data))
        except (ValueError, RecursionError):
            found.odd = True
            continue
        if event == CARD and "toolCallId" in value:
            found.told.append((value["toolCallId"], value["status"]))
        else:
            take(value)
    return found


def objects(stream: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects of the frames, lifecycle frames left out."""
    return [_object(json.loads(data)) for event, data in payloads(stream) if data != _DONE and event != CARD]


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return list(cast("Iterable[Any]", value)) if isinstance(value, list) else []


# -- chat completions -------------------------------------------------------------------------------------------------


def _chat(found: Said) -> Callable[[dict[str, Any]], None]:
    ids: dict[tuple[int, int], str] = {}

    def take(value: dict[str, Any]) -> None:
        if value.get("error"):
            found.errors.append(value["error"])
            return
        if value.get("usage"):
            found.usages.append(value["usage"])
        for choice in value.get("choices") or ():
            found.odd |= _choice(choice, found, ids)

    return take


_DELTAS: Final = (
    ("content", "text"),
    ("reasoning_content", "reasoning"),
    ("reasoning", "reasoning"),
    ("refusal", "refusal"),
)


def _choice(choice: Any, found: Said, ids: dict[tuple[int, int], str]) -> bool:
    index, delta, odd = choice.get("index", 0), _object(choice.get("delta", choice.get("message"))), False
    for name, kind in _DELTAS:
        if isinstance(delta.get(name), str):
            found.texts[index, kind] += delta[name]
        elif delta.get(name) is not None:
            odd = True
    for call in map(_object, _list(delta.get("tool_calls"))):
        place = (index, call.get("index", 0))
        function = _object(call.get("function"))
        if call.get("id"):
            odd |= ids.get(place, call["id"]) != call["id"]
            ids[place] = call["id"]
            found.names.setdefault((index, call["id"]), function.get("name") or "")
        arguments = function.get("arguments") or ""
        odd |= place not in ids or not isinstance(arguments, str)
        found.calls[index, ids.get(place, "?")] += str(arguments)
    if legacy := _object(delta.get("function_call")):
        place = (index, f"function_call_{index}")
        found.names.setdefault(place, legacy.get("name") or "")
        found.calls[place] += legacy.get("arguments") or ""
    if choice.get("finish_reason"):
        found.finishes.append(choice["finish_reason"])
    return odd


# -- Responses --------------------------------------------------------------------------------------------------------

_TEXTS: Final[Mapping[str, str]] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}
_PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "output_text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "summary_text": ("reasoning", "text"),
    "reasoning_text": ("reasoning", "text"),
}
#: The calls of the client's whose arguments are streamed, and the member that holds them.
_CALLS: Final[Mapping[str, str]] = {"function_call": "arguments", "custom_tool_call": "input"}
_ARGUMENTS: Final = ("response.function_call_arguments.", "response.custom_tool_call_input.")
#: Calls of the client's in one frame.
_OTHER_CALLS: Final = ("local_shell_call", "shell_call", "apply_patch_call", "computer_call")


def _responses(found: Said) -> Callable[[dict[str, Any]], None]:
    return _Responses(found).take


class _Responses:
    """Items by their index, since some servers change the ids."""

    def __init__(self, found: Said) -> None:
        self._found = found
        self._ids: dict[Any, str] = {}
        #: Items of which something has come.
        self._spoke: set[Any] = set()
        self._calls = False

    def take(self, value: dict[str, Any]) -> None:
        kind, place = str(value.get("type")), value.get("output_index")
        if kind in _TEXTS:
            self._found.texts[0, _TEXTS[kind]] += str(value.get("delta"))
            self._spoke.add(place)
        elif kind == "response.reasoning_summary_part.added" and value.get("summary_index"):
            self._found.texts[0, "reasoning"] += "\n\n"  # another part of a thought is another paragraph
        elif kind.startswith(_ARGUMENTS):
            self._arguments(place, value.get("delta"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._item(place, _object(value.get("item")), done=kind.endswith("done"))
        elif kind in ("response.completed", "response.incomplete", "response.failed", "response.cancelled"):
            self._end(kind, _object(value.get("response")))
        elif kind == "error" or (kind == "None" and value.get("error")):
            self._found.errors.append(value.get("error") or value)

    def _arguments(self, place: Any, delta: Any) -> None:
        if isinstance(delta, str) and place in self._ids:
            self._found.calls[0, self._ids[place]] += delta
            self._spoke.add(place)

    def _item(self, place: Any, item: dict[str, Any], *, done: bool) -> None:
        kind = item.get("type")
        if kind in _CALLS:
            call_id = self._ids.setdefault(place, str(item.get("call_id")))
            self._calls = True
            if kind == "custom_tool_call":
                self._found.custom.add(call_id)
            self._found.names.setdefault((0, call_id), str(item.get("name")))
            self._found.calls.setdefault((0, call_id), "")
            if done:
                self._found.hand(call_id)
                if place not in self._spoke:
                    self._found.calls[0, call_id] = str(item.get(_CALLS[str(kind)]) or "")
        self._calls |= kind in _OTHER_CALLS or (kind == "tool_search_call" and item.get("execution") == "client")
        if done and place not in self._spoke:
            self._whole(item)
        if done:
            self._spoke.add(place)

    def _whole(self, item: dict[str, Any]) -> None:
        """Take the texts of an item that came in one piece."""
        for part in map(_object, [*_list(item.get("summary")), *_list(item.get("content"))]):
            if part.get("type") in _PARTS:
                kind, member = _PARTS[part["type"]]
                self._found.texts[0, kind] += str(part.get(member) or "")

    def _end(self, kind: str, response: dict[str, Any]) -> None:
        if response.get("usage"):
            self._found.usages.append(response["usage"])
        if kind in ("response.failed", "response.cancelled"):
            self._found.errors.append(response.get("error") or {"code": kind})
            return
        self._found.done += 1
        if kind == "response.completed":
            if not self._spoke:
                for place, item in enumerate(map(_object, _list(response.get("output")))):
                    self._item(place, item, done=True)
            self._found.finishes.append("tool_calls" if self._calls else "stop")
        else:
            reason = _object(response.get("incomplete_details")).get("reason")
            self._found.finishes.append("content_filter" if reason == "content_filter" else "length")


# -- Messages ---------------------------------------------------------------------------------------------------------

_BLOCK_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("reasoning", "thinking"),
}
_STOPS: Final[Mapping[str, str]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def _messages(found: Said) -> Callable[[dict[str, Any]], None]:
    return _Messages(found).take


class _Messages:
    """Blocks by their index."""

    def __init__(self, found: Said) -> None:
        self._found = found
        self._ids: dict[Any, str] = {}
        self._given: dict[str, Any] = {}
        self._stop = ""

    def take(self, value: dict[str, Any]) -> None:
        kind, place, delta = value.get("type"), value.get("index"), _object(value.get("delta"))
        if kind == "message_start":
            self._usage(_object(value.get("message")))
        elif kind == "content_block_start":
            self._start(place, _object(value.get("content_block")))
        elif kind == "content_block_delta":
            self._delta(place, delta)
        elif kind == "content_block_stop" and place in self._ids:
            self._hand(self._ids.pop(place))
        elif kind == "message_delta":
            self._usage(value)
            self._stop = delta.get("stop_reason") or self._stop
        elif kind == "message_stop":
            self._found.done += 1
            self._found.finishes.append(_STOPS.get(self._stop, "stop"))
        elif kind == "error":
            self._found.errors.append(value.get("error") or value)

    def _usage(self, value: dict[str, Any]) -> None:
        if value.get("usage"):
            self._found.usages.append(value["usage"])

    def _start(self, place: Any, block: dict[str, Any]) -> None:
        for kind in ("text", "thinking"):
            if block.get("type") == kind and block.get(kind):
                self._found.texts[0, "text" if kind == "text" else "reasoning"] += str(block[kind])
        if block.get("type") == "tool_use":
            call_id = self._ids[place] = str(block.get("id"))
            self._found.names[0, call_id] = str(block.get("name"))
            self._found.calls.setdefault((0, call_id), "")
            self._given[call_id] = block.get("input")

    def _delta(self, place: Any, delta: dict[str, Any]) -> None:
        kind = str(delta.get("type"))
        if kind in _BLOCK_TEXTS:
            name, member = _BLOCK_TEXTS[kind]
            self._found.texts[0, name] += str(delta.get(member) or "")
        elif kind == "input_json_delta" and place in self._ids:
            self._found.calls[0, self._ids[place]] += str(delta.get("partial_json") or "")

    def _hand(self, call_id: str) -> None:
        self._found.hand(call_id)
        if not self._found.calls[0, call_id] and self._given[call_id]:
            self._found.calls[0, call_id] = json.dumps(self._given[call_id])


_READERS: Final[Mapping[str, Callable[[Said], Callable[[dict[str, Any]], None]]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
}

DIALECTS: Final = tuple(_READERS)
