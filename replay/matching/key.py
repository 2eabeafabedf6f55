"""What a request asks for, whatever is incidental in it: the canonical form by which recorder and matcher know it

One function for both sides, because two that differ by one field never match. Chat completions, Responses and Messages
are read; of any other path the JSON counts as it is, and what is not JSON by its bytes. What is left out or renamed
stands in tables with its reason (docs/replay.md lists them); a question as the user put it is never touched.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.core.json_text import ABSENT, dumps, is_list, is_object, parse
from wiretape.proxy.security.headers import masked_path

from ..normalize.volatile import dated, loosened, settled

__all__ = [
    "IDS",
    "KEY_CHARS",
    "LEFT_OUT",
    "SEALED_WORDS",
    "Named",
    "Reading",
    "canonical",
    "exact",
    "exact_key_of",
    "fits",
    "fits_as_text",
    "gapped",
    "key_of",
    "loose_key_of",
    "named",
    "prefix_of",
]

_Dialect = Literal["chat", "responses", "messages"]
#: What machines wrote, results of tools above all: as it came; without what is volatile; or also without what may be,
#: and the results of one turn in whatever order they came.
Reading = Literal["plain", "settled", "loose"]

#: Hex digits of a key: 64 bits, since a file holds a few hundred requests.
KEY_CHARS: Final = 16

#: Members of a request that say who asks, or how often, but not what.
LEFT_OUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "client_metadata": "notes of the client's own, one more every turn",
        "metadata": "notes of the client's own; the Messages API has the user in it",
        "prompt_cache_key": "names a session",
        "safety_identifier": "who asks",
        "user": "who asks",
    }
)
#: Members of messages that only the provider can read, and that are others in every recording.
SEALED_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "encrypted_content": "reasoning that only its provider can read",
        "signature": "of a thinking block",
        "thought_signature": "of a thought",
    }
)
#: Members that name something said before: numbered by first use.
IDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "call_id": "a call, in Responses",
        "id": "a call, a message, or an item",
        "item_id": "an item, in Responses",
        "previous_response_id": "the answer before, in Responses",
        "tool_call_id": "a call, in chat completions",
        "tool_use_id": "a call, in Messages",
    }
)

_ENDINGS: Final[Mapping[str, _Dialect]] = MappingProxyType(
    {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}
)
#: Where the words of a conversation stand.
_WORDS: Final = ("messages", "input")
#: Where a client tells the model about its surroundings, today's date among them.
_SURROUNDINGS: Final = ("system", "instructions")
#: Tuples, since a role may be any JSON, and a list is in no set.
_SURROUNDING_ROLES: Final = ("system", "developer")
_RESULT_ROLES: Final = ("tool", "function")
#: Members that a model fills: what is called an id in them is an order or a customer.
_GIVEN_TO_TOOLS: Final = ("action", "arguments", "input", "operation", "parameters", "tools")
#: Members by which a result names its call.
_RESULT_OF: Final = ("tool_call_id", "tool_use_id", "call_id")
_NUMBERED: Final = re.compile(r"id \d+")

#: Tools have schemas ten or twenty deep; at most four frames of Python's stack, which has 1,000, are used a level.
_NESTING_MAX: Final = 100

#: What stands before the version of an API: a route of the proxy, or the name of a test.
_PREFIX: Final = re.compile(r"^.*?(?=/v\d+[a-z0-9]*(?:/|$))")
#: What sealing puts for a secret that only a name gave away. Where that name stands in another record, who asks again
#: says the secret itself, and nobody here can tell that it is one.
_GAP: Final = re.compile(r"\[redacted-(?:password|secret)(?:-\d+)?\]")
#: Of what may stand in a gap, on one line: shorter is a word that became another one (`<id>`), longer no secret.
_GAP_CHARS_MIN: Final = 3
_GAP_CHARS_MAX: Final = 512
_SPACE: Final = re.compile(r"\s")
#: Members in which somebody says something: a gap that is all of it is a word, not whatever may be said.
_SAID_IN: Final = frozenset({"content", "input", "instructions", "output", "prompt", "system", "text"})
#: A body in parts begins with the line that stands between them, and ends with it.
_BOUNDARY: Final = re.compile(rb"--([^\r\n]{1,70})\r\n")


def key_of(method: str, path: str, body: bytes) -> str:
    """The key: as many hex digits of the canonical form's hash as tell requests apart."""
    return _hash(canonical(method, path, body))


def loose_key_of(method: str, path: str, body: bytes) -> str:
    """What a request that nothing recorded answers is looked for by, once more."""
    return _hash(canonical(method, path, body, "loose"))


def exact_key_of(method: str, path: str, sha256: str) -> str:
    """The key of a request of whose body only the hash was kept."""
    return _hash(_said(method, path, {"sha256": sha256}))


