"""A name is public in the module that defines it, and `__all__` lists it; every name of a `limits` module is public."""

import ast
from collections.abc import Iterator

from tests.house.tree import Module, modules


def targets(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module defines, imports excluded."""
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


def wrong_names(module: Module) -> set[str]:
    """Return public names missing in `__all__`, and names in `__all__` that are not defined or doubled."""
    declared: list[str] = []
    for statement in module.syntax.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                declared = list(ast.literal_eval(value))
            case _:
                continue
    public = {name for statement in module.syntax.body for name in targets(statement) if not name.startswith("_")}
    doubled = {name for name in declared if declared.count(name) > 1}
    return (public ^ set(declared)) | doubled


def test_all_lists_exactly_the_public_names() -> None:
    wrong = {module.place: wrong_names(module) for module in modules() if not module.place.endswith("limits.py")}
    assert {place: names for place, names in wrong.items() if names} == {}
