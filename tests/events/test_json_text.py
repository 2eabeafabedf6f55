"""JSON as text: what is read and written, and where a second value begins."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wiretape.events.core.json_text import (
    ABSENT,
    Boundary,
    dumps,
    joined_surrogates,
    parse,
    values_at_most,
)
from wiretape.events.core.limits import JSON_NESTING_MAX, JSON_VALUES_MAX, TIMES_VALUES_MAX

INFINITY: Final = float("inf")

PARSED: Final[dict[str, tuple[bytes, Any]]] = {
    "an object": (b' {"a" : [1, 2.5, null, true, "\\u00e9"] } ', {"a": [1, 2.5, None, True, "é"]}),
    "null is JSON": (b"null", None),
    "the last of repeated keys": (b'{"a":1,"a":2}', {"a": 2}),
    "half an emoji": (b'"\\ud83d"', "\ud83d"),
    "the other half": (b'{"a":"x\\udc0d"}', {"a": "x\udc0d"}),
    "beyond a double": (b"[1e999,-1e999]", [INFINITY, -INFINITY]),
    "beyond a double, beside half an emoji": (b'["\\ud83d",1e999]', ["\ud83d", INFINITY]),
    "an integer beyond 64 bits, beside half an emoji": (b'["\\ud83d",%d]' % 10**30, ["\ud83d", 10**30]),
    "an integer as long as Python reads": (b'["\\ud83d",%b]' % (b"9" * 4299), ["\ud83d", 10**4299 - 1]),
    "an integer longer than Python reads": (b'["\\ud83d",1%b]' % (b"0" * 4299), ["\ud83d", INFINITY]),
    "a negative one": (b'["\\ud83d",-1%b]' % (b"0" * 4299), ["\ud83d", -INFINITY]),
    "NaN": (b"NaN", ABSENT),
    "NaN beside half an emoji": (b'["\\ud83d",NaN]', ABSENT),
    "Infinity beside half an emoji": (b'["\\ud83d",-Infinity]', ABSENT),
    "nothing": (b"", ABSENT),
    "spaces": (b"  ", ABSENT),
    "two values": (b"{}{}", ABSENT),
    "half a value": (b'{"a":', ABSENT),
    "a comma too many": (b"[1,]", ABSENT),
    "a BOM": (b"\xef\xbb\xbf{}", ABSENT),
    "not UTF-8": (b'"\xff"', ABSENT),
    "half an emoji in UTF-8": (b'"\xed\xa0\xbd"', ABSENT),
    "a raw control character": (b'"\n"', ABSENT),
    "[DONE]": (b"[DONE]", ABSENT),
}


@pytest.mark.parametrize(("text", "value"), PARSED.values(), ids=PARSED.keys())
def test_parses(text: bytes, value: Any) -> None:
    found = parse(text)
    assert found is value if value is ABSENT or value is None else found == value
    assert value is ABSENT or type(found) is type(value)


@pytest.mark.parametrize(
    ("unit", "bound"),
    [*((unit, JSON_VALUES_MAX) for unit in (b"[],", b"1,", b'"a,b",', b'{"a":[1]},')), (b"1,", TIMES_VALUES_MAX)],
)
def test_text_with_more_values_than_the_bound_is_not_parsed(unit: bytes, bound: int) -> None:
    signs = sum(map(unit.count, (b",", b"[", b"{")))
    most = (bound - 2) // signs  # with the bracket around them, and the first value
    fits, beyond = (b"[" + (unit * count)[:-1] + b" " * bound + b"]" for count in (most, most + 1))
    assert values_at_most(fits) <= bound < values_at_most(beyond + b",")
    assert len(parse(fits, bound)) == most
    assert parse(b"[" + (unit * (most + 1)) + b"1]", bound) is ABSENT


def nested(depth: int, inside: bytes = b"") -> bytes:
    return b"[" * depth + inside + b"]" * depth


HALF: Final = b'"\\ud83d"'
NESTED: Final = {
    "orjson reads 1,024 levels": (nested(1024), True),
    "1,025 levels are refused": (nested(1025), False),
    "half an emoji at limit-1": (nested(JSON_NESTING_MAX - 1, HALF), True),
    "half an emoji at the limit": (nested(JSON_NESTING_MAX, HALF), True),
    "half an emoji at limit+1": (nested(JSON_NESTING_MAX + 1, HALF), False),
    "objects count like arrays": (b'{"a":' * (JSON_NESTING_MAX + 1) + HALF + b"}" * (JSON_NESTING_MAX + 1), False),
    "many next to each other are not deep": (b"[%b%b]" % (b'[],{"a":[]},' * JSON_NESTING_MAX, HALF), True),
    "brackets in strings are none": (b'["%b",%b]' % (b'[{\\"' * JSON_NESTING_MAX, HALF), True),
    "brackets behind an unended string are none": (b'"' + b"[" * 1_000_000, False),
    "a million levels": (nested(1_000_000, HALF), False),
}


@pytest.mark.parametrize(("text", "readable"), NESTED.values(), ids=NESTED.keys())
def test_how_deep_is_read(text: bytes, readable: bool) -> None:
    assert (parse(text) is not ABSENT) == readable


def test_how_deep_does_not_hang_on_the_stack() -> None:
    """If the caller itself is too deep, the text is refused too, without an exception."""

    def deeper(levels: int) -> Any:
        return deeper(levels - 1) if levels else parse(nested(JSON_NESTING_MAX, HALF))

    assert deeper(200) is not ABSENT
    too_deep: Callable[[str], Any] = lambda _: deeper(10_000)  # noqa: E731 - so that its argument has a type
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wiretape.events.core.json_text._decode", too_deep)
        assert parse(HALF) is ABSENT


WRITTEN: Final[dict[str, tuple[Any, bytes]]] = {
    "compact": ({"a": [1, None, True, 2.5, "é"], "b": {}}, '{"a":[1,null,true,2.5,"é"],"b":{}}'.encode()),
    "half an emoji": ({"a": "é\ud83d", "b": [[], {}, {"c": 1}]}, rb'{"a":"\u00e9\ud83d","b":[[],{},{"c":1}]}'),
    "half an emoji as key": ({"\ud83d": 1, '"': 2}, rb'{"\ud83d":1,"\"":2}'),
    "half an emoji alone": ("\ud83d", rb'"\ud83d"'),
    "a huge integer": ([10**30, -(10**30)], b"[%d,%d]" % (10**30, -(10**30))),
    "infinity is no JSON": ([INFINITY, -INFINITY], b"[null,null]"),
    "infinity beside half an emoji": (["\ud83d", INFINITY, -INFINITY, 1.5], rb'["\ud83d",null,null,1.5]'),
    "nothing inside": (["\ud83d", [], {}], rb'["\ud83d",[],{}]'),
}  # fmt: skip


@pytest.mark.parametrize(("value", "text"), WRITTEN.values(), ids=WRITTEN.keys())
def test_writes(value: Any, text: bytes) -> None:
    assert dumps(value) == text


def test_what_is_read_can_be_written_however_deep() -> None:
    for depth in (200, 254, 255, 1000, 1024):
        assert dumps(parse(nested(depth, b"1"))) == nested(depth, b"1")


JSON_VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(value=JSON_VALUES)
def test_what_is_written_is_read_again(value: Any) -> None:
    text = dumps(value)
    assert json.loads(text) == value
    # orjson reads integers beyond 64 bits as floats; what it refuses is read whole.
    assert repr(parse(text)) == repr(json.loads(text)) or any(len(word) > 18 for word in text.split(b","))


@given(text=st.binary(max_size=30) | st.text('[]{}",:\\ue1 -.dN"', max_size=20).map(str.encode))
def test_reads_what_the_standard_library_reads(text: bytes) -> None:
    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        json.loads(text.decode(), parse_constant=refuse)
    except ValueError:
        assert parse(text) is ABSENT
    else:
        assert parse(text) is not ABSENT


SURROGATES: Final = {
    "none": ("aé🐍", "aé🐍"),
    "both halves": ("a\ud83d\udc0db", "a🐍b"),
    "the first half alone": ("a\ud83db", "a\ufffdb"),
    "the first half at the end": ("a\ud83d", "a\ufffd"),
    "the second half alone": ("\udc0db", "\ufffdb"),
    "the wrong order": ("\udc0d\ud83d", "\ufffd\ufffd"),
    "a BOM stays": ("\ufeff\ud83d\udc0d", "\ufeff🐍"),
}


@pytest.mark.parametrize(("text", "joined"), SURROGATES.values(), ids=SURROGATES.keys())
def test_joins_surrogates(text: str, joined: str) -> None:
    assert joined_surrogates(text) == joined


# -- second values ----------------------------------------------------------------------------------------------------

SECOND: Final[dict[str, tuple[list[str], int | None, int | None]]] = {
    # pieces -> the piece in which a second value opens, and where in it
    "one object": (['{"a":1}'], None, None),
    "two objects in one piece": (['{"a":1}{"b":2}'], 0, 7),
    "two objects in two pieces": (['{"a":1}', '{"b":2}'], 1, 0),
    "an object and an array": (["{}", " [1]"], 1, 1),
    "spaces between": (["{} \n", "\t {}"], 1, 2),
    "nested": (['{"a":{"b":[1,{}]}}', "{}"], 1, 0),
    "brackets in strings": (['{"a":"}{"}', "{}"], 1, 0),
    "quotes in strings": ([r'{"a":"\"}{"}', "{}"], 1, 0),
    "a string over pieces": (['{"a":"}', "{", '"}', "{}"], 3, 0),
    "a string over pieces ends in the piece of the second": (['{"a":"x', '}"}{}'], 1, 3),
    "an escape over pieces": (['{"a":"\\', '"}{', '"}', "{}"], 3, 0),
    "an escape over pieces, then the end in the same piece": (['{"a":"\\', '"{"}{}'], 1, 4),
    "two backslashes over pieces": (['{"a":"\\', '\\"}{}'], 1, 3),
    "two backslashes in one piece": (['{"a":"\\\\', '"}{}'], 1, 2),
    "three backslashes": (['{"a":"\\\\\\', '"}"}{}'], 1, 4),
    "a backslash in a piece of its own": (['{"a":"x', "\\", '"', '"}', "{}"], 4, 0),
    "an empty piece": (['{"a":"', "", '"}', "", "{}"], 4, 0),
    "single characters": ([*'{"a":"\\"}{"}', *" {"], 13, 0),
    "an unended object": (['{"a":{}', ',"b":{}'], None, None),
    "scalars open nothing": (["1", "{}"], None, None),
    "scalars and then a second": (["1", "{}", "{}"], 2, 0),
    "nothing": ([""], None, None),
    "an end before the beginning": (["}{}"], None, None),
}


@pytest.mark.parametrize(("pieces", "number", "place"), SECOND.values(), ids=SECOND.keys())
def test_where_a_second_value_opens(pieces: list[str], number: int | None, place: int | None) -> None:
    boundary = Boundary()
    found = [(at, found) for at, piece in enumerate(pieces) if (found := boundary.feed(piece)) is not None]
    assert found[:1] == ([] if number is None else [(number, place)])


def test_complete_says_that_nothing_is_open() -> None:
    boundary = Boundary()
    seen: list[bool] = []
    for piece in ["", " ", "{", '"a":"}', '"', ":[1", "]", "}", " "]:
        boundary.feed(piece)
        seen.append(boundary.complete)
    assert seen == [False, False, False, False, False, False, False, True, True]


@given(
    first=st.dictionaries(st.text(), JSON_VALUES, max_size=3), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4)
)
@example(first={"\\": '"}{'}, sizes=[1])
def test_a_second_value_is_found_however_the_text_is_cut(first: dict[str, Any], sizes: list[int]) -> None:
    text = json.dumps(first)
    boundary, at, fed = Boundary(), 0, 0
    both = text + '{"b":1}'
    while fed <= len(text):
        piece = both[fed : fed + sizes[at % len(sizes)]]
        found = boundary.feed(piece)
        assert found is None or fed + found == len(text)
        if found is not None:
            return
        fed, at = fed + len(piece), at + 1
    pytest.fail("the second value was not found")
