"""Whole answers: the frames of a response object, and the response object of frames."""

from collections.abc import Iterable
from typing import Any

from ..core.json_text import as_list, as_object, is_object
from .frames import DONE, ENDS, frame_value, item_frames

__all__ = ["frames_of", "whole"]


def frames_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the frames of a whole response, which is complete or cut by a limit."""
    start = {**dict.fromkeys(("completed_at", "error", "incomplete_details", "usage")), "status": "in_progress"}
    begun = {**response, **{key: value for key, value in start.items() if key in response}, "output": list[Any]()}
    frames = [frame_value("response.created", response=begun), frame_value("response.in_progress", response=begun)]
    items = [item for item in map(as_object, as_list(response.get("output"))) if isinstance(item.get("type"), str)]
    for place, item in enumerate(items):
        frames += item_frames(item, place)
    kind = "response.incomplete" if response.get("status") == "incomplete" else "response.completed"
    return [*frames, frame_value(kind, response=response)]


def whole(values: Iterable[Any]) -> dict[str, Any]:
    """Return the response that the canonical frames of a whole answer mean: that of its last frame."""
    items: list[Any] = []
    response: dict[str, Any] = {}
    for value in values:
        kind = value["type"] if is_object(value) else ""
        if kind == DONE:
            items.append(value["item"])
        elif kind in ENDS:
            response = value["response"]
    return response if response.get("output") or not items else {**response, "output": items}
