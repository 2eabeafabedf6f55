"""What `check` says of members of a wrong type: exactly where the JSON Schema refuses them."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.test_check import GOOD, TODAY
from tests.replay.test_sealed_format import SCHEMA, holds
from tests.support.make_sealed import SEALED
from wiretape.events.core.json_text import dumps
from wiretape.replay.check import check
from wiretape.replay.sealed.expected import expected
from wiretape.replay.sealed.load import parse
from wiretape.replay.sealed.schema import HEADER, LINES, REQUIRED, wrong_members

pytestmark = pytest.mark.slow

#: Of each kind the members that a fixture has; kinds that none has, as a recorder writes them.
SAID: Final[dict[str, dict[str, Any]]] = {
    "header": {"wiretape": "sealed", "format": 1, "redacted": {"rules": ["names"], "paths": [], "prompts": "sha256"}},
    "commit": {"k": "commit", "status": 200},
    "gone": {"k": "gone", "at": 3},
    "history": {"k": "history", "marks": [], "edits": []},
    "results": {"k": "results", "results": [], "after": 1},
    "upload": {"k": "upload", "bytes": 3, "sha256": "a" * 64, "part": True},
}
for _tape in SEALED.values():
    first, *others = _tape.splitlines()
    SAID["header"] = {**json.loads(first), **SAID["header"]}
    for _line in others:
        _said = json.loads(_line)
        if _said["k"] in LINES:
            _kept = {name: value for name, value in _said.items() if name not in ("data", "raw", "b64", "split")}
            SAID[_said["k"]] = {**SAID.get(_said["k"], {}), **_kept}

_SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 1_100),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: not value.is_integer()),
    st.sampled_from(
        ["", "x", "completed", "sha256", "coding", "ids", "names", "a" * 64, "A" * 64, "2026-11-18", "18.11."]
    ),
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


def test_every_kind_is_there() -> None:
    assert SAID.keys() == {"header", *LINES}
    assert REQUIRED.keys() <= LINES.keys()
    for kind, said in SAID.items():
        assert list(wrong_members(kind, said)) == []
        assert holds(_schema(kind), said), kind


def _schema(kind: str) -> Any:
    return SCHEMA["$defs"]["header" if kind == "header" else "line"]


@pytest.mark.parametrize("kind", sorted(SAID))
@given(data=st.data())
def test_it_is_what_the_schema_says(kind: str, data: st.DataObject) -> None:
    names = sorted(
        {*(HEADER if kind == "header" else LINES[kind]), *SAID[kind]} - {"k", "wiretape", "format"} | {"novel"}
    )
    said = {**SAID[kind], data.draw(st.sampled_from(names)): data.draw(_ANY)}
    assert (list(wrong_members(kind, said)) == []) == holds(_schema(kind), said)
    missing = data.draw(st.sampled_from([name for name in SAID[kind] if name not in ("k", "wiretape", "format")]))
    said.pop(missing, None)
    assert (list(wrong_members(kind, said)) == []) == holds(_schema(kind), said)


@pytest.mark.parametrize("name", ["rules", "paths", "prompts"])
@given(value=_ANY)
def test_what_was_redacted(name: str, value: Any) -> None:
    said = {**SAID["header"], "redacted": {name: value}}
    assert (list(wrong_members("header", said)) == []) == holds(_schema("header"), said)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (b'"head","status":200', b'"head","status":"200"', 7, "head: status is no number from 100 to 999"),
        (b'"head","status":200', b'"head","status":0', 7, "head: status is no number from 100 to 999"),
        (b'"head","status":200,', b'"head",', 7, "head: status is missing"),
        (b'"exact":false', b'"exact":0', 1, "the header: exact is neither true nor false"),
        (b'"recorded":"', b'"recorded":"on ', 1, "the header: recorded is no day"),
        (b'"method":"POST"', b'"method":7', 4, "request: method is no text"),
        (b'"number":1', b'"number":true', 6, "attempt: number is no whole number from 0"),
    ],
)
def test_check_says_where(old: bytes, new: bytes, line: int, message: str) -> None:
    data = GOOD.replace(old, new, 1)
    assert data != GOOD
    found = [(each.line, each.message) for each in check(Path("a.tape"), data, TODAY) if each.code == "member"]
    assert found == [(line, message)]


def test_a_status_that_is_no_number_comes_to_none() -> None:
    data = GOOD.replace(b'"dialect":"chat"', b'"dialect":""', 1).replace(
        b'"head","status":200', b'"head","status":{"a":1}'
    )
    [records] = parse(data, verify=False).streams
    assert expected(records)["status"] is None


@given(st.sampled_from([b'"status":', b'"flags":', b'"method":', b'"headers":', b'"exact":', b'"number":']), _ANY)
def test_any_member_of_any_type_ends_nothing(name: bytes, value: Any) -> None:
    at = GOOD.index(name) + len(name)
    _, end = json.JSONDecoder().raw_decode(GOOD[at:].decode())
    check(Path("a.tape"), GOOD[:at] + dumps(value) + GOOD[at:][len(GOOD[at:].decode()[:end].encode()) :], TODAY)