def canonical(method: str, path: str, body: bytes, reading: Reading = "settled") -> dict[str, Any]:
    """What the key is a hash of."""
    value = _parsed(body)
    if value is ABSENT:
        said: Any = {"sha256": hashlib.sha256(_without_boundary(body)).hexdigest()}
    else:
        said = _Reading(reading).request(value) if _dialect(path) is not None and is_object(value) else _plain(value)
    return _said(method, path, said)


class Named(NamedTuple):
    """What a request names that was said before: all of it in the order of its numbers, and the answers it goes on."""

    ids: Sequence[str]
    answers: frozenset[str]


def named(path: str, body: bytes) -> Named:
    """Its ids, as they are."""
    value, reading = _parsed(body), _Reading("plain")
    if _dialect(path) is not None and is_object(value):
        reading.request(value)
    return Named(list(reading.ids), frozenset(reading.answers))


def prefix_of(path: str) -> str:
    """What stands before the version of the API, and does not count: a route."""
    found = _PREFIX.match(path.partition("?")[0])
    return found[0] if found else ""


def exact(method: str, path: str, body: bytes) -> dict[str, Any]:
    """The same with nothing left out or renamed: of JSON neither white space nor the order of members counts."""
    value = _parsed(body)
    return _said(method, path, {"sha256": hashlib.sha256(body).hexdigest()} if value is ABSENT else _plain(value))


def gapped(text: bytes) -> bool:
    """Whether a secret is missing in it that a name gave away."""
    return _GAP.search(text.decode("latin-1")) is not None


def fits(recorded: Any, asked: Any, name: str = "") -> bool:
    """Whether two canonical forms are the same but for what may stand in the gaps of the recorded one.

    `name` is what the value is called: all of a member may be a secret of several words, a word of somebody is one.
    """
    if is_object(recorded) and is_object(asked):
        missing, more = ([name for name in a if name not in b] for a, b in ((recorded, asked), (asked, recorded)))
        pairs = [(name, name) for name in recorded if name in asked]
        if len(missing) == len(more) == 1 and _fills(missing[0], more[0]):
            pairs.append((missing[0], more[0]))
        elif missing or more:
            return False
        return all(fits(recorded[a], asked[b], a) for a, b in pairs)
    if is_list(recorded) and is_list(asked):
        return len(recorded) == len(asked) and all(fits(a, b, name) for a, b in zip(recorded, asked, strict=True))
    if isinstance(recorded, str) and isinstance(asked, str):
        whole = name not in _SAID_IN and _GAP.fullmatch(recorded) is not None
        return recorded == asked or _fills(recorded, asked, whole=whole)
    return type(recorded) is type(asked) and bool(recorded == asked)


def fits_as_text(recorded: bytes, asked: bytes) -> bool:
    """The same of two bodies that are no JSON."""
    return _fills(*(_without_boundary(body).decode("latin-1") for body in (recorded, asked)))


def _fills(recorded: str, asked: str, *, whole: bool = False) -> bool:
    """Each part between two gaps at its first place behind the one before it."""
    first, *parts = _GAP.split(recorded)
    if not parts or not asked.startswith(first):
        return False
    at, before = len(first), first
    for number, part in enumerate(parts, 1):
        low = at + _GAP_CHARS_MIN
        end = asked.find(part, low) if number < len(parts) else max(low, len(asked) - len(part))
        if end < 0 or not asked.startswith(part, end) or not _may_be_a_secret(asked[at:end], before, part, whole=whole):
            return False
        at, before = end + len(part), part
    return at == len(asked)


def _may_be_a_secret(said: str, before: str, behind: str, *, whole: bool) -> bool:
    """One word; several only where it is all of a member, or where quotes say where it ends."""
    if len(said) > _GAP_CHARS_MAX or "\n" in said:
        return False
    quote = before[-1:]
    quoted = quote in ("'", '"') and behind[:1] in (quote, "\\") and quote not in said
    return whole or quoted or _SPACE.search(said) is None


def _dialect(path: str) -> _Dialect | None:
    return next((name for end, name in _ENDINGS.items() if path.partition("?")[0].endswith(end)), None)


def _hash(value: Any) -> str:
    return hashlib.sha256(dumps(value)).hexdigest()[:KEY_CHARS]


def _said(method: str, path: str, body: Any) -> dict[str, Any]:
    path, _, query = masked_path(_bytes_of(path)).partition("?")
    said: dict[str, Any] = {"method": method.upper(), "path": _PREFIX.sub("", path, count=1)}
    if query:
        said["query"] = sorted(query.split("&"))
    return {**said, "body": body}


def _bytes_of(path: str) -> bytes:
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character that was no byte either, in a file that somebody edited
        return path.encode("utf-8", "replace")


def _parsed(body: bytes) -> Any:
    """JSON, unless it is nested beyond what anybody asks: then its bytes count."""
    value = parse(body) if body else None
    return ABSENT if _deeper(value) else value


