"""What the judges must not let pass: asked before every run, because a judge that never objects proves nothing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from . import living
from .cells import Cell, Found
from .peers import READER
from .script import Model
from .verdict import judge

__all__ = ["unseen"]

_WARNING: Final = "⚠ Connection dropped mid tool-call: get_weather was cut short. Nothing was executed."
_RAN: Final = '{"city": "Paris", "days": 3}'


def _found(way: str, ending: str, text: str = "", finish: str | None = "", error: str = "", **more: Any) -> Found:
    turns: list[Any] = [{"text": text, "calls": [], "finish": finish, "usage": None}]
    raised = {"class": "APIError", "status": None, "code": None, "message": error} if error else None
    result = {"turns": turns, "ran": [], "error": raised}
    found = Found(Cell(READER, way, Model(ending, "member", "get_weather", 0)), result, ran=[], asked=1)
    return replace(found, **more)


def _cut() -> Iterator[tuple[str, bool, Found]]:
    """A sentence, whether it is a defect, what was found."""
    yield "an error with the warning", False, _found("error", "clean", error=_WARNING)
    yield "a text with the warning", False, _found("warn", "clean", _WARNING, "length")
    yield "the warning, and yet the tool ran", True, _found("warn", "clean", _WARNING, "length", ran=["{}"])
    yield (
        "a tool that ran with whole arguments, which never came",
        True,
        _found("error", "clean", error="no", ran=[_RAN]),
    )
    yield "a success", True, _found("error", "clean", "fine", "stop")
    yield "a call as a success", True, _found("error", "reset", "fine", "tool_calls")
    yield "nothing told at all", True, _found("error", "stall", "fine", None)
    yield "a length where the stream was cut", False, _found("warn", "clean", "fine", "length")
    yield "seven requests", True, _found("error", "error", error="no", asked=7)
    yield "seven attempts of one request", False, _found("error", "error", error="no", asked=7, streams=[b""])
    yield "a tool that ran on a length with live tools", False, _found("error", "length", "fine", "stop", ran=["{}"])
    yield "a tool that ran on a length with held tools", True, _found("held", "length", "fine", "stop", ran=["{}"])


def _frame(status: str, one: str = "c1") -> bytes:
    said: dict[str, Any] = {
        "choices": [{"index": 0, "delta": {}}],
        "tool": "get_weather",
        "toolCallId": one,
        "status": status,
    }
    return b"event: hermes.tool.progress\ndata: " + json.dumps(said).encode() + b"\n\n"


def _whole() -> Iterator[tuple[str, bool, Found, Found]]:
    direct = _found("direct", "whole", "fine", "stop", ran=[_RAN])
    through = _found("error", "whole", "fine", "stop", ran=[_RAN], streams=[_frame("running"), _frame("completed")])
    yield "as it should be", False, direct, through
    yield "another text", True, direct, replace(through, result=_found("error", "whole", "bad", "stop").result)
    yield "other arguments", True, direct, replace(through, ran=["{}"])
    yield "not told", True, direct, replace(through, streams=[b"", b""])
    yield "told once", True, direct, replace(through, streams=[_frame("running"), b""])
    twice = [_frame("running") * 2, _frame("completed")]
    yield "told twice", True, direct, replace(through, streams=twice)
    yield "another id", True, direct, replace(through, streams=[_frame("running"), _frame("completed", "c2")])


def unseen() -> list[str]:
    """The cases in which a judge says something else."""
    wrong = [case for case, due, found in _cut() if judge(found).defect is not due]
    return wrong + [
        case for case, due, direct, found in _whole() if bool(list(living.faults(direct, found))) is not due
    ]
