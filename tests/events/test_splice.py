"""Edits of JSON text in place: each action, several at once, and the same again without a search."""

import json
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretape.events.core.splice import Action, Edit, Op, Path, Splicer, apply, locate

DROP, SET, RENAME, QUOTE, OMIT = Action.DROP, Action.SET, Action.RENAME, Action.QUOTE, Action.OMIT


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
    "rename": (b'{"a" : 1}', [op(RENAME, "a", b"b")], b'{"b" : 1}'),
    "rename the last repetition": (b'{"a":1,"a":2}', [op(RENAME, "a", b"b")], b'{"a":1,"b":2}'),
    "rename to a key that needs escapes": (b'{"a":1}', [op(RENAME, "a", '"é'.encode())], '{"\\"é":1}'.encode()),
    "quote a number": (b'{"a":12}', [op(QUOTE, "a")], b'{"a":"12"}'),
    "quote an object": (b'{"a":{"b": "\xc3\xa9"}}', [op(QUOTE, "a")], b'{"a":"{\\"b\\": \\"\xc3\xa9\\"}"}'),
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
        [op(DROP, "role"), op(QUOTE, "id"), op(RENAME, "k", b"l", ("x", 1)), op(SET, "m", b"0", ("x", 1)),
         op(OMIT, path=("x", 0)), op(SET, "new", b"[]", ("o",)), op(DROP, "n", b"", ("x", 1))],
        b'{"id":"1","x":[{"m":0,"l":true}],"o":{"new":[]}}',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("payload", "ops", "expected"), SPLICED.values(), ids=SPLICED.keys())
def test_splices(payload: bytes, ops: list[Op], expected: bytes) -> None:
    edits = locate(payload, ops)
    assert apply(payload, edits) == expected
    assert Splicer([]).apply(payload, ops) == expected
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


@pytest.mark.parametrize("action", [RENAME, QUOTE], ids=str)
def test_what_is_not_there_cannot_be_renamed_or_quoted(action: Action) -> None:
    with pytest.raises(AssertionError, match="'b' is not there"):
        locate(b'{"a":1}', [op(action, "b", b"c")])


KEYS: Final = st.sampled_from("abcd")


@given(value=st.dictionaries(KEYS, st.integers() | st.text() | st.lists(st.none()), max_size=4), data=st.data())
def test_any_ops_do_what_they_say(value: dict[str, Any], data: st.DataObject) -> None:
    expected, ops = dict(value), list[Op]()
    for key in data.draw(st.lists(KEYS, unique=True)):
        action = data.draw(st.sampled_from([DROP, SET, QUOTE] if key in value else [DROP, SET]))
        ops.append(op(action, key, b"[0]"))
        if action is DROP:
            expected.pop(key, None)
        else:
            expected[key] = [0] if action is SET else json.dumps(value[key], indent=data.draw(st.none()))
    spliced = apply(json.dumps(value).encode(), locate(json.dumps(value).encode(), ops))
    assert json.loads(spliced) == expected


# -- the same again ---------------------------------------------------------------------------------------------------

HOLES: Final[list[tuple[Path, str]]] = [(("d",), "text"), (("d",), "other")]
OPS: Final = [op(DROP, "role", b"", ("d",)), op(SET, "z", b"0")]
FIRST: Final = b'{"d":{"role":"x","text":"one"},"z":1}'
EXPECTED: Final = b'{"d":{"text":"one"},"z":0}'

