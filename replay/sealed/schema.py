"""The members of each line of a sealed tape, as JSON Schema: checked here, and written to docs/sealed-tape.schema.json

`python -m wiretape.replay.sealed.schema` prints that file. A missing member is no error, except for the few without
which a line cannot be read, nor is an unknown one.
"""

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from wiretape.events.core.json_text import as_list, as_object, is_list, is_object

__all__ = ["HEADER", "LINES", "NORMALISED", "REQUIRED", "document", "wrong_members"]

#: What normalising renames or resets, as the header names it.
NORMALISED: Final = ("ids", "created", "fingerprint", "obfuscation", "request_ids", "rate_limits", "results", "ports")

_Schema = Mapping[str, Any]


def _list_of(items: _Schema, **more: int) -> _Schema:
    return {"type": "array", "items": items, **more}


def _with(*names: str) -> _Schema:
    return {"type": "object", "required": [*names]}


_TEXT: Final[_Schema] = {"type": "string"}
_COUNT: Final[_Schema] = {"type": "integer", "minimum": 0}
_STATUS: Final[_Schema] = {"type": "integer", "minimum": 100, "maximum": 999}
_NUMBER: Final[_Schema] = {"type": ["integer", "null"]}
_FLAG: Final[_Schema] = {"type": "boolean"}
_OBJECT: Final[_Schema] = {"type": "object"}
_LIST: Final[_Schema] = {"type": "array"}
_SHA256: Final[_Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_PAIRS: Final = _list_of(_list_of(_TEXT, minItems=2, maxItems=2))
_SUMS: Final = {"bytes": _COUNT, "sha256": _SHA256}
_CODED: Final = {"decoded": _TEXT, "unreadable": {"enum": ["coding", "damaged", "size"]}, **_SUMS}
_ENDINGS: Final = (
    "completed", "truncated", "reset", "stalled", "upstream_error", "refused", "protocol", "limit", "client_gone",
    "shutdown", "crashed", "internal",
)  # fmt: skip

#: Members of the first line.
HEADER: Final[Mapping[str, _Schema]] = MappingProxyType(
    {
        "exact": _FLAG,
        "recorded": {"type": ["string", "null"], "pattern": r"^\d{4}-\d\d-\d\d$"},
        "streams": _COUNT,
        "dialects": _list_of(_TEXT),
        "normalised": _list_of({"enum": sorted(NORMALISED)}),
        "redacted": {
            "type": "object",
            "properties": {
                "rules": _list_of({"enum": ["detector", "headers", "names", "shapes"]}),
                "paths": _list_of(_TEXT),
                "prompts": {"const": "sha256"},
            },
        },
        "max_age_days": {"type": "integer", "minimum": 1},
    }
)
#: Members of the lines of a stream, by kind.
LINES: Final[Mapping[str, Mapping[str, _Schema]]] = MappingProxyType(
    {
        "open": {"format": _COUNT, "stream": _TEXT, "dialect": _TEXT, "profile": _TEXT, "created": _COUNT,
                 "created_us": _COUNT, "settings": _OBJECT, "software": _TEXT, "route": _TEXT},
        "request": {"method": _TEXT, "path": _TEXT, "headers": _PAIRS, "key": _TEXT, "facts": _OBJECT,
                    "messages": _COUNT, "streamed": _FLAG, **_CODED},
        "attempt": {"number": _COUNT, "upstream": _TEXT, "unstreamed": _FLAG},
        "failed": {"attempt": _COUNT, "ending": _TEXT, "message": _TEXT, "status": _NUMBER, "next": _TEXT,
                   "after_ms": _COUNT, "framed": _FLAG, "broke": _TEXT},
        "head": {"status": _STATUS, "headers": _PAIRS, "framing": _TEXT, "length": _COUNT, "repeated": _FLAG, **_CODED},
        "results": {"results": _LIST, "after": _COUNT, "more": _COUNT, "request": _TEXT},
        "history": {"marks": _LIST, "edits": _LIST},
        "end": {"cause": _TEXT, "ending": {"enum": [*_ENDINGS]}, "flags": _list_of(_TEXT), "frames": _COUNT,
                "framed": _FLAG, "broke": _TEXT, "answer": _TEXT, **_SUMS},
        "fold": {"version": _COUNT, "ending": {"type": ["string", "null"]}, "flags": _list_of(_TEXT),
                 "answers": _list_of(_with("choice", "finish")),
                 "calls": _list_of(_with("choice", "id", "name", "state")), "usage": {"type": ["object", "null"]},
                 "warnings": _list_of(_with("code", "tools")), "status": _NUMBER, **_SUMS},
        "commit": {"status": _STATUS},
        "gone": {"at": _COUNT},
        "upload": {"part": _FLAG, **_SUMS},
    }
)  # fmt: skip
#: Members without which a line cannot be read.
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"head": ("status",), "end": ("cause",), "fold": ("ending", "flags")}
)


