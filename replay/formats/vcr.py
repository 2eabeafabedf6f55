"""Cassettes of VCR.py and cassetter, in YAML or JSON."""

import binascii
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, is_list, is_object, parse

from .imported import Contents, Imported, decoded, microseconds, reads_of, split_url

__all__ = ["from_vcr"]

_OTHER_PROTOCOLS: Final = ("grpc_interactions", "ws_interactions")
_BODY_TYPES: Final = frozenset({"json", "text", "binary", "none"})


def from_vcr(data: bytes) -> Contents:
    """Read one stream for each interaction."""
    value = parse(data) if data.lstrip()[:1] in (b"{", b"[") else ABSENT
    cassette = _yaml(data) if value is ABSENT else value
    rows = cassette if is_list(cassette) else as_list(as_object(cassette).get("interactions"))
    if not rows:
        raise TapeError("no interactions")
    losses: Counter[str] = Counter()
    if others := sum(len(as_list(as_object(cassette).get(name))) for name in _OTHER_PROTOCOLS):
        losses["other_protocols"] += others
    return Contents(_exchanges(rows, losses), losses)


def _yaml(data: bytes) -> Any:
    try:
        from .yaml_events import read_yaml  # noqa: PLC0415 - PyYAML is optional
    except ImportError:
        raise TapeError("reading YAML needs PyYAML: pip install 'wiretape[vcr]'") from None
    return read_yaml(data)


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
        one = Imported(
            method=_text(request.get("method")) or "GET",
            target=target,
            request_headers=_headers(request.get("headers")),
            request_body=_body(request, losses) or None,
            status=_status(response),
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
    elif is_object(body) and body.get("type") in _BODY_TYPES and body.keys() <= {"type", "content"}:
        return _typed_body(body, losses)
    if body is None and message.get("parsed_body") is not None:
        body = message["parsed_body"]
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return b"" if body is None else _json(body, losses)


def _typed_body(body: dict[str, Any], losses: Counter[str]) -> bytes:
    """Return a body that cassetter wrote."""
    content = body.get("content")
    if body["type"] == "none" or content is None:
        return b""
    if body["type"] == "json":
        return _json(content, losses)
    if body["type"] == "text":
        return _text(content).encode("utf-8", "surrogatepass")
    try:
        return binascii.unhexlify(_text(content))
    except (binascii.Error, ValueError):
        raise TapeError("a binary body is not written in hex digits") from None


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


def _status(response: dict[str, Any]) -> int:
    status: Any = response.get("status", response.get("status_code"))
    code = as_object(status).get("code") if is_object(status) else status
    if type(code) is not int or not 100 <= code <= 999:
        raise TapeError("a response without a status")
    return code


def _headers(value: Any) -> list[tuple[str, str]]:
    """Return headers: names with lists of values, or the lines of old cassettes."""
    if is_object(value):
        return [(name, _text(each)) for name, many in value.items() for each in (many if is_list(many) else [many])]
    lines = (_text(line).partition(":") for line in as_list(value))
    return [(name.strip(), text.strip()) for name, colon, text in lines if colon]
