"""Which earlier response a request continues, and whether it may."""

import re
from collections.abc import Mapping
from typing import Any, Final

from ..core.json_text import as_list, as_object, is_object

__all__ = ["CONTINUED", "continues", "is_kept", "referenced", "stream_of", "with_items"]

#: The member of a request that names an earlier response.
CONTINUED: Final = "previous_response_id"
#: The ids of crossed responses are ours.
_OWN: Final = re.compile(r"resp_([A-Za-z0-9-]{1,128})", re.ASCII)
#: And those of their items.
_ITEM: Final = re.compile(r"[a-z]+_([A-Za-z0-9-]{1,128})_[0-9]+", re.ASCII)
_REFERENCE: Final = "item_reference"


def stream_of(response_id: str) -> str:
    """Return the stream that a response of ours was, or nothing."""
    found = _OWN.fullmatch(response_id)
    return found[1] if found else ""


def continues(body: dict[str, Any]) -> str:
    """Return the id of the response that a request continues, or nothing."""
    given: Any = body.get(CONTINUED)
    return given if isinstance(given, str) else ""


def is_kept(body: dict[str, Any]) -> bool:
    """Return whether later requests may continue the response to this one."""
    return body.get("store") is not False


def referenced(body: dict[str, Any]) -> dict[str, str]:
    """Return the ids of items that a request names instead of repeating them, and that of the response of each.

    Vercel's `ai` names them, unless it was asked not to store; the upstream knows its own.
    """
    items = [as_object(item) for item in as_list(body.get("input"))]
    ids: list[Any] = [item.get("id") for item in items if item.get("type") == _REFERENCE]
    matches = {given: _ITEM.fullmatch(given) for given in ids if isinstance(given, str)}
    return {given: f"resp_{match[1]}" for given, match in matches.items() if match}


def with_items(body: dict[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with these items, by id, in place of their names."""
    items = [
        found.get(str(item.get("id")), item) if is_object(item) and item.get("type") == _REFERENCE else item
        for item in as_list(body.get("input"))
    ]
    return {**body, "input": items} if items else body