def wrong_members(kind: str, members: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the members of a line of this kind; `header` is the first line."""
    for name in REQUIRED.get(kind, ()):
        if name not in members:
            yield f"{name} is missing"
    for name, schema in (HEADER if kind == "header" else LINES.get(kind, {})).items():
        for inner, one in schema.get("properties", {}).items():
            if inner in as_object(members.get(name)) and not _holds(one, members[name][inner]):
                yield f"{name}.{inner} must be {_meaning(one)}"
        if name in members and not _holds({**schema, "properties": {}}, members[name]):
            yield f"{name} must be {_meaning(schema)}"


_TYPES: Final[Mapping[str, tuple[str, Any]]] = MappingProxyType(
    {
        "string": ("a text", str),
        "integer": ("a whole number", int),
        "boolean": ("true or false", bool),
        "object": ("an object", dict),
        "array": ("a list", list),
        "null": ("null", type(None)),
    }
)


def _holds(schema: _Schema, value: Any) -> bool:
    """Return whether a value is as the schema says; only the keywords above are known."""
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if choices is not None:
        return any(value == choice and type(value) is type(choice) for choice in choices)
    if type(value) not in {_TYPES[kind][1] for kind in as_list(schema["type"]) or [schema["type"]]}:
        return False
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    if type(value) is int:
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    if is_object(value):
        return all(name in value for name in schema.get("required", ()))
    if is_list(value):
        fits = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return fits and all("items" not in schema or _holds(schema["items"], each) for each in value)
    return True


def _meaning(schema: _Schema) -> str:
    if "const" in schema or "enum" in schema:
        return f"one of {', '.join(schema.get('enum') or [schema['const']])}"
    said = " or ".join(_TYPES[kind][0] for kind in as_list(schema["type"]) or [schema["type"]])
    if "maximum" in schema or "minimum" in schema:
        said += f" from {schema['minimum']}" + (f" to {schema['maximum']}" if "maximum" in schema else "")
    if "pattern" in schema:
        said += f" like {schema['pattern']}"
    if "items" in schema:
        said += f", each {_meaning(schema['items'])}"
    if "required" in schema:
        said += f" with {', '.join(schema['required'])}"
    return said


# -- the document -----------------------------------------------------------------------------------------------------


def _one_of_kinds(kinds: list[str], then: _Schema) -> _Schema:
    return {"if": {"properties": {"k": {"enum": kinds}}}, "then": then}


def document() -> str:
    """Return the JSON Schema of a line of a sealed tape, for docs/."""
    counts = {size: _list_of(_COUNT, minItems=size, maxItems=size) for size in (2, 3)}
    split = {"type": "array", "prefixItems": [{"enum": ["messages", "input", "tools"]}, _COUNT, {"enum": [",", ", "]}],
             "minItems": 3, "maxItems": 3}  # fmt: skip
    also = {"type": "array", "prefixItems": [_COUNT, _COUNT, {"enum": ["commit", "gone", "keepalive"]}, _OBJECT, _TEXT],
            "minItems": 4, "maxItems": 5}  # fmt: skip
    clock = {"type": "object", "additionalProperties": False, "properties": {
        "k": {"const": "clock"}, "lines": _list_of(_COUNT), "reads": _list_of(counts[3]), "late": _list_of(counts[2]),
        "uploads": _list_of(_list_of(counts[2], minItems=1)), "also": _list_of(also), "open": _OBJECT}}  # fmt: skip
    splits = {"anyOf": [_COUNT, _list_of(split, minItems=1), _with("own")]}
    blob = _with("blob", "as")
    kinds = [
        _one_of_kinds(
            ["frame", "rest", "answer", "uploaded", "text"],
            {"anyOf": [_with("data"), _with("raw"), _with("b64"), blob]},
        ),
        _one_of_kinds(["message", "item", "tool"], {"anyOf": [_with("data"), blob]}),
        _one_of_kinds(["clock"], clock),
    ]
    for kind, members in LINES.items():
        required = {"required": [*REQUIRED[kind]]} if kind in REQUIRED else {}
        more = {"split": splits} if kind == "request" else {}
        kinds.append(_one_of_kinds([kind], {**required, "properties": {**members, **more}}))
    exclusive = [["data", "raw"], ["data", "b64"], ["raw", "b64"], ["sse", "event"], ["c"], ["n"], ["t"]]
    line = {
        "type": "object",
        "required": ["k"],
        "properties": {"k": _TEXT, "raw": _TEXT, "b64": {"type": "string", "pattern": "^[A-Za-z0-9+/]*={0,2}$"},
                       "bom": {"const": True}, "blob": _SHA256, "as": {"enum": ["data", "raw", "b64"]}, "event": _TEXT,
                       "sse": _list_of(_TEXT, minItems=2, maxItems=2)},
        "not": {"anyOf": [{"required": names} for names in exclusive]},
        "allOf": kinds,
    }  # fmt: skip
    header = {"type": "object", "required": ["wiretape", "format"], "properties": {
        "wiretape": {"const": "sealed"}, "format": {"const": 1}, **HEADER}}  # fmt: skip
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "One line of a sealed tape, format 1. The first line of a file is a header, each other one a line.",
        "anyOf": [{"$ref": "#/$defs/header"}, {"$ref": "#/$defs/line"}],
        "$defs": {"header": header, "line": line},
    }
    return json.dumps(whole, indent=1) + "\n"


if __name__ == "__main__":
    print(document(), end="")  # noqa: T201
