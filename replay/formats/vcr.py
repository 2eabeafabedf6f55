"""Cassettes of VCR.py and cassetter, in YAML or JSON.

YAML is read by PyYAML with the scalars of YAML 1.2. Its events are checked first: composing overflows the C stack at
50,000 levels.
"""

import binascii
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, is_list, is_object, parse

from .exchange import Contents, Imported, decoded, microseconds, reads_of, split_url, status_of

#: PyYAML is an extra of the installation.
HAS_YAML = find_spec("yaml") is not None
if TYPE_CHECKING or HAS_YAML:
    import yaml

__all__ = ["HAS_YAML", "from_vcr", "read_yaml"]

_OTHER_PROTOCOLS: Final = ("grpc_interactions", "ws_interactions")
_BODY_TYPES: Final = frozenset({"json", "text", "binary", "none"})
_NESTING_MAX: Final = 64
#: Each alias repeats at most the whole file, since none may be inside an anchor.
_ALIASES_MAX: Final = 1_000

_TAG: Final = "tag:yaml.org,2002:"
#: The words with another type than text. Numbers are narrower than in YAML 1.2: PyYAML writes the texts `1e5` and `089`
#: without quotes.
_WORDS: Final = (
    ("null", "(?:~|null|Null|NULL|)"),
    ("bool", "(?:true|True|TRUE|false|False|FALSE)"),
    ("int", "[-+]?(?:0|[1-9][0-9]{0,300})"),
    ("float", r"[-+]?[0-9]{1,300}\.[0-9]{0,300}(?:[eE][-+][0-9]{1,3})?"),
)


def from_vcr(data: bytes) -> Contents:
    """Read one stream for each interaction."""
    cassette = parse(data) if data.lstrip()[:1] in (b"{", b"[") else ABSENT
    if cassette is ABSENT:
        cassette = read_yaml(data)
    rows = as_list(as_object(cassette).get("interactions"))
    if not rows:
        raise TapeError("no interactions")
    others = sum(len(as_list(as_object(cassette).get(name))) for name in _OTHER_PROTOCOLS)
    losses = +Counter({"other_protocols": others})
    return Contents(_exchanges(rows, losses), losses)


def _exchanges(rows: list[Any], losses: Counter[str]) -> Iterator[Imported]:
    for row in rows:
        request, response = (as_object(as_object(row).get(name)) for name in ("request", "response"))
        if not request or not response:
            losses["unanswered"] += 1
            continue
        host, target = split_url(_text(request.get("uri")))
        created = microseconds(_text(as_object(row).get("recorded_at")))
        if created is None:
            losses["time"] += 1
        headers = _headers(response.get("headers"))
        status: Any = response.get("status", response.get("status_code"))
        one = Imported(
            method=_text(request.get("method")) or "GET",
            target=target,
            request_headers=_headers(request.get("headers")),
            request_body=_body(request, losses) or None,
            status=status_of(as_object(status).get("code") if is_object(status) else status),
            headers=headers,
            reads=reads_of(_body(response, losses), headers),
            created_us=created,
            upstream=host,
        )
        yield decoded(one, losses)


def _body(message: dict[str, Any], losses: Counter[str]) -> bytes:
    """Return a body from any of the shapes that the versions of these libraries have written."""
    body: Any = message.get("body", message.get("content"))
    if is_object(body) and "string" in body:
        body = body["string"]
    elif is_object(body) and body.get("type") in _BODY_TYPES and body.keys() <= {"type", "content"}:  # cassetter's
        kind, body = body["type"], body.get("content")
        if kind == "json" and body is not None:
            return _json(body, losses)
        if kind == "binary":
            try:
                return binascii.unhexlify(_text(body))
            except (binascii.Error, ValueError):
                raise TapeError("a binary body is not written in hex digits") from None
    if body is None and message.get("parsed_body") is not None:
        body = message["parsed_body"]
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    if body is None or isinstance(body, bytes):
        return body or b""
    return _json(body, losses)


def _json(value: Any, losses: Counter[str]) -> bytes:
    losses["json"] += 1
    try:
        return dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise TapeError("a body cannot be written as JSON") from None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None or is_object(value) or is_list(value) else str(value)


def _headers(value: Any) -> list[tuple[str, str]]:
    headers = as_object(value).items()
    return [(name, _text(each)) for name, many in headers for each in (many if is_list(many) else [many])]


# -- YAML -------------------------------------------------------------------------------------------------------------


def read_yaml(data: bytes) -> Any:
    """Return the value of the one document; raise `TapeError` if the text is anything else."""
    if not HAS_YAML:
        raise TapeError("reading YAML needs PyYAML: pip install 'wiretape[vcr]'")
    try:
        text = data.decode("utf-8-sig").encode()
        _check_bounds(text)
        return yaml.load(text, Loader=_loader())  # noqa: S506 - a safe loader of ours
    except UnicodeDecodeError as error:
        raise TapeError(f"byte {error.start}: not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark is not None else ""
        raise TapeError(f"{line}{error.problem}") from None
    except yaml.YAMLError as error:
        raise TapeError(" ".join(str(error).split())) from None
    except (LookupError, TypeError, ValueError) as error:
        raise TapeError(f"a value that does not fit its tag: {' '.join(str(error).split())}") from None


def _check_bounds(text: bytes) -> None:
    """Refuse what would overflow the stack or the memory when it is composed."""
    depth = aliases = anchored = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            anchored += bool(anchored or event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            anchored -= bool(anchored)
        aliases += isinstance(event, yaml.AliasEvent)
        nested = isinstance(event, yaml.AliasEvent) and anchored
        if depth > _NESTING_MAX or aliases > _ALIASES_MAX or nested:
            why = "nested too deeply" if depth > _NESTING_MAX else "too many aliases, or one inside an anchor"
            assert event.start_mark is not None, "the parser marks every event"
            raise TapeError(f"line {event.start_mark.line + 1}: {why}")


@lru_cache(1)
def _loader() -> "type[yaml.CSafeLoader]":
    """Return a safe loader with the plain words of YAML 1.2 and texts as keys."""

    class Loader(yaml.CSafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(None, None, "a key that is not a scalar", key.start_mark)
                key.tag = f"{_TAG}str"
            return super().construct_mapping(node, deep)

    resolvers: Any = {None: [(_TAG + name, re.compile(f"{words}$")) for name, words in _WORDS]}
    Loader.yaml_implicit_resolvers = resolvers
    made = Loader.yaml_constructors
    names = ("null", "bool", "int", "float", "binary", "str", "seq", "map")
    Loader.yaml_constructors = {None: made[None], **{_TAG + name: made[_TAG + name] for name in names}}
    for name in (f"{_TAG}python/str", f"{_TAG}python/unicode", f"{_TAG}timestamp"):
        Loader.add_constructor(name, made[f"{_TAG}str"])
    Loader.add_constructor(f"{_TAG}python/tuple", made[f"{_TAG}seq"])
    return Loader
