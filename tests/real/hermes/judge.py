"""Judge whether a client received the agent's whole response, or an error if it failed."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..judge import Taped
from .model import Scenario

__all__ = ["Found", "faults", "said"]

#: openai-python's helper raises on every `length`, also on a plain one of a model's.
_ON_LENGTH: Final = "LengthFinishReasonError"


@dataclass(frozen=True, slots=True)
class Found:
    """One scenario of one client."""

    client: str
    scenario: Scenario
    direct: dict[str, Any]
    through: dict[str, Any]
    tapes: Sequence[Taped]


def faults(scenario: Scenario, result: dict[str, Any]) -> Iterator[str]:
    """What is wrong with what a client holds at the end."""
    turns, error = result["turns"], result["error"]
    text = "".join(turn["text"] or "" for turn in turns)
    finish = turns[-1]["finish"] if turns else None
    if scenario.error:
        if error is None:
            yield "gets no error"
        elif scenario.error not in json.dumps(error, ensure_ascii=False):
            yield f"gets no reason: {error['class']}: {_short(error['message'])}"
        if not scenario.text.startswith(text):
            yield f"has another text: {_short(text)}"
        return
    if error is not None and not (scenario.finish == "length" and error["class"] == _ON_LENGTH):
        yield f"fails: {error['class']}: {_short(error['message'])}"
        return
    if error is None and text.strip() != scenario.text.strip():
        yield f"has another text: {_short(text)}"
    if error is None and finish and finish != scenario.finish:
        yield f"has the finish {finish}"


def taped_faults(scenario: Scenario, tapes: Sequence[Taped]) -> Iterator[str]:
    """What the tapes lack."""
    if not tapes:
        yield "nothing was taped"
    for tape in tapes:
        if not scenario.flags <= set(tape.flags):
            yield f"the tape has the flags {tape.flags}"
        if (tape.ending == "completed") is bool(scenario.error):
            yield f"the tape ends as {tape.ending}"


def said(found: Found) -> tuple[str, str]:
    """For the table: directly, and through Wiretape."""
    through = [*faults(found.scenario, found.through), *taped_faults(found.scenario, found.tapes)]
    return "; ".join(faults(found.scenario, found.direct)) or "ok", "; ".join(through) or "ok"


def _short(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= 60 else words[:60] + "…"
