"""What endings, causes and repairs mean. docs/reference/repairs.md gets its sentences from the same file."""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from wiretape.events.core.json_text import parse
from wiretape.events.crossing.losses import STREAM_LOST

from ..explain import CAUSES, ENDINGS, FOLLOWED

__all__ = ["REPAIRS", "about_repair", "explanations"]

#: One sentence for each repair, with the numbers of the quirks that it is for.
REPAIRS: Final[Mapping[str, str]] = parse((resources.files("wiretape.proxy.inspector") / "repairs.json").read_bytes())
_QUIRKS: Final = re.compile(r" \((?:Q\d|[^()]*\bQ\d)[^()]*\)")
_LOST: Final = "lost_"


@cache
def about_repair(name: str) -> str:
    """Return what a repair does, in a sentence without its quirks."""
    if name.startswith(_LOST) and (lost := STREAM_LOST.get(name.removeprefix(_LOST))):
        return f"Lost by crossing dialects: {lost}"
    return _QUIRKS.sub("", REPAIRS.get(name, ""))


def explanations() -> dict[str, Any]:
    """Return all of them as JSON."""
    repairs = [*REPAIRS, *(_LOST + name for name in STREAM_LOST)]
    return {
        "endings": {word: told._asdict() for word, told in ENDINGS.items()},
        "causes": dict(CAUSES),
        "followed": dict(FOLLOWED),
        "repairs": {name: about_repair(name) for name in repairs},
    }