def _deeper(value: Any) -> bool:
    level: list[Any] = [[value]]
    for _ in range(_NESTING_MAX):
        level = [inner for each in level for inner in (each.values() if is_object(each) else each)]
        level = [each for each in level if is_object(each) or is_list(each)]
        if not level:
            return False
    return True


def _without_boundary(body: bytes) -> bytes:
    begins = _BOUNDARY.match(body)
    if begins is None or not body.rstrip().endswith(b"--%b--" % begins[1]):
        return body
    return body.replace(b"--" + begins[1], b"--boundary")


def _plain(value: Any) -> Any:
    """Members in one order, and one way to write a number."""
    if is_object(value):
        return {name: _plain(value[name]) for name in sorted(value)}
    if is_list(value):
        return [_plain(each) for each in value]
    if type(value) is float and value.is_integer():
        return int(value)
    return value


class _Reading:
    """One request: ids are numbered in the order in which they come."""

    def __init__(self, reading: Reading) -> None:
        #: What each is called here, and which of them are answers, or parts of one, that the provider has kept.
        self.ids: dict[str, str] = {}
        self.answers: set[str] = set()
        self._reading: Reading = reading

    def request(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Its canonical form."""
        said: dict[str, Any] = {}
        for name in sorted(asked):
            value = asked[name]
            if value is None or name in LEFT_OUT:
                continue
            if name in _WORDS:
                said[name] = self._row([self._message(each) for each in value]) if is_list(value) else value
            elif name in _SURROUNDINGS:
                said[name] = self._volatile(_plain(value), dated)
            elif name == "tools" and is_list(value):
                said[name] = sorted(map(_plain, value), key=dumps)  # plugins register in any order
            elif name in IDS:
                said[name] = self._id(value, kept=name == "previous_response_id")
            else:
                said[name] = _plain(value)
        return said

    def _message(self, message: Any) -> Any:
        """One message, item or block."""
        if is_list(message):
            return self._row([self._message(each) for each in message])
        if not is_object(message):
            return _plain(message)
        return {
            name: self._member(name, message[name], message)
            for name in sorted(message)
            if message[name] is not None and name not in SEALED_WORDS
        }

    def _member(self, name: str, value: Any, owner: Mapping[str, Any]) -> Any:
        kind, role = owner.get("type"), owner.get("role")
        if name in IDS:
            return self._id(value, kept=kind == "item_reference")
        if name in _GIVEN_TO_TOOLS:
            return _read(value) if name == "arguments" and isinstance(value, str) else _plain(value)
        if name == "content" and (role in _RESULT_ROLES or kind == "tool_result"):
            return self._volatile(_read(value) if isinstance(value, str) else self._message(value))
        if name == "output" and isinstance(kind, str) and kind.endswith("_output"):
            return self._volatile(_read(value) if isinstance(value, str) else self._message(value))
        if name == "content" and role in _SURROUNDING_ROLES:
            return self._volatile(self._message(value), dated)
        if name == "data" and kind in ("redacted_thinking", "reasoning.encrypted"):
            return "sealed"
        return self._message(value)

    def _volatile(self, value: Any, without: Callable[[Any], Any] = settled) -> Any:
        """What a machine wrote."""
        if self._reading == "plain":
            return value
        return without(value) if self._reading == "settled" else loosened(settled(value))

    def _row(self, said: list[Any]) -> list[Any]:
        """Read loosely, results that follow each other stand in the order of their calls."""
        if self._reading != "loose":
            return said
        runs = (list(run) for _, run in groupby(said, key=lambda each: _answered(each) != ""))
        return [each for run in runs for each in (sorted(run, key=_turn) if _answered(run[0]) else run)]

    def _id(self, value: Any, *, kept: bool = False) -> Any:
        if not isinstance(value, str):
            return _plain(value)
        if kept:
            self.answers.add(value)
        return self.ids.setdefault(value, f"id {len(self.ids) + 1}")


def _answered(said: Any) -> str:
    """The call that it is the result of; empty where it is no result, or nobody's."""
    if not is_object(said):
        return ""
    kind = said.get("type")
    results = said.get("role") in _RESULT_ROLES or kind == "tool_result" or str(kind).endswith("_output")
    id_ = next((said[name] for name in _RESULT_OF if name in said), None)
    return id_ if results and isinstance(id_, str) and _NUMBERED.fullmatch(id_) else ""


def _turn(said: Any) -> int:
    return int(_answered(said).removeprefix("id "))


def _read(text: str) -> Any:
    """JSON inside a string, which some clients write anew."""
    if text[:1] in ("{", "["):
        value = parse(text.encode("utf-8", "surrogatepass"))
        if value is not ABSENT and not _deeper(value):
            return {"json": _plain(value)}
    return text
