"""JSON text to values and back, refusing nothing that JSON allows, and edits of JSON text in place.

What is edited in place keeps all its other bytes. That is for request bodies of megabytes, which cost too much to parse
and write again for one member; frames of a stream are edited parsed (emission/frames.py).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeGuard, cast

import orjson

from .limits import JSON_NESTING_MAX, JSON_VALUES_MAX

__all__ = [
    "ABSENT",
    "Boundary",
    "Edit",
    "Halves",
    "Member",
    "Path",
    "Places",
    "apply",
    "as_list",
    "as_number",
    "as_object",
    "as_text",
    "dumps",
    "is_list",
    "is_object",
    "joined_surrogates",
    "locate",
    "members",
    "parse",
    "parse_exactly",
    "values_at_most",
]

#: What `parse` gives for bytes that are not JSON, since null is JSON.
ABSENT: Final[Any] = object()

#: An unended string, in text that is not JSON, goes to the end, or the search would be quadratic.
_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _integer(digits: str) -> int | float:
    # Python refuses to read integers of more than 4,300 digits; JSON has no such bound.
    return int(digits) if len(digits) < 4_300 else float(digits)


_decode: Final[Callable[[str], Any]] = json.JSONDecoder(parse_constant=_refuse, parse_int=_integer).decode


def parse(text: bytes, values_max: int = JSON_VALUES_MAX) -> Any:
    """Return the value, or ABSENT; also for text that may hold more than so many values.

    orjson refuses what JSON allows (lone surrogates of an emoji split over two deltas, 1e999); the standard library
    reads those.
    """
    if len(text) > values_max and values_at_most(text) > values_max:
        return ABSENT
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        _refuse_depth(text)
        return _decode(text.decode())
    except (ValueError, RecursionError):
        return ABSENT


def values_at_most(text: bytes) -> int:
    """Return a bound on the number of values: each but the first follows a comma or a bracket, in a string or not."""
    return 1 + sum(map(text.count, (b",", b"[", b"{")))


def parse_exactly(text: bytes) -> tuple[Any, list[str]]:
    """Return the value of JSON text with its numbers as they are spelled (`1e400`, `4.95e-6`), and its repeated keys.

    Such a value can only be written. Of repeated keys the last one counts, as in every JSON reader that we know. Raise
    ValueError beyond the depth that every supported Python reads.
    """
    _refuse_depth(text)
    repeated: list[str] = []

    def from_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated.extend(key for key in value if keys.count(key) > 1)
        return value

    fragment = orjson.Fragment
    return json.loads(text, object_pairs_hook=from_pairs, parse_float=fragment, parse_int=fragment), repeated


def _refuse_depth(text: bytes) -> None:
    if text.count(b"[") + text.count(b"{") <= JSON_NESTING_MAX:
        return
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        first = text[token.start()]
        depth += (first in b"{[") - (first in b"}]")
        if depth > JSON_NESTING_MAX:
            raise ValueError("nested too deeply")


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def as_object(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is an array, else an empty one."""
    return value if is_list(value) else []


def as_text(value: Any) -> str:
    """Return the value if it is text, in a form that UTF-8 has, else an empty one."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else joined_surrogates(value)


def as_number(value: Any, default: float = 0) -> float:
    """Return the value if it is a number that a time or a duration can be, at most 10**18, else the default."""
    return value if type(value) in (int, float) and 0 <= value <= 10**18 else default


def dumps(value: Any) -> bytes:
    """Return compact JSON of anything that `parse` gives, even lone surrogates, huge integers and depth.

    The infinity that 1e999 became has no form in JSON and is written as null.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return "".join(_written(value)).encode()


def _written(value: Any) -> Iterator[str]:
    # Without recursion, since orjson reads four times as deep as it writes, and deeper than Python's stack may go.
    unwritten: list[tuple[str, Any]] = [("", value)]  # the text before a value, and the value
    while unwritten:
        before, value = unwritten.pop()
        yield before
        if is_object(value):
            yield "{"
            keys = [f"{',' if place else ''}{_scalar(key)}:" for place, key in enumerate(value)]
            unwritten += [("}", ABSENT), *zip(reversed(keys), reversed(value.values()), strict=True)]
        elif is_list(value):
            yield "["
            commas = ["" if place + 1 == len(value) else "," for place in range(len(value))]
            unwritten += [("]", ABSENT), *zip(commas, reversed(value), strict=True)]
        elif value is not ABSENT:
            yield _scalar(value)


