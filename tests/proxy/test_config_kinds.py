"""Each kind of setting at its bounds."""

from pathlib import Path
from typing import Any, Literal

import pytest

from wiretape.proxy.config.model import ON_OFF, Kind, choice, count, names, path, seconds, size, text

WORDS, PATH = choice(Literal["a", "b"]), path("a path")
COUNT, OPEN_COUNT, SIZE, SPAN = count(1, 10), count(0, 5, "unlimited"), size(1, "unlimited"), seconds()

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
    (seconds(zero=True), 0, 0.0),
    (ON_OFF, True, True),
    (ON_OFF, "Off", False),
    (ON_OFF, "1", True),
    (WORDS, "b", "b"),
    (text("a", "[a-z]+"), "abc", "abc"),
    (names("names", "[A-Za-z]+"), "a, B", ("a", "b")),
    (names("names", "[A-Za-z]+"), [], ()),
    (PATH, "a/b", Path("a/b")),
    (PATH, Path("a"), Path("a")),
]

REFUSED: list[tuple[Kind, Any]] = [
    *(
        (COUNT, given)
        for given in (0, 11, -1, True, 1.0, None, "", "0", "11", "-1", "+1", "1_0", "٣", "1\n", "unlimited")
    ),
    *((SIZE, given) for given in (0, 2**63, True, 1.5, "", "-1", "5GB", "5 gib", "1.5 GiB", "9" * 19, "8388608 TiB")),
    *((SPAN, given) for given in (0, -1, 604_801, True, None, "", "x", "nan", "inf", "-inf", float("nan"), ["a"])),
    (seconds(zero=True), -0.1),
    *((ON_OFF, given) for given in (None, "", "yes", "2", ["a"])),
    *((WORDS, given) for given in ("", "A", "c", None, 1)),
    *((text("a", "[a-z]+"), given) for given in ("", "A", "a\n", "ä", None, 1, b"a")),
    *((names("names", "[a-z]+"), given) for given in ("a,,b", "a b", [1], ["a", ""], None, 5, {"a": 1})),
    *((PATH, given) for given in ("", "a\0b", None, b"a")),
]


@pytest.mark.parametrize(("kind", "given", "value"), TAKEN)
def test_accepted_values(kind: Kind, given: Any, value: Any) -> None:
    read = kind.read(given)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(("kind", "given"), REFUSED)
def test_refused_values(kind: Kind, given: Any) -> None:
    with pytest.raises(ValueError, match=r"^"):
        kind.read(given)
