"""Compare recordings, files and folders at one of two levels."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, get_args

from wiretape.events.core.errors import TapeError

from ..sealed.files import Recording, lines_of, parse, read
from .levels import Difference, Level, Streams, compare_streams, each_pair

__all__ = ["LEVELS", "Compared", "compare", "compare_paths", "level_of", "tapes_in", "verdict"]

_Lines = Sequence[Mapping[int, int]]

LEVELS: Final[Sequence[Level]] = get_args(Level)
#: By name; the old ones are accepted for one release.
_LEVELS: Final[Mapping[str, Level]] = MappingProxyType(
    {"content": "content", "bytes": "bytes", "fold": "content", "shape": "content", "clock": "bytes"}
)
#: Differences kept of one pair of tapes; a longer list helps no one.
_DIFFERENCES_MAX: Final = 10_000


def level_of(name: str) -> Level | None:
    """Return the level with this name, present or old, or None."""
    return _LEVELS.get(name)


def compare(a: Streams, b: Streams, level: Level = "content") -> Iterator[Difference]:
    """Yield every difference. Streams are compared by their position, and bodies as they were before compression."""
    return each_pair(a, b, lambda mine, other: compare_streams(mine, other, level))


def verdict(differences: Sequence[Difference]) -> int:
    """Return 0 for the same, 1 for nothing but benign differences, 2 for a breaking one."""
    return 2 if any(difference.breaking for difference in differences) else int(bool(differences))


class Compared(NamedTuple):
    """The differences of two tapes, and the line of each record in both files."""

    name: str
    differences: Sequence[Difference]
    lines_a: _Lines = ()
    lines_b: _Lines = ()

    @property
    def verdict(self) -> int:
        """The verdict on this pair."""
        return verdict(self.differences)

    @property
    def first(self) -> Sequence[Difference]:
        """The first breaking difference, or else the first one."""
        breaking = [difference for difference in self.differences if difference.breaking]
        return (breaking or self.differences)[:1]

    def line(self, difference: Difference) -> str:
        """Describe a difference with the line numbers of both files."""
        at = difference.stream - 1
        lines = [
            places[at].get(record) if record is not None and at < len(places) else None
            for places, record in ((self.lines_a, difference.record_a), (self.lines_b, difference.record_b))
        ]
        return difference.line(*lines)


def compare_paths(a: Path, b: Path, level: Level) -> list[Compared]:
    """Compare two files, or two folders tape by tape: a tape missing in B is breaking, a new one benign."""
    if not a.is_dir() and not b.is_dir():
        return [_compare_files(b.name, a, b, level)]
    if not (a.is_dir() and b.is_dir()):
        raise TapeError(f"cannot compare {a} with {b}: give two tapes or two folders")
    mine, other = ({str(path.relative_to(folder)): path for path in tapes_in(folder)} for folder in (a, b))
    if not mine and not other:
        raise TapeError(f"neither {a} nor {b} contains a .tape file")
    found: list[Compared] = []
    for name in sorted({*mine, *other}):
        if name in mine and name in other:
            found.append(_compare_files(name, mine[name], other[name], level))
        else:
            a_has, b_has = ("present" if name in side else None for side in (mine, other))
            found.append(Compared(name, [Difference("tape", a_has, b_has, breaking=name in mine)]))
    return found


def tapes_in(folder: Path) -> list[Path]:
    """Return every tape below a folder, sorted."""
    return sorted(path for path in folder.rglob("*.tape") if path.is_file())


def _compare_files(name: str, a: Path, b: Path, level: Level) -> Compared:
    (mine, lines_a), (other, lines_b) = _read(a), _read(b)
    found = compare(mine.streams, other.streams, level)
    differences = list(islice(found, _DIFFERENCES_MAX))
    if verdict(differences) < 2:  # the rest of a long list can still change the verdict
        differences += islice((difference for difference in found if difference.breaking), 1)
    return Compared(name, differences, lines_a, lines_b)


def _read(path: Path) -> tuple[Recording, _Lines]:
    """Read a tape without verifying its summary: the stream itself is compared."""
    try:
        data = read(path)
        recording = parse(data, verify=False)
    except TapeError as error:
        raise TapeError(f"{path}: {error}") from error
    return recording, lines_of(data, recording.streams)
