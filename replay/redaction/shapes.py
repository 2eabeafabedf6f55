"""What credentials look like, found in text: keys by their shape, values by their name, behind escapes and in base64

A hash, an id, a number or a word is never one: each has a vendor's own beginning or a name beside it.
"""

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from .names import named
from .notations import noted
from .unescaped import Decoded, decoded
from .vendors import Hit, glued, keys

__all__ = ["find", "merged"]

#: Nothing of the above, or of what follows, is in a text without one of these; escapes are looked into apart.
_WORTH_A_LOOK: Final = re.compile(
    r"sk-|[sr]k_|pk-|sess-|AIza|ya29|GOCSPX|AQ\.|A[KSBC][IC]A|ABSK|bedrock-api|gh[pousr]_|_pat_|gl[a-z]{2,4}-|xox|xapp|hooks\.|JQQJ9|\dQ~|mfa\.|\.[A-Za-z0-9_-]{6}\.|webhooks/"
    r"|whsec|hf_|api_org|xai-|r8_|pplx|nvapi|fw_|tgp_|tvly|fc-|lsv2|npm_|pypi-|SG\.|key-|SK|:AA|dapi|do[opr]_|shp|ATATT"
    r"|sb_secret|hv[sb]\.|glsa_|dckr_|1//0|figd_|PMAK-|jina_|pa-|sb[ps]_|vc[kpi]_|lin_|ntn_|AGE-|eyJ|BEGIN|://|(?i:bearer|basic|key|secret|token|pass|pwd|_pat=|auth|credential|cookie|sig|[\"']kty|curl|mysql|mariadb|login)"
)
#: What may be base64 of something with a key in it.
_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,65536}={0,2}(?![A-Za-z0-9+/_=-])")
#: ... in a path, and in lines.
_SEGMENT: Final = re.compile(r"(?<=/)[A-Za-z0-9+_-]{24,65536}={0,2}(?![A-Za-z0-9+_=-])")
_WRAPPED: Final = re.compile(
    r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{60,76}\r?\n[ \t]{0,16}){1,1000}[A-Za-z0-9+/]{1,76}={0,2}"
)

#: A key is longer, and of bytes by chance there is hardly a run as long; those that are mostly end there.
_READABLE: Final = re.compile(rb"[\t\r\n\x1b\x20-\x7e]{12,}")
_QUOTES: Final = frozenset("\"'")
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BASIC: Final = re.compile(r"(?<![A-Za-z0-9])(?i:basic)\s+([A-Za-z0-9+/_-]{8,}={0,2})")


def find(text: str) -> list[Hit]:
    """Every secret of a text, in order, none inside another: as it stands, and behind escapes."""
    hits = list(_plain(text))
    shut = [hit for hit in hits if _is_quoted(text, hit)]
    for further in decoded(text, _any):
        hits += _mapped(further, hits, shut)
    return merged(_in_strings(text, hits))


def merged(hits: Sequence[Hit]) -> list[Hit]:
    """Without those inside others; where two overlap, the first reaches as far as both."""
    kept: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if kept and hit.start < kept[-1].end:
            if hit.end > kept[-1].end:
                kept[-1] = kept[-1]._replace(end=hit.end)
        elif hit.start < hit.end:
            kept.append(hit)
    return kept


def _any(text: str) -> bool:
    return next(_plain(text), None) is not None


def _plain(text: str) -> Iterator[Hit]:
    if _WORTH_A_LOOK.search(text):
        yield from keys(text)
        yield from named(text)
        yield from noted(text)
        for match in _BASIC.finditer(text):
            if ":" in (_text_of(match[1]) or ""):
                yield Hit(*match.span(1), "basic", match[1])
    for pattern in (_BASE64, _SEGMENT, _WRAPPED):
        for match in pattern.finditer(text):
            if (inside := next(_encoded(_texts_in("".join(match[0].split()))), None)) is not None:
                yield Hit(*match.span(), inside.vendor, inside.secret)


def _encoded(inner: str) -> Iterator[Hit]:
    if _WORTH_A_LOOK.search(inner):
        yield from keys(inner)
        yield from glued(inner)
        yield from named(inner)
        yield from noted(inner)


def _text_of(encoded: str) -> str | None:
    """What base64 stands for, if it is text."""
    try:
        text = _bytes_of(encoded).decode()
    except ValueError:
        return None
    return text if "".join(text.split()).isprintable() else None


def _texts_in(encoded: str) -> str:
    """What may be read in it, where it is no text as a whole too: another encoding, colours, bytes between."""
    if (text := _text_of(encoded)) is not None:
        return text
    try:
        data = _bytes_of(encoded)
    except ValueError:
        return ""
    if data.count(0) * 4 > len(data):  # of UTF-16 every second one
        data = data.replace(b"\0", b"")
    return "\n".join(run.decode("latin-1") for run in _READABLE.findall(data))


def _bytes_of(encoded: str) -> bytes:
    padded = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(padded + "=" * (-len(padded) % 4))


def _mapped(decoded: Decoded, known: Sequence[Hit], shut: list[Hit]) -> list[Hit]:
    """Hits of the decoded text where they stand; not of what was found without decoding it.

    Nor what begins in quotes that were `shut` before, and goes on: decoded once more than it was written, `\\\\"` of a
    value's end is a quote inside it.
    """
    starts, reach = _reaches(known)
    closed, until = _reaches(shut)
    found: list[Hit] = []
    for hit in _plain(decoded.text):
        start, end = decoded.places[hit.start], decoded.places[hit.end]
        before, behind = bisect_right(starts, start), bisect_right(closed, start)
        if (before and reach[before - 1] >= end) or (behind and start < until[behind - 1] < end):
            continue
        found.append(hit._replace(start=start, end=end))
        if _is_quoted(decoded.text, hit):
            shut.append(found[-1])
    return found


def _is_quoted(text: str, hit: Hit) -> bool:
    """Whether it is all of what stands between two quotes."""
    return hit.start > 0 and text[hit.start - 1] in _QUOTES and text[hit.end : hit.end + 1] == text[hit.start - 1]


def _in_strings(text: str, hits: list[Hit]) -> list[Hit]:
    """Of JSON none goes beyond the string that it begins in: whoever reads it parses it."""
    if not hits or not _is_json(text):
        return hits
    strings = [match.span() for match in _STRING.finditer(text)]
    begins = [start for start, _ in strings]
    kept: list[Hit] = []
    for hit in hits:
        start, end = strings[max(0, bisect_right(begins, hit.start) - 1)] if strings else (0, 0)
        inside = start < hit.start < end < hit.end + 1
        kept.append(hit._replace(end=end - (text[end - 1] == text[start])) if inside else hit)
    return kept


def _is_json(text: str) -> bool:
    """Whether it is an object or an array, or the beginning of one."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or error.msg.startswith("Unterminated string")
    except (RecursionError, ValueError):
        return False
    return True


def _reaches(hits: Sequence[Hit]) -> tuple[Sequence[int], Sequence[int]]:
    """Where they start, in order, and how far it is covered from any start up to there."""
    ordered = sorted(hits, key=lambda hit: hit.start)
    return [hit.start for hit in ordered], [*accumulate((hit.end for hit in ordered), max)]
