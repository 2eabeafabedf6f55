"""Every setting as an option, though the help names only the common ones: `--idle-s 60` is `idle_s = 60`"""

import difflib
from collections.abc import Iterable

from ..config.model import ROUTE, SERVER, TARGET

__all__ = ["UnknownOptionError", "flags_of"]


class UnknownOptionError(Exception):
    """One line that says which, and perhaps what was meant."""


def flags_of(arguments: Iterable[str]) -> dict[str, str]:
    """What the command line says beyond the options that the command itself knows."""
    known = {setting.flag: setting.alias or setting.name for setting in (*SERVER, *ROUTE, *TARGET)}
    flags: dict[str, str] = {}
    waiting = iter(arguments)
    for argument in waiting:
        option, given, value = argument.partition("=")
        if not option.startswith("-"):
            raise UnknownOptionError(f"unexpected argument {argument[:80]!r}")
        if option not in known:
            meant = difflib.get_close_matches(option, known, 1)
            raise UnknownOptionError(f"no such option {option[:80]}" + (f": did you mean {meant[0]}?" if meant else ""))
        if not given:
            value = next(waiting, "")
        if not value:
            raise UnknownOptionError(f"{option} needs a value")
        flags[known[option]] = value
    return flags
