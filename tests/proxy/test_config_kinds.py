"""Each kind of value at its bounds, as a table; refusals never say what was given."""

from pathlib import Path
from typing import Any

import pytest

from wiretape.proxy.config.kinds import Choice, Count, Kind, Names, OnOff, PathTo, Seconds, Size, Text

COUNT, OPEN_COUNT, SIZE, SPAN = Count(1, 10), Count(0, 5, "unlimited"), Size(1, "unlimited"), Seconds()

TAKEN: list[tuple[Kind, Any, Any]] = [
    (COUNT, 1, 1),
    (COUNT, "10", 10),
    (OPEN_COUNT, "unlimited", None),
    (OPEN_COUNT, 0, 0),
    (SIZE, 1, 1),
    (SIZE, 2**63 - 1, 2**63 - 1),
    (SIZE, "3", 3),
    (SIZE, "3 B", 3),
    (SIZE, "3KiB", 3072),
    (SIZE, "2 TiB", 2 * 1024**4),
    (SIZE, "unlimited", None),
    (SPAN, 0.001, 0.001),
    (SPAN, 604_800, 604_800.0),
    (SPAN, "1e2", 100.0),
    (Seconds(zero=True), 0, 0.0),
    (OnOff(), True, True),
    (OnOff(), "Off", False),
    (OnOff(), "1", True),
    (Choice(("a", "b")), "b", "b"),
    (Text("a", "[a-z]+"), "abc", "abc"),
    (Names("names", "[A-Za-z]+"), "a, B", ("a", "b")),
    (Names("names", "[A-Za-z]+"), [], ()),
    (PathTo(), "a/b", Path("a/b")),
    (PathTo(), Path("a"), Path("a")),
]

REFUSED: list[tuple[Kind, Any]] = [
    *(
        (COUNT, given)
        for given in (0, 11, -1, True, 1.0, None, "", "0", "11", "-1", "+1", "1_0", "٣", "1\n", "unlimited")
    ),
    *((SIZE, given) for given in (0, 2**63, True, 1.5, "", "-1", "5GB", "5 gib", "1.5 GiB", "9" * 19, "8388608 TiB")),
    *((SPAN, given) for given in (0, -1, 604_801, True, None, "", "x", "nan", "inf", "-inf", float("nan"), ["a"])),
    (Seconds(zero=True), -0.1),
    *((OnOff(), given) for given in (1, 0, None, "", "yes", "2", ["a"])),
    *((Choice(("a", "b")), given) for given in ("", "A", "c", None, 1, ["a"])),
    *((Text("a", "[a-z]+"), given) for given in ("", "A", "a\n", "ä", None, 1, b"a")),
    *((Names("names", "[a-z]+"), given) for given in ("", "a,,b", "a b", [1], ["a", ""], None, 5, {"a": 1})),
    *((PathTo(), given) for given in ("", "a\0b", None, 5, b"a")),
]


@pytest.mark.parametrize(("kind", "given", "value"), TAKEN)
def test_what_is_taken(kind: Kind, given: Any, value: Any) -> None:
    read = kind.read(given)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(("kind", "given"), REFUSED)
def test_what_is_not(kind: Kind, given: Any) -> None:
    with pytest.raises(ValueError, match=r"^"):
        kind.read(given)


def test_what_is_allowed_is_said() -> None:
    assert COUNT.allowed == "a whole number from 1 to 10"
    assert OPEN_COUNT.allowed == 'a whole number from 0 to 5, or "unlimited"'
    assert SIZE.allowed == 'bytes, at least 1, as a number or like "5 GiB", or "unlimited"'
    assert SPAN.allowed == "seconds, more than 0 and at most 604800"
    assert Choice(("a", "b")).allowed == '"a" or "b"'
