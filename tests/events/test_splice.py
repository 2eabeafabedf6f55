"""JSON text in place: where its members are, each change, and several at once."""

import json
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.events.test_json_text import JSON_VALUES
from wiretape.events.core.json_text import ABSENT, Edit, Member, Path, apply, locate, members, parse

Op = tuple[Path, bytes | None]


def put(value: bytes, *path: str | int) -> Op:
    return path, value


def drop(*path: str | int) -> Op:
    return path, None


SPLICED: Final[dict[str, tuple[bytes, list[Op], bytes]]] = {
    "nothing": (b'{ "a" : 1 }', [], b'{ "a" : 1 }'),
    "drop the first member": (b'{"a":1,"b":2}', [drop("a")], b'{"b":2}'),
    "drop the last member": (b'{"a":1,"b":2}', [drop("b")], b'{"a":1}'),
    "drop one in the middle": (b'{"a":1, "b":2 ,"c":3}', [drop("b")], b'{"a":1 ,"c":3}'),
    "drop the only member": (b'{ "a":1 }', [drop("a")], b"{  }"),
    "drop all of three": (b'{"a":1, "b":2, "c":3}', [drop("c"), drop("a"), drop("b")], b"{}"),
    "drop the first two": (b'{"a":1, "b":2, "c":3}', [drop("a"), drop("b")], b'{"c":3}'),
    "drop the last two": (b'{"a":1, "b":2, "c":3}', [drop("b"), drop("c")], b'{"a":1}'),
    "drop first and last": (b'{"a":1, "b":2, "c":3}', [drop("a"), drop("c")], b'{"b":2}'),
    "drop every repetition": (b'{"a":1,"b":2,"a":3}', [drop("a")], b'{"b":2}'),
    "drop what is not there": (b'{"a":1}', [drop("b")], b'{"a":1}'),
    "set a member": (b'{"a": 1 ,"b":2}', [put(b"[9]", "a")], b'{"a": [9] ,"b":2}'),
    "set the last repetition": (b'{"a":1,"a":2}', [put(b"9", "a")], b'{"a":1,"a":9}'),
    "set what is not there": (b'{"a":1}', [put(b"9", "b")], b'{"b":9,"a":1}'),
    "set in an empty object": (b"{ }", [put(b"9", "b")], b'{"b":9 }'),
    "set two in an empty object": (b"{}", [put(b"9", "b"), put(b"8", "c")], b'{"b":9,"c":8}'),
    "set two that are not there": (b'{"a":1}', [put(b"9", "b"), put(b"8", "c")], b'{"b":9,"c":8,"a":1}'),
    "set where all else is dropped": (b'{"a":1,"d":2}', [drop("a"), put(b"9", "b"), drop("d")], b'{"b":9}'),
    "set a key that needs escapes": (b"{}", [put(b"9", '"é')], '{"\\"é":9}'.encode()),
    "an escaped key is found": (rb'{"\u0061":1}', [put(b"2", "a")], rb'{"\u0061":2}'),
    "a nested object": (b'{"a":[{},{"b":1}]}', [put(b"2", "a", 1, "b")], b'{"a":[{},{"b":2}]}'),
    "two nested objects": (
        b'{"a":[{"b":1},{"b":1}]}',
        [put(b"3", "a", 1, "b"), put(b"2", "a", 0, "b")],
        b'{"a":[{"b":2},{"b":3}]}',
    ),
    "the last repeated object": (b'{"a":{"b":1},"a":{"b":1}}', [drop("a", "b")], b'{"a":{"b":1},"a":{}}'),
    "spaces before the object": (b' \n{"a":1}', [drop("a")], b" \n{}"),
    "omit the first element": (b'{"a":[1, 2]}', [drop("a", 0)], b'{"a":[2]}'),
    "omit the last element": (b'{"a":[1, 2]}', [drop("a", 1)], b'{"a":[1]}'),
    "omit the only element": (b'{"a":[ 1 ]}', [drop("a", 0)], b'{"a":[  ]}'),
    "omit all": (b'{"a":[1,2,3]}', [drop("a", place) for place in (2, 0, 1)], b'{"a":[]}'),
    "omit next to an edit": (
        b'{"a":[{"b":1},{"b":1},3]}', [drop("a", 0), put(b"2", "a", 1, "b")], b'{"a":[{"b":2},3]}'
    ),
    "omit in two arrays": (
        b'{"a":[1],"b":[[2,3]]}', [drop("b", 0, 1), drop("a", 0)], b'{"a":[],"b":[[2]]}'
    ),
    "all at once": (
        b'{"id":1,"x":[0,{"k":true,"n":null}],"role":"r","o":{}}',
        [drop("role"), put(b"2", "id"), put(b"0", "x", 1, "m"),
         drop("x", 0), put(b"[]", "o", "new"), drop("x", 1, "n")],
        b'{"id":2,"x":[{"m":0,"k":true}],"o":{"new":[]}}',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("payload", "ops", "expected"), SPLICED.values(), ids=SPLICED.keys())
def test_splices(payload: bytes, ops: list[Op], expected: bytes) -> None:
    edits = locate(payload, dict(ops))
    assert apply(payload, edits) == expected
    json.loads(expected)
    assert edits == sorted(edits, key=lambda edit: (edit.start, edit.end))
    assert all(one.end <= other.start for one, other in pairwise(edits))


def test_edits_are_in_order_of_place() -> None:
    new: dict[Path, bytes | None] = {("a",): b"2", ("b",): None, ("c", 0): None, ("d",): b"1"}
    assert locate(b'{"a":1,"b":2,"c":[3]}', new) == [
        Edit(1, 1, b'"d":1,'),
        Edit(5, 6, b"2"),
        Edit(6, 12, b""),
        Edit(18, 19, b""),
    ]


KEYS: Final = st.sampled_from("abcd")


@given(value=st.dictionaries(KEYS, st.integers() | st.text() | st.lists(st.none()), max_size=4), data=st.data())
def test_any_ops_do_what_they_say(value: dict[str, Any], data: st.DataObject) -> None:
    expected, ops = dict(value), list[Op]()
    for key in data.draw(st.lists(KEYS, unique=True)):
        if data.draw(st.booleans()):
            ops.append(drop(key))
            expected.pop(key, None)
        else:
            ops.append(put(b"[0]", key))
            expected[key] = [0]
    spliced = apply(json.dumps(value).encode(), locate(json.dumps(value).encode(), dict(ops)))
    assert json.loads(spliced) == expected


# -- places -----------------------------------------------------------------------------------------------------------

MEMBERS: Final[dict[str, tuple[bytes, list[tuple[str, bytes]]]]] = {
    "none": (b"{}", []),
    "none but spaces": (b"{ \n}", []),
    "scalars": (b'{"a":1,"b":"x","c":null}', [("a", b"1"), ("b", b'"x"'), ("c", b"null")]),
    "spaces": (b'{ "a" :\t1 ,\r\n"b": -1.5e+3 }', [("a", b"1"), ("b", b"-1.5e+3")]),
    "nested": (b'{"a":{"b":[{}]},"c":[[],{"d":1}]}', [("a", b'{"b":[{}]}'), ("c", b'[[],{"d":1}]')]),
    "brackets and quotes in strings": (
        rb'{"a":"}\"{","b":["]","\\"],"c":{"}":"\\\""}}',
        [("a", rb'"}\"{"'), ("b", rb'["]","\\"]'), ("c", rb'{"}":"\\\""}')],
    ),
    "repeated keys": (b'{"a":1,"a":2}', [("a", b"1"), ("a", b"2")]),
    "escaped keys": (rb'{"\u0061":1,"\"":2,"\ud83d":3}', [("a", b"1"), ('"', b"2"), ("\ud83d", b"3")]),
    "keys beyond ASCII": ('{"é🐍":1}'.encode(), [("é🐍", b"1")]),
    "an empty key": (b'{"":""}', [("", b'""')]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), MEMBERS.values(), ids=MEMBERS.keys())
@pytest.mark.parametrize("before", [b"", b'[{"z":1},'], ids=["alone", "inside"])
def test_members(text: bytes, expected: list[tuple[str, bytes]], before: bytes) -> None:
    text = before + text + (b"]" if before else b"")
    found = members(text, len(before))
    assert [(member.key, text[member.value : member.end]) for member in found] == expected


def test_the_places_of_a_member() -> None:
    assert members(b'{ "a" : 12 }', 0) == [Member(key="a", start=2, value=8, end=10)]


ELEMENTS: Final[dict[str, tuple[bytes, list[bytes]]]] = {
    "none": (b"[]", []),
    "none but spaces": (b"[ \n]", []),
    "one": (b"[1]", [b"1"]),
    "some": (b'[1,"a",{},[],null]', [b"1", b'"a"', b"{}", b"[]", b"null"]),
    "spaces": (b'[ 1 , {"a": [2]}\t,\n[ ] ]', [b"1", b'{"a": [2]}', b"[ ]"]),
    "brackets in strings": (b'["]","[,"]', [b'"]"', b'"[,"']),
}


@pytest.mark.parametrize(("text", "expected"), ELEMENTS.values(), ids=ELEMENTS.keys())
@pytest.mark.parametrize(("before", "after"), [(b"", b""), (b'{"a":', b',"b":[7]}')], ids=["alone", "inside"])
def test_elements(text: bytes, expected: list[bytes], before: bytes, after: bytes) -> None:
    text = before + text + after
    assert [text[member.value : member.end] for member in members(text, len(before))] == expected


@given(value=st.dictionaries(st.text(st.characters()), JSON_VALUES, max_size=4), spaces=st.booleans())
def test_places_are_those_of_the_values(value: dict[str, Any], spaces: bool) -> None:
    text = json.dumps(value, indent=1 if spaces else None).encode()
    assert [(member.key, json.loads(text[member.value : member.end])) for member in members(text, 0)] == list(
        value.items()
    )
    text = json.dumps([*value.values()], indent=1 if spaces else None).encode()
    assert [json.loads(text[member.value : member.end]) for member in members(text, 0)] == list(value.values())


@pytest.mark.parametrize("text", [b'{"a":1', b'{"a":[1', b'{"a":1;'], ids=str)
def test_places_are_only_for_json(text: bytes) -> None:
    assert parse(text) is ABSENT
    with pytest.raises(AssertionError, match="only what parse accepted"):
        members(text, 0)
