"""Which markup of a model's own template leaked into what a person reads; told on demand, never changed.

A server without the right parser lets such markers through as text (dialect catalogue Q77, Q78, Q81 to Q83). Taking
them out would be guessing, since a text may speak of them; they are named, and the live path does not look for them.
"""

import re
from typing import Final

from ..core.model import Event, ReasoningDelta, TextDelta, ToolArgumentsDelta

__all__ = ["Markup"]

_SAID: Final = (TextDelta, ReasoningDelta)
#: Name, what it looks like, and the kinds of text where it is out of place. Thoughts may well say `<think>`.
_MARKERS: Final = (
    ("leaked_think", re.compile(r"</?think>"), (TextDelta,)),  # Q77, Q78
    ("leaked_tool_section", re.compile(r"<\|tool_call(?:s_section)?_begin\|>|<\|open\|>tools"), _SAID),  # Q81
    ("leaked_dsml", re.compile("<[|\uff5c\u2502]{1,2}DSML"), (*_SAID, ToolArgumentsDelta)),  # Q82
    ("leaked_tool_call", re.compile(r"</?tool_call>|<function=\w"), _SAID),  # Q83
)
#: The longest marker, Kimi's; what may be the beginning of one is looked at again with the next piece.
_MARKER_CHARS_MAX: Final = 28


class Markup:
    """`apply` every event in order."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}
        #: The end of each text so far, by kind, choice and call.
        self._tails: dict[tuple[type, int, int], str] = {}

    @property
    def found(self) -> tuple[str, ...]:
        """The names of what leaked, in order of their first place."""
        return tuple(self._found)

    def apply(self, event: Event) -> None:
        """The next event."""
        if isinstance(event, ToolArgumentsDelta):
            self._look(event.text, (ToolArgumentsDelta, event.choice, event.call))
        elif isinstance(event, TextDelta | ReasoningDelta):
            self._look(event.text, (type(event), event.choice, 0))

    def _look(self, piece: str, place: tuple[type, int, int]) -> None:
        text = self._tails.get(place, "") + piece
        self._tails[place] = text[1 - _MARKER_CHARS_MAX :]
        if "<" not in text:  # with which they all begin
            return
        for name, marker, kinds in _MARKERS:
            if place[0] in kinds and marker.search(text):
                self._found[name] = None
