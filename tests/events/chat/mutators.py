"""Quirks to inject into canonical chat streams (synthetic, after the dialect catalogue); none changes what is meant."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from tests.support.chat import DONE, HEAD, sse
from wiretape.events.core.json_text import as_list, as_object

Chunk = dict[str, Any]


@dataclass(slots=True)
class Meant:
    """What one answer says."""

    thought: str = ""
    text: str = ""
    #: Name and arguments.
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])


@dataclass(slots=True)
class Stream:
    """A stream under mutation: its chunks as values, and how they are written."""

    chunks: list[Chunk]
    meant: Meant
    random: Random
    done: bool = True
    write: Callable[[bytes], bytes] = lambda frame: frame
    #: Mutators that must not meet each other.
    taken: set[str] = field(default_factory=set[str])

    def frames(self) -> list[bytes]:
        """The bytes."""
        return [self.write(frame) for frame in [*map(sse, self.chunks), *([DONE] if self.done else [])]]

    def deltas(self) -> Iterator[dict[str, Any]]:
        """The delta of every chunk that has one."""
        for chunk in self.chunks:
            for choice in chunk["choices"] or ():
                if isinstance(choice.get("delta"), dict):
                    yield choice["delta"]

    def entries(self) -> Iterator[tuple[dict[str, Any], bool]]:
        """Every entry of `tool_calls`, and whether it starts its call."""
        for delta in self.deltas():
            for entry in delta.get("tool_calls") or ():
                yield entry, "id" in entry

    def choose(self, *values: Any) -> Any:
        """One of these."""
        return self.random.choice(values)


def build(meant: Meant, random: Random) -> Stream:
    """The canonical stream of one answer, cut into deltas at random."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(meant.thought, random)]
    deltas += [{"content": piece} for piece in pieces(meant.text, random)]
    for index, (name, arguments) in enumerate(meant.calls):
        text = json.dumps(arguments) if arguments else random.choice(["", "{}"])
        first, *others = [""] if random.random() < 0.7 else [], *pieces(text, random)
        cut = [*first, *others] or [""]
        start = {"index": index, "id": f"call_{index}", "type": "function"}
        deltas.append({"tool_calls": [{**start, "function": {"name": name, "arguments": cut[0]}}]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in cut[1:]]
    chunks = [{**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    reason = "tool_calls" if meant.calls else "stop"
    chunks.append({**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return Stream(json.loads(json.dumps(chunks)), meant, random)


def pieces(text: str, random: Random) -> list[str]:
    """The text in up to four pieces, none of them empty."""
    cuts = sorted({random.randrange(1, len(text)) for _ in range(random.randrange(4))}) if len(text) > 1 else []
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if text[a:b]]


# -- the quirks -------------------------------------------------------------------------------------------------------


def role(stream: Stream) -> None:
    """Q49 to Q51: on every chunk, never, or null."""
    kind = stream.choose("every", "never", "null")
    for delta in stream.deltas():
        if kind == "never":
            delta.pop("role", None)
        else:
            delta["role"] = "assistant" if kind == "every" else None


def envelope(stream: Stream) -> None:
    """Q52 to Q55, Q57: members of the chunk that are missing, empty, of another type, or change."""
    for place, chunk in enumerate(stream.chunks):
        match stream.choose("id", "created", "object", "model", "no id"):
            case "id":
                chunk["id"] = stream.choose("other", "", None, 5)
            case "created":
                chunk["created"] = stream.choose(0, 8, 7.0, "7", "x", None, True, 10**30)
            case "object":
                chunk["object"] = stream.choose("", None, "chat.completion.done")
            case "model":
                chunk["model"] = stream.choose("", None, "other")
            case _:
                chunk.pop(stream.choose("id", "created", "object", "model") if place else "object", None)


def continuations(stream: Stream) -> None:
    """Q2 to Q6: ids, names and types on continuations."""
    kind = stream.choose("null", "empty", "text", "same", "changes")
    last = ""
    for number, (entry, starts) in enumerate(stream.entries()):
        if starts:
            last = entry["id"]
        elif kind in ("null", "empty"):
            nothing = None if kind == "null" else ""
            entry |= {"id": nothing, "type": nothing}
            entry["function"]["name"] = nothing
        else:
            entry["id"] = {"text": "null", "same": last, "changes": f"other_{number}"}[kind]


def no_ids(stream: Stream) -> None:
    """Q1: no id on the start."""
    for entry, starts in stream.entries():
        if starts:
            entry["id"] = stream.choose(None, "", "null")


def no_types(stream: Stream) -> None:
    """Q23."""
    for entry, _ in stream.entries():
        entry.pop("type", None)


def no_indices(stream: Stream) -> None:
    """Q9, Q10."""
    for entry, _ in stream.entries():
        entry.pop("index")


def holes(stream: Stream) -> None:
    """Q11."""
    for entry, _ in stream.entries():
        entry["index"] = entry["index"] * 2 + 1


def all_zero(stream: Stream) -> None:
    """Q7: their ids distinguish them; an empty call before another of its tool may be the same call (Q6)."""
    entries = [*stream.entries()]
    for entry, _ in entries:
        entry["index"] = 0
    for (entry, starts), (following, follows) in pairwise(entries):
        silent = starts and follows and not entry["function"].get("arguments")
        if silent and entry["function"].get("name") == following["function"].get("name"):
            entry["function"]["arguments"] = "{}"


def names_again(stream: Stream) -> None:
    """Q15."""
    name = ""
    for entry, starts in stream.entries():
        function = entry["function"]
        name = function["name"] if starts else name
        function["name"] = name


def names_in_pieces(stream: Stream) -> None:
    """Q16."""
    for place, chunk in reversed(list(enumerate(stream.chunks))):
        for entry in chunk["choices"][0]["delta"].get("tool_calls") or ():
            function = entry["function"]
            if function.get("name") and "id" in entry and not function["arguments"]:
                name = function["name"]
                function["name"] = name[:2]
                more = {"tool_calls": [{"index": entry["index"], "function": {"name": name[2:]}}]}
                stream.chunks.insert(
                    place + 1, {**HEAD, "choices": [{"index": 0, "delta": more, "finish_reason": None}]}
                )


def names_late(stream: Stream) -> None:
    """Q17: the start without its name, which comes next."""
    for place, chunk in reversed(list(enumerate(stream.chunks))):
        for entry in chunk["choices"][0]["delta"].get("tool_calls") or ():
            if "name" in entry["function"]:
                name = entry["function"].pop("name")
                more = {"tool_calls": [{"index": entry["index"], "function": {"name": name}}]}
                stream.chunks.insert(
                    place + 1, {**HEAD, "choices": [{"index": 0, "delta": more, "finish_reason": None}]}
                )


def objects(stream: Stream) -> None:
    """Q18, Q19: arguments as an object, null, or missing."""
    for entry, starts in stream.entries():
        function = entry["function"]
        if function.get("arguments", "").startswith("{"):
            with suppress(ValueError):
                function["arguments"] = json.loads(function["arguments"])
        elif not function.get("arguments") and starts:
            function["arguments"] = None


def seeds(stream: Stream) -> None:
    """Q20: `{}` before the real fragments."""
    entries = list(stream.entries())
    for (entry, starts), (following, follows) in pairwise(entries):
        if starts and not follows and entry["function"].get("arguments") == "" and following["function"]["arguments"]:
            entry["function"]["arguments"] = "{}"


def unfinished(stream: Stream) -> None:
    """Q33 to Q35."""
    for chunk in stream.chunks[:-1]:
        choice = chunk["choices"][0]
        match stream.choose("", "null", 7, "missing"):
            case "missing":
                choice.pop("finish_reason")
            case reason:
                choice["finish_reason"] = reason


def finish(stream: Stream) -> None:
    """Q32, Q36, Q38: stop over calls, another key or word, and again."""
    choice = stream.chunks[-1]["choices"][0]
    reason = choice["finish_reason"]
    match stream.choose("stop", "key", "word", "again"):
        case "stop":
            choice["finish_reason"] = "stop"
        case "key":
            choice.pop("finish_reason")
            choice["finishReason"] = reason.upper()
        case "word":
            choice["finish_reason"] = "tool_use" if reason == "tool_calls" else "end_turn"
        case _:
            stream.chunks.append(json.loads(json.dumps(stream.chunks[-1])))


def no_done(stream: Stream) -> None:
    """Q39."""
    stream.done = False


def empty_chunks(stream: Stream) -> None:
    """Q46 to Q48: chunks that say nothing."""
    for place in range(stream.random.randrange(1, 4)):
        nothing: dict[str, Any] = stream.choose(
            {"choices": None}, {"choices": []}, {"id": "", "model": "", "created": 0, "choices": []}
        )
        stream.chunks.insert(stream.random.randrange(len(stream.chunks)) if place else 0, {**HEAD, **nothing})


def no_delta(stream: Stream) -> None:
    """Q47."""
    choice = stream.choose({"index": 0, "finish_reason": None}, {"index": 0, "finish_reason": None, "delta": None})
    stream.chunks.insert(stream.random.randrange(len(stream.chunks) + 1), {**HEAD, "choices": [choice]})


def nulls(stream: Stream) -> None:
    """Q51."""
    for delta in stream.deltas():
        delta.setdefault("tool_calls", None)
        delta["function_call"] = None


def parts(stream: Stream) -> None:
    """Q79: lists of parts for content and thoughts."""
    for delta in stream.deltas():
        if delta.get("content"):
            delta["content"] = [{"type": "text", "text": delta["content"]}]
        elif delta.get("reasoning_content"):
            thought = {"type": "text", "text": delta.pop("reasoning_content")}
            delta["content"] = [{"type": "thinking", "thinking": [thought]}]


def reasoning(stream: Stream) -> None:
    """Q73, Q74."""
    both = stream.choose(True, False)
    for delta in stream.deltas():
        if "reasoning_content" in delta:
            delta["reasoning"] = delta["reasoning_content"] if both else delta.pop("reasoning_content")


def usage(stream: Stream) -> None:
    """Q66 to Q72: on every chunk, null, on the finish, apart."""
    counts = {"total_tokens": 3}
    match stream.choose("every", "null", "last", "apart"):
        case "every":
            for number, chunk in enumerate(stream.chunks):
                chunk["usage"] = {"total_tokens": number}
        case "null":
            for chunk in stream.chunks:
                chunk["usage"] = None
        case "last":
            stream.chunks[-1]["usage"] = counts
        case _:
            stream.chunks.append({**HEAD, "choices": [], "usage": counts})


def extras(stream: Stream) -> None:
    """Q31, Q62 to Q64, Q86 to Q88: what is not ours."""
    for number, chunk in enumerate(stream.chunks):
        chunk |= {"obfuscation": "x" * number, "citations": ["a"], "provider": {"choices": [1]}, "a\u00fc\ud83d": 1}
    for delta in stream.deltas():
        delta |= {"annotations": [{"type": "url"}], "audio": {"id": "x"}, "channel": "final"}
    for entry, _ in stream.entries():
        entry["extra_content"] = {"google": {"thought_signature": '"\\{'}}


def nothing_calls(stream: Stream) -> None:
    """Entries that say nothing, or are nothing."""
    for delta in stream.deltas():
        if delta.get("tool_calls"):
            delta["tool_calls"].append(stream.choose(None, 5, "x", [], {"index": 99}))


def framing(stream: Stream) -> None:
    """Q97 to Q103: other ways of writing the same frames."""
    ways: list[Callable[[bytes], bytes]] = [
        lambda frame: frame.replace(b"\n", b"\r\n"),
        lambda frame: frame.replace(b"data: ", b"data:"),
        lambda frame: b": ping\n\n" + frame,
        lambda frame: b"id: 1\nretry: 5\n" + frame,
        lambda frame: b"event: message\n" + frame,
        lambda frame: b"data: : keepalive\n\ndata:\n\n" + frame,
    ]
    way = stream.random.choice(ways)
    stream.write = lambda frame: way(frame) if stream.random.random() < 0.7 else frame


#: Each with the names of what it rules out; `calls` must have a first, empty piece of arguments for some.
MUTATORS: dict[str, tuple[Callable[[Stream], None], frozenset[str]]] = {
    "unfinished": (unfinished, frozenset()),
    "finish": (finish, frozenset()),
    "reasoning": (reasoning, frozenset()),
    "parts": (parts, frozenset({"reasoning"})),
    "seeds": (seeds, frozenset()),
    "names_in_pieces": (names_in_pieces, frozenset({"seeds"})),
    "names_again": (names_again, frozenset({"names_in_pieces", "seeds"})),
    "names_late": (names_late, frozenset({"names_in_pieces", "names_again", "seeds"})),
    "all_zero": (all_zero, frozenset({"names_late", "names_again"})),
    "holes": (holes, frozenset({"all_zero"})),
    "no_indices": (
        no_indices,
        frozenset({"all_zero", "holes", "names_again", "names_in_pieces", "names_late", "seeds"}),
    ),
    "objects": (objects, frozenset({"no_indices", "seeds"})),
    "continuations": (continuations, frozenset({"no_indices", "names_again", "names_in_pieces", "names_late"})),
    "no_ids": (no_ids, frozenset({"all_zero", "no_indices", "names_late"})),
    "no_types": (no_types, frozenset()),
    "nulls": (nulls, frozenset()),
    "role": (role, frozenset()),
    "extras": (extras, frozenset()),
    "nothing_calls": (nothing_calls, frozenset({"no_indices", "all_zero"})),
    "empty_chunks": (empty_chunks, frozenset()),
    "no_delta": (no_delta, frozenset({"empty_chunks"})),
    "usage": (usage, frozenset({"empty_chunks"})),
    "envelope": (envelope, frozenset()),
    "no_done": (no_done, frozenset()),
    "framing": (framing, frozenset()),
}

JUNK: list[Any] = [
    None, True, False, 0, -1, 10**30, 1.5, "", "x", "null", "{}", "\ud83d", [], [1], [None], [[]], {}, {"index": 0},
    {"a": {"b": []}}, [{"index": -1, "text": {"text": []}}],
]  # fmt: skip


def junk(stream: Stream, count: int) -> None:
    """So many members anywhere become something else."""
    for _ in range(count):
        node: Any = stream.random.choice(stream.chunks)
        while keys := _keys(node):
            key = stream.random.choice(keys)
            if not _keys(node[key]) or stream.random.random() < 0.25:
                node[key] = json.loads(json.dumps(stream.random.choice(JUNK)))
                break
            node = node[key]


def _keys(node: Any) -> list[Any]:
    """Of an object its keys, of a list its places."""
    return list(as_object(node)) or list(range(len(as_list(node))))
