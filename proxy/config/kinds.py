"""What a setting may be: a value of TOML, or the text of a flag or an environment variable, to a value of Python

A refusal says what is allowed and never what was given: that may be a key in the wrong place.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

__all__ = ["Choice", "Count", "Kind", "Names", "OnOff", "PathTo", "Seconds", "Size", "Text"]

_WHOLE: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,18}) ?(B|KiB|MiB|GiB|TiB)?", re.ASCII)
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_ON: Final = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
#: A week; what takes longer is meant to have no bound, and a typo.
_SECONDS_MAX: Final = 604_800


class Kind(Protocol):
    """One kind of value."""

    @property
    def allowed(self) -> str:
        """In words, for an error and for the table."""
        ...

    @property
    def toml(self) -> tuple[type, ...]:
        """What it is in TOML, which knows a number from a text."""
        ...

    def read(self, given: Any) -> Any:
        """The value; raises ValueError, whose text nobody sees."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    """A text of one shape."""

    allowed: str
    pattern: str
    toml: tuple[type, ...] = (str,)

    def read(self, given: Any) -> Any:
        """As given."""
        if not isinstance(given, str) or not re.fullmatch(self.pattern, given, re.ASCII):
            raise ValueError
        return given


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]
    toml: tuple[type, ...] = (str,)

    @property
    def allowed(self) -> str:
        """The words."""
        return " or ".join(f'"{word}"' for word in self.words)

    def read(self, given: Any) -> Any:
        """As given."""
        if not isinstance(given, str) or given not in self.words:
            raise ValueError
        return given


@dataclass(frozen=True, slots=True)
class OnOff:
    """Yes or no."""

    allowed: str = "true or false"
    toml: tuple[type, ...] = (bool,)

    def read(self, given: Any) -> Any:
        """Text is read as people write it in an environment."""
        if isinstance(given, str):
            given = _ON.get(given.lower())
        if not isinstance(given, bool):
            raise ValueError  # noqa: TRY004 - ValueError is what `read` raises
        return given


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number in bounds."""

    least: int
    most: int
    #: The word that means None.
    without: str | None = None

    @property
    def allowed(self) -> str:
        """The bounds."""
        return f"a whole number from {self.least} to {self.most}" + _or(self.without)

    @property
    def toml(self) -> tuple[type, ...]:
        """A number, or a word if there is one."""
        return (int,) if self.without is None else (int, str)

    def read(self, given: Any) -> Any:
        """Digits only: no sign, no underscore, no truth value."""
        if self.without is not None and given == self.without:
            return None
        if isinstance(given, str) and _WHOLE.fullmatch(given):
            given = int(given)
        if type(given) is not int or not self.least <= given <= self.most:
            raise ValueError
        return given


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes."""

    least: int
    without: str | None = None
    toml: tuple[type, ...] = (int, str)

    @property
    def allowed(self) -> str:
        """The ways to say it."""
        return f'bytes, at least {self.least}, as a number or like "5 GiB"' + _or(self.without)

    def read(self, given: Any) -> Any:
        """A number, or a number and a unit."""
        if self.without is not None and given == self.without:
            return None
        if isinstance(given, str) and (found := _SIZE.fullmatch(given)):
            given = int(found[1]) * 1024 ** _UNITS.index(found[2] or "B")
        if type(given) is not int or not self.least <= given < 2**63:
            raise ValueError
        return given


@dataclass(frozen=True, slots=True)
class Seconds:
    """A span of time."""

    zero: bool = False
    toml: tuple[type, ...] = (int, float)

    @property
    def allowed(self) -> str:
        """The bounds."""
        return f"seconds, {'from' if self.zero else 'more than'} 0 and at most {_SECONDS_MAX}"

    def read(self, given: Any) -> Any:
        """A finite number."""
        if isinstance(given, str):
            given = float(given)
        if type(given) not in (int, float) or not math.isfinite(given):
            raise ValueError
        if not 0 <= given <= _SECONDS_MAX or (given == 0 and not self.zero):
            raise ValueError
        return float(given)


@dataclass(frozen=True, slots=True)
class Names:
    """Several, as a list or with commas between them."""

    what: str
    pattern: str
    toml: tuple[type, ...] = (list,)

    @property
    def allowed(self) -> str:
        """What each of them is."""
        return f"a list of {self.what}"

    def read(self, given: Any) -> Any:
        """In their order."""
        if isinstance(given, str):
            given = [part.strip() for part in given.split(",")]
        if not isinstance(given, (list, tuple)):
            raise ValueError  # noqa: TRY004 - ValueError is what `read` raises
        names: list[Any] = list(given)  # pyright: ignore[reportUnknownArgumentType] - each is looked at below
        if not all(isinstance(name, str) and re.fullmatch(self.pattern, name, re.ASCII) for name in names):
            raise ValueError
        return tuple(name.lower() for name in names)


@dataclass(frozen=True, slots=True)
class PathTo:
    """A place on disk."""

    allowed: str = "a path"
    toml: tuple[type, ...] = (str,)

    def read(self, given: Any) -> Any:
        """Not yet made absolute: that hangs on where it was written."""
        if not isinstance(given, (str, Path)) or not str(given) or "\0" in str(given):
            raise ValueError
        return Path(given)


def _or(without: str | None) -> str:
    return "" if without is None else f', or "{without}"'
