"""Rename or set values that change from one recording to the next; all other bytes stay.

These are ids of responses, messages and calls and what only the provider can read (also in later requests), creation
times, fingerprints, padding, request ids, rate limits and processing times, what `results` records know from elsewhere,
and loopback ports. In responses of other kinds (images, files) only ids with a conversation's prefix are renamed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from wiretape.events.core.json_text import Edit, as_list, dumps, is_object
from wiretape.events.dialects import PLACES
from wiretape.events.tape.record import Record

from ..sealed.texts import ASKED, Scalar, Text, edited, texts

__all__ = ["normalise"]

#: One second in 2001, which is obviously not the real time.
_CREATED: Final = b"1000000000"
_CREATED_TEXT: Final = "2001-09-09T01:46:40Z"
_TIME_NAME: Final = re.compile(r"created|(?:created|completed|expires)_at")
_WORDS: Final = [places.words for places in PLACES.values()]
_IDS: Final = {"toolCallId", *(name for words in _WORDS for name in words.ids)}
_ID_NAME: Final = re.compile(
    "|".join(sorted(_IDS)) + r"|(?:approval_request|container|generation|message|request|response|run)_id"
)
#: Signatures and encrypted thoughts, which clients send back word for word.
_PROOFS: Final = frozenset[str]().union(*(words.proofs for words in _WORDS))
_WORTH_A_LOOK: Final = re.compile(
    rb'"(?:id|toolCallId|created|system_fingerprint|obfuscation|p|%b)"|(?:_at|_id)"'
    % "|".join(sorted(_PROOFS)).encode()
)
#: Members that a user or a model fills, and settings that last.
_CONTENT: Final = frozenset(
    {"args", "arguments", "conversation", "input", "logprobs", "metadata", "parameters", "prompt", "schema", "tools"}
)
#: Members of a request that repeat ids of earlier responses.
_EARLIER: Final = frozenset({"conversation_history", "tool_outputs"}).union(
    *({*words.conversation, *words.stored} for words in _WORDS)
)
#: Prefixes of ids, those of one dialect and of all; every other id becomes an `id-`.
_PREFIXES: Final = (
    *(prefix for words in _WORDS for prefix in words.id_prefixes),
    "req_",
    "run_",
    "fp_",
    "proof_",
    "id-",
)
_PREFIX: Final = re.compile(f"(?:{'|'.join(_PREFIXES)})")
#: An id with such a prefix is renamed also in responses of unknown dialects.
_PREFIXED: Final = re.compile(_PREFIX.pattern + r"[\w.:-]+")
#: Padding that recites the alphabet.
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
#: Words of a path are shorter than ids.
_WORD_CHARS_MAX: Final = 12
_REQUEST_IDS: Final = frozenset({"request-id", "x-client-request-id", "x-request-id"})
_RATE_LIMIT: Final = re.compile(
    r"(?:x-|anthropic-)?ratelimit-.*(?:remaining|reset).*|openai-processing-ms|retry-after-ms"
)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]")
_LOOPBACK: Final = r"127(?:\.\d{1,3}){3}"
#: Ports on this machine: `127.0.0.1:8000`, and `('127.0.0.1', 8000)` as trio prints them.
_PORT: Final = re.compile(
    rf"(?<![\w.])({_LOOPBACK}|localhost|\[::1\]):\d{{1,5}}(?!\d)|(\('(?:{_LOOPBACK}|::1)'), \d{{1,5}}(?=[,)])"
)


class _Names:
    """New names, numbered by first use for each prefix. A new name keeps its name when it is seen again.

    Ids that emission made of the name of a stream stay, since a replay gives them out again.
    """

    def __init__(self, streams: Iterable[str]) -> None:
        self._known: dict[str, str] = {}
        self._count: dict[str, int] = {}
        self._made = re.compile("|".join(map(re.escape, streams)) or r"(?!)")

    def of(self, name: str, kind: str = "") -> str:
        if self._made.search(name):
            return name
        if name not in self._known:
            match = _PREFIX.match(name)
            prefix = kind or (match[0] if match else "id-")
            number = self._count[prefix] = self._count.get(prefix, 0) + 1
            self._known[name] = f"{prefix}{number}"
        return self._known[name]

    def known(self, name: str) -> str:
        """Return the new name of an id that was seen before; any other name stays."""
        return self._known.get(name, name) if len(name) > _WORD_CHARS_MAX else name


def normalise(streams: Sequence[Sequence[Record]]) -> list[list[Record]]:
    """Return the streams of one conversation, normalised; normalised streams come back unchanged."""
    opened = (records[0].keys.get("stream") for records in streams if records)
    names = _Names(stream for stream in opened if isinstance(stream, str) and len(stream) > _WORD_CHARS_MAX)
    done: list[list[Record]] = []
    for records in streams:
        if records and isinstance(run := records[0].keys.get("run"), str):
            names.of(run)
        new = edited(records, [(text, list(_changes(text, names))) for text in texts(records)])
        done.append([_with_keys(record, names) for record in new])
    return done


# -- bytes ------------------------------------------------------------------------------------------------------------


def _changes(text: Text, names: _Names) -> Iterator[Edit]:
    json = text.json
    if not _WORTH_A_LOOK.search(json):
        return
    known = text.kind == "rest" or _is_known(text.value)  # the beginning of a frame says no more
    for scalar in text.scalars:
        token = json[scalar.start : scalar.end]
        new = _renamed(scalar, token, names, known=None if text.kind in ASKED else known)
        if new is not None and new != token:
            yield Edit(text.place(scalar.start), text.place(scalar.end), new)


def _is_known(value: Any) -> bool:
    """Return whether a frame or response is of a known dialect, in which every id and time is volatile."""
    return is_object(value) and any(places.known(value) for places in PLACES.values())


def _renamed(scalar: Scalar, token: bytes, names: _Names, *, known: bool | None) -> bytes | None:
    """Return the new value of a member, or None. A response's dialect is `known` or not; a request has no `known`."""
    path = scalar.path
    name = path[-1] if path else ""
    # xAI has its fingerprint in `metadata`.
    in_content = name != "system_fingerprint" and not _CONTENT.isdisjoint(path[1:-1])
    if scalar.sort in ("name", "torn") or not isinstance(name, str) or in_content:
        return None
    if scalar.sort == "other":
        return _CREATED if known and _TIME_NAME.fullmatch(name) and token[:1] in b"123456789" else None
    value = token[1:-1].decode("utf-8", "replace")
    is_earlier = known is None and path[0] in _EARLIER  # a request only names what came before
    may_be_id = value and "\\" not in value and _ID_NAME.fullmatch(name)
    if may_be_id and (known or is_earlier or (known is False and _PREFIXED.fullmatch(value))):
        return dumps(names.of(value))
    if value and name in _PROOFS and (known or is_earlier):
        return dumps(names.of(value, "proof_"))
    if known and _TIME_NAME.fullmatch(name) and _DAY.match(value):
        return dumps(_CREATED_TEXT)
    if known and name == "system_fingerprint" and value:
        return dumps(names.of(value, "fp_"))
    if name == "obfuscation" or (path == ("p",) and len(value) > 1 and _ALPHABET.startswith(value)):
        return b'""'
    return None


