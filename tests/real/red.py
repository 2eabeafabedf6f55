"""What the judge must not let pass: asked before every run, because a judge that never objects proves nothing."""

from collections.abc import Iterator
from typing import Any

from .judge import Taped, judge

__all__ = ["unseen"]

_CALL = ["call_1234567890", "get_weather", '{"city": "Paris"}']
_KEPT = ["call_1234567890", "get_weather", {"city": "Paris"}]


def _result(text: str = "", calls: Any = (), finish: str = "stop", ran: Any = (), error: Any = None) -> dict[str, Any]:
    turn = {"text": text, "calls": list(calls), "finish": finish, "usage": None}
    return {"turns": [turn], "ran": list(ran), "error": error}


def _cases() -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any], list[Taped]]]:
    """A sentence, the verdict that is due, direct, through, tapes."""
    hi, whole = _result("hi"), Taped(text="hi", finish="stop", ending="completed")
    yield "the same text is the same", "same", hi, hi, [whole]
    yield "nothing taped", "differs", hi, hi, []
    other = Taped(text="ho", finish="stop", ending="completed")
    yield "a text that is on no tape, though it is the same as direct", "differs", hi, hi, [other]
    yield "another text than direct, and no reason", "differs", hi, _result("ho"), [other]
    mended = Taped(text="ho", finish="stop", ending="completed", repairs={"finish_repeated": 1})
    yield "another text than direct, and a repair", "repaired", hi, _result("ho"), [mended]
    told = Taped(text="ho", finish="stop", ending="completed", repairs={"lifecycle": 1})
    yield "a lifecycle frame is no reason", "differs", hi, _result("ho"), [told]
    cut = Taped(text="hi", ending="truncated")
    yield "a cut stream that ends well for the client", "differs", hi, hi, [cut]
    called = Taped(calls=[_KEPT], finish="tool_calls", ending="completed", repairs={"call_id_repeated": 1})
    right = _result(calls=[_CALL], finish="tool_calls", ran=[_CALL[2]])
    doubled = _result(calls=[[_CALL[0] * 2, *_CALL[1:]]], finish="tool_calls", ran=[_CALL[2]])
    yield "an id that came twice, mended", "repaired", doubled, right, [called]
    yield "an id that still is there twice", "differs", doubled, doubled, [called]
    altered = _result(calls=[_CALL], finish="tool_calls", ran=["{}"])
    yield "a tool that ran with other arguments", "differs", right, altered, [called]
    refused = Taped(ending="upstream_error", status=401)
    yield "another error than direct", "differs", _result(error=_error("a")), _result(error=_error("b")), [refused]
    yield "an error, although the stream is whole", "differs", hi, _result("hi", error=_error("a")), [whole]


def _error(message: str) -> dict[str, Any]:
    return {"class": "APIError", "status": 401, "code": None, "message": message}


def unseen() -> list[str]:
    """The cases in which the judge says something else."""
    return [
        f"{case}: {verdict}, not {due}"
        for case, due, direct, through, tapes in _cases()
        if (verdict := judge(direct, through, tapes).verdict) != due
    ]
