"""Chunks that are canonical as they are, of a choice that flows: what they add is all there is to look at

Of agents' answers they are nearly all: one more piece of text, or of the arguments of a call. The second costs 5 us
here, where the long way through the repairs takes 20.
"""

from collections.abc import Container
from typing import Any

from .write import CHUNK, Envelope

__all__ = ["flowing", "is_text"]


def flowing(value: Any, envelope: Envelope, choices: Container[int]) -> dict[str, Any] | None:
    """The one choice of a chunk that is canonical but for what its delta may say, if it is one of those that flow."""
    choice: dict[str, Any]
    try:
        (choice,) = value["choices"]
        if (
            choice["finish_reason"] is not None
            or choice["index"] not in choices
            or type(choice["index"]) is not int
            or value["id"] != envelope.id
            or value["model"] != envelope.model
            or value["created"] != envelope.created
            or type(value["created"]) is not int
            or value["object"] != CHUNK
            or "error" in value
            or "base_resp" in value
            or "citations" in value
            or "search_results" in value
            or "finishReason" in choice
            or "message" in choice
            or "delta" not in choice
        ):
            return None
    except (KeyError, TypeError, ValueError):
        return None
    return choice


def is_text(delta: Any, names: Container[str]) -> bool:
    """Whether the delta has no members but texts of these names, or null."""
    try:
        for name, text in delta.items():
            if name not in names or (text is not None and type(text) is not str):
                return False
    except AttributeError:
        return False
    return True
