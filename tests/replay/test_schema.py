"""Members of a wrong type: `check` reports exactly what the JSON Schema of the documentation refuses."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.test_check import GOOD, TODAY
from tests.replay.test_sealed_format import ROOT, SCHEMA, holds
from tests.support.make_sealed import SEALED
from wiretape.events.core.json_text import dumps
from wiretape.replay.check import check
from wiretape.replay.sealed.schema import HEADER, LINES, document, wrong_members

pytestmark = pytest.mark.slow

#: Members of each kind: those of a fixture, or as a recorder writes them.
MEMBERS: Final[dict[str, dict[str, Any]]] = {
    "header": {"wiretape": "sealed", "format": 1, "redacted": {"rules": ["names"], "paths": [], "prompts": "sha256"}},
    "commit": {"k": "commit", "status": 200},
    "gone": {"k": "gone", "at": 3},
    "history": {"k": "history", "marks": [], "edits": []},
    "results": {"k": "results", "results": [], "after": 1},
    "upload": {"k": "upload", "bytes": 3, "sha256": "a" * 64, "part": True},
}
for _tape in SEALED.values():
    _first, *_others = map(json.loads, _tape.splitlines())
    MEMBERS["header"] = {**_first, **MEMBERS["header"]}
    for _line in _others:
        if _line["k"] in LINES:
            _kept = {name: value for name, value in _line.items() if name not in ("data", "raw", "b64", "split")}
            MEMBERS[_line["k"]] = {**MEMBERS.get(_line["k"], {}), **_kept}

_SCALARS: Final = st.one_of(
    st.sampled_from([None, True, False, -1, 0, 1, 99, 100, 999, 1_000, 1.5]),
    st.sampled_from(["", "x", "completed", "sha256", "coding", "ids", "names", "a" * 64, "A" * 64, "2026-11-18"]),
)
_ANY: Final = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.lists(st.sampled_from(["a", "b"]), min_size=2, max_size=2), max_size=2),
        st.dictionaries(st.sampled_from(["choice", "finish", "code", "tools", "id", "name", "state"]), inner),
    ),
    max_leaves=8,
)


def test_the_schema_of_the_documentation_is_generated() -> None:
    assert (ROOT / "docs/sealed-tape.schema.json").read_text() == document()


@pytest.mark.parametrize("kind", sorted(MEMBERS))
@given(data=st.data())
def test_check_agrees_with_the_schema(kind: str, data: st.DataObject) -> None:
    schema = SCHEMA["$defs"]["header" if kind == "header" else "line"]
    names = sorted(
        {*(HEADER if kind == "header" else LINES[kind]), *MEMBERS[kind], "novel"} - {"k", "wiretape", "format"}
    )
    members = MEMBERS[kind]
    for change in range(2):
        assert (list(wrong_members(kind, members)) == []) == holds(schema, members)
        name = data.draw(st.sampled_from(names))
        members = {**members, name: data.draw(_ANY)} if change == 0 else {k: v for k, v in members.items() if k != name}


@pytest.mark.parametrize("name", ["rules", "paths", "prompts"])
@given(value=_ANY)
def test_check_agrees_with_the_schema_on_redacted(name: str, value: Any) -> None:
    members = {**MEMBERS["header"], "redacted": {name: value}}
    assert (list(wrong_members("header", members)) == []) == holds(SCHEMA["$defs"]["header"], members)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (b'"head","status":200', b'"head","status":"200"', 7, "head: status must be a whole number from 100 to 999"),
        (b'"head","status":200', b'"head","status":0', 7, "head: status must be a whole number from 100 to 999"),
        (b'"head","status":200,', b'"head",', 7, "head: status is missing"),
        (b'"exact":false', b'"exact":0', 1, "the header: exact must be true or false"),
        (b'"method":"POST"', b'"method":7', 4, "request: method must be a text"),
        (b'"number":1', b'"number":true', 6, "attempt: number must be a whole number from 0"),
    ],
)
def test_check_names_line_and_member(old: bytes, new: bytes, line: int, message: str) -> None:
    data = GOOD.replace(old, new, 1)
    assert data != GOOD
    found = [(each.line, each.message) for each in check(Path("a.tape"), data, TODAY) if each.code == "member"]
    assert found == [(line, message)]


@given(st.sampled_from([b'"status":', b'"flags":', b'"method":', b'"headers":', b'"exact":', b'"number":']), _ANY)
def test_check_survives_any_type(name: bytes, value: Any) -> None:
    at = GOOD.index(name) + len(name)
    _, end = json.JSONDecoder().raw_decode(GOOD[at:].decode())
    check(Path("a.tape"), GOOD[:at] + dumps(value) + GOOD[at:][len(GOOD[at:].decode()[:end].encode()) :], TODAY)
