"""The canonical form of a request and its hash, by which a recording is found again.

Recorder and matcher use the same function. Chat completions, Responses and Messages are understood; for other paths the
JSON counts as it is, and other bodies by their bytes. docs/reference/replay.md lists what is left out, never a user's
words.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.core.json_text import ABSENT, as_object, dumps, is_list, is_object, parse
from wiretape.events.dialects import PLACES
from wiretape.proxy.key_patterns import masked_path

from ..normalize.volatile import dated, loosened, settled

__all__ = [
    "IDS",
    "KEY_CHARS",
    "LEFT_OUT",
    "SEALED_WORDS",
    "Canonical",
    "Reading",
    "canonical",
    "exact_key_of",
    "fits",
    "key_of",
    "prefix_of",
    "route_of",
    "without_boundary",
]

#: How to read what machines wrote, above all tool results: as it is, without volatile values, or also without values
#: that only may be volatile and with the results of one turn in any order.
Reading = Literal["plain", "settled", "loose"]

#: Hex digits of a key: 64 bits, for files with a few hundred requests.
KEY_CHARS: Final = 16

#: Request members that do not count: the client's own notes, and names of a user or a session.
LEFT_OUT: Final = frozenset(
    {"client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "session_id", "user"}
)
_WORDS: Final = [places.words for places in PLACES.values()]
#: Message members that only the provider can read, and that differ in every recording.
SEALED_WORDS: Final = frozenset[str]().union(*(words.proofs for words in _WORDS))
#: Types of parts whose `data` is such a member.
_SEALED_TYPES: Final = frozenset[str]().union(*(words.sealed_types for words in _WORDS))
#: Members that name a call, a message, an item or a response; each id counts as a number, by first use.
IDS: Final = frozenset[str]().union(*(words.ids for words in _WORDS))
#: Of a request: members that name a stored response; of an item: types that do.
_STORED: Final = frozenset[str]().union(*(words.stored for words in _WORDS))
#: Ends of the paths that are understood: those of the dialects, and of Wiretape's runs.
_UNDERSTOOD: Final = (*(words.path for words in _WORDS), "/v1/runs", "/tool_outputs")
_CONVERSATION: Final = frozenset({"conversation_history"}).union(*(words.conversation for words in _WORDS))
#: Members in which a client describes its surroundings, such as today's date.
_SURROUNDINGS: Final = frozenset[str]().union(*(words.surroundings for words in _WORDS))
#: Tuples, because a role may be any JSON, also an unhashable list.
_SURROUNDING_ROLES: Final = ("system", "developer")
#: Roles and types of results, also on lists of another dialect's items; other types end in `_output`.
_RESULTS: Final = tuple(sorted({name for words in _WORDS for name in words.results}))
#: Members that a model fills: an `id` inside may be an order or a customer.
_TOOL_INPUT: Final = ("action", "arguments", "input", "operation", "parameters", "tools")
_RESULT_IDS: Final = tuple(name for words in _WORDS for name in words.result_ids)
_NUMBERED: Final = re.compile(r"id \d+")
#: Schemas are ten or twenty deep. Each level takes at most four Python frames of 1,000.
_NESTING_MAX: Final = 100
#: What precedes the API version in a path: a route of the proxy, or the name of a test.
_PREFIX: Final = re.compile(r"^.*?(?=/v\d+[a-z0-9]*(?:/|$))")
#: A multipart body begins and ends with its boundary.
_BOUNDARY: Final = re.compile(rb"--([^\r\n]{1,70})\r\n")
_PLACEHOLDER: Final = re.compile(r"\[redacted-(?:password|secret)(?:-\d+)?\]")
#: In place of a placeholder. Something shorter is another word (`<id>`), something longer is not a secret.
_WORD: Final = r'(?:[^\s"\\]|\\["\\]){3,512}?'


def key_of(method: str, path: str, body: bytes, reading: Reading = "settled") -> str:
    """Return the key of a request, or the loose one by which to search if no recording has that key."""
    return _hash(canonical(method, path, body, reading).value)


def exact_key_of(method: str, path: str, sha256: str) -> str:
    """Return the key of a request of whose body only the hash was kept."""
    return _hash(_with_path(method, path, {"sha256": sha256}))


class Canonical(NamedTuple):
    """The canonical form of a request, with the ids that it names."""

    value: dict[str, Any]
    #: In order of their numbers.
    ids: tuple[str, ...]
    #: Ids of earlier responses, or of parts of them, that the provider has stored.
    answers: frozenset[str]


def canonical(method: str, path: str, body: bytes, reading: Reading = "settled") -> Canonical:
    value, reader = parse(body) if body else None, _Reader(reading)
    if _too_deep(value):  # it counts by its bytes
        value = ABSENT
    if value is ABSENT:
        form: Any = {"sha256": hashlib.sha256(without_boundary(body)).hexdigest()}
    elif path.partition("?")[0].endswith(_UNDERSTOOD) and is_object(value):
        form = reader.request(value)
    else:
        form = _plain(value)
    return Canonical(_with_path(method, path, form), tuple(reader.ids), frozenset(reader.answers))


def route_of(method: str, path: str) -> str:
    """Return method and path, without the prefix and the query."""
    form = _with_path(method, path.partition("?")[0], None)
    return f"{form['method']} {form['path']}"


def prefix_of(path: str) -> str:
    """Return what precedes the API version in a path."""
    found = _PREFIX.match(path.partition("?")[0])
    return found[0] if found else ""


def without_boundary(body: bytes) -> bytes:
    """Replace the random boundary of a multipart body."""
    begins = _BOUNDARY.match(body)
    if begins is None or not body.rstrip().endswith(b"--%b--" % begins[1]):
        return body
    return body.replace(b"--" + begins[1], b"--boundary")


def _hash(value: Any) -> str:
    return hashlib.sha256(dumps(value)).hexdigest()[:KEY_CHARS]


def _with_path(method: str, path: str, body: Any) -> dict[str, Any]:
    path, _, query = masked_path(path.encode("utf-8", "surrogatepass")).partition("?")
    form: dict[str, Any] = {"method": method.upper(), "path": _PREFIX.sub("", path, count=1)}
    if query:
        form["query"] = sorted(query.split("&"))
    return {**form, "body": body}


def _too_deep(value: Any) -> bool:
    level: list[Any] = [[value]]
    for _ in range(_NESTING_MAX):
        level = [inner for each in level for inner in (each.values() if is_object(each) else each)]
        level = [each for each in level if is_object(each) or is_list(each)]
        if not level:
            return False
    return True


def _plain(value: Any) -> Any:
    """Sort members and write integral numbers in one way."""
    if is_object(value):
        return {name: _plain(value[name]) for name in sorted(value)}
    if is_list(value):
        return [_plain(each) for each in value]
    if type(value) is float and value.is_integer():
        return int(value)
    return value


def _unquoted(text: str) -> Any:
    """Parse JSON inside a string, which some clients write in another way each time."""
    if text[:1] in ("{", "["):
        value = parse(text.encode("utf-8", "surrogatepass"))
        if value is not ABSENT and not _too_deep(value):
            return {"json": _plain(value)}
    return text


class _Reader:
    """Reads one request in a known dialect and numbers its ids."""

    def __init__(self, reading: Reading) -> None:
        self.ids: dict[str, str] = {}
        self.answers: set[str] = set()
        self._reading: Reading = reading

    def request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        form: dict[str, Any] = {}
        for name in sorted(request):
            value = request[name]
            if value is None or name in LEFT_OUT:
                continue
            if name in _CONVERSATION:
                form[name] = self._list(value) if is_list(value) else value
            elif name == "tool_outputs" and is_list(value):  # of one turn, by calls that this replay named
                form[name] = self._list(sorted(value, key=lambda each: str(as_object(each).get("call_id"))))
            elif name in _SURROUNDINGS:
                form[name] = self._machine_text(_plain(value), dated)
            elif name == "tools" and is_list(value):
                form[name] = sorted(map(_plain, value), key=dumps)  # plugins register in any order
            elif name in IDS:
                form[name] = self._id(value, stored=name in _STORED)
            else:
                form[name] = _plain(value)
        return form

    def _list(self, values: list[Any]) -> list[Any]:
        """Read messages, items or blocks. A loose reading sorts consecutive results by their calls."""
        forms = [self._message(each) for each in values]
        if self._reading != "loose":
            return forms
        runs = (list(run) for _, run in groupby(forms, key=lambda each: _result_number(each) > 0))
        return [each for run in runs for each in (sorted(run, key=_result_number) if _result_number(run[0]) else run)]

    def _message(self, message: Any) -> Any:
        if is_list(message):
            return self._list(message)
        if not is_object(message):
            return _plain(message)
        return {
            name: self._member(name, message[name], message)
            for name in sorted(message)
            if message[name] is not None and name not in SEALED_WORDS
        }

    def _member(self, name: str, value: Any, message: Mapping[str, Any]) -> Any:
        kind, role = message.get("type"), message.get("role")
        if name in IDS:
            return self._id(value, stored=isinstance(kind, str) and kind in _STORED)
        if name in _TOOL_INPUT:
            return _unquoted(value) if name == "arguments" and isinstance(value, str) else _plain(value)
        is_result = name == "content" and (role in _RESULTS or kind in _RESULTS)
        is_output = str(kind).endswith("_output") or (kind is None and not message.keys().isdisjoint(_RESULT_IDS))
        if is_result or (name == "output" and is_output):
            return self._machine_text(_unquoted(value) if isinstance(value, str) else self._message(value), settled)
        if name == "content" and role in _SURROUNDING_ROLES:
            return self._machine_text(self._message(value), dated)
        if name == "data" and isinstance(kind, str) and kind in _SEALED_TYPES:
            return "sealed"
        return self._message(value)

    def _machine_text(self, value: Any, without_volatile: Callable[[Any], Any]) -> Any:
        if self._reading == "plain":
            return value
        return without_volatile(value) if self._reading == "settled" else loosened(settled(value))

    def _id(self, value: Any, *, stored: bool = False) -> Any:
        if not isinstance(value, str):
            return _plain(value)
        if stored:
            self.answers.add(value)
        return self.ids.setdefault(value, f"id {len(self.ids) + 1}")


def _result_number(form: Any) -> int:
    """Return the number of the call that a result answers; 0 for anything else."""
    if not is_object(form):
        return 0
    kind = form.get("type")
    is_result = form.get("role") in _RESULTS or kind in _RESULTS or str(kind).endswith("_output")
    id_ = next((form[name] for name in _RESULT_IDS if name in form), None)
    if not is_result or not isinstance(id_, str) or not _NUMBERED.fullmatch(id_):
        return 0
    return int(id_.removeprefix("id "))


# -- secrets that only a name gave away -------------------------------------------------------------------------------


def fits(recorded: str, sent: str) -> bool:
    """Return whether two texts are equal except for at least one placeholder, each in place of one word.

    A client sends the secret itself, and nothing in its request says that it is one: any plausible word fits.
    The text between two placeholders is found at the first place after the previous one, without going back.
    """
    first, *parts = _PLACEHOLDER.split(recorded)
    words = [_WORD + re.escape(part) for part in parts]
    pattern = "".join([re.escape(first), *(f"(?>{word})" for word in words[:-1]), *words[-1:]])
    return bool(parts) and re.fullmatch(pattern, sent) is not None