AGAIN: Final[dict[str, tuple[bytes, bytes | None]]] = {
    "the same": (FIRST, EXPECTED),
    "another text": (b'{"d":{"role":"x","text":"other words"},"z":1}', b'{"d":{"text":"other words"},"z":0}'),
    "no text": (b'{"d":{"role":"x","text":""},"z":1}', b'{"d":{"text":""},"z":0}'),
    "escapes": (rb'{"d":{"role":"x","text":"\"\\\n\u00e9"},"z":1}', rb'{"d":{"text":"\"\\\n\u00e9"},"z":0}'),
    "a backslash at its end": (rb'{"d":{"role":"x","text":"\\"},"z":1}', rb'{"d":{"text":"\\"},"z":0}'),
    "brackets in it": (b'{"d":{"role":"x","text":"}],{"},"z":1}', b'{"d":{"text":"}],{"},"z":0}'),
    "another role": (b'{"d":{"role":"y","text":"one"},"z":1}', None),
    "another end": (b'{"d":{"role":"x","text":"one"},"z":2}', None),
    "another member behind it": (b'{"d":{"role":"x","text":"one","role":"x"},"z":1}', None),
    "a member that ends alike": (b'{"d":{"role":"x","text":"one","role":"x"},"z":1}', None),
    "a text that ends and begins again": (b'{"d":{"role":"x","text":"one","role":"one"},"z":1}', None),
    "no string": (b'{"d":{"role":"x","text":null},"z":1}', None),
    "start and end overlap": (b'{"d":{"role":"x","text":"},"z":1}', None),
    "shorter than both": (b'{"d":{"role"},"z":1}', None),
    "empty": (b"", None),
}


@pytest.mark.parametrize(("payload", "expected"), AGAIN.values(), ids=AGAIN.keys())
def test_the_same_again(payload: bytes, expected: bytes | None) -> None:
    splicer = Splicer(HOLES)
    assert splicer.again(payload) is None
    assert list(splicer.ops) == []
    assert splicer.apply(FIRST, OPS) == EXPECTED
    assert splicer.ops is OPS
    assert splicer.again(payload) == expected
    if expected is not None:
        assert splicer.apply(payload, list(OPS)) == expected == apply(payload, locate(payload, OPS))


def test_other_ops_are_another_search() -> None:
    splicer = Splicer(HOLES)
    splicer.apply(FIRST, OPS)
    assert splicer.apply(FIRST, OPS[:1]) == b'{"d":{"text":"one"},"z":1}'
    assert splicer.ops == OPS[:1]
    assert splicer.again(FIRST) == b'{"d":{"text":"one"},"z":1}'
    assert splicer.apply(FIRST, OPS) == EXPECTED


def test_a_string_may_stand_in_another_object_than_one_that_is_missing() -> None:
    splicer = Splicer([(("x",), "text"), (("x", 0), "text"), (("d",), "text")])
    splicer.apply(FIRST, OPS)
    assert splicer.again(FIRST.replace(b"one", b"two")) == EXPECTED.replace(b"one", b"two")


def test_a_payload_that_differs_elsewhere_is_another_search() -> None:
    splicer = Splicer(HOLES)
    splicer.apply(FIRST, OPS)
    assert splicer.apply(b'{"d":{"role":"y","text":"one"},"z":1}', OPS) == EXPECTED
    assert splicer.again(b'{"d":{"role":"y","text":"2"},"z":1}') == b'{"d":{"text":"2"},"z":0}'
    assert splicer.again(FIRST) is None


