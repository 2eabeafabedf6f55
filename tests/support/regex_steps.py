"""Count what a backtracking matcher does: each comparison of a character, the same on every machine

`steps` runs the same search as `re`, over the pattern as `re` parses it, without the shortcuts of its C code, so the
count grows as the time does, or faster. Places, captures and results are those of `re`; a test compares them.
"""

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

#: Private modules of `re`, stable from 3.11 to 3.13.
sre: Final[Any] = importlib.import_module("re._constants")
parser: Final[Any] = importlib.import_module("re._parser")

#: Continues after a node at a place; returns where the whole match ends, or -1.
_Next = Callable[[int], int]
_Node = Callable[[int, _Next], int]

#: A repeated group takes a few calls for each of its rounds.
_DEPTH: Final = 200_000
_WORD: Final = re.compile(r"\w")


class Steps:
    """One pattern over one text, with the number of steps so far."""

    def __init__(self, pattern: "re.Pattern[Any]", text: Sequence[Any]) -> None:
        self.count = 0
        self._text = text if isinstance(text, str) else bytes(text).decode("latin-1")
        self._groups: dict[int, tuple[int, int]] = {}
        self._flags = pattern.flags
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEPTH))
        source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
        self._root = self._sequence(_parsed(source, pattern.flags & ~re.UNICODE), pattern.flags)

    def match(self, at: int) -> int:
        """Return where a match that begins here ends, or -1."""
        self._groups.clear()
        return self._root(at, lambda end: end)

    def fullmatch(self) -> int:
        """Return where a match of the whole text ends, or -1."""
        return self._root(0, lambda end: end if end == len(self._text) else -1)

    def search(self, at: int) -> tuple[int, int]:
        """Return the first match from here, or (-1, -1)."""
        for start in range(at, len(self._text) + 1):
            self.count += 1
            if (end := self.match(start)) >= 0:
                return start, end
        return -1, -1

    def finditer(self) -> list[tuple[int, int]]:
        """Return all matches."""
        found: list[tuple[int, int]] = []
        at = 0
        while at <= len(self._text):
            start, end = self.search(at)
            if start < 0:
                break
            found.append((start, end))
            at = end if end > start else end + 1
        return found

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _sequence(self, items: Any, flags: int) -> _Node:
        nodes = [self._node(op, value, flags) for op, value in items]
        if not nodes:
            return lambda at, then: then(at)

        def run(number: int, at: int, then: _Next) -> int:
            if number == len(nodes) - 1:
                return nodes[number](at, then)
            return nodes[number](at, lambda end: run(number + 1, end, then))

        return nodes[0] if len(nodes) == 1 else lambda at, then: run(0, at, then)

    def _node(self, op: Any, value: Any, flags: int) -> _Node:
        if (accepts := _accepts(op, value, flags)) is not None:
            return self._char(accepts)
        if op is sre.BRANCH:
            return self._branch([self._sequence(each, flags) for each in value[1]])
        if op is sre.SUBPATTERN:
            group, on, off, inner = value
            return self._group(group, self._sequence(inner, (flags | on) & ~off))
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, inner = value
            if op is sre.POSSESSIVE_REPEAT:
                return self._atomic(self._repeat(low, high, inner, flags, greedy=True))
            return self._repeat(low, high, inner, flags, greedy=op is sre.MAX_REPEAT)
        if op is sre.ATOMIC_GROUP:
            return self._atomic(self._sequence(value, flags))
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return self._look(value[0], value[1], flags, wanted=op is sre.ASSERT)
        if op is sre.AT:
            return self._place(value, flags)
        assert op is sre.GROUPREF, op
        return self._again(value)

    def _char(self, accepts: Callable[[str], bool]) -> _Node:
        text, size = self._text, len(self._text)

        def node(at: int, then: _Next) -> int:
            self.count += 1
            return then(at + 1) if at < size and accepts(text[at]) else -1

        return node

    def _branch(self, nodes: Sequence[_Node]) -> _Node:
        def node(at: int, then: _Next) -> int:
            for each in nodes:
                if (end := each(at, then)) >= 0:
                    return end
            return -1

        return node

    def _group(self, group: int | None, inner: _Node) -> _Node:
        if group is None:
            return inner

        def node(at: int, then: _Next) -> int:
            def closed(end: int) -> int:
                before = self._groups.get(group)
                self._groups[group] = at, end
                if (result := then(end)) < 0:
                    self._groups.pop(group) if before is None else self._groups.__setitem__(group, before)
                return result

            return inner(at, closed)

        return node

    def _repeat(self, low: int, high: Any, inner: Any, flags: int, *, greedy: bool) -> _Node:
        most = len(self._text) + 1 if high is sre.MAXREPEAT else int(high)
        single = _accepts(inner[0][0], inner[0][1], flags) if len(inner) == 1 else None
        if single is not None:
            return self._run_of(low, most, single, greedy=greedy)
        body = self._sequence(inner, flags)

        def more(done: int, at: int, then: _Next) -> int:
            self.count += 1
            if done >= low and not greedy and (end := then(at)) >= 0:
                return end
            if done < most:
                further = body(at, lambda after: more(done + 1, after, then) if after > at or done < low else -1)
                if further >= 0:
                    return further
            return then(at) if done >= low and greedy else -1

        return lambda at, then: more(0, at, then)

    def _run_of(self, low: int, most: int, accepts: Callable[[str], bool], *, greedy: bool) -> _Node:
        text, size = self._text, len(self._text)

        def node(at: int, then: _Next) -> int:
            last = min(size, at + most)
            end = at
            while end < last and (greedy or end < at + low) and accepts(text[end]):
                end += 1
            self.count += end - at + 1
            if end < at + low:
                return -1
            while True:
                self.count += 1
                if (result := then(end)) >= 0:
                    return result
                if greedy:
                    end -= 1
                    if end < at + low:
                        return -1
                elif end < last and accepts(text[end]):
                    end += 1
                else:
                    return -1

        return node

    def _atomic(self, inner: _Node) -> _Node:
        def node(at: int, then: _Next) -> int:
            return then(end) if (end := inner(at, lambda end: end)) >= 0 else -1

        return node

    def _look(self, direction: int, inner: Any, flags: int, *, wanted: bool) -> _Node:
        body = self._sequence(inner, flags)
        back = inner.getwidth()[0] if direction < 0 else 0

        def node(at: int, then: _Next) -> int:
            self.count += 1
            found = at >= back and body(at - back, lambda end: end) >= 0
            return then(at) if found is wanted else -1

        return node

    def _place(self, kind: Any, flags: int) -> _Node:
        text, size = self._text, len(self._text)

        def is_word(at: int) -> bool:
            return 0 <= at < size and _WORD.match(text[at]) is not None

        def here(at: int) -> bool:
            if kind is sre.AT_BEGINNING and flags & re.MULTILINE:
                return at == 0 or text[at - 1] == "\n"
            if kind in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
                return at == 0
            if kind is sre.AT_END_STRING:
                return at == size
            if kind is sre.AT_END:
                return at == size or (at == size - 1 and text[at] == "\n")
            boundary = is_word(at - 1) != is_word(at)
            return boundary is (kind is sre.AT_BOUNDARY)

        def node(at: int, then: _Next) -> int:
            self.count += 1
            return then(at) if here(at) else -1

        return node

    def _again(self, group: int) -> _Node:
        def node(at: int, then: _Next) -> int:
            start, end = self._groups.get(group, (0, -1))
            self.count += max(1, end - start)
            said = self._text[start:end]
            return then(at + len(said)) if end >= 0 and self._text.startswith(said, at) else -1

        return node


