"""What changes from one recording to the next by definition is renamed by first use or set; all other bytes stay

Response, message and call ids (also in the histories of later requests), times of creation, fingerprints, obfuscation
padding, request ids, rate limits and processing times; what `results` records know from elsewhere; ports of loopback.
Of answers that are no conversation the ids and times that objects.py finds.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from wiretape.events.core.json_text import as_list, dumps, is_object
from wiretape.events.tape.record import Record

from ..faults.dialect_words import dialect_of
from ..sealed.edits import Change, Text, edited, texts
from ..sealed.scalars import Path, Scalar, Sort, scalars
from .objects import ID_NAMES, TIME_NAMES, holders, is_seconds, kind_of

__all__ = ["normalise"]

#: One second, long ago: a time that nobody takes for the real one.
_CREATED: Final = b"1000000000"
_CREATED_TEXT: Final = "2001-09-09T01:46:40Z"
_TIMES: Final = frozenset({"created", "created_at", "completed_at", "expires_at"})
_IDS: Final = frozenset(
    {
        "approval_request_id",
        "call_id",
        "container_id",
        "generation_id",
        "id",
        "item_id",
        "message_id",
        "previous_response_id",
        "request_id",
        "response_id",
        "toolCallId",
        "tool_call_id",
        "tool_use_id",
    }
)
#: What the user or the model wrote, whatever its members are called; and what is set up once and lasts.
_CONTENT: Final = frozenset(
    {"args", "arguments", "conversation", "input", "logprobs", "metadata", "parameters", "prompt", "schema", "tools"}
)
#: Kinds of ids, by how they begin; any other is an `id-`.
_PREFIX: Final = re.compile(
    r"(?:chatcmpl-|cmpl-|gen-|msg_|resp_|call_|toolu_|srvtoolu_|fc_|ctc_|rs_|ws_|fs_|ci_|cu_|ig_|lsh_|mcp_|mcpl_|mcpr_"
    r"|req_|fp_|id-)"
)
#: Such an id is one wherever it stands, so that an answer which nobody here reads has it renamed too.
_MARKED: Final = re.compile(_PREFIX.pattern + r"[\w.:-]+")
#: Padding that says the alphabet up to some letter.
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_WORTH_A_LOOK: Final = re.compile(
    rb'"(?:'
    + "|".join([*sorted(_IDS | _TIMES | ID_NAMES), "system_fingerprint", "obfuscation", "p"]).encode()
    + rb')"|(?:_at|Time|_ids?)"'
)
#: Members that name an object: with the id that an answer gave it, if one did.
_NAMING: Final = re.compile(r".*_ids?")

#: In a frame that was cut.
_OURS: Final = re.compile(rb'"type": ?"(?:response\.|message|content_block)|"object": ?"(?:response|chat\.)')

#: Of a path: longer than `chat`, `v1` or `responses`, shorter than any id that a provider makes.
_WORD_CHARS_MAX: Final = 12

_REQUEST_IDS: Final = frozenset({"request-id", "x-client-request-id", "x-request-id"})
_RATE_LIMIT: Final = re.compile(
    r"(?:x-|anthropic-)?ratelimit-.*(?:remaining|reset).*|openai-processing-ms|retry-after-ms"
)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]")
_LOOPBACK: Final = r"127(?:\.\d{1,3}){3}"
#: On this machine a port is whichever was free: `127.0.0.1:8000`, and as trio names it, `('127.0.0.1', 8000)`.
_PORT: Final = re.compile(
    rf"(?<![\w.])({_LOOPBACK}|localhost|\[::1\]):\d{{1,5}}(?!\d)|(\('(?:{_LOOPBACK}|::1)'), \d{{1,5}}(?=[,)])"
)


class _Names:
    """New names by first use, one row of numbers for each kind; the new names stay what they are when seen again."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._count: dict[str, int] = {}
        self._asked: set[str] = set()

    def of(self, name: str, kind: str = "") -> str:
        """Its new name."""
        if name not in self._known:
            match = _PREFIX.match(name)
            prefix = kind or (match[0] if match else "id-")
            number = self._count[prefix] = self._count.get(prefix, 0) + 1
            self._known[name] = f"{prefix}{number}"
        return self._known[name]

    def asked(self, name: str) -> None:
        """A request says it: unless an answer gave it out before, it was there before all of this, and stays."""
        if kind_of(name) and name not in self._known:
            self._asked.add(name)

    def of_object(self, name: str) -> str | None:
        """The new name of one that was made up for an object; None of any other."""
        kind = kind_of(name)
        return self.of(name, kind) if kind and name not in self._asked else None

    def known(self, name: str) -> str:
        """The new name of what was seen already, else the same; no word of a path is taken for one."""
        return self._known.get(name, name) if len(name) > _WORD_CHARS_MAX else name


