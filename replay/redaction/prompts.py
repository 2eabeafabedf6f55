"""What is said in a request, in whatever dialect: every string of it, but those that are known to be no words

Known are roles, types, models, ids, names of tools, settings that are one word, and of schemas the names and types of
what they describe. A string that is none of these by its place and its look is words, be it JSON, a form, a body in
parts, or plain text.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote_plus

from wiretape.events.core.json_text import ABSENT, parse

from ..sealed.edits import Text
from ..sealed.scalars import Path, Sort, scalars
from .vendors import PLACEHOLDER

__all__ = ["Words", "is_prompt", "words"]

_PROMPT: Final = re.compile(
    r'\[prompt sha256:[0-9a-f]{16} \d+ chars\]|\{"redacted":"\[prompt sha256:[0-9a-f]{16} \d+ chars\]"\}'
)
#: Whatever the name: what is no word, no sentence and no data looks like this.
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.:@/+=$#*-]{1,256}")
#: Where many requests are one, or one is inside another.
_AROUND: Final = frozenset({"body", "params", "request", "requests"})
#: Members of a request that set something.
_SETTINGS: Final = frozenset(
    {"anthropic_beta", "anthropic_version", "api_version", "audio", "background", "betas", "cachedContent",
     "cached_content",
     "cache_control", "conversation", "embedding_types", "encoding_format", "include", "input_fidelity", "input_type",
     "keep_alive", "language", "modalities", "model", "models", "moderation", "n", "output_format",
     "prompt_cache_retention", "provider", "purpose", "quality", "reasoning", "reasoning_effort", "response_format",
     "route", "safetySettings", "safety_settings", "service_tier", "size", "stream", "stream_options", "style",
     "task_type", "taskType", "temperature", "thinking", "timestamp_granularities", "transforms", "truncate",
     "truncation", "verbosity", "voice"}
)  # fmt: skip
#: Members that say which tools there are, or what an answer shall be like ...
_TOOLS: Final = frozenset(
    {"format", "function_call", "functions", "generationConfig", "generation_config", "grammar", "guided_json",
     "options", "output_config", "parameters", "plugins", "response_format", "text", "toolChoice", "toolConfig",
     "tool_choice", "tool_config", "tools"}
)  # fmt: skip
#: ... and what of it is no words.
_OF_TOOLS: Final = frozenset(
    {"$id", "$ref", "$schema", "allowedFunctionNames", "allowed_function_names", "allowed_tools", "category", "effort",
     "format", "function_call", "mode", "name", "required", "responseMimeType", "responseModalities", "server_label",
     "size", "syntax", "threshold", "toolChoice", "tool_choice", "type", "verbosity"}
)  # fmt: skip
#: Members of a schema whose members are named as their author likes.
_NAMING: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
#: What a schema says in words, or in values of its own.
_TOLD: Final = frozenset(
    {"const", "default", "description", "enum", "example", "examples", "input_examples", "title"}
)  # fmt: skip
#: Whatever stands under these was said by a model, a tool or a client in a form of its own.
_FREE: Final = frozenset({"args", "arguments", "input", "metadata", "parameters", "response", "result"})
_KIND: Final = frozenset(
    {"detail", "format", "media_type", "mimeType", "mime_type", "model", "object", "role", "status", "ttl", "type"}
)  # fmt: skip
_ID: Final = re.compile(r"(?:^|_)ids?$|[a-z]Ids?$")
_OF_SOMEBODY: Final = re.compile(r"(?i)user|customer|person|account|client|external")
_CALLS: Final = frozenset(
    {"call", "custom", "function", "functionCall", "functionResponse", "function_call", "function_response", "tool"}
)  # fmt: skip
_CALL_TYPE: Final = re.compile(r".*(?:_call|_call_output|_use|_approval_request)|function|tool")
_FORM: Final = re.compile(rb"[^=&\s]{1,256}=[^&\s]*(?:&[^=&\s]{1,256}=[^&\s]*)*")
_FIELD: Final = re.compile(rb"([^=&]+)=([^&]*)")
_BOUNDARY: Final = re.compile(rb"(?:\r\n)?--([^\r\n]{1,70})\r\n")
_PART_NAME: Final = re.compile(rb'(?i)^content-disposition:[^\r\n]*?[; ]name="?([^";\r\n]*)', re.MULTILINE)


class Words(NamedTuple):
    """`raw[start:end]` of a request, what it says, and how what stands for it is to be written."""

    start: int
    end: int
    path: Path
    said: str
    form: Literal["plain", "json", "arguments", "url"]


def is_prompt(said: str) -> bool:
    """Whether it is what stands for words already, and nothing else."""
    return _PROMPT.fullmatch(said) is not None


def words(text: Text) -> Iterator[Words]:
    """All that is said in a request, and is not gone yet."""
    for each in _of_body(text):
        if each.said and not is_prompt(each.said) and not PLACEHOLDER.fullmatch(each.said):
            yield each


def _of_body(text: Text) -> Iterator[Words]:
    raw = text.raw
    if json := text.json:
        yield from _of_json(json, text.place)
    elif (boundary := _BOUNDARY.match(raw)) is not None:
        yield from _of_parts(raw, boundary[1], boundary.end())
    elif _is_lines(raw):
        for line in re.finditer(rb"[^\r\n]+", raw):
            yield from _of_json(line[0], line.start().__add__)
    elif _FORM.fullmatch(raw):
        for field in _FIELD.finditer(raw):
            name, said = (unquote_plus(field[group].decode("utf-8", "surrogateescape")) for group in (1, 2))
            if not _is_setting(name, said):
                yield Words(*field.span(2), (name,), said, "url")
    else:
        yield Words(0, len(raw), (), _said(raw), "plain")


def _is_lines(raw: bytes) -> bool:
    lines = raw.split()[:1] and [line for line in raw.splitlines() if line.strip()]
    return len(lines) > 1 and all(line.lstrip()[:1] == b"{" and parse(line) is not ABSENT for line in lines)


def _of_parts(raw: bytes, boundary: bytes, at: int) -> Iterator[Words]:
    """Of a body in parts all but settings: what is in a file was said too, or shown."""
    mark = b"\r\n--" + boundary
    while at < len(raw):
        end = raw.find(mark, at)
        end = len(raw) if end < 0 else end
        headers, found, _ = raw[at:end].partition(b"\r\n\r\n")
        start = at + len(headers) + len(found)
        named = _PART_NAME.search(headers)
        name, said = _said(named[1]) if named else "", _said(raw[start:end])
        if found and not _is_setting(name.removesuffix("[]"), said):
            yield Words(start, end, (name,), said, "plain")
        at = end + len(mark) + len(b"\r\n")


def _is_setting(name: str, said: str) -> bool:
    return name in _SETTINGS and _TOKEN.fullmatch(said) is not None


def _said(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


# -- JSON -------------------------------------------------------------------------------------------------------------


def _of_json(json: bytes, place: Callable[[int], int]) -> Iterator[Words]:
    strings: list[tuple[int, int, Path, str]] = []
    #: Of each object its type and its role.
    kinds: dict[Path, list[str]] = {}
    for scalar in scalars(json):
        if scalar.sort is Sort.STRING:
            value = parse(json[scalar.start : scalar.end])
            said = value if isinstance(value, str) else _said(json[scalar.start : scalar.end])
            strings.append((scalar.start, scalar.end, scalar.path, said))
            if scalar.path and scalar.path[-1] in ("type", "role"):
                kinds.setdefault(scalar.path[:-1], []).append(said)
    for start, end, path, said in strings:
        if _is_words(path, said, kinds):
            yield Words(
                place(start), place(end), path, said, "arguments" if path and path[-1] == "arguments" else "json"
            )


def _is_words(path: Path, said: str, kinds: Mapping[Path, list[str]]) -> bool:
    if _TOKEN.fullmatch(said) is None:
        return True
    depth = next((depth for depth, step in enumerate(path) if isinstance(step, str) and step not in _AROUND), len(path))
    inner = path[depth:]
    if not inner:
        return True
    if inner[0] in _TOOLS:
        return _is_told(inner)
    if inner[0] in _SETTINGS:
        return False
    return _is_free(inner) or not _is_known(inner, kinds.get(path[:-1], []))


def _is_told(path: Path) -> bool:
    """Of a tool, or of a schema."""
    naming = False
    for step in path:
        if naming:
            naming = False
        elif step in _NAMING:
            naming = True
        elif step in _TOLD:
            return True
    last = _last(path)
    return last not in _OF_TOOLS and not _is_id(last)


def _is_free(path: Path) -> bool:
    if path[0] == "metadata" or any(step in _FREE for step in path[1:]):
        return True
    if "output" not in path[1:]:
        return False
    # What a tool gave back: parts that say their type, or anything.
    match path[path.index("output", 1) + 1 :]:
        case (int(), "type" | "detail" | "file_id"):
            return False
        case _:
            return True


def _is_known(path: Path, kinds: list[str]) -> bool:
    last = _last(path)
    if last == "name":
        return (len(path) > 1 and path[-2] in _CALLS) or any(_CALL_TYPE.fullmatch(kind) for kind in kinds)
    return last in _KIND or _is_id(last)


def _is_id(name: str) -> bool:
    return _ID.search(name) is not None and _OF_SOMEBODY.search(name) is None


def _last(path: Path) -> str:
    return next((step for step in reversed(path) if isinstance(step, str)), "")
