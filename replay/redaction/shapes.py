"""Find the secrets of a text: keys by shape, values by name, in strings of JSON, escapes and base64"""

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from ..sealed.texts import Path, Scalar, scalars, unquoted
from .names import is_header, is_pair, is_secret_number, is_secret_value, named
from .vendors import Hit, keys

__all__ = ["Leaf", "find", "merged", "names_of", "search"]

#: No secret is in a text without one of these, except in escapes or base64.
_WORTH_A_LOOK: Final = re.compile(
    r"sk-|[sr]k_|pk-|sess-|AIza|ya29|GOCSPX|AQ\.|A[KSBC][IC]A|ABSK|bedrock-api|gh[pousr]_|_pat_|gl[a-z]{2,4}-|xox|xapp"
    r"|hooks\.|JQQJ9|\dQ~|mfa\.|\.[A-Za-z0-9_-]{6}\.|webhooks/|whsec|hf_|api_org|xai-|r8_|pplx|nvapi|fw_|tgp_|tvly|fc-"
    r"|lsv2|npm_|pypi-|SG\.|key-|SK|:AA|dapi|do[opr]_|shp|ATATT|sb_secret|hv[sb]\.|glsa_|dckr_|1//0|figd_|PMAK-|jina_"
    r"|pa-|sb[ps]_|vc[kpi]_|lin_|ntn_|AGE-|eyJ|BEGIN|://"
    r"|(?i:bearer|basic|key|secret|token|pass|pwd|_pat=|auth|credential|cookie|sig|curl|mysql|mariadb|login)"
)
#: Base64 as one word, as a segment of a path, and in lines.
_BASE64: Final = (
    re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,65536}={0,2}(?![A-Za-z0-9+/_=-])"),
    re.compile(r"(?<=/)[A-Za-z0-9+_-]{24,65536}={0,2}(?![A-Za-z0-9+_=-])"),
    re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{60,76}\r?\n[ \t]{0,16}){1,1000}[A-Za-z0-9+/]{1,76}={0,2}"),
)
_BASIC: Final = re.compile(r"(?<![A-Za-z0-9])(?i:basic)\s+([A-Za-z0-9+/_-]{8,}={0,2})")
#: A key is longer than this, and random bytes hardly ever hold such a run.
_READABLE: Final = re.compile(rb"[\t\r\n\x1b\x20-\x7e]{12,}")
_ESCAPE: Final = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\([^ux])|((?:%[0-9a-fA-F]{2})+)"
    r"|(&(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|amp|lt|gt|quot|apos);)"
)
_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
#: Escapes inside escapes: JSON inside a string of JSON, or in a URL.
_LAYERS_MAX: Final = 2
#: JSON inside strings of JSON.
_JSON_LAYERS_MAX: Final = 4
_SCHEME: Final = re.compile(r"(?:bearer|basic|token)\s+", re.IGNORECASE)
_SAYS_NAME: Final = frozenset({"header", "key", "name"})

#: Results kept for short strings, which are mostly those of the frame before: below a megabyte.
_REPEATED_MAX, _REPEATED_CHARS_MAX = 2048, 64

#: Searches a text that is no JSON, under the name of its member.
Leaf = Callable[[str, str], Iterable[Hit]]


def find(text: str, name: str = "") -> Sequence[Hit]:
    """Return every secret of a text in order, none inside another. `name` is that of its member, if it has one."""
    return _repeated(text, name) if len(text) <= _REPEATED_CHARS_MAX else search(text, name, _leaf)


def search(text: str, name: str, leaf: Leaf, layers: int = _JSON_LAYERS_MAX) -> list[Hit]:
    """Search a text; JSON string by string, so that it stays JSON when hits are replaced."""
    if not layers or not _is_json(text):
        return merged([*leaf(text, name)])
    hits: list[Hit] = []
    flat = text.encode("ascii", "replace")  # a byte a character, so places are the text's own
    strings: list[tuple[Scalar, str, Sequence[int]]] = []
    for scalar in scalars(flat):
        if scalar.sort != "other":
            end = scalar.end - (scalar.sort != "torn")
            strings.append((scalar, *unquoted(text[scalar.start + 1 : end], scalar.start + 1)))
        elif scalar.path and is_secret_number(str(scalar.path[-1]), text[scalar.start : scalar.end]):
            hits.append(Hit(scalar.start, scalar.end, "digits", text[scalar.start : scalar.end]))
    names = names_of([(scalar.path, said, scalar.sort == "name") for scalar, said, _ in strings])
    for (_, said, places), name_of_it in zip(strings, names, strict=True):
        found = search(said, name_of_it, leaf, layers - 1)
        hits += [hit._replace(start=places[hit.start], end=places[hit.end]) for hit in found]
    return merged(hits)


