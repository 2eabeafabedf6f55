"""Markup of a model's own template that leaked into readable text. It is reported, never changed.

A server without the right parser lets such markers through as text (dialect catalogue Q77, Q78, Q81 to Q83). Removing
them would be guessing, since a text may be about them. The live path does not look for them.
"""

import re
from typing import Final

from ..core.model import Event, ReasoningDelta, TextDelta, ToolArgumentsDelta

__all__ = ["Markup"]

_SAID: Final = (TextDelta, ReasoningDelta)
#: Name, pattern, and the kinds of text where the marker is out of place. Reasoning may well contain `<think>`.
_MARKERS: Final = (
    ("leaked_think", re.compile(r"</?think>"), (TextDelta,)),  # Q77, Q78
    ("leaked_tool_section", re.compile(r"<\|tool_call(?:s_section)?_begin\|>|<\|open\|>tools"), _SAID),  # Q81
    ("leaked_dsml", re.compile("<[|\uff5c\u2502]{1,2}DSML"), (*_SAID, ToolArgumentsDelta)),  # Q82
    ("leaked_tool_call", re.compile(r"</?tool_call>|<function=\w"), _SAID),  # Q83
)
#: The longest marker is Kimi's. What may be the beginning of one is searched again with the next piece.
_MARKER_CHARS_MAX: Final = 28


class Markup:
    """A search for leaked markers; `apply` every event in order."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}
        #: The end of each text so far, by kind, choice and call.
        self._tails: dict[tuple[type, int, int], str] = {}

    @property
    def found(self) -> tuple[str, ...]:
        """The names of the markers found, in order of appearance."""
        return tuple(self._found)

    def apply(self, event: Event) -> None:
        """Search the next event."""
        if isinstance(event, ToolArgumentsDelta):
            self._look(event.text, (ToolArgumentsDelta, event.choice, event.call))
        elif isinstance(event, TextDelta | ReasoningDelta):
            self._look(event.text, (type(event), event.choice, 0))

    def _look(self, piece: str, place: tuple[type, int, int]) -> None:
        text = self._tails.get(place, "") + piece
        self._tails[place] = text[1 - _MARKER_CHARS_MAX :]
        if "<" not in text:  # every marker begins with it
            return
        for name, marker, kinds in _MARKERS:
            if place[0] in kinds and marker.search(text):
                self._found[name] = None
