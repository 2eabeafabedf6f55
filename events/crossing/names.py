"""Names of tools and ids of calls that every upstream and every client accepts, the same for the same input."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..core.errors import RequestError
from ..core.json_text import as_object
from ..core.limits import CROSSED_ID_CHARS_MAX, TOOL_NAME_CHARS_MAX

__all__ = ["WayBack", "call_id", "declare", "flat_name", "user_id", "way_back"]

_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{CROSSED_ID_CHARS_MAX}}}")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


def _hash(text: str, chars: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:chars]


def call_id(given: str, prefix: str = "call_") -> str:
    """Return an id that fits every dialect: the given one if it does, else the prefix and its hash."""
    return given if _ID.fullmatch(given) else prefix + _hash(given, 32)


def flat_name(name: str, namespace: str = "") -> str:
    """Return one name of at most 64 allowed characters for a tool; a longer or stranger one ends in a hash."""
    whole = f"{namespace}__{name}" if namespace else name
    flat = _FOREIGN.sub("_", whole)
    if flat == whole and 0 < len(flat) <= TOOL_NAME_CHARS_MAX:
        return flat
    return f"{flat[: TOOL_NAME_CHARS_MAX - 9]}_{_hash(whole, 8)}"


def user_id(given: str) -> str:
    """Return an end user's id of at most 64 characters, which is what OpenAI takes."""
    return given if len(given) <= CROSSED_ID_CHARS_MAX else "user_" + _hash(given, 32)


class WayBack(NamedTuple):
    """What the client calls a tool that the upstream knows by its flat name."""

    name: str
    namespace: str = ""
    #: `function`, `custom` or `tool_search`.
    kind: str = "function"


def declare(taken: dict[str, WayBack], tool: WayBack) -> str:
    """Return the flat name of a declared tool, which is taken then; raise RequestError if another tool has it."""
    flat = flat_name(tool.name, tool.namespace)
    other = taken.setdefault(flat, tool)
    if other[:2] != tool[:2]:
        one, two = (f"{each.namespace}.{each.name}".lstrip(".") for each in (other, tool))
        raise RequestError("tools", f"The tools {one!r} and {two!r} would both be {flat!r} at this upstream.")
    return flat


def way_back(crossing: Mapping[str, Any], flat: str) -> WayBack:
    """Return what the client calls the tool of this flat name; one that it did not declare keeps the name."""
    keys = as_object(as_object(crossing.get("tools")).get(flat))
    return WayBack(
        *(str(keys.get(key, default)) for key, default in (("name", flat), ("namespace", ""), ("kind", "function")))
    )
