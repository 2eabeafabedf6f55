"""Packages have one sentence, the same in their docstring and in docs/internals/layout.md, and stay small."""

import ast
import re

from tests.house.tree import ROOMS, ROOT, Module, modules, tracked

MODULE_LINES_MAX = 700
"""Raw lines, docstrings and comments included."""

PACKAGE_MODULES_MAX = 12
"""Without `__init__.py`."""

FUNCTION_LINES_MAX = 60
"""With its docstring and signature; 5 to 40 is the aim."""

ROW = re.compile(r"^\| `((?:[a-z_]+/){2,})` \| (.+) \|$", re.MULTILINE)
LATER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def packages() -> dict[str, list[Module]]:
    found: dict[str, list[Module]] = {}
    for module in modules():
        found.setdefault(module.path.parent.relative_to(ROOT).as_posix(), []).append(module)
    return found


def summary(package: list[Module]) -> str:
    """Return the first line of the package's docstring, without its full stop."""
    (init,) = [module for module in package if module.path.name == "__init__.py"]
    return (ast.get_docstring(init.syntax) or "").partition("\n")[0].removesuffix(".")


def test_layout_page_lists_every_package_with_its_docstring() -> None:
    written = dict(ROW.findall((ROOT / "docs/internals/layout.md").read_text(encoding="utf-8")))
    assert written == {f"{name}/": summary(package) for name, package in packages().items() if name not in ROOMS}


def test_no_package_has_more_modules_than_the_limit() -> None:
    counts = {name: len(package) - 1 for name, package in packages().items()}
    assert {name: count for name, count in counts.items() if count > PACKAGE_MODULES_MAX} == {}


def test_no_module_is_longer_than_the_limit() -> None:
    lengths = {module.place: module.source.count("\n") for module in modules()}
    assert {place: lines for place, lines in lengths.items() if lines > MODULE_LINES_MAX} == {}


def test_no_function_is_longer_than_the_limit() -> None:
    lengths = {
        f"{module.place}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module in modules()
        for node in ast.walk(module.syntax)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


def test_nothing_is_left_for_later() -> None:
    sources = {place for place in tracked() if place.endswith((".py", ".toml", "Makefile"))}
    sources -= {"tests/house/test_layout.py"}  # which has to name the words
    assert [place for place in sorted(sources) if LATER.search((ROOT / place).read_text(encoding="utf-8"))] == []
