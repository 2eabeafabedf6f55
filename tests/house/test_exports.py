"""Each name is public in one place: where it is defined, and there `__all__` says so."""

import ast
from collections.abc import Iterator

import pytest

from tests.house.tree import Module, modules


def targets(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module defines; what it imports is defined elsewhere."""
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Assign(targets=names):
            yield from (name.id for target in names for name in ast.walk(target) if isinstance(name, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.If(body=body, orelse=orelse) | ast.Try(body=body, orelse=orelse):
            yield from (name for inner in body + orelse for name in targets(inner))
        case _:
            return


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.place)
def test_all_names_what_is_public_here(module: Module) -> None:
    declared: list[str] = []
    for statement in module.syntax.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                declared = list(ast.literal_eval(value))
            case _:
                continue
    public = {name for statement in module.syntax.body for name in targets(statement) if not name.startswith("_")}
    assert len(declared) == len(set(declared))  # their order is ruff's business (RUF022)
    assert set(declared) == public
