"""Edits of JSON text in place: each action, and several at once."""

import json
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretape.events.core.splice import Action, Edit, Op, Path, apply, locate

DROP, SET, OMIT = Action.DROP, Action.SET, Action.OMIT


def op(action: Action, key: str = "", value: bytes = b"", path: Path = ()) -> Op:
    return Op("r", path, action, key, value)


SPLICED: Final[dict[str, tuple[bytes, list[Op], bytes]]] = {
    "nothing": (b'{ "a" : 1 }', [], b'{ "a" : 1 }'),
    "drop the first member": (b'{"a":1,"b":2}', [op(DROP, "a")], b'{"b":2}'),
    "drop the last member": (b'{"a":1,"b":2}', [op(DROP, "b")], b'{"a":1}'),
    "drop one in the middle": (b'{"a":1, "b":2 ,"c":3}', [op(DROP, "b")], b'{"a":1 ,"c":3}'),
    "drop the only member": (b'{ "a":1 }', [op(DROP, "a")], b"{  }"),
    "drop all of three": (b'{"a":1, "b":2, "c":3}', [op(DROP, "c"), op(DROP, "a"), op(DROP, "b")], b"{}"),
    "drop the first two": (b'{"a":1, "b":2, "c":3}', [op(DROP, "a"), op(DROP, "b")], b'{"c":3}'),
    "drop the last two": (b'{"a":1, "b":2, "c":3}', [op(DROP, "b"), op(DROP, "c")], b'{"a":1}'),
    "drop first and last": (b'{"a":1, "b":2, "c":3}', [op(DROP, "a"), op(DROP, "c")], b'{"b":2}'),
    "drop every repetition": (b'{"a":1,"b":2,"a":3}', [op(DROP, "a")], b'{"b":2}'),
    "drop what is not there": (b'{"a":1}', [op(DROP, "b")], b'{"a":1}'),
    "set a member": (b'{"a": 1 ,"b":2}', [op(SET, "a", b"[9]")], b'{"a": [9] ,"b":2}'),
    "set the last repetition": (b'{"a":1,"a":2}', [op(SET, "a", b"9")], b'{"a":1,"a":9}'),
    "set what is not there": (b'{"a":1}', [op(SET, "b", b"9")], b'{"b":9,"a":1}'),
    "set in an empty object": (b"{ }", [op(SET, "b", b"9")], b'{"b":9 }'),
    "set two in an empty object": (b"{}", [op(SET, "b", b"9"), op(SET, "c", b"8")], b'{"b":9,"c":8}'),
    "set two that are not there": (b'{"a":1}', [op(SET, "b", b"9"), op(SET, "c", b"8")], b'{"b":9,"c":8,"a":1}'),
    "set where all else is dropped": (b'{"a":1,"d":2}', [op(DROP, "a"), op(SET, "b", b"9"), op(DROP, "d")], b'{"b":9}'),
    "set a key that needs escapes": (b"{}", [op(SET, '"é', b"9")], '{"\\"é":9}'.encode()),
    "an escaped key is found": (rb'{"\u0061":1}', [op(SET, "a", b"2")], rb'{"\u0061":2}'),
    "a nested object": (b'{"a":[{},{"b":1}]}', [op(SET, "b", b"2", ("a", 1))], b'{"a":[{},{"b":2}]}'),
    "two nested objects": (
        b'{"a":[{"b":1},{"b":1}]}',
        [op(SET, "b", b"3", ("a", 1)), op(SET, "b", b"2", ("a", 0))],
        b'{"a":[{"b":2},{"b":3}]}',
    ),
    "the last repeated object": (b'{"a":{"b":1},"a":{"b":1}}', [op(DROP, "b", path=("a",))], b'{"a":{"b":1},"a":{}}'),
    "spaces before the object": (b' \n{"a":1}', [op(DROP, "a")], b" \n{}"),
    "omit the first element": (b'{"a":[1, 2]}', [op(OMIT, path=("a", 0))], b'{"a":[2]}'),
    "omit the last element": (b'{"a":[1, 2]}', [op(OMIT, path=("a", 1))], b'{"a":[1]}'),
    "omit the only element": (b'{"a":[ 1 ]}', [op(OMIT, path=("a", 0))], b'{"a":[  ]}'),
    "omit all": (b'{"a":[1,2,3]}', [op(OMIT, path=("a", place)) for place in (2, 0, 1)], b'{"a":[]}'),
    "omit beside an edit": (
        b'{"a":[{"b":1},{"b":1},3]}', [op(OMIT, path=("a", 0)), op(SET, "b", b"2", ("a", 1))], b'{"a":[{"b":2},3]}'
    ),
    "omit in two arrays": (
        b'{"a":[1],"b":[[2,3]]}', [op(OMIT, path=("b", 0, 1)), op(OMIT, path=("a", 0))], b'{"a":[],"b":[[2]]}'
    ),
    "all at once": (
        b'{"id":1,"x":[0,{"k":true,"n":null}],"role":"r","o":{}}',
        [op(DROP, "role"), op(SET, "id", b"2"), op(SET, "m", b"0", ("x", 1)),
         op(OMIT, path=("x", 0)), op(SET, "new", b"[]", ("o",)), op(DROP, "n", b"", ("x", 1))],
        b'{"id":2,"x":[{"m":0,"k":true}],"o":{"new":[]}}',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("payload", "ops", "expected"), SPLICED.values(), ids=SPLICED.keys())
def test_splices(payload: bytes, ops: list[Op], expected: bytes) -> None:
    edits = locate(payload, ops)
    assert apply(payload, edits) == expected
    json.loads(expected)
    assert edits == sorted(edits, key=lambda edit: (edit.start, edit.end))
    assert all(one.end <= other.start for one, other in pairwise(edits))


def test_an_edit_carries_the_name_of_its_repair() -> None:
    ops = [
        Op("first", (), SET, "a", b"2"),
        Op("second", (), DROP, "b"),
        Op("third", ("c", 0), OMIT),
        Op("new", (), SET, "d", b"1"),
    ]
    assert locate(b'{"a":1,"b":2,"c":[3]}', ops) == [
        Edit("new", 1, 1, b'"d":1,'),
        Edit("first", 5, 6, b"2"),
        Edit("second", 6, 12, b""),
        Edit("third", 18, 19, b""),
    ]


KEYS: Final = st.sampled_from("abcd")


@given(value=st.dictionaries(KEYS, st.integers() | st.text() | st.lists(st.none()), max_size=4), data=st.data())
def test_any_ops_do_what_they_say(value: dict[str, Any], data: st.DataObject) -> None:
    expected, ops = dict(value), list[Op]()
    for key in data.draw(st.lists(KEYS, unique=True)):
        action = data.draw(st.sampled_from([DROP, SET]))
        ops.append(op(action, key, b"[0]"))
        if action is DROP:
            expected.pop(key, None)
        else:
            expected[key] = [0]
    spliced = apply(json.dumps(value).encode(), locate(json.dumps(value).encode(), ops))
    assert json.loads(spliced) == expected
