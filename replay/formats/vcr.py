"""Cassettes of VCR.py and of cassetter, as YAML or as JSON: whole exchanges, one after the other"""

import binascii
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, is_list, is_object, parse

from .imported import Imported, Outcome, decoded, in_frames, outcome
from .losses import Loss
from .yaml_subset import read_yaml

__all__ = ["from_vcr"]

_ALWAYS: Final = ("boundaries", "ending", "headers", "times")
_OTHER: Final = ("grpc_interactions", "ws_interactions")
_BODY_TYPES: Final = frozenset({"json", "text", "binary", "none"})


def from_vcr(data: bytes) -> Outcome:
    """A stream for each interaction."""
    value = parse(data) if data.lstrip()[:1] in (b"{", b"[") else ABSENT
    cassette = read_yaml(data) if value is ABSENT else value
    rows = cassette if is_list(cassette) else as_list(as_object(cassette).get("interactions"))
    if not rows:
        raise TapeError("no interactions, which a cassette has")
    losses = [Loss(code) for code in _ALWAYS]
    others = sum(len(as_list(as_object(cassette).get(name))) for name in _OTHER)
    losses += [Loss("other_protocols", others)] if others else []
    return outcome("vcr", data, list(_all(rows, losses)), losses)


def _all(rows: list[Any], losses: list[Loss]) -> Iterator[Imported]:
    for row in rows:
        request, response = (as_object(as_object(row).get(name)) for name in ("request", "response"))
        if not request or not response:
            losses.append(Loss("unanswered"))
            continue
        uri = _text(request.get("uri"))
        body, created = _body(request, losses), _created(as_object(row).get("recorded_at"))
        losses += [Loss("time")] if created is None else []
        headers = _headers(response.get("headers"))
        one = Imported(
            method=_text(request.get("method")) or "GET",
            target=_target(uri),
            request_headers=_headers(request.get("headers")),
            request_body=body or None,
            status=_status(response),
            headers=headers,
            reads=[(0, answer)] if (answer := _body(response, losses)) else [],
            created_us=created,
            upstream=_host(uri),
        )
        plain = decoded(one)
        losses += [Loss("coding")] if plain.decoded else []
        yield in_frames(plain)


def _body(message: dict[str, Any], losses: list[Loss]) -> bytes:
    """In all the ways in which somebody has written it."""
    body: Any = message.get("body", message.get("content"))
    if is_object(body) and "string" in body:
        body = body["string"]
    elif is_object(body) and body.get("type") in _BODY_TYPES and body.keys() <= {"type", "content"}:
        return _typed(body, losses)
    if body is None and message.get("parsed_body") is not None:
        body = message["parsed_body"]
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    if body is None:
        return b""
    losses.append(Loss("json"))
    return _json(body)


def _typed(body: dict[str, Any], losses: list[Loss]) -> bytes:
    """As cassetter has it."""
    content = body.get("content")
    if body["type"] == "none" or content is None:
        return b""
    if body["type"] == "json":
        losses.append(Loss("json"))
        return _json(content)
    if body["type"] == "text":
        return _text(content).encode("utf-8", "surrogatepass")
    try:
        return binascii.unhexlify(_text(content))
    except (binascii.Error, ValueError):
        raise TapeError("a binary body that is not written in hex digits") from None


def _json(value: Any) -> bytes:
    try:
        return dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise TapeError("a body that is no JSON, although it is written as such") from None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None or is_object(value) or is_list(value) else str(value)


def _status(response: dict[str, Any]) -> int:
    status: Any = response.get("status", response.get("status_code"))
    code = as_object(status).get("code") if is_object(status) else status
    if type(code) is not int or not 100 <= code <= 999:
        raise TapeError("an answer without a status")
    return code


def _headers(value: Any) -> list[tuple[str, str]]:
    """Names with lists of values; of old cassettes lines."""
    if is_object(value):
        return [(name, _text(each)) for name, said in value.items() for each in (said if is_list(said) else [said])]
    lines = (_text(line).partition(":") for line in as_list(value))
    return [(name.strip(), text.strip()) for name, colon, text in lines if colon]


def _target(uri: str) -> str:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "/"
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _host(uri: str) -> str:
    try:
        return urlsplit(uri).hostname or "imported"
    except ValueError:
        return "imported"


def _created(value: Any) -> int | None:
    try:
        return round(datetime.fromisoformat(_text(value)).timestamp() * 1e6) if value else None
    except (ValueError, OverflowError, OSError):
        return None
