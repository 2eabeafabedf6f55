"""Secrets that were found somewhere in a file: which ones are looked for elsewhere in it, and where they stand

`{"password":"..."}` says what it holds; the same word in the text before it does not. Of any secret a text may have the
beginning only, because a stream stopped inside it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from .beginnings import BEFORE, Beginnings
from .vendors import PLACEHOLDER, Hit

__all__ = ["BY_PLACE", "Known", "is_known_secret"]

#: Whose the secrets are that only their place gave away.
BY_PLACE: Final = frozenset({"password", "secret"})
#: A shorter one stands by chance in much else.
_KNOWN_CHARS: Final = 8
#: Of one file, the longest first: each of them is one search through all texts, a gigabyte a second.
_KNOWN_MAX: Final = 1_000
#: Members that say what something is, in words of the protocol.
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
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]+")
_BEHIND: Final = r"(?![A-Za-z0-9])"


def _as_word(secret: str) -> str:
    """No part of a longer one: of an order's number, or a path's name."""
    before, behind = BEFORE if secret[0].isalnum() else "", _BEHIND if secret[-1].isalnum() else ""
    return f"{before}{re.escape(secret)}{behind}"


def is_known_secret(vendor: str, secret: str) -> bool:
    """Whether all of it is looked for elsewhere, since no shape gives it away; no word is: those stand everywhere."""
    return vendor in BY_PLACE and len(secret) >= _KNOWN_CHARS and not secret.isalpha()


class Known:
    """Those of one file, and of them those that a part of it holds."""

    def __init__(self, vendors: Mapping[str, str] | None = None) -> None:
        self._vendors = dict(vendors or {})
        self._longest: list[str] = []
        self._begun = Beginnings()

    def __len__(self) -> int:
        return len(self._vendors) + len(self._begun)

    def add(self, found: Iterable[tuple[str, str]]) -> bool:
        """By vendor and secret; whether there was a new one."""
        before, wholes = len(self), len(self._vendors)
        for vendor, secret in found:
            self._begun.add(vendor, secret)
            if is_known_secret(vendor, secret):
                self._vendors.setdefault(secret, vendor)
        if len(self._vendors) > wholes:
            self._longest = sorted(self._vendors, key=lambda secret: (-len(secret), secret))[:_KNOWN_MAX]
        return len(self) > before

    def within(self, said: Iterable[str]) -> "Known":
        """Those that stand in any of these texts, to be asked for `hits`: an expression of a thousand words is slow."""
        if not self._vendors:
            return self
        text = "\0".join(said)
        return Known({secret: self._vendors[secret] for secret in self._longest if secret in text})

    def hits(self, said: str, name: str = "") -> Iterator[Hit]:
        """Where they stand in a text under this name; not in what we put there, nor in words of the protocol."""
        if not self._vendors or name in _PROTOCOL:
            return
        ours = [match.span() for match in PLACEHOLDER.finditer(said)]
        for match in re.finditer("|".join(map(_as_word, self._vendors)), said):
            start, end = match.span()
            if not any(first < end and start < last for first, last in ours):
                yield Hit(start, end, self._vendors[match[0]], match[0])

    def begun(self, said: str, name: str = "", *, asked: bool = False) -> Iterator[Hit]:
        """The one that a text under this name ends inside.

        Of what is `asked` only another place of the file tells so: it stands for any word, since who asks again says no
        more of it.
        """
        for hit in () if name in _PROTOCOL else self._begun.hits(said):
            yield hit._replace(vendor="secret") if asked else hit

    def whole(self, vendor: str, secret: str) -> str:
        """The secret that this one is the beginning of, by its vendor's shape; else the same."""
        return secret if vendor in BY_PLACE else self._begun.whole(vendor, secret)

    def hits_in_name(self, name: str) -> Iterator[Hit]:
        """The same in the name of a member, unless that is one as programs have it."""
        return self.hits(name) if _IDENTIFIER.fullmatch(name) is None else iter(())
