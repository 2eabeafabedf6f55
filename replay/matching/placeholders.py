"""Match requests against recordings in which sealing replaced a secret by a placeholder.

A name elsewhere may have given the secret away. A client then sends the secret itself, and nothing in its request says
that it is one: any plausible word fits the placeholder.
"""

import re
from typing import Any, Final

from wiretape.events.core.json_text import is_list, is_object

from .key import without_boundary

__all__ = ["fits", "fits_as_text", "has_placeholder"]

_PLACEHOLDER: Final = re.compile(r"\[redacted-(?:password|secret)(?:-\d+)?\]")
#: Something shorter is another word (`<id>`), something longer is no secret.
_SECRET_CHARS_MIN: Final = 3
_SECRET_CHARS_MAX: Final = 512
_SPACE: Final = re.compile(r"\s")
#: Members with prose: a placeholder that is all of one still replaced a single word.
_PROSE: Final = frozenset({"content", "input", "instructions", "output", "prompt", "system", "text"})


def has_placeholder(text: bytes) -> bool:
    """Return whether a secret that only a name gave away is missing in a text."""
    return _PLACEHOLDER.search(text.decode("latin-1")) is not None


def fits(recorded: Any, sent: Any, name: str = "") -> bool:
    """Return whether two canonical forms are equal except for placeholders; `name` is the member they are in."""
    if is_object(recorded) and is_object(sent):
        missing, new = ([name for name in a if name not in b] for a, b in ((recorded, sent), (sent, recorded)))
        pairs = [(name, name) for name in recorded if name in sent]
        if len(missing) == len(new) == 1 and _fills(missing[0], new[0]):
            pairs.append((missing[0], new[0]))
        elif missing or new:
            return False
        return all(fits(recorded[a], sent[b], a) for a, b in pairs)
    if is_list(recorded) and is_list(sent):
        return len(recorded) == len(sent) and all(fits(a, b, name) for a, b in zip(recorded, sent, strict=True))
    if isinstance(recorded, str) and isinstance(sent, str):
        whole = name not in _PROSE and _PLACEHOLDER.fullmatch(recorded) is not None
        return recorded == sent or _fills(recorded, sent, whole=whole)
    return type(recorded) is type(sent) and bool(recorded == sent)


def fits_as_text(recorded: bytes, sent: bytes) -> bool:
    """Return whether two bodies that are not JSON are equal except for placeholders."""
    return _fills(*(without_boundary(body).decode("latin-1") for body in (recorded, sent)))


def _fills(recorded: str, sent: str, *, whole: bool = False) -> bool:
    """Find the text between two placeholders at the first place after the previous one."""
    first, *parts = _PLACEHOLDER.split(recorded)
    if not parts or not sent.startswith(first):
        return False
    at, before = len(first), first
    for number, part in enumerate(parts, 1):
        low = at + _SECRET_CHARS_MIN
        end = sent.find(part, low) if number < len(parts) else max(low, len(sent) - len(part))
        if end < 0 or not sent.startswith(part, end) or not _may_be_secret(sent[at:end], before, part, whole=whole):
            return False
        at, before = end + len(part), part
    return at == len(sent)


def _may_be_secret(text: str, before: str, after: str, *, whole: bool) -> bool:
    """Accept one word, or several if they are a whole member or in quotes."""
    if len(text) > _SECRET_CHARS_MAX or "\n" in text:
        return False
    quote = before[-1:]
    quoted = quote in ("'", '"') and after[:1] in (quote, "\\") and quote not in text
    return whole or quoted or _SPACE.search(text) is None
