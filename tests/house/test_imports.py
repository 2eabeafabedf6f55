"""Import rules that import-linter cannot express: the purity of events/."""

import ast
from collections.abc import Callable, Iterator

from tests.house.tree import ROOMS, Module, modules

# fmt: off
PURE = frozenset({
    "__future__", "abc", "array", "base64", "binascii", "bisect", "codecs", "collections", "collections.abc", "copy",
    "dataclasses", "enum", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "orjson", "re",
    "string", "struct", "types", "typing", "zlib",
})
# fmt: on
"""What events/ may import besides itself: no sockets, files, clocks, randomness, threads, tasks or logging."""

PURE_OF_IO = ("io", "StringIO")
"""Text in memory; all else in `io` opens files."""

IMPURE_CALLS = frozenset(
    {"__import__", "breakpoint", "compile", "eval", "exec", "hash", "id", "input", "open", "print"}
)
"""Builtins with side effects; `hash` of a string and `id` differ from run to run and would break L3."""

MUTABLE_TYPES = frozenset({"Counter", "array", "bytearray", "defaultdict", "deque", "dict", "list", "set"})
READ_ONLY = frozenset({"MappingProxyType", "frozenset", "tuple"})
READ_ONLY_TYPES = ("Final[Mapping[", "Final[Sequence[", "Final[Set[", "Final[Collection[", "Final[Iterable[")

COMPOSITION_ROOT = "proxy/cli/main.py"
"""The one module that imports a later package: it joins the verbs of proxy and replay."""

EVENTS = [module for module in modules() if module.room == "events"]


def violations(chosen: list[Module], rule: Callable[[Module], Iterator[str]]) -> dict[str, list[str]]:
    found = {module.place: list(rule(module)) for module in chosen}
    return {place: lines for place, lines in found.items() if lines}


def imported(module: Module) -> Iterator[tuple[str, str | None]]:
    """Yield every import anywhere in the file as (module, name taken from it), relative ones made absolute."""
    parts = module.name.split(".") if module.path.name == "__init__.py" else module.name.split(".")[:-1]
    for node in ast.walk(module.syntax):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = parts[: len(parts) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((source, alias.name) for alias in node.names)


def top_level_of(imported_module: str, name: str | None) -> str | None:
    parts = [*imported_module.split("."), *([name] if name else [])]
    return parts[1] if parts[0] == "wiretape" and len(parts) > 1 else None


def test_top_level_packages_import_only_earlier_ones() -> None:
    def later(module: Module) -> Iterator[str]:
        allowed = ROOMS if module.place == COMPOSITION_ROOT else ROOMS[: ROOMS.index(module.room) + 1]
        yield from (
            source for source, name in imported(module) if (top := top_level_of(source, name)) and top not in allowed
        )

    assert violations(list(modules()), later) == {}


def test_events_imports_only_pure_modules() -> None:
    def foreign(module: Module) -> Iterator[str]:
        yield from (
            source
            for source, name in imported(module)
            if top_level_of(source, name) is None and source not in PURE and (source, name) != PURE_OF_IO
        )

    assert violations(EVENTS, foreign) == {}


def test_events_neither_awaits_nor_has_side_effects() -> None:
    waits = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)

    def impure(module: Module) -> Iterator[str]:
        for node in ast.walk(module.syntax):
            call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
            if isinstance(node, (*waits, ast.Call)) and (call or not isinstance(node, ast.Call)):
                yield f"line {node.lineno}: {ast.unparse(node)[:60]}"

    assert violations(EVENTS, impure) == {}


def mutable_parts(value: ast.AST) -> Iterator[ast.expr]:
    """Yield the mutable containers in the value of a global, unless they are made read-only on the spot."""
    inside = value
    match value:
        case ast.Lambda():
            return
        case ast.Call(func=ast.Name(id=name), args=[argument]) if name in READ_ONLY:
            inside = argument
        case ast.Call(func=ast.Name(id=name)) if name in MUTABLE_TYPES:
            yield value
        case ast.Dict() | ast.List() | ast.Set() | ast.DictComp() | ast.ListComp() | ast.SetComp():
            yield value
        case _:
            pass
    for child in ast.iter_child_nodes(inside):
        yield from mutable_parts(child)


def test_events_has_no_mutable_global() -> None:
    def changeable(module: Module) -> Iterator[str]:
        for statement in module.syntax.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AnnAssign(target=ast.Name(id="__all__")):
                    continue
                case ast.AnnAssign(annotation=annotation) if ast.unparse(annotation).startswith(READ_ONLY_TYPES):
                    continue  # the type checkers refuse a change
                case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                    yield from (f"line {part.lineno}: {ast.unparse(part)[:60]}" for part in mutable_parts(value))
                case _:
                    continue
        for node in ast.walk(module.syntax):
            if isinstance(node, ast.Global):
                yield f"line {node.lineno}: global"

    assert violations(EVENTS, changeable) == {}