HOLED: Final[dict[str, tuple[bytes, list[Op], bytes | None]]] = {
    # payload, ops, and the payload for which the same works again
    "the first hole is preferred": (b'{"d":{"other":"o","text":"t"}}', [], b'{"d":{"other":"o","text":"new"}}'),
    "the second where the first is missing": (b'{"d":{"other":"o"}}', [], b'{"d":{"other":"new"}}'),
    "the second where the first is no string": (
        b'{"d":{"text":null,"other":"o"}}', [], b'{"d":{"text":null,"other":"new"}}'
    ),
    "the second where the first is edited": (
        b'{"d":{"text":"t","other":"o"}}', [op(SET, "text", b'"x"', ("d",))], b'{"d":{"text":"t","other":"new"}}'
    ),
    "the second where the first is dropped": (
        b'{"d":{"text":"t","other":"o"}}', [op(DROP, "text", b"", ("d",))], b'{"d":{"text":"t","other":"new"}}'
    ),
    "the second where the first is inside an edit": (
        b'{"d":{"text":"t","other":"o"}}', [op(QUOTE, "text", b"", ("d",))], b'{"d":{"text":"t","other":"new"}}'
    ),
    "the last of repeated keys": (b'{"d":{"text":"t","text":"u"}}', [], b'{"d":{"text":"t","text":"new"}}'),
    "none where no hole is there": (b'{"d":{"x":"t"}}', [], None),
    "none where its object is missing": (b'{"x":{"text":"t"}}', [], None),
    "none where its object is none": (b'{"d":1}', [], None),
    "edits on both sides": (
        b'{"d":{"role":"x","text":"t","n":1}}',
        [op(DROP, "role", b"", ("d",)), op(SET, "n", b"2", ("d",)), op(SET, "y", b"3")],
        b'{"d":{"role":"x","text":"new","n":1}}',
    ),
    "an edit that touches its quotes": (
        b'{"d":{"text":"t","n":1}}', [op(DROP, "n", b"", ("d",))], b'{"d":{"text":"new","n":1}}'
    ),
    "a rename of its key": (b'{"d":{"text":"t"}}', [op(RENAME, "text", b"u", ("d",))], b'{"d":{"text":"new"}}'),
}  # fmt: skip


@pytest.mark.parametrize(("payload", "ops", "other"), HOLED.values(), ids=HOLED.keys())
def test_which_string_may_differ(payload: bytes, ops: list[Op], other: bytes | None) -> None:
    splicer = Splicer(HOLES)
    splicer.apply(payload, ops)
    if other is None:
        assert splicer.again(payload) is None
    else:
        assert splicer.again(other) == apply(other, locate(other, ops))
        assert splicer.again(payload) == apply(payload, locate(payload, ops))


TWO: Final = b'{"d":{"role":"x","other":"o","n":1,"text":"t"},"z":1}'
TWO_AGAIN: Final[dict[str, tuple[bytes, bytes | None]]] = {
    "both change": (
        b'{"d":{"role":"x","other":"longer","n":1,"text":""},"z":1}',
        b'{"d":{"other":"longer","n":1,"text":""},"z":0}',
    ),
    "one changes": (TWO.replace(b'"o"', b'"}"'), b'{"d":{"other":"}","n":1,"text":"t"},"z":0}'),
    "what stands between them does not change": (TWO.replace(b'"n":1', b'"n":2'), None),
    "nor what stands behind them": (TWO + b" ", None),
    "nor what stands before them": (TWO.replace(b'"x"', b'"y"'), None),
    "the second is no string": (TWO.replace(b'"t"', b"null"), None),
    "it ends in the first": (TWO[: TWO.index(b"o")], None),
    "it ends in the second": (TWO[: TWO.rindex(b't"') + 1], None),
}


@pytest.mark.parametrize(("payload", "expected"), TWO_AGAIN.values(), ids=TWO_AGAIN.keys())
def test_several_strings_may_differ(payload: bytes, expected: bytes | None) -> None:
    splicer = Splicer(HOLES)
    assert splicer.apply(TWO, OPS) == b'{"d":{"other":"o","n":1,"text":"t"},"z":0}'
    assert splicer.again(payload) == expected


@given(texts=st.lists(st.text(), min_size=2, max_size=5), role=st.booleans())
def test_again_is_the_same_as_the_search(texts: list[str], role: bool) -> None:
    splicer = Splicer(HOLES)
    for text in texts:
        payload = json.dumps({"d": {**({"role": "x"} if role else {}), "text": text}, "z": 1}).encode()
        expected = apply(payload, locate(payload, OPS))
        assert splicer.again(payload) in (None, expected)
        assert splicer.apply(payload, OPS) == expected
        assert splicer.again(payload) == expected
