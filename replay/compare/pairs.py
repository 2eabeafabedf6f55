"""Files and folders of tapes, pairwise by name, and what `compare` finds in each pair"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wiretape.events.core.errors import TapeError

from ..sealed.blobs import read
from ..sealed.line_numbers import lines_of
from ..sealed.load import Recording, parse
from .compare import compare, verdict
from .difference import Difference, Level

__all__ = ["Compared", "compared", "tapes_in"]

#: Of one pair: who differs in more has nothing in common, and a list of all of it helps nobody.
_DIFFERENCES_MAX: Final = 10_000

_Lines = Sequence[Mapping[int, int]]


class Compared(NamedTuple):
    """One pair."""

    name: str
    differences: Sequence[Difference]
    lines_a: _Lines = ()
    lines_b: _Lines = ()

    @property
    def verdict(self) -> int:
        """0 the same, 1 benign, 2 breaking."""
        return verdict(self.differences)

    @property
    def first(self) -> Sequence[Difference]:
        """The first that breaks, else the first."""
        breaking = [difference for difference in self.differences if difference.breaking]
        return (breaking or self.differences)[:1]

    def line(self, difference: Difference) -> str:
        """For a person, with the lines of both files."""
        at = difference.stream - 1
        lines = [
            places[at].get(record) if record is not None and at < len(places) else None
            for places, record in ((self.lines_a, difference.record_a), (self.lines_b, difference.record_b))
        ]
        return difference.line(*lines)


def compared(a: Path, b: Path, level: Level) -> list[Compared]:
    """Two files are one pair. Of folders a tape that B lacks is breaking, one that A lacks is benign."""
    if not a.is_dir() and not b.is_dir():
        return [_pair(b.name, a, b, level)]
    if not (a.is_dir() and b.is_dir()):
        raise TapeError(f"{a} and {b}: compare two tapes or two folders")
    mine, other = ({str(path.relative_to(folder)): path for path in tapes_in(folder)} for folder in (a, b))
    if not mine and not other:
        raise TapeError(f"neither {a} nor {b} holds a .tape file")
    found: list[Compared] = []
    for name in sorted({*mine, *other}):
        if name not in other:
            found.append(Compared(name, [Difference("tape", "there", None, breaking=True)]))
        elif name not in mine:
            found.append(Compared(name, [Difference("tape", None, "there", breaking=False)]))
        else:
            found.append(_pair(name, mine[name], other[name], level))
    return found


def tapes_in(folder: Path) -> list[Path]:
    """Every tape below a folder, in the order of their names."""
    return sorted(path for path in folder.rglob("*.tape") if path.is_file())


def _pair(name: str, a: Path, b: Path, level: Level) -> Compared:
    (mine, lines_a), (other, lines_b) = _read(a), _read(b)
    differences: list[Difference] = []
    breaks = False
    for difference in compare(mine.streams, other.streams, level):
        if len(differences) >= _DIFFERENCES_MAX and (breaks or not difference.breaking):
            if breaks:
                break  # nothing that follows changes the verdict
            continue
        differences.append(difference)
        breaks = breaks or difference.breaking
    return Compared(name, differences, lines_a, lines_b)


def _read(path: Path) -> tuple[Recording, _Lines]:
    """Its fold line is not compared: what the tape itself comes to is."""
    try:
        data = read(path)
        recording = parse(data, verify=False)
    except TapeError as error:
        raise TapeError(f"{path}: {error}") from error
    return recording, lines_of(data, recording.streams)
