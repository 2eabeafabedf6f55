"""The YAML of cassettes: every way of writing a value, and what is refused, with its line."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import dumps
from wiretape.replay.formats.tnetstring import read_all
from wiretape.replay.formats.yaml_subset import read_yaml

VALUES: list[tuple[str, Any]] = [
    ("", None),
    ("# nothing\n", None),
    ("---\na: 1\n", {"a": 1}),
    ("a: 1\n...\n", {"a": 1}),
    ("a:\nb: ~\nc: null\n", {"a": None, "b": None, "c": None}),
    ("a: true\nb: false\nc: yes\n", {"a": True, "b": False, "c": "yes"}),
    ("a: -12\nb: 1.5\nc: 1e5\nd: 012\ne: 123456789012345678901\n",
     {"a": -12, "b": 1.5, "c": "1e5", "d": "012", "e": 123456789012345678901}),
    ("a:\n- 1\n- b\n", {"a": [1, "b"]}),
    ("a:\n  - 1\n  -\n    b: 2\n  -\n", {"a": [1, {"b": 2}, None]}),
    ("- - 1\n  - 2\n- a: 1\n  b: 2\n", [[1, 2], {"a": 1, "b": 2}]),
    ("a: b # c\nd: e#f\n", {"a": "b", "d": "e#f"}),
    ("a: one\n  two\n\n  three\nb: 1\n", {"a": "one two\nthree", "b": 1}),
    ("a: 'it''s\n  folded\n\n  here'\n", {"a": "it's folded\nhere"}),
    ('a: "\\x41\\u00e9\\U0001F40D\\n\\t\\"\\\\ \\\n  \\ b"\n', {"a": 'Aé🐍\n\t"\\  b'}),
    ('a: "\\ud83d\\udc0d"\n', {"a": "🐍"}),
    ("a: |\n  one\n   two\n\n  three\n\nb: 1\n", {"a": "one\n two\n\nthree\n", "b": 1}),
    ("a: |-\n  one\nb: |+\n  two\n\nc: 1\n", {"a": "one", "b": "two\n\n", "c": 1}),
    ("a: |2\n   one\n  two\n", {"a": " one\ntwo\n"}),
    ("a: >\n  one\n  two\n\n  three\n    four\n  five\n", {"a": "one two\nthree\n  four\nfive\n"}),
    ("a: !!binary |\n  AAEC\n  AwQ=\n", {"a": b"\x00\x01\x02\x03\x04"}),
    ("a: !!str 1\nb: !!python/tuple [1, 2]\nc: !!int '3'\n", {"a": "1", "b": [1, 2], "c": 3}),
    ("a: {b: [1, 'x', \"y\"], c: , d}\ne: []\nf: {}\n",
     {"a": {"b": [1, "x", "y"], "c": None, "d": None}, "e": [], "f": {}}),
    ("a: [1,\n  # two\n  2]\n", {"a": [1, 2]}),
    ("a: &x [1]\nb: *x\nc: [*x]\n", {"a": [1], "b": [1], "c": [[1]]}),
    ("a: &x\n- 1\nb: *x\n", {"a": [1], "b": [1]}),
    ("'a b': 1\n\"c\": 2\nd e: 3\n", {"a b": 1, "c": 2, "d e": 3}),
    ("a: http://x/y?z=1:2\nb: -x\nc: ?y\nd: :z\n", {"a": "http://x/y?z=1:2", "b": "-x", "c": "?y", "d": ":z"}),
    ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_value(text: str, value: Any) -> None:
    assert read_yaml(text.encode()) == value


REFUSED = [
    (b"a: \xff", "byte 3: not UTF-8"),
    (b"a: b: c\n", "line 1: a colon inside"),
    (b"a: 1\n b: 2\n", "line 2"),
    (b"a: 1\n---\nb: 2\n", "line 2"),
    (b"a: 'b\n", "line 1: a quote that never ends"),
    (b'a: "\\q"\n', "escapes nothing"),
    (b'a: "\\xZZ"\n', "no character"),
    (b"a: 'b' c\n", "something behind"),
    (b"a: [1\n", "line 2: a comma or ] is due"),
    (b"a: {b: }: 1\n", "something behind"),
    (b"a: *b\n", "an alias of nothing"),
    (b"a: %b\n", "no value begins so"),
    (b"? a\n: b\n", "no value begins so"),
    (b"a:\n\t- 1\n", "line 2: a tab"),
    (b"a: !!binary '%%%'\n", "no base64"),
    (b"a: !!python/object/apply:os.system ['true']\n", "objects of a program are never made"),
    (b"a: !custom b\n", "the tag"),
    (b"- " * 80 + b"a\n", "nested too deeply"),
    (b"a: " + b"[" * 80, "nested too deeply"),
    (b"a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n"
     + b"".join(b"%c: &%c [%b]\n" % (98 + n, 98 + n, b", ".join([b"*%c" % (97 + n)] * 8)) for n in range(9)),
     "more than 2000000 values"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "said"), REFUSED)
def test_what_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(TapeError, match=said.replace("]", r"\]")):
        read_yaml(data)


@pytest.mark.parametrize("version", ["%YAML 1.1", "%YAML 1.2"])
def test_the_version_of_yaml_may_stand_before_the_document(version: str) -> None:
    """Seen: a cassette that says it was refused as having no document."""
    assert read_yaml(f"{version}\n---\na: 1\n".encode()) == {"a": 1}
    for other in ("%TAG ! tag:x,2000:", "%YAML 2.0", f"{version}\na: 1"):
        with pytest.raises(TapeError, match="line 1"):
            read_yaml(f"{other}\n---\na: 1\n".encode())


@given(st.text(alphabet="ab:-#'\"[]{},&*!|>%@`?\\ \n\t01", max_size=60))
def test_any_text_is_a_value_or_refused(text: str) -> None:
    with suppress(TapeError):
        read_yaml(text.encode())


@given(st.recursive(st.integers() | st.booleans() | st.none() | st.text(max_size=5), st.lists, max_leaves=8))
def test_json_on_one_line_is_yaml(value: Any) -> None:
    assert read_yaml(b"a: " + dumps(value).replace(b"\\/", b"/") + b"\n") == {"a": value}


NETSTRINGS: list[tuple[bytes, list[Any]]] = [
    (b"", []),
    (b"3:abc,", [b"abc"]),
    ("5:Grü!;".encode(), ["Grü!"]),
    (b"2:42#3:1.5^4:true!5:false!0:~", [42, 1.5, True, False, None]),
    (b"8:1:a,1:b,]", [[b"a", b"b"]]),
    (b"8:1:a;1:1#}", [{"a": 1}]),
]


@pytest.mark.parametrize(("data", "values"), NETSTRINGS)
def test_a_netstring(data: bytes, values: list[Any]) -> None:
    assert read_all(data) == values


@pytest.mark.parametrize(
    "data",
    [
        b"a",
        b":",
        b"3:ab,",
        b"3:abc",
        b"1:x#",
        b"1:x^",
        b"1:x!",
        b"1:x~",
        b"1:x?",
        b"4:1:a,}",
        b"99999999999999:,",
        b"1:\xff;x",
    ],
)
def test_what_is_no_netstring(data: bytes) -> None:
    with pytest.raises(TapeError, match="byte"):
        read_all(data)


def test_a_netstring_nests_so_deep_and_no_deeper() -> None:
    data = b"0:~"
    for _ in range(40):
        data = b"%d:%b]" % (len(data), data)
    with pytest.raises(TapeError, match="nested too deeply"):
        read_all(data)
