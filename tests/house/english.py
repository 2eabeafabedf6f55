"""Find words that docs/style bans: `python -m tests.house.english [path ...]` prints each place and fails on any.

Reads docstrings, comments and messages of the product, docstrings, comments and test names of the tests, and the docs.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import ROOMS, ROOT, present

BANNED = re.compile(
    r"\b(whoever|whatever|nobody|somebody|anew|beside|behind|stands|told|of it|is asked|is none|what is no|"
    r"comes? to)\b",
    re.IGNORECASE,
)
PLAIN = re.compile(r"behind (a|the) (reverse )?proxy|(far|falls?|fell|fallen) behind")
"""A banned word in its ordinary sense."""
CODE = re.compile(r"`[^`]*`")
"""Code inside a line of a document."""

NOT_OURS = (
    "tests/bench/yardstick/",
    "tests/stories/clients/",
    "fixtures/",
    "docs/decisions/2026-11-18",
    "tests/house/english.py",
)


def spoken(source: str, *, messages: bool) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each comment, docstring, test name and, where wanted, message."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    tree = ast.parse(source)
    docstrings = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.add(id(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (messages or id(node) in docstrings):
            yield node.lineno, node.value


def found(place: str) -> Iterator[str]:
    """Yield one line for each banned word in a file."""
    text = (ROOT / place).read_text(encoding="utf-8")
    if place.endswith(".py"):
        pieces = spoken(text, messages=place.startswith(tuple(f"{room}/" for room in ROOMS)))
    else:
        pieces = ((number, CODE.sub("", line)) for number, line in enumerate(text.splitlines(), 1))
    for line, piece in pieces:
        for at, part in enumerate(piece.split("\n")):
            for match in BANNED.finditer(PLAIN.sub("", part)):
                yield f"{place}:{line + at}: {match.group(0)!r} in {part.strip()[:100]!r}"


def main(arguments: list[str]) -> int:
    wanted = tuple(str(Path(argument)) for argument in arguments) or ("",)
    places = [place for place in present() if place.endswith((".py", ".md")) and not place.startswith(NOT_OURS)]
    places = [place for place in places if place.startswith(wanted) and (ROOT / place).is_file()]
    lines = [line for place in sorted(places) for line in found(place)]
    print("\n".join(lines) or "plain English")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
