"""What users redact in addition: members by path, the words of requests, and texts that their own detector finds

Words are all strings of a request in any dialect that are not known to be something else: roles, types, models, ids,
names of tools, settings of one word, and in schemas the names and types. A body that is not JSON is words as a whole.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from wiretape.events.core.json_text import parse

from ..sealed.texts import Path, Text
from .shapes import PLACEHOLDER

__all__ = ["Detector", "Redaction", "Words", "detector_of", "is_path", "is_prompt", "matches", "pattern_of", "words"]

_PATH: Final = re.compile(r"\$?\.?(?:[^.\[\]]+|(?:\[[^.\[\]]+\])+)(?:\.[^.\[\]]+|\.?\[[^.\[\]]+\])*")
_PROMPT: Final = re.compile(
    r'\[prompt sha256:[0-9a-f]{16} \d+ chars\]|\{"redacted":"\[prompt sha256:[0-9a-f]{16} \d+ chars\]"\}'
)
#: The look of anything but words; a sentence has blanks.
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.:@/+=$#*-]{1,256}")
#: Members that describe tools, or the form of the answer.
_TOOLS: Final = frozenset({"format", "function_call", "functions", "response_format", "text", "tool_choice", "tools"})
#: Their members that contain words at any depth.
_DESCRIBING: Final = frozenset({"const", "default", "enum", "example", "examples", "input_examples"})
#: Members whose content a model, a tool or a client made up.
_FREE: Final = frozenset({"args", "arguments", "input", "metadata", "output", "parameters", "response", "result"})
#: Members with words of the protocol ...
_KIND: Final = frozenset({"detail", "format", "media_type", "model", "object", "role", "status", "ttl", "type"})
#: ... and settings of one word, at the top of a request or in its tools.
_SETTINGS: Final = frozenset(
    {"$ref", "$schema", "allowed_tools", "effort", "function_call", "include", "modalities", "mode",
     "prompt_cache_retention", "quality", "reasoning_effort", "required", "response_format", "server_label",
     "service_tier", "size", "syntax", "tool_choice", "truncation", "verbosity", "voice"}
)  # fmt: skip
_ID: Final = re.compile(r"(?:^|_)ids?$|[a-z]Ids?$")
_OF_A_PERSON: Final = re.compile(r"(?i)user|customer|person|account|client|external")
#: Members that hold the name of a tool next to its input ...
_CALLS: Final = frozenset({"custom", "function", "function_call"})
#: ... and lists whose elements are calls, if they have a name at all.
_LISTS_OF_CALLS: Final = frozenset({"content", "input"})

#: Returns the secrets of a text, as written in it. Called for each string of a recording; streamed ones are joined.
Detector = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What to redact besides what looks like a secret."""

    #: Paths such as `messages[*].content`: members by name, `*` for any, `[*]` for any element.
    paths: tuple[str, ...] = ()
    #: Replace the words of requests by their hash and length.
    prompts: bool = False
    #: Called before a tape is sealed.
    detector: Detector | None = None


def detector_of(name: str) -> Detector:
    """Import a detector named `module:function`. Raises ValueError or TypeError otherwise."""
    module, _, function = name.partition(":")
    try:
        detector: Detector | None = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"Cannot load detector {name!r}: {error}. Name it as module:function.") from error
    if not callable(detector):
        raise TypeError(f"Detector {name!r} is not a function.")
    return detector


def is_path(path: str) -> bool:
    """Return whether a path has steps: an empty one would match everything."""
    return path != "$" and _PATH.fullmatch(path) is not None


def pattern_of(path: str) -> tuple[str, ...]:
    steps = path.removeprefix("$").replace("[", ".[").split(".")
    return tuple(step.strip("[]'\"") for step in steps if step)


def matches(pattern: tuple[str, ...], path: Path) -> bool:
    """Return whether a path is this member, or inside it."""
    return len(pattern) <= len(path) and all(
        step in ("*", str(actual)) for step, actual in zip(pattern, path, strict=False)
    )


# -- words of requests -----------------------------------------------------------------------------------------------


class Words(NamedTuple):
    """The words at `raw[start:end]` of a request, their path, and how to write their placeholder."""

    start: int
    end: int
    path: Path
    said: str
    form: Literal["plain", "json", "arguments"]


def is_prompt(text: str) -> bool:
    """Return whether a text is the placeholder of words and nothing else."""
    return _PROMPT.fullmatch(text) is not None


def words(text: Text) -> Iterator[Words]:
    """Yield the words of a request that are not redacted yet."""
    found = [] if text.json else [Words(0, len(text.raw), (), text.raw.decode("utf-8", "surrogateescape"), "plain")]
    for scalar in (scalar for scalar in text.scalars if scalar.sort == "string"):
        token, path = text.json[scalar.start : scalar.end], scalar.path
        value = parse(token)
        said = value if isinstance(value, str) else token.decode("utf-8", "surrogateescape")
        if _is_words(path, said):
            form: Literal["json", "arguments"] = "arguments" if path[-1:] == ("arguments",) else "json"
            found.append(Words(text.place(scalar.start), text.place(scalar.end), path, said, form))
    for each in found:
        if each.said and not is_prompt(each.said) and not PLACEHOLDER.fullmatch(each.said):
            yield each


def _is_words(path: Path, said: str) -> bool:
    names = [step for step in path if isinstance(step, str)]
    if _TOKEN.fullmatch(said) is None or not names:
        return True
    last, of_tools = names[-1], names[0] in _TOOLS
    if of_tools and not _DESCRIBING.isdisjoint(names):
        return True
    if not of_tools and (names[0] == "metadata" or not _FREE.isdisjoint(names[1:])):
        return True
    if last == "name" and not of_tools:  # of a tool, or of a person
        return _CALLS.isdisjoint(path[-2:-1]) and _LISTS_OF_CALLS.isdisjoint(path[-3:-2])
    is_id = _ID.search(last) is not None and _OF_A_PERSON.search(last) is None
    is_setting = last in _SETTINGS and (of_tools or len(names) <= 2)
    return not (last in _KIND or last == "name" or is_setting or is_id)
