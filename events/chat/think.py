"""Splits `<think>` at the head of a text from the answer behind it, however the text is cut (Q78, opt-in)."""

from typing import Final

from ..core.limits import THINK_HEAD_CHARS_MAX

__all__ = ["Think"]

_OPENING: Final = "<think>"
_CLOSING: Final = "</think>"


class Think:
    """`feed` the text of one choice piece by piece; a tail that may be half a tag is held until `release`.

    Only the block at the very head is a thought: behind it, text may speak of such tags.
    """

    __slots__ = ("_held", "_inside", "over")

    def __init__(self) -> None:
        #: All further text is the answer.
        self.over = False
        self._inside = False
        self._held: str = ""

    def feed(self, text: str) -> tuple[str, str]:
        """The thought and the answer in this piece."""
        if self.over:
            return "", text
        text = self._held + text
        self._held = ""
        if not self._inside:
            head = text.lstrip()
            if head.startswith(_OPENING):
                self._inside = True
                text = head[len(_OPENING) :]
            elif _OPENING.startswith(head) and len(text) <= THINK_HEAD_CHARS_MAX:
                self._held = text
                return "", ""
            else:
                self.over = True
                return "", text
        thought, closing, answer = text.partition(_CLOSING)
        if closing:
            self.over = True
            return thought, answer
        kept = len(text) - _half_tag(text)
        self._held = text[kept:]
        return text[:kept], ""

    def release(self) -> tuple[str, str]:
        """No more text comes: what was held was no tag."""
        held = self._held
        self._held = ""
        self.over = True
        return (held, "") if self._inside else ("", held)


def _half_tag(text: str) -> int:
    """How many characters at the end may be the beginning of the closing tag."""
    return next((size for size in range(len(_CLOSING) - 1, 0, -1) if text.endswith(_CLOSING[:size])), 0)