# -- keys -------------------------------------------------------------------------------------------------------------


def _with_keys(record: Record, names: _Names) -> Record:
    keys: Mapping[str, Any] = record.keys
    match record.kind:
        case "request" | "head":
            if headers := [_header(pair, names) for pair in as_list(keys.get("headers"))]:
                keys = {**keys, "headers": headers}
            if record.kind == "request" and isinstance(path := keys.get("path"), str):
                keys = {**keys, "path": "".join(map(names.known, re.split(r"([/?&=])", path)))}
        case "results":  # stream and duration are the catalogue's, and `request` is a hash of volatile bytes
            keys = {name: value for name, value in keys.items() if name != "request"}
            if "results" in keys:
                keys = {**keys, "results": [_result(row, names) for row in as_list(keys["results"])]}
        case "open" | "upstream_run":
            runs = {name: keys[name] for name in ("run", "run_id") if isinstance(keys.get(name), str)}
            keys = {**keys, **{name: names.of(run) for name, run in runs.items()}}
        case "attempt" | "failed":
            texts = {name: keys[name] for name in ("upstream", "message") if isinstance(keys.get(name), str)}
            keys = {**keys, **{name: _PORT.sub(r"\1\2", text) for name, text in texts.items()}}
            if "crossing" in keys:
                keys |= {"crossing": _echoed(keys["crossing"], names)}
        case _:
            return record
    return record._replace(keys=keys)


def _echoed(value: Any, names: _Names) -> Any:
    """Rename the ids that an answer repeats of its request."""
    if is_object(value):
        return {name: _echoed(each, names) for name, each in value.items()}
    return names.known(value) if isinstance(value, str) else value


def _header(pair: Any, names: _Names) -> Any:
    match pair:
        case [str(name), str(value)] if name in _REQUEST_IDS and value:
            return [name, names.of(value, "req_")]
        case [str(name), str(value)] if _RATE_LIMIT.fullmatch(name):
            return [name, _CREATED_TEXT if _DAY.match(value) else "1" if _NUMBER.fullmatch(value) else "1s"]
        case _:
            return pair


def _result(row: Any, names: _Names) -> Any:
    if not is_object(row):
        return row
    kept = {name: value for name, value in row.items() if name not in ("stream", "duration_ms")}
    if isinstance(id_ := kept.get("id"), str) and id_:
        kept["id"] = names.of(id_)
    return kept
