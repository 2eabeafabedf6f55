"""The free text of a custom tool out of the arguments of the function in its place, as they arrive.

An upstream that knows only functions gets a custom tool as a function with one parameter, `input`. What the client
gets is the raw text, decoded from the JSON string piece by piece.
"""

import json
import re
from typing import Final

from ..core.json_text import ABSENT, as_object, joined_surrogates, parse

__all__ = ["CustomInput"]

#: How the arguments begin.
_HEAD: Final = re.compile(r'\s*\{\s*"input"\s*:\s*"')
#: A longer beginning is another one.
_HEAD_CHARS_MAX: Final = 64
#: The inside of a JSON string, up to an escape that may be cut short.
_INSIDE: Final = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_SPLIT_PAIR: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_decode: Final = json.JSONDecoder(strict=False).decode


class CustomInput:
    """Decodes the arguments of one call."""

    def __init__(self) -> None:
        #: The arguments are not what was asked for: nothing but their end can show what the input is.
        self._other: list[str] = []
        self._inside = self._ended = False
        #: What waits for the next piece.
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the next piece of the input; empty as long as it waits for more."""
        if self._other:
            self._other.append(piece)
        if self._other or self._ended:
            return ""
        text, self._held = self._held + piece, ""
        if not self._inside:
            head = _HEAD.match(text)
            if head is None:
                self._held, self._other = (text, []) if len(text) <= _HEAD_CHARS_MAX else ("", [text])
                return ""
            self._inside, text = True, text[head.end() :]
        inside = _INSIDE.match(text)
        assert inside is not None, "an empty text is inside too"
        decoded, rest = inside.group(), text[inside.end() :]
        self._ended = rest[:1] == '"'
        if not self._ended and (half := _SPLIT_PAIR.search(decoded)):
            decoded, rest = decoded[: half.start()], half.group() + rest
        self._held = rest
        return joined_surrogates(_decode(f'"{decoded}"'))

    def rest(self, *, whole: bool) -> str | None:
        """Return what is left of the input at the end of the arguments, or None if they are not valid JSON.

        They are `whole` if they were an object that has ended.
        """
        if self._inside:
            return "" if self._ended and whole else None
        text = "".join(self._other) or self._held
        value = parse(text.encode("utf-8", "replace"))
        if value is ABSENT:
            return None
        given = as_object(value).get("input", text if value else "")
        return given if isinstance(given, str) else text