def normalise(streams: Sequence[Sequence[Record]]) -> list[list[Record]]:
    """The streams of one conversation, in order. Normalised ones come back as they are."""
    names = _Names()
    return [_stream(records, names) for records in streams]


def _stream(records: Sequence[Record], names: _Names) -> list[Record]:
    for record in records:
        path = record.keys.get("path") if record.kind == "request" else None
        for part in _parts(path) if isinstance(path, str) else ():
            names.asked(part)
    new = edited(records, [(text, list(_changes(text, names))) for text in texts(records)])
    return [_keys(record, names) for record in new]


# -- bytes ------------------------------------------------------------------------------------------------------------


def _changes(text: Text, names: _Names) -> Iterator[Change]:
    json = text.json
    if not json or not _WORTH_A_LOOK.search(json):
        return
    asked = text.kind in ("request", "upload")
    volatile: Callable[[Path, str], bool] = _asked if asked else _answered(text)
    objects = frozenset[Path]() if asked or text.kind == "rest" else holders(text.value)
    for scalar in scalars(json):
        token = json[scalar.start : scalar.end]
        new = _new(scalar, token, volatile, names)
        if new is None:
            new = _of_object(scalar, token, objects, names, asked=asked)
        if new is not None and new != token:
            yield Change(text.place(scalar.start), text.place(scalar.end), new)


def _new(scalar: Scalar, token: bytes, volatile: Callable[[Path, str], bool], names: _Names) -> bytes | None:
    """What stands there instead; None for the same."""
    path = scalar.path
    name = path[-1] if path else ""
    if scalar.sort in (Sort.NAME, Sort.TORN) or not isinstance(name, str):
        return None
    # xAI says its fingerprint in `metadata`.
    if name != "system_fingerprint" and not _CONTENT.isdisjoint(path[1:-1]):
        return None
    if scalar.sort is Sort.OTHER:
        is_time = name in _TIMES and volatile(path, "") and token[:1] in b"123456789"
        return _CREATED if is_time else None
    try:
        value = token[1:-1].decode()
    except UnicodeDecodeError:  # no id of anybody's, and not ours to change
        return None
    if name in _IDS and value and "\\" not in value and volatile(path, value):
        return dumps(names.of(value))
    if name in _TIMES and _DAY.match(value) and volatile(path, ""):
        return dumps(_CREATED_TEXT)
    if name == "system_fingerprint" and value and volatile(path, ""):
        return dumps(names.of(value, "fp_"))
    if name == "obfuscation" or (path == ("p",) and len(value) > 1 and _ALPHABET.startswith(value)):
        return b'""'
    return None


def _of_object(scalar: Scalar, token: bytes, objects: frozenset[Path], names: _Names, *, asked: bool) -> bytes | None:
    """The same in an answer that is no conversation, and where anything names what such an answer gave out."""
    path = scalar.path
    name = path[-1] if path else ""
    if isinstance(name, int):
        name = path[-2] if len(path) > 1 else ""  # an element of `file_ids`
    if not isinstance(name, str) or not _CONTENT.isdisjoint(path[:-1] if not asked else _written(path)):
        return None
    here = path[:-1] in objects
    said = token.decode("utf-8", "replace")
    if scalar.sort is Sort.OTHER:
        return _CREATED if here and TIME_NAMES.fullmatch(name) and is_seconds(said) else None
    if scalar.sort is not Sort.STRING or "\\" in said:
        return None
    said = said[1:-1]
    if here and TIME_NAMES.fullmatch(name) and _DAY.match(said):
        return dumps(_CREATED_TEXT)
    if here and name in ID_NAMES and said:
        return dumps(names.of(said))
    new = names.of_object(said) if here and name == "id" else None
    if asked:
        names.asked(said)
    return dumps(new or names.known(said)) if new or _NAMING.fullmatch(name) else None


