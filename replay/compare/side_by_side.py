"""Two streams side by side, as the inspector shows them: differences, words, calls and times."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Final

from wiretape.events.emit import summarise
from wiretape.events.folds.wire import Call
from wiretape.events.tape.record import RECEIVED, Record

from ..playback.script import attempts_of
from .compare import compare, verdict

__all__ = ["side_by_side"]

_WORD: Final = re.compile(r"\S+\s*|\s+")
#: Pairs of words to align, about a second; longer texts are not aligned.
_PAIRS_MAX: Final = 25_000_000
_TIMES_MAX: Final = 10_000

_Words = list[tuple[str, bool]]


def side_by_side(a: Sequence[Record], b: Sequence[Record]) -> dict[str, Any]:
    """Return how two streams differ as JSON."""
    differences = list(compare([a], [b]))
    mine, other = summarise(a), summarise(b)
    texts = [" ".join(answer.text for answer in each.answers) for each in (mine, other)]
    words = _aligned(*(_WORD.findall(text) for text in texts))
    calls = zip_longest(mine.wire.all_calls(), other.wire.all_calls())
    return {
        "equal": verdict(differences) == 0,
        "differences": [difference.to_json() for difference in differences],
        "text": {"a": words[0], "b": words[1]},
        "calls": [{"a": _call(one), "b": _call(two)} for one, two in calls],
        "times": {"a": _times(a), "b": _times(b)},
    }


def _aligned(a: list[str], b: list[str]) -> tuple[_Words, _Words]:
    """Return the pieces of both texts, each with whether the other has it there."""
    blocks = [("equal" if a == b else "replace", 0, len(a), 0, len(b))]
    if len(a) * len(b) <= _PAIRS_MAX:
        blocks = list[tuple[str, int, int, int, int]](SequenceMatcher(None, a, b, autojunk=False).get_opcodes())
    found: tuple[_Words, _Words] = [], []
    for tag, a_begin, a_end, b_begin, b_end in blocks:
        for side, words in ((0, a[a_begin:a_end]), (1, b[b_begin:b_end])):
            if words:
                found[side].append(("".join(words), tag == "equal"))
    return found


def _call(call: Call | None) -> dict[str, Any] | None:
    if call is None:
        return None
    return {"id": call.id, "name": call.name, "state": call.state.value, "arguments": call.arguments}


def _times(records: Sequence[Record]) -> list[int]:
    """Return when the last attempt received something, in microseconds since it began."""
    last = attempts_of(records)[-1]
    began = last[0].t if last else 0
    return [record.t - began for record in last if record.kind in RECEIVED][:_TIMES_MAX]
