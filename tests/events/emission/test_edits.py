"""Edits of parsed JSON, and the styles in which it is written again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chat import DONE, frame, run, tape, text
from wiretape.events.core.json_text import ABSENT, dumps, parse
from wiretape.events.emission.frames import Edit, Styles, edited


@pytest.mark.parametrize(
    ("value", "edits", "after"),
    [
        ({"a": 1}, [], {"a": 1}),
        ({"a": 1, "b": 2}, [Edit("r", (), "a", ABSENT)], {"b": 2}),
        ({"a": 1}, [Edit("r", (), "b", ABSENT)], {"a": 1}),
        ({"a": 1}, [Edit("r", (), "b", 2), Edit("r", (), "c", 3)], {"b": 2, "c": 3, "a": 1}),
        ({"a": [{"b": 1}, {"b": 1}]}, [Edit("r", ("a", 1), "b", 2)], {"a": [{"b": 1}, {"b": 2}]}),
        ({"a": [0, {"b": 1}, 2]}, [Edit("r", ("a",), 0, ABSENT), Edit("r", ("a", 1), "b", 2)], {"a": [{"b": 2}, 2]}),
        ({"a": [1, 2, 3]}, [Edit("r", ("a",), 0, ABSENT), Edit("r", ("a",), 2, ABSENT)], {"a": [2]}),
    ],
)
def test_edits_change_a_copy(value: Any, edits: list[Edit], after: Any) -> None:
    before = json.dumps(value)
    new, changes = edited(value, edits)
    assert json.dumps(new) == json.dumps(after)
    assert json.dumps(value) == before
    assert all(change.before is not ABSENT or change.after is not ABSENT for change in changes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON, spaced=st.booleans(), ascii_only=st.booleans())
def test_style_writes_what_came(value: Any, *, spaced: bool, ascii_only: bool) -> None:
    separators = (", ", ": ") if spaced else (",", ":")
    payload = json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    given_value = parse(payload)
    if given_value is ABSENT:
        return
    write, exact, _ = Styles().of(payload, given_value)
    if exact is ABSENT:
        assert parse(write(given_value)) == given_value


@pytest.mark.parametrize(
    ("payload", "written"),
    [
        (b'{"a":1,"b":"\xc3\xa9"}', b'{"a":1,"b":"\xc3\xa9"}'),
        (b'{"a": 1, "b": "\xc3\xa9"}', b'{"a": 1, "b": "\xc3\xa9"}'),
        (b'{"a": 1, "b": "\\u00e9"}', b'{"a": 1, "b": "\\u00e9"}'),
        (b'{"a":1,"b":"\\u00e9"}', b'{"a":1,"b":"\\u00e9"}'),
        (b'{ "a" :1 }', b'{"a":1}'),
        (b'{ "a": 1}', b'{"a": 1}'),
        (b'{"a":"\\ud83d"}', b'{"a":"\\ud83d"}'),
    ],
)
def test_style_is_the_one_of_the_payload(payload: bytes, written: bytes) -> None:
    write, exact, _ = Styles().of(payload, parse(payload))
    assert (write(parse(payload)), exact) == (written, ABSENT)


def test_style_of_the_last_frame_is_tried_first() -> None:
    styles = Styles()
    assert styles.of(b'{"a": "\\u00e9"}', {"a": "\xe9"})[0]({"b": "\xe9"}) == b'{"b": "\\u00e9"}'
    assert styles.of(b'{"a": 1}', {"a": 1})[0]({"b": "\xe9"}) == b'{"b": "\\u00e9"}'


@pytest.mark.parametrize(
    ("payload", "written"),
    [
        (b'{"a":18446744073709551616}', b'{"a":18446744073709551616}'),
        (b'{"a":1e400,"b":4.95e-6}', b'{"a":1e400,"b":4.95e-6}'),
        (b'{"a":%b}' % (b"9" * 5_000), b'{"a":%b}' % (b"9" * 5_000)),
        (b'{"a":"\\u0026"}', b'{"a":"&"}'),
    ],
)
def test_payload_that_does_not_survive_the_round_trip_is_read_exactly(payload: bytes, written: bytes) -> None:
    write, exact, _ = Styles().of(payload, parse(payload))
    assert write(exact) == written


def test_payload_that_only_orjson_can_read_is_written_compact() -> None:
    payload = b'{"a": %b1.50%b}' % (b"[" * 1_000, b"]" * 1_000)
    assert Styles().of(payload, parse(payload)) == (dumps, ABSENT, ())


def test_ledger_says_reserialised_and_which_keys_repeat() -> None:
    odd = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","x":1e400,"x":4.95e-6,'
    odd += b'"choices":[{"index":0,"delta":{"role":"assistant","content":"b"},"finish_reason":null}]}\n\n'
    result = run(tape([text("a", role=True), odd, frame({}, "stop"), DONE]))
    assert b'"x":4.95e-6' in result.sent[1]
    assert result.repairs == ["reserialised", "key_repeated", "role_repeated"]
