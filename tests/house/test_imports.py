"""Who may import whom, and what the pure room may never hold."""

import ast
from collections.abc import Iterator

import pytest

from tests.house.tree import ROOMS, Module, modules

# fmt: off
PURE = frozenset({
    "__future__", "abc", "array", "base64", "binascii", "bisect", "codecs", "collections", "collections.abc", "copy",
    "dataclasses", "enum", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "orjson", "re",
    "string", "struct", "types", "typing", "zlib",
})
# fmt: on
"""What events/ may import besides itself: no socket, file, clock, chance, thread, task or log among it."""

IMPURE_CALLS = frozenset(
    {"__import__", "breakpoint", "compile", "eval", "exec", "hash", "id", "input", "open", "print"}
)
"""Builtins that reach the world; `hash` of a string and `id` differ from run to run, so L3 would not hold."""

MUTABLE_TYPES = frozenset({"Counter", "array", "bytearray", "defaultdict", "deque", "dict", "list", "set"})
READ_ONLY = frozenset({"MappingProxyType", "frozenset", "tuple"})
READ_ONLY_TYPES = ("Final[Mapping[", "Final[Sequence[", "Final[Set[", "Final[Collection[", "Final[Iterable[")

DIALECTS = ("events/chat/", "events/responses/", "events/messages/")
SPEAKERS = (*DIALECTS, "replay/faults/dialect_words.py")
"""A recording is cut, and made to fail, in the words of its dialect: one file of that room knows them, of all three."""

VENDOR_WORDS = ("choices", "tool_calls", "content_block_delta")

COMPOSITION_ROOT = "proxy/cli/main.py"
"""The one file that looks downstream: it joins the commands of both rooms."""

EVENTS = [module for module in modules() if module.room == "events"]


def each(chosen: list[Module]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("module", chosen, ids=lambda module: module.place)


def imported(module: Module) -> Iterator[tuple[str, str | None]]:
    """Every import anywhere in the file, as (module, name taken from it), relative ones made absolute."""
    parts = module.name.split(".") if module.path.name == "__init__.py" else module.name.split(".")[:-1]
    for node in ast.walk(module.syntax):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = parts[: len(parts) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((source, alias.name) for alias in node.names)


def room_of(imported_module: str, name: str | None) -> str | None:
    parts = [*imported_module.split("."), *([name] if name else [])]
    return parts[1] if parts[0] == "wiretape" and len(parts) > 1 else None


@each(list(modules()))
def test_a_room_imports_only_itself_and_the_rooms_upstream(module: Module) -> None:
    allowed = ROOMS if module.place == COMPOSITION_ROOT else ROOMS[: ROOMS.index(module.room) + 1]
    rooms = {room for source, name in imported(module) if (room := room_of(source, name))}
    assert rooms <= set(allowed), f"{module.place} looks downstream"


@each(EVENTS)
def test_the_pure_room_imports_nothing_that_reaches_the_world(module: Module) -> None:
    foreign = {source for source, name in imported(module) if room_of(source, name) is None}
    assert foreign <= PURE, f"{module.place} reaches out"


@each(EVENTS)
def test_the_pure_room_neither_waits_nor_asks_the_world(module: Module) -> None:
    waits = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    impure = [
        f"line {node.lineno}: {ast.unparse(node)[:60]}"
        for node in ast.walk(module.syntax)
        if isinstance(node, waits)
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS)
    ]
    assert not impure


def mutable_parts(value: ast.AST) -> Iterator[ast.expr]:
    """What could be changed later in the value of a global: containers, unless made read-only on the spot."""
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


@each(EVENTS)
def test_the_pure_room_keeps_no_global_that_can_change(module: Module) -> None:
    changeable: list[str] = []
    for statement in module.syntax.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AnnAssign(target=ast.Name(id="__all__")):
                continue
            case ast.AnnAssign(annotation=annotation) if ast.unparse(annotation).startswith(READ_ONLY_TYPES):
                continue  # the type checkers refuse a change
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                changeable += [f"line {part.lineno}: {ast.unparse(part)[:60]}" for part in mutable_parts(value)]
            case _:
                continue
    rebound = [f"line {node.lineno}: global" for node in ast.walk(module.syntax) if isinstance(node, ast.Global)]
    assert not changeable + rebound


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every literal text of a file with its line; prose (a string that stands alone) is left out."""
    prose = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as text) if node not in prose:
                yield node.lineno, text
            case ast.Constant(value=bytes() as text):
                yield node.lineno, text.decode("latin-1")
            case _:
                continue


@each([module for module in modules() if not module.place.startswith(SPEAKERS)])
def test_only_a_dialect_speaks_its_vendor(module: Module) -> None:
    spoken = [(line, text) for line, text in literals(module.syntax) for word in VENDOR_WORDS if word in text]
    assert not spoken, f"{module.place} knows a word of the wire that only {', '.join(DIALECTS)} may know"
