"""A file has one sentence, the same in its docstring and in docs/layout.md, and is small enough to be read at once."""

import ast
import re

import pytest

from tests.rooms.tree import ROOT, Module, modules, tracked

FILE_LINES_MAX = 400
"""Lines of code: neither blank nor only a comment. The cores that we learned from have a biggest file of about 400."""

FUNCTION_LINES_MAX = 60
"""With its docstring and signature; aim at ten."""

ROW = re.compile(r"^\| `[^`]+\.py` \| .+ \|$", re.MULTILINE)
LATER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

each = pytest.mark.parametrize("module", modules(), ids=lambda module: module.place)


def code_lines(source: str) -> int:
    return sum(1 for line in source.splitlines() if line.strip() and not line.strip().startswith("#"))


def sentence(module: Module) -> str:
    """The first line of the docstring, without the full stop that ends it."""
    return (ast.get_docstring(module.syntax) or "").partition("\n")[0].removesuffix(".")


def test_the_table_of_the_layout_is_what_the_files_say() -> None:
    written = [row[0] for row in ROW.finditer((ROOT / "docs/layout.md").read_text(encoding="utf-8"))]
    said = [f"| `{module.place}` | {sentence(module)} |" for module in modules()]
    missing, wrong = set(said) - set(written), set(written) - set(said)
    assert not missing | wrong, "\n".join(["docs/layout.md: add", *sorted(missing), "and take out", *sorted(wrong)])
    assert len(written) == len(said), "a file has two rows"


@each
def test_a_file_is_small(module: Module) -> None:
    assert code_lines(module.source) <= FILE_LINES_MAX


@each
def test_its_functions_are_small(module: Module) -> None:
    functions = [node for node in ast.walk(module.syntax) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {f.name: f.end_lineno - f.lineno + 1 for f in functions if f.end_lineno}
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


def test_nothing_is_left_for_later() -> None:
    sources = {place for place in tracked() if place.endswith((".py", ".toml", "Makefile"))}
    sources -= {"tests/rooms/test_layout.py"}  # which has to name the words
    assert [place for place in sorted(sources) if LATER.search((ROOT / place).read_text(encoding="utf-8"))] == []
