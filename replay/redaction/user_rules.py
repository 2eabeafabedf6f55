"""What the user asks to be gone beside what looks like a secret: members by their path, and the words of requests"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from wiretape.events.core.json_text import parse

from ..sealed.edits import Text
from ..sealed.scalars import Path, Sort, scalars
from .prompts import is_prompt, words
from .spans import Form, Span
from .vendors import PLACEHOLDER

__all__ = ["Redaction", "asked_for", "is_path", "matches", "pattern_of"]

_PATH: Final = re.compile(r"\$?\.?(?:[^.\[\]]+|(?:\[[^.\[\]]+\])+)(?:\.[^.\[\]]+|\.?\[[^.\[\]]+\])*")
#: What stands there already; of the arguments of a tool, inside JSON.
_GONE: Final = re.compile(rf'{PLACEHOLDER.pattern}|\{{"redacted":"{PLACEHOLDER.pattern}"\}}')


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What is redacted beside what looks like a secret."""

    #: As in `messages[*].content`: members by name, `*` for any, `[*]` for any element.
    paths: tuple[str, ...] = ()
    #: Words of the conversation in requests become their hash and length.
    prompts: bool = False


def asked_for(parts: Sequence[Text], asked: Redaction) -> Iterator[Span]:
    """Where it stands in these texts; what stands for it already stays."""
    patterns = [pattern_of(path) for path in asked.paths]
    for number, text in enumerate(parts):
        json = text.json if patterns else b""
        for scalar in scalars(json):
            if scalar.sort in (Sort.NAME, Sort.TORN) or not any(matches(each, scalar.path) for each in patterns):
                continue
            said = _value(json[scalar.start : scalar.end])
            if said and not _GONE.fullmatch(said) and not is_prompt(said):
                start = text.place(scalar.start)
                form: Form = (
                    "arguments" if scalar.sort is Sort.STRING and scalar.path[-1:] == ("arguments",) else "json"
                )
                yield Span(number, start, start + scalar.end - scalar.start, scalar.path, "path", said, form)
        if asked.prompts and text.kind in ("request", "upload"):
            for each in words(text):
                yield Span(number, each.start, each.end, each.path, "prompt", each.said, each.form)


def _value(token: bytes) -> str:
    value = parse(token)
    return value if isinstance(value, str) else token.decode("utf-8", "replace")


def is_path(path: str) -> bool:
    """Whether it has steps, and each is one: of no step all would be, and half of one is taken for a name."""
    return path != "$" and _PATH.fullmatch(path) is not None


def pattern_of(path: str) -> tuple[str, ...]:
    """The steps of a path."""
    steps = path.removeprefix("$").replace("[", ".[").split(".")
    return tuple(step.strip("[]'\"") for step in steps if step)


def matches(pattern: tuple[str, ...], path: Path) -> bool:
    """The member itself, and all that is in it."""
    return len(pattern) <= len(path) and all(
        step in ("*", str(there)) for step, there in zip(pattern, path, strict=False)
    )
