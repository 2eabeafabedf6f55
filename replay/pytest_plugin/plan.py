"""Read what one test asks of its tape: marker, options and settings become a plan, its name becomes a file name."""

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from ..faults.cutting import Prefix
from ..faults.faults import Faults
from ..faults.places import FaultError
from ..matching.match import How
from ..playback.script import INSTANT, Speed

__all__ = ["Mode", "Named", "Plan", "files_of", "is_live", "marked", "named_faults", "plan_of", "recorders", "unused"]

Mode = Literal["replay", "once", "rewrite", "verify", "off"]
Named = str | float | Sequence[str | int]

#: The words of the marker.
_WORDS: Final = {"speed", "max_gap_ms", "match", "repeat", "partly", "fault", "prefixes", "end"}
_CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "match": ("key", "position"),
    "prefixes": ("frames", "bytes"),
    "end": ("cut", "eof", "reset", "stall", "garbage"),
}
_NAME_CHARS_MAX: Final = 120
#: The folder of tapes, next to each module.
_FOLDER: Final = "tapes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The result of marker, options and settings for one test."""

    nodeid: str
    #: In order; the first one is recorded.
    files: tuple[Path, ...]
    mode: Mode
    #: Whether the requests go to an upstream.
    live: bool
    upstream: str = ""
    #: What is wrong with the marker, which is ignored then, or an empty text.
    mistake: str = ""
    speed: Speed = INSTANT
    how: How = "key"
    repeat: bool = False
    #: Whether streams may be left over.
    partly: bool = False
    age_days_max: float = inf
    prefix: Prefix | None = None
    #: The fault that ends a prefix.
    end: str = "cut"
    faults: tuple[str, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether the upstream's responses become the tape."""
        return self.live and self.mode in ("once", "rewrite")

    @property
    def record_command(self) -> str:
        upstream = self.upstream or "https://api.example.com/v1"
        return f"pytest {shlex.quote(self.nodeid)} --tape=rewrite --tape-upstream {shlex.quote(upstream)}"

    def obstacle(self) -> str:
        """Return why this test cannot run, or an empty text."""
        if self.mistake:
            return self.mistake
        if self.live and not self.upstream:
            why = f"there is no tape {self.files[0]}" if self.mode == "once" else f"--tape={self.mode} asks an upstream"
            return f"{why}, and no --tape-upstream is given\nto record it: {self.record_command}"
        if self.keeps and len(self.files) > 1:
            return "a test with several tapes cannot record them, because nothing assigns a stream to a tape"
        missing = [file for file in self.files if not file.exists()]
        if missing and (not self.live or self.mode == "verify"):
            return f"there is no tape {missing[0]}\nto record it: {self.record_command}"
        return ""


def plan_of(item: pytest.Item, mode: Mode, options: Mapping[str, str], prefix: Prefix | None) -> Plan:
    """Combine a test's marker with the options of this run; the marker wins."""
    files, marker = files_of(item), marked(item)
    if mistake := _mistake_in(marker, _named(item)):
        marker = {}
    gap_s_max = float(marker.get("max_gap_ms", inf)) / 1_000
    return Plan(
        nodeid=item.nodeid,
        files=files,
        mode=mode,
        live=is_live(mode, files),
        upstream=options["tape_upstream"],
        mistake=mistake,
        speed=Speed.of(str(marker.get("speed") or options["tape_speed"] or "instant"), gap_s_max),
        how=marker.get("match", "key"),
        repeat=marker.get("repeat", False),
        partly=marker.get("partly", False),
        age_days_max=float(options["tape_max_age"] or "inf"),
        prefix=prefix,
        end=marker.get("end", "cut"),
        faults=_faults(marker),
    )


def is_live(mode: Mode, files: Sequence[Path]) -> bool:
    """Return whether a test with these files asks an upstream."""
    return mode in ("rewrite", "verify", "off") or (mode == "once" and not files[0].exists())


# -- the marker -------------------------------------------------------------------------------------------------------


def marked(item: pytest.Item) -> dict[str, Any]:
    """Return the keywords of a test's tape markers. The nearest marker wins; None is no value."""
    words: dict[str, Any] = {}
    for marker in item.iter_markers("tape"):
        words = {**marker.kwargs, **words}
    return {word: value for word, value in words.items() if value is not None}


def _mistake_in(words: Mapping[str, Any], files: Sequence[Any]) -> str:
    """Return what is wrong with the keywords and the files of a marker, or an empty text."""
    if wrong := [file for file in files if not isinstance(file, str | os.PathLike)]:
        return f"a file of the tape marker is named by a text or a path, not by {wrong[0]!r}"
    if unknown := words.keys() - _WORDS:
        return f"the tape marker knows no {', '.join(sorted(unknown))}; it knows {', '.join(sorted(_WORDS))}"
    for word, choices in _CHOICES.items():
        if word in words and words[word] not in choices:
            return f"the tape marker's {word} is {' or '.join(choices)}, not {words[word]!r}"
    try:
        Speed.of(str(words.get("speed", "instant")), inf)
    except ValueError:
        return f"the tape marker's speed is instant, original or a factor such as 10, not {words['speed']!r}"
    gap_ms_max = words.get("max_gap_ms", 0)
    if not isinstance(gap_ms_max, int | float) or not gap_ms_max >= 0:
        return f"the tape marker's max_gap_ms is a number of milliseconds, not {gap_ms_max!r}"
    try:
        Faults.of(_faults(words))
    except (FaultError, TypeError) as error:
        return f"the tape marker: {error}"
    return ""


def _faults(words: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the faults of a marker: `fault` is one text or several (docs/reference/replay.md)."""
    fault = words.get("fault", ())
    return (fault,) if isinstance(fault, str) else tuple(fault)


def named_faults(named: Mapping[str, Named]) -> list[str]:
    """Turn keywords into faults: `cut_after="text"` and `stall_at=3` name a place, others have a value."""
    faults: list[str] = []
    for name, value in named.items():
        kind, place, _ = name.partition("_")
        if place:
            faults.append(f"{kind}@{f'frame:{value}' if isinstance(value, int) else value}")
        else:
            faults.append(f"{kind}={value if isinstance(value, str | int | float) else ','.join(map(str, value))}")
    return faults


# -- files ------------------------------------------------------------------------------------------------------------


def files_of(item: pytest.Item) -> tuple[Path, ...]:
    """Return the files that a marker names, or the one that is named like the test, next to the test's module."""
    folder = item.path.parent / _FOLDER
    named = _named(item)
    if named and all(isinstance(file, str | os.PathLike) for file in named):
        return tuple(folder / file for file in named)
    # All prefixes share one tape. Other parameters are unknown when prefixes are counted, so they need a named file.
    name = getattr(item, "originalname", None) if "prefixes" in marked(item) else None
    owners = "".join(f"{_plain(node.name)}." for node in item.listchain() if isinstance(node, pytest.Class))
    return (folder / item.path.stem / f"{owners}{_plain(name or item.name)}.tape",)


def _named(item: pytest.Item) -> Sequence[Any]:
    """Return what the nearest marker with files calls them; the fixture reports a mistake in it."""
    return next((marker.args for marker in item.iter_markers("tape") if marker.args), ())


def _plain(name: str) -> str:
    """Return a name that is safe on every file system, with a hash where it could equal another test's.

    Capitals count as equal to small letters there, so parameters with capitals get a hash too.
    """
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:_NAME_CHARS_MAX]
    parameters = name.partition("[")[2]
    if plain in (name, re.sub(r"\[(.*)\]", r"-\1", name)) and parameters == parameters.lower():
        return plain
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def recorders(item: pytest.Item, items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that may record the file of a test: those that are named like it, or else all that use it."""
    users = [each for each in items if _key(each) == _key(item)]
    return [each for each in users if not _named(each)] or users


def _key(item: pytest.Item) -> str:
    """Return the file of a test as file systems compare it that ignore case."""
    return os.path.normpath(files_of(item)[0]).casefold()


def unused(tests: Sequence[tuple[Path, Sequence[Path]]]) -> list[Path]:
    """Return the tapes next to the modules of these tests that none uses, but for those of modules left out."""
    modules = {module for module, _ in tests}
    used = {os.path.realpath(file) for _, files in tests for file in files}
    found: list[Path] = []
    for folder in {module.parent / _FOLDER for module in modules}:
        for file in folder.rglob("*.tape"):
            owner = folder.parent / f"{file.relative_to(folder).parts[0]}.py"
            if os.path.realpath(file) not in used and (owner in modules or not owner.exists()):
                found.append(file)
    return sorted(found)
