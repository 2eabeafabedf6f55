"""Flows that mitmproxy dumped (`mitmdump -w`): whole bodies with the times of their first and last byte"""

from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

from wiretape.events.core.json_text import as_list, as_object

from .imported import Clock, Imported, Outcome, decoded, outcome
from .losses import Loss
from .tnetstring import read_all

__all__ = ["from_mitmproxy"]

_ALWAYS: Final = ("headers", "one_read")
#: 2100, in seconds: what lies beyond is no time.
_SECONDS_MAX: Final = 4_102_444_800


def from_mitmproxy(data: bytes) -> Outcome:
    """A stream for each flow of HTTP that has an answer."""
    losses = [Loss(code) for code in _ALWAYS]
    found = list(_all(read_all(data), losses))
    return outcome("mitmproxy", data, found, losses)


def _all(flows: list[Any], losses: list[Loss]) -> Iterator[Imported]:
    for value in flows:
        flow = as_object(value)
        request, response = as_object(flow.get("request")), as_object(flow.get("response"))
        if _text(flow.get("type")) != "http" or flow.get("websocket"):
            losses.append(Loss("other_protocols"))
        elif not request or not response:
            losses.append(Loss("unanswered"))
        else:
            one = decoded(_one(flow, request, response, losses))
            losses += [Loss("coding")] if one.decoded else []
            yield one


def _one(flow: dict[str, Any], request: dict[str, Any], response: dict[str, Any], losses: list[Loss]) -> Imported:
    content = response.get("content")
    error = _text(as_object(flow.get("error")).get("msg"))
    if not isinstance(content, bytes):  # what broke, and what was streamed past it, has none
        losses.append(Loss("body"))
    if not error:
        losses.append(Loss("ending"))
    began, head, last = (
        _seconds(message.get(name))
        for message, name in (
            (request, "timestamp_start"),
            (response, "timestamp_start"),
            (response, "timestamp_end"),
        )
    )
    clock, at = Clock(), 0
    if began is None or head is None or not began <= head:
        losses.append(Loss("times"))
    else:
        head_us = max(3, round((head - began) * 1e6))
        at = max(head_us, round((last - began) * 1e6)) if last is not None else head_us + 1
        clock = Clock(head=head_us, end=at)
    losses += [Loss("time")] if began is None else []
    body = request.get("content")
    return Imported(
        method=_text(request.get("method")) or "GET",
        target=_text(request.get("path")) or "/",
        request_headers=_headers(request),
        request_body=body if isinstance(body, bytes) and body else None,
        status=_status(response.get("status_code")),
        headers=_headers(response),
        reads=[(at, content)] if isinstance(content, bytes) and content else [],
        clock=clock,
        cause=_cause(error),
        framed={"framed": False, "broke": "reset" if _cause(error) == "reset" else "truncated"} if error else {},
        created_us=None if began is None else round(began * 1e6),
        upstream=_text(request.get("host")) or "imported",
    )


def _cause(error: str) -> str:
    return "reset" if "reset" in error.lower() else "eof"


def _status(value: Any) -> int:
    return value if type(value) is int and 100 <= value <= 999 else 200


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) and 0 <= value <= _SECONDS_MAX else None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _headers(message: dict[str, Any]) -> list[tuple[str, str]]:
    rows = (as_list(row) for row in as_list(message.get("headers")))
    return [(_text(row[0]), _text(row[1])) for row in rows if len(row) == 2]