def _scalar(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()  # of an infinity null
    except TypeError:  # a lone surrogate, or a huge integer
        return json.dumps(value)


def joined_surrogates(text: str) -> str:
    """Join the halves of characters that were split over deltas; a half alone becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Halves:
    """Joins characters that were split over two pieces of a text; several texts may alternate."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[str, str] = {}  # the first half of a character, by the name of its text

    def join(self, name: str, piece: str, *, last: bool = False) -> str:
        """Return the piece without a half at its end, which waits for the next one; a half alone becomes U+FFFD."""
        if piece.isascii() and not self._first:
            return piece
        piece = self._first.pop(name, "") + piece
        if not last and "\ud800" <= piece[-1:] <= "\udbff":
            self._first[name], piece = piece[-1], piece[:-1]
        return joined_surrogates(piece)


class Boundary:
    """Follows the text of JSON values that arrive in pieces and finds where a second one begins.

    Gemini and some gateways send the arguments of a second call at the index of the first, without id or name
    (dialects.md Q8): two complete objects in a row are the only sign.
    """

    __slots__ = ("_depth", "_string", "complete")

    _TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+("?)|[{}\[\]]', re.DOTALL)

    def __init__(self) -> None:
        #: A whole object or array has been seen, and nothing is open.
        self.complete = False
        self._depth = 0
        self._string = ""  # of a string that has not ended, its quote, and the backslash that it may end in

    def feed(self, piece: str) -> int | None:
        """Return where in this piece a second value opens; the caller feeds the part from there to a new Boundary."""
        before, self._string = self._string, ""
        text = before + piece
        for token in self._TOKEN.finditer(text):
            symbol = token.group()
            if symbol[0] == '"':
                if not token[1]:
                    self._string = symbol[0] + text[token.end() :]
            elif symbol in "{[":
                if self.complete:
                    return token.start() - len(before)
                self._depth += 1
            else:
                self._depth -= 1
                self.complete = self._depth == 0
        return None


# -- edits in place ---------------------------------------------------------------------------------------------------

#: The keys and places that lead from a value to one inside it.
Path = tuple[str | int, ...]

_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_VALUE: Final = rb"\s*+(" + _STRING + rb'|[^\s"{\[,}\]]++|[{\[])'
_MEMBER: Final = re.compile(rb"\s*+(" + _STRING + rb")\s*+:" + _VALUE)
_ELEMENT: Final = re.compile(rb"()" + _VALUE)
_NEXT: Final = re.compile(rb"\s*+[,}\]]")


class Member(NamedTuple):
    """A member of an object or an element of an array: where it and its value start, and where both end."""

    key: str | int
    start: int
    value: int
    end: int


def members(text: bytes, at: int) -> list[Member]:
    """Return what the object or array that opens at `at` holds, repeated keys included. The text must be JSON."""
    found: list[Member] = []
    pattern = _MEMBER if text[at : at + 1] == b"{" else _ELEMENT
    position = at + 1
    while match := pattern.match(text, position):
        start, end = match.span(2)
        if text[start] in b"{[":
            depth = 0
            for token in _STRING_OR_BRACKET.finditer(text, start):
                end = token.end()
                depth += (text[end - 1] in b"{[") - (text[end - 1] in b"}]")
                if not depth:
                    break
        following = _NEXT.match(text, end)
        assert following is not None, "members reads only what parse accepted"
        position = following.end()
        quoted = match[1]
        if quoted:
            key = json.loads(quoted) if b"\\" in quoted else quoted[1:-1].decode()
            found.append(Member(key, match.start(1), start, end))
        else:
            found.append(Member(len(found), start, start, end))
    return found


class Places:
    """Where the values of one JSON text are; each object and array is read once."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._members: dict[Path, dict[str | int, Member]] = {}

    def text(self, path: Path) -> bytes:
        """Return the text of a value. Of repeated keys the last one counts, as in every JSON reader that we know."""
        start, end = self._text.index(b"{"), len(self._text)
        for depth, key in enumerate(path):
            inside = self._members.get(path[:depth])
            if inside is None:
                inside = {member.key: member for member in members(self._text, start)}
                self._members[path[:depth]] = inside
            _, _, start, end = inside[key]
        return self._text[start:end]


class Edit(NamedTuple):
    """`payload[start:end]` becomes `new`."""

    start: int
    end: int
    new: bytes


def locate(text: bytes, new: Mapping[Path, bytes | None], at: int | None = None) -> list[Edit]:
    """Return the edits that give the members and elements at these paths new values, or remove them, in order of place.

    Members that are new come first in their object. A removal takes every repetition of a key. Paths start at the
    object or array that opens at `at`.
    """
    at = text.index(b"{") if at is None else at
    here, deeper = dict[str | int, bytes | None](), dict[str | int, dict[Path, bytes | None]]()
    for (key, *path), value in new.items():
        if path:
            deeper.setdefault(key, {})[*path,] = value
        else:
            here[key] = value
    present = members(text, at)
    last = {member.key: member for member in present}
    edits: list[Edit] = []
    kept = False
    for place, member in enumerate(present):
        value = here.get(member.key, ABSENT)
        if value is None:
            # One comma goes with it: the one before it or, if nothing is before it, the one after it.
            start = present[place - 1].end if kept else member.start
            after = present[place + 1].start if place + 1 < len(present) and not kept else member.end
            edits.append(Edit(start, after, b""))
            continue
        kept = True
        if member is not last[member.key]:
            continue
        if value is not ABSENT:
            edits.append(Edit(member.value, member.end, value))
        elif member.key in deeper:
            edits += locate(text, deeper[member.key], member.value)
    added = [b"%b:%b" % (dumps(key), value) for key, value in here.items() if value is not None and key not in last]
    if added:
        edits.insert(0, Edit(at + 1, at + 1, b",".join(added) + b"," * kept))
    return edits


def apply(text: bytes, edits: Sequence[Edit]) -> bytes:
    """Return the text with the edits made; they are in order and do not overlap."""
    pieces: list[bytes] = []
    position = 0
    for start, end, new in edits:
        assert position <= start <= end <= len(text), "edits are in order and inside the text"
        pieces += text[position:start], new
        position = end
    return b"".join([*pieces, text[position:]])
