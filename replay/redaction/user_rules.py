"""What users redact in addition: members by path, the words of requests, and texts that their own detector finds"""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..sealed.texts import Path

__all__ = ["Detector", "Redaction", "detector_of", "is_path", "matches", "pattern_of"]

_PATH: Final = re.compile(r"\$?\.?(?:[^.\[\]]+|(?:\[[^.\[\]]+\])+)(?:\.[^.\[\]]+|\.?\[[^.\[\]]+\])*")

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
        found: Any = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"Cannot load detector {name!r}: {error}. Name it as module:function.") from error
    if not callable(found):
        raise TypeError(f"Detector {name!r} is not a function.")
    detect: Callable[[str], object] = found

    def detector(text: str) -> Iterator[str]:
        secrets: Any = detect(text)
        for secret in secrets or ():
            if not isinstance(secret, str):
                raise TypeError(f"Detector {name!r} returned {type(secret).__name__}, not a list of strings.")
            yield secret

    return detector


def is_path(path: str) -> bool:
    """Return whether a path has steps: an empty one would match everything."""
    return path != "$" and _PATH.fullmatch(path) is not None


def pattern_of(path: str) -> tuple[str, ...]:
    """Return the steps of a path."""
    steps = path.removeprefix("$").replace("[", ".[").split(".")
    return tuple(step.strip("[]'\"") for step in steps if step)


def matches(pattern: tuple[str, ...], path: Path) -> bool:
    """Return whether a path is this member, or inside it."""
    return len(pattern) <= len(path) and all(
        step in ("*", str(actual)) for step, actual in zip(pattern, path, strict=False)
    )