def _written(path: Path) -> Path:
    """Without what holds the items of a request, and the tools that are set up with what was made before."""
    return tuple(step for at, step in enumerate(path[:-1]) if step != "tools" and (at, step) != (0, "input"))


def _answered(text: Text) -> Callable[[Path, str], bool]:
    """In an answer or a frame that is understood every such member; in any other what is marked as an id."""
    understood = _is_cut_of_ours(text.json) if text.kind == "rest" else _is_ours(text.value)
    return lambda _path, said: understood or (said != "" and _MARKED.fullmatch(said) is not None)


def _is_ours(value: Any) -> bool:
    if not is_object(value):
        return False
    kind = value.get("type")
    ours = isinstance(kind, str) and kind.startswith(("response.", "message", "content_block", "ping", "error"))
    return ours or dialect_of([value]) == "chat" or value.get("object") == "response"


def _is_cut_of_ours(json: bytes) -> bool:
    names = dict.fromkeys(str(each.path[0]) for each in scalars(json) if each.path)
    return dialect_of([names]) == "chat" or _OURS.search(json) is not None


def _asked(path: Path, said: str) -> bool:
    """In a request what names answers and calls before it."""
    return said != "" and path[0] in ("messages", "input", "previous_response_id")


# -- keys -------------------------------------------------------------------------------------------------------------


def _keys(record: Record, names: _Names) -> Record:
    change = _OF_KIND.get(record.kind)
    return record if change is None else change(record, names)


def _head(record: Record, names: _Names) -> Record:
    pairs = [_header(pair, names) for pair in as_list(record.keys.get("headers"))]
    return record._replace(keys={**record.keys, "headers": pairs}) if pairs else record


def _header(pair: Any, names: _Names) -> Any:
    match pair:
        case [str(name), str(value)] if name in _REQUEST_IDS and value:
            return [name, names.of(value, "req_")]
        case [str(name), str(value)] if _RATE_LIMIT.fullmatch(name):
            return [name, _CREATED_TEXT if _DAY.match(value) else "1" if _NUMBER.fullmatch(value) else "1s"]
        case _:
            return pair


def _request(record: Record, names: _Names) -> Record:
    record = _head(record, names)
    path = record.keys.get("path")
    if not isinstance(path, str):
        return record
    renamed = "".join(names.known(part) for part in _parts(path))
    return record._replace(keys={**record.keys, "path": renamed})


def _parts(path: str) -> list[str]:
    return re.split(r"([/?&=])", path)


def _results(record: Record, names: _Names) -> Record:
    """When, from which stream and how fast is the catalogue's; which request it is, a hash of volatile bytes."""
    rows = [
        {
            name: names.of(value) if name == "id" and isinstance(value, str) and value else value
            for name, value in row.items()
            if name not in ("stream", "duration_ms")
        }
        if is_object(row)
        else row
        for row in as_list(record.keys.get("results"))
    ]
    keys = {name: value for name, value in record.keys.items() if name != "request"}
    return record._replace(keys={**keys, "results": rows} if "results" in keys else keys)


def _asked_whom(record: Record, names: _Names) -> Record:
    """The port of an upstream on this machine, also where an error names it; host and path stay."""
    del names
    said = {name: record.keys[name] for name in ("upstream", "message") if isinstance(record.keys.get(name), str)}
    return record._replace(keys={**record.keys, **{name: _PORT.sub(r"\1\2", text) for name, text in said.items()}})


_OF_KIND: Final[Mapping[str, Callable[[Record, _Names], Record]]] = MappingProxyType(
    {"attempt": _asked_whom, "failed": _asked_whom, "head": _head, "request": _request, "results": _results}
)
