"""Scalars with their places: the same that a JSON reader finds, in any text."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wiretape.events.core.json_text import dumps, is_list, is_object
from wiretape.replay.sealed.texts import Path, scalars

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def leaves(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    if is_object(value):
        return [leaf for key, each in value.items() for leaf in leaves(each, (*path, key))]
    if is_list(value):
        return [leaf for at, each in enumerate(value) for leaf in leaves(each, (*path, at))]
    return [(path, value)]


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_each_scalar_has_its_place(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = [(each.path, json.loads(text[each.start : each.end])) for each in scalars(text) if each.sort != "name"]
    assert found == leaves(value)


@given(st.dictionaries(st.text(), st.integers(), max_size=5))
def test_names_have_the_path_of_their_value(value: dict[str, int]) -> None:
    text = dumps(value)
    named = [each for each in scalars(text) if each.sort == "name"]
    assert [(each.path, json.loads(text[each.start : each.end])) for each in named] == [((key,), key) for key in value]


@given(st.binary() | VALUES.map(dumps), st.integers(0, 40))
def test_cut_text_yields_scalars_within_it(text: bytes, at: int) -> None:
    for each in scalars(text[:at]):
        assert 0 <= each.start < each.end <= at
        torn = each.sort == "torn"
        assert not torn or each.end == len(text[:at])


def test_deep_path_keeps_its_beginning_and_end() -> None:
    found = list(scalars(b'{"a":' + b'["x",' * 50_000 + b'{"b":"y'))
    assert len(found) == 50_003
    assert found[-1].path == ("a", *[1] * 31, *[1] * 31, "b")
    assert max(len(each.path) for each in found) == 64
    assert found[60].path == ("a", *[1] * 59, 0), "what is as deep as people write is whole"


def test_torn_string_has_its_path() -> None:
    found = list(scalars(b'{"a":[1,{"b":"x\\"'))
    assert [(each.sort, each.path) for each in found][-1] == ("torn", ("a", 1, "b"))
