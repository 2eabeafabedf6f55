"""Secrets found somewhere in a file, looked for everywhere: whole, and their beginning where a text ends inside one

`{"password":"..."}` names its value; the same value in a sentence is not named. A stream may stop inside any secret.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from .vendors import BEFORE, CLOSERS, PLACEHOLDER, Hit, is_telling

__all__ = ["Known"]

#: Secrets that only their name revealed: no shape finds them elsewhere.
_BY_NAME: Final = frozenset({"password", "secret"})
#: Not secrets by themselves, or secrets by the user's choice in one place only.
_IN_PLACE: Final = frozenset({"bytes", "digits", "logprobs", "path", "prompt"})
#: A shorter one occurs by chance in other text.
_KNOWN_CHARS: Final = 8
#: In one file, the longest first: each is searched for in every text, at a gigabyte a second.
_KNOWN_MAX: Final = 1_000
#: Members with words of the protocol.
_PROTOCOL: Final = frozenset(
    {
        "dialect",
        "event",
        "finish_reason",
        "method",
        "model",
        "object",
        "profile",
        "role",
        "status",
        "stop_reason",
        "type",
    }
)
_AFTER: Final = r"(?![A-Za-z0-9])"
_BEGINS: Final = re.compile(BEFORE)


class Known:
    """The secrets of one file."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        self._all: dict[str, str] = {}
        self._by_head: dict[str, list[str]] = {}
        self._chars_max = 0

    def __bool__(self) -> bool:
        return bool(self._all or self._named)

    def __len__(self) -> int:
        return len(self._all) + len(self._named)

    def add(self, vendor: str, secret: str) -> None:
        """Look for this secret from now on."""
        if vendor in _BY_NAME and len(secret) >= _KNOWN_CHARS and not secret.isalpha():
            self._named.setdefault(secret, vendor)
        if vendor not in _IN_PLACE and secret not in self._all and is_telling(secret) and len(self._all) < _KNOWN_MAX:
            self._all[secret] = vendor
            alike = self._by_head.setdefault(secret[:_KNOWN_CHARS], [])
            alike.append(secret)
            alike.sort(key=lambda each: (-len(each), each))
            self._chars_max = max(self._chars_max, len(secret))

    def within(self, texts: Iterable[str]) -> "re.Pattern[str] | None":
        """Return a pattern of the named secrets that any of these texts holds; no part of a longer word is one."""
        text = "\0".join(texts) if self._named else ""
        longest = sorted(self._named, key=lambda secret: (-len(secret), secret))[:_KNOWN_MAX]
        words = [
            f"{BEFORE if secret[0].isalnum() else ''}{re.escape(secret)}{_AFTER if secret[-1].isalnum() else ''}"
            for secret in longest
            if secret in text
        ]
        return re.compile("|".join(words)) if words else None

    def hits(self, text: str, name: str, *, here: "re.Pattern[str] | None", request: bool = False) -> Iterator[Hit]:
        """Yield the named secrets of a text, and the secret it ends inside of, unless they are words of the protocol.

        In a request an incomplete one gets a placeholder that any text matches: a client that repeats the request has
        no more of the secret than this.
        """
        if name in _PROTOCOL:
            return
        ours = [match.span() for match in PLACEHOLDER.finditer(text)]
        for match in here.finditer(text) if here else ():
            if not any(first < match.end() and match.start() < last for first, last in ours):
                yield Hit(*match.span(), self._named[match[0]], match[0])
        if (hit := self._incomplete(text)) is not None:
            yield hit._replace(vendor="secret") if request else hit

    def _incomplete(self, text: str) -> Hit | None:
        for end in sorted({len(text), len(text.rstrip(CLOSERS))}, reverse=True):
            for start in range(max(0, end - self._chars_max), end - _KNOWN_CHARS + 1):
                for secret in self._by_head.get(text[start : start + _KNOWN_CHARS], ()):
                    begun = text[start:end]
                    if len(secret) > len(begun) and secret.startswith(begun) and is_telling(begun):
                        inside_a_word = begun[0].isalnum() and _BEGINS.match(text, start) is None
                        return None if inside_a_word else Hit(start, end, self._all[secret], secret)
        return None

    def whole(self, vendor: str, secret: str) -> str:
        """Return the longest known secret that begins with this one: a key that grows from frame to frame is one."""
        if vendor in _BY_NAME:
            return secret
        alike = self._by_head.get(secret[:_KNOWN_CHARS], ())
        return next((each for each in alike if self._all[each] == vendor and each.startswith(secret)), secret)
