"""Where the text that came and the text that was sent differ."""

import re
from collections import Counter
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Final

__all__ = ["PAIRS_MAX", "marks"]

#: Strings of JSON and words are not taken apart; a string that was cut off goes on to the end.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|\w+|\s+|.', re.DOTALL)
#: Pairs of equal tokens that are compared, 3 ms; beyond that all between the common ends is one difference.
PAIRS_MAX: Final = 1_000


def marks(came: str, frames: list[str]) -> dict[str, list[list[int]]]:
    """Return the ranges that differ, in what came and in the joined frames, in UTF-16 units as in JavaScript."""
    sent = "".join(frames)
    if came in frames:  # others were added
        at = len("".join(frames[: frames.index(came)]))
        return {"in": [], "out": _range(sent, 0, at) + _range(sent, at + len(came), len(sent))}
    a, b = _TOKEN.findall(came), _TOKEN.findall(sent)
    same = _common(a, b)
    last = _common(a[same:][::-1], b[same:][::-1])
    begin, a, b = len("".join(a[:same])), a[same : len(a) - last], b[same : len(b) - last]
    counts, blocks = Counter(b), [("replace", 0, len(a), 0, len(b))]
    if sum(counts[token] for token in a) <= PAIRS_MAX:
        blocks = list[tuple[str, int, int, int, int]](SequenceMatcher(None, a, b, autojunk=False).get_opcodes())
    found: dict[str, list[list[int]]] = {"in": [], "out": []}
    at_a = at_b = begin
    for how, i, end_i, j, end_j in blocks:
        begin_a, begin_b = at_a, at_b
        at_a, at_b = at_a + len("".join(a[i:end_i])), at_b + len("".join(b[j:end_j]))
        if how != "equal":
            found["in"] += _range(came, begin_a, at_a)
            found["out"] += _range(sent, begin_b, at_b)
    return found


def _common(a: list[str], b: list[str]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))))


def _range(text: str, begin: int, end: int) -> list[list[int]]:
    if begin < end and not text.isascii():
        begin, end = (len(text[:at].encode("utf-16-le", "surrogatepass")) // 2 for at in (begin, end))
    return [[begin, end]] if begin < end else []
