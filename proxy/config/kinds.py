"""What a setting may be: how to describe a kind of value, and how to check and convert one.

Errors say what is allowed and never what was given: that may be a key in the wrong place.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

__all__ = [
    "ON_OFF",
    "PREFIX",
    "Kind",
    "Setting",
    "choice",
    "count",
    "names",
    "option",
    "path",
    "seconds",
    "size",
    "text",
]

#: Of environment variables.
PREFIX: Final = "WIRETAPE_"

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_OFF: Final = ("false", "off", "0")
#: A week. A longer span is a typo for "unlimited".
_SECONDS_MAX: Final = 604_800


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: how to describe it, its types in TOML, the pattern of its text, and how to convert that."""

    allowed: str
    toml: tuple[type, ...]
    pattern: str
    convert: Callable[[str], Any] = str

    def read(self, given: Any) -> Any:
        """Return the value of a TOML value or of the text of a flag or variable, or raise ValueError."""
        match given:
            case str() | Path() | int() | float():
                given = str(given).lower() if isinstance(given, bool) else str(given)
            case [*parts] if all(isinstance(part, str) for part in parts):
                given = ",".join(parts)
            case _:
                raise ValueError
        if not re.fullmatch(self.pattern, given, re.ASCII):
            raise ValueError
        return self.convert(given)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name in wiretape.toml, its kind, and why a user may want to change it."""

    name: str
    kind: Kind
    reason: str
    #: The path of attributes from Config, Route or Target to the value.
    place: str = ""
    #: Its name as a variable and flag, where `name` alone would mean something else there.
    alias: str = ""
    #: False for settings about one upstream: outside `[routes.NAME]` they apply to the default route only.
    shared: bool = True

    @property
    def environment(self) -> str:
        """The environment variable."""
        return PREFIX + (self.alias or self.name).upper()

    @property
    def flag(self) -> str:
        """The option of `wiretape serve`."""
        return "--" + (self.alias or self.name).replace("_", "-")


def option(default: Any, kind: Kind, reason: str, *, name: str = "", shared: bool = True) -> Any:
    """Return a dataclass field that is a setting, named like the field unless `name` is given."""
    return field(default=default, metadata={"setting": Setting(name, kind, reason, shared=shared)})


def text(allowed: str, pattern: str) -> Kind:
    """Return the kind of texts that match a pattern."""
    return Kind(allowed, (str,), pattern)


def path(allowed: str) -> Kind:
    """Return the kind of paths. The loader makes them absolute, as that depends on where they were written."""
    return Kind(allowed, (str,), r"(?s)[^\0]+", Path)


def choice(literal: Any) -> Kind:
    """Return the kind of one of the words of a Literal type."""
    words = get_args(literal)
    return Kind(" or ".join(f'"{word}"' for word in words), (str,), "|".join(map(re.escape, words)))


def names(what: str, pattern: str) -> Kind:
    """Return the kind of lists of names, which have commas between them in text."""
    some = rf"\s*(?:{pattern})\s*"
    return Kind(f"a list of {what}", (list,), rf"(?:{some}(?:,{some})*)?", _listed)


def _listed(given: str) -> tuple[str, ...]:
    return tuple(part.strip().lower() for part in given.split(",")) if given else ()


ON_OFF: Final = Kind("true or false", (bool,), "(?i:true|on|1|false|off|0)", lambda given: given.lower() not in _OFF)


def count(least: int, most: int, without: str | None = None) -> Kind:
    """Return the kind of whole numbers; the word `without` means None."""
    allowed = f"a whole number from {least} to {most}"
    return _number(allowed, (int,), "[0-9]{1,18}", int, least, most, without)


def size(least: int, without: str | None = None) -> Kind:
    """Return the kind of byte counts, with or without a unit."""
    allowed = f'bytes, at least {least}, as a number or like "5 GiB"'
    pattern = f"[0-9]{{1,19}}( ?({'|'.join(_UNITS)}))?"
    return _number(allowed, (int, str), pattern, _bytes, least, 2**63 - 1, without)


def _bytes(given: str) -> int:
    number = given.rstrip(" BKMGTi")
    return int(number) << 10 * _UNITS.index(given.removeprefix(number).strip() or "B")


def seconds(*, zero: bool = False) -> Kind:
    """Return the kind of finite spans of time."""
    allowed = f"seconds, {'from' if zero else 'more than'} 0 and at most {_SECONDS_MAX}"
    return _number(allowed, (int, float), "[0-9.e+-]+", float, 0 if zero else 1e-9, _SECONDS_MAX, None)


def _number(
    allowed: str,
    toml: tuple[type, ...],
    pattern: str,
    parse: Callable[[str], float],
    least: float,
    most: float,
    without: str | None,
) -> Kind:
    def convert(given: str) -> float | None:
        if given == without:
            return None
        value = parse(given)
        if not least <= value <= most:
            raise ValueError
        return value

    if without is None:
        return Kind(allowed, toml, pattern, convert)
    return Kind(f'{allowed}, or "{without}"', (*toml, str), f"{without}|{pattern}", convert)