def names_of(strings: Sequence[tuple[Path, str, bool]]) -> list[str]:
    """Return the name of each string: its member's, or what a neighbour says (`["x-api-key", "..."]`).

    A string is a path, a text, and whether it is a name itself, which has none.
    """
    neighbours: dict[Path, str] = {}
    for path, said, is_name in strings:
        last = path[-1] if path else ""
        if is_name:
            continue
        if last in _SAYS_NAME:
            neighbours.setdefault((*path[:-1], "value"), said)
        elif isinstance(last, int) and is_header(said.lstrip("-")):  # or a flag of a command
            neighbours[(*path[:-1], last + 1)] = said.lstrip("-")
    names: list[str] = []
    for path, said, is_name in strings:
        name = neighbours.get(path, "")
        if not name or (isinstance(path[-1], int) and not is_pair(name, said)):
            name = next((step for step in reversed(path) if isinstance(step, str) and step != "value"), "")
        names.append("" if is_name else name)
    return names


def merged(hits: Iterable[Hit]) -> list[Hit]:
    """Drop hits inside others; of two that overlap, the first reaches to the end of both."""
    kept: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if kept and hit.start < kept[-1].end:
            if hit.end > kept[-1].end:
                kept[-1] = kept[-1]._replace(end=hit.end)
        elif hit.start < hit.end:
            kept.append(hit)
    return kept


def _is_json(text: str) -> bool:
    """Return whether a text is an object or an array with strings in it, or the beginning of one."""
    if text.lstrip()[:1] not in ("{", "[") or '"' not in text:
        return False
    try:
        json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or error.msg.startswith("Unterminated string")
    except (RecursionError, ValueError):
        return False
    return True


@lru_cache(_REPEATED_MAX)
def _repeated(text: str, name: str) -> Sequence[Hit]:
    return search(text, name, _leaf)


# -- text that is no JSON ---------------------------------------------------------------------------------------------


def _leaf(text: str, name: str) -> Iterable[Hit]:
    hits = _hits_in_escapes(text)
    if name and is_secret_value(name, text):
        # The whole value goes, even if only a part looks like a key; the word before a credential may stay.
        scheme = _SCHEME.match(text) if hits else None
        start = scheme.end() if scheme else 0
        if not (len(hits) == 1 and hits[0].start <= start and hits[0].end == len(text)):
            return [Hit(start, len(text), hits[0].vendor if hits else "secret", text[start:])]
    return hits


def _is_quoted(text: str, hit: Hit) -> bool:
    """Return whether a hit is all of the text between two quotes."""
    return hit.start > 0 and text[hit.start - 1] in "\"'" and text[hit.end : hit.end + 1] == text[hit.start - 1]


def _plain(text: str) -> Iterator[Hit]:
    if _WORTH_A_LOOK.search(text):
        yield from keys(text)
        yield from named(text)
        for match in _BASIC.finditer(text):
            if ":" in _texts_in(match[1], whole=True):
                yield Hit(*match.span(1), "basic", match[1])
    for pattern in _BASE64:
        for match in pattern.finditer(text):
            inner = _texts_in("".join(match[0].split()))
            if _WORTH_A_LOOK.search(inner):
                for hit in (*keys(inner), *keys(inner, glued=True), *named(inner)):
                    yield Hit(*match.span(), hit.vendor, hit.secret)
                    break


def _texts_in(encoded: str, *, whole: bool = False) -> str:
    """Return the text in base64, or its readable runs, as in an image; with `whole` only if it is all text."""
    padded = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(padded + "=" * (-len(padded) % 4))
    except ValueError:
        return ""
    try:
        text = data.decode()
        if "".join(text.split()).isprintable():
            return text
    except UnicodeDecodeError:
        pass
    return "" if whole else "\n".join(run.decode("latin-1") for run in _READABLE.findall(data))


def _hits_in_escapes(text: str) -> list[Hit]:
    """Return the hits of a text and of the text without escapes of JSON, URLs, HTML and programs, layer by layer."""
    hits = merged(_plain(text))
    # Decoded twice, the escaped backslash before the last quote of a hit in quotes escapes the quote.
    closed = {hit.start for hit in hits if _is_quoted(text, hit)}
    layers = [text]
    while len(layers) <= _LAYERS_MAX and (plain := _ESCAPE.sub(_unescape, layers[-1])) != layers[-1]:
        layers.append(plain)
        if not (inner := merged(_plain(plain))):
            continue
        places: Sequence[int] = range(len(text) + 1)
        for outer in layers[:-1]:
            places = [places[place] for place in _places(outer)]
        known, hits = hits, [*hits]
        for hit in inner:
            start, end = places[hit.start], places[hit.end]
            around = next((each for each in known if each.start <= start < each.end), None)
            if around is None or (around.end < end and around.start not in closed):
                hits.append(hit._replace(start=start, end=end))
                closed |= {start} if _is_quoted(plain, hit) else set()
        hits = merged(hits)
    return hits


def _unescape(match: re.Match[str]) -> str:
    if code := match[1] or match[2]:
        return chr(int(code, 16))
    if match[3]:
        return _SIMPLE.get(match[3], match[3])
    return unquote(match[4], "latin-1") if match[4] else html.unescape(match[5])


def _places(text: str) -> list[int]:
    """Return where each character of the text without one layer of escapes begins, and the end."""
    places: list[int] = []
    at = 0
    for match in _ESCAPE.finditer(text):
        places += range(at, match.start())
        inner = _unescape(match)
        step = (match.end() - match.start()) // max(1, len(inner))  # a run of %xx holds a character in each
        places += [match.start() + step * number for number in range(len(inner))]
        at = match.end()
    return [*places, *range(at, len(text) + 1)]
