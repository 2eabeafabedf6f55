"""The form as a stranger reads it: the reader and the schema of the documentation, and tapes that are kept for ever."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.make_sealed import FOLDER, SEALED, STREAMS
from wiretape.events.core.json_text import as_list, is_list, is_object
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads
from wiretape.replay.seal import Rules, seal
from wiretape.replay.sealed.files import parse

ROOT: Final = Path(__file__).parents[2]
FIXTURES: Final = sorted(path for path in (ROOT / "fixtures").rglob("*.tape") if path.parent.name != "format-1")
SCHEMA: Final = json.loads((ROOT / "docs/reference/sealed-tape.schema.json").read_text())

# -- kept for ever ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SEALED))
def test_format_1_is_read(name: str) -> None:
    data = (FOLDER / f"{name}.tape").read_bytes()
    assert data == SEALED[name], "the script writes what is kept"
    found = parse(data)
    if found.header["exact"]:
        assert found.streams == [list(records) for records in STREAMS[name]]
    assert len(found.streams) == len(STREAMS[name])


# -- a reader without our code ----------------------------------------------------------------------------------------

_BLOCK: Final = re.compile(r"```python\n(.*?)```", re.DOTALL)


def strangers() -> Any:
    """Return the reader in docs/reference/sealed-tapes.md."""
    code = _BLOCK.findall((ROOT / "docs/reference/sealed-tapes.md").read_text())[-1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 36
    assert "wiretape" not in code
    names: dict[str, Any] = {}
    exec(compile(code, "docs/reference/sealed-tapes.md", "exec"), names)  # noqa: S102 - our own documentation
    return names["streams"]


def of_all_attempts(records: Iterable[Record]) -> list[tuple[int, bytes]]:
    """As `reads`, attempt by attempt."""
    found: list[tuple[int, bytes]] = []
    attempt: list[Record] = []
    for record in records:
        if record.kind == "attempt":
            found += reads(attempt)
            attempt = []
        attempt.append(record)
    return [*found, *reads(attempt)]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_documented_reader_reads_fixtures(path: Path) -> None:
    data = path.read_bytes()
    assert list(strangers()(data)) == [of_all_attempts(records) for records in parse(data, verify=False).streams]


# -- the schema -------------------------------------------------------------------------------------------------------

_TYPES: Final[dict[str, Any]] = {
    "string": str, "object": dict, "array": list, "boolean": bool, "null": type(None), "integer": int
}  # fmt: skip


def holds(schema: Any, value: Any) -> bool:
    """As much of JSON Schema 2020-12 as ours needs; what it does not know it refuses."""
    return all(_KEYWORDS[name](said, value, schema) for name, said in schema.items())


def _is(kind: str, value: Any) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean") == isinstance(value, bool)


_KEYWORDS: Final[Mapping[str, Callable[[Any, Any, Any], bool]]] = {
    **dict.fromkeys(("$schema", "$comment", "$defs", "then"), lambda _said, _value, _schema: True),
    "$ref": lambda said, value, _: holds(SCHEMA["$defs"][said.removeprefix("#/$defs/")], value),
    "type": lambda said, value, _: any(_is(kind, value) for kind in (said if is_list(said) else [said])),
    "properties": lambda said, value, _: (
        not is_object(value) or all(holds(each, value[name]) for name, each in said.items() if name in value)
    ),
    "additionalProperties": lambda said, value, schema: (
        said or not is_object(value) or value.keys() <= schema["properties"].keys()
    ),
    "items": lambda said, value, _: all(holds(said, each) for each in as_list(value)),
    "prefixItems": lambda said, value, _: all(
        holds(each, item) for each, item in zip(said, as_list(value), strict=False)
    ),
    "if": lambda said, value, schema: not holds(said, value) or holds(schema["then"], value),
    "const": lambda said, value, _: said == value and type(said) is type(value),
    "enum": lambda said, value, _: value in said,
    "required": lambda said, value, _: not is_object(value) or all(name in value for name in said),
    "minimum": lambda said, value, _: not isinstance(value, int) or value >= said,
    "maximum": lambda said, value, _: not isinstance(value, int) or value <= said,
    "minItems": lambda said, value, _: not is_list(value) or len(value) >= said,
    "maxItems": lambda said, value, _: not is_list(value) or len(value) <= said,
    "pattern": lambda said, value, _: not isinstance(value, str) or re.search(said, value) is not None,
    "not": lambda said, value, _: not holds(said, value),
    "allOf": lambda said, value, _: all(holds(each, value) for each in said),
    "anyOf": lambda said, value, _: any(holds(each, value) for each in said),
}


def wrong_lines(data: bytes) -> Sequence[bytes]:
    """Those that are not as the schema has them; the first is a header."""
    first, *others = data.splitlines(keepends=False) if b"\r" not in data else data.rstrip(b"\n").split(b"\n")
    wrong = [] if holds(SCHEMA["$defs"]["header"], json.loads(first)) else [first]
    return wrong + [line for line in others if not holds(SCHEMA["$defs"]["line"], json.loads(line))]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_fixtures_follow_the_schema(path: Path) -> None:
    assert wrong_lines(path.read_bytes()) == []


# -- size and differences ---------------------------------------------------------------------------------------------


def test_documentation_lists_normalisations_and_rules() -> None:
    said = (ROOT / "docs/reference/sealed-tapes.md").read_text()
    header = parse(seal(STREAMS["text"], Rules())).header
    assert header["normalised"] == [name for name in header["normalised"] if f"| `{name}` |" in said]
    assert header["redacted"]["rules"] == [name for name in header["redacted"]["rules"] if f"- `{name}`:" in said]