@lru_cache(maxsize=256)
def _parsed(source: str, flags: int) -> Any:
    return parser.parse(source, flags)


def _accepts(op: Any, value: Any, flags: int) -> Callable[[str], bool] | None:
    """Return which characters a node of one character accepts; None for any other node."""
    if op not in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
        return None
    return _class(_source(op, value), flags & (re.IGNORECASE | re.DOTALL | re.ASCII))


def _source(op: Any, value: Any) -> str:
    if op is sre.ANY:
        return "."
    if op is sre.LITERAL:
        return f"[{_escaped(value)}]"
    if op is sre.NOT_LITERAL:
        return f"[^{_escaped(value)}]"
    said = ""
    for kind, each in value:
        if kind is sre.NEGATE:
            said = "^" + said
        elif kind is sre.RANGE:
            said += f"{_escaped(each[0])}-{_escaped(each[1])}"
        elif kind is sre.CATEGORY:
            said += _CATEGORIES[each]
        else:
            said += _escaped(each)
    return f"[{said}]"


_CATEGORIES: Final[dict[Any, str]] = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"


@lru_cache(maxsize=1024)
def _class(source: str, flags: int) -> Callable[[str], bool]:
    one = re.compile(source, flags)
    known: dict[str, bool] = {}

    def accepts(char: str) -> bool:
        found = known.get(char)
        if found is None:
            found = known[char] = one.match(char) is not None
        return found

    return accepts
