"""Check files that are to be committed as tapes; each finding has its file and line

Errors are files that cannot be read, fold lines that disagree with their records, secrets, live tapes, and tapes that
are too large or too old. Notes are endings that a replay cannot reproduce.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader

from .matching.json_diff import hidden
from .redaction.plain_text import unreadable
from .redaction.redact import findings
from .redaction.shapes import find
from .sealed.files import age_of, contents, folder_of, together, with_lf
from .sealed.playable import unplayable
from .sealed.sealed import MARK, Sealed, decode, differs, fold_lines, made_lines, spoilt
from .sealed.texts import summed

__all__ = ["Trouble", "check", "check_files"]

_BYTES_MAX: Final = 1_000_000
#: The upstream was not heard to its end, so a replay has no ending to play.
_SILENT: Final = frozenset({"client_gone", "shutdown", "crashed", "internal"})
_AGAIN: Final = "was it edited? `wiretape seal` writes it again"


#: Of each stream the line of each record.
_Lines = Sequence[Mapping[int, int]]


class Trouble(NamedTuple):
    """One finding. Line 0 is the whole file."""

    file: Path
    line: int
    code: str
    message: str
    wrong: bool = True

    def __str__(self) -> str:
        name = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(self.file))
        place = f"{name}:{self.line}" if self.line else name
        return f"{place}: {self.code}: {self.message}{'' if self.wrong else ' (a note)'}"


def check_files(
    paths: Iterable[Path], *, bytes_max: int = _BYTES_MAX, age_days_max: int | None = None
) -> list[Trouble]:
    """Check these files, and all `.tape` files in these folders."""
    today = datetime.now(UTC).date()
    found: list[Trouble] = []
    for path in dict.fromkeys(paths):
        inside = sorted(file for file in path.rglob("*.tape") if file.is_file()) if path.is_dir() else [path]
        if not inside:
            found.append(Trouble(path, 0, "empty", "a folder without tapes", wrong=False))
        for file in inside:
            try:
                data = contents(file)
            except (OSError, TapeError) as error:
                why = str(error) if isinstance(error, TapeError) else f"{error.strerror}"
                found.append(Trouble(file, 0, "unreadable", why))
                continue
            found += check(file, data, today, bytes_max=bytes_max, age_days_max=age_days_max)
    return found


def check(
    file: Path, data: bytes, today: date, *, bytes_max: int = _BYTES_MAX, age_days_max: int | None = None
) -> list[Trouble]:
    """Check the bytes of one file; findings are in the order of its lines."""
    if not data.startswith(MARK):
        return _live(file, data)
    found: list[Trouble] = []
    if len(data) > bytes_max:
        found.append(Trouble(file, 0, "size", f"{len(data)} bytes, more than {bytes_max}"))
    if with_lf(data) != data:
        how = "its lines end in CRLF, as a checkout made them: `*.tape -text` in .gitattributes"
        found.append(Trouble(file, 1, "crlf", how, wrong=False))
    try:
        data = together(data, lambda name: contents(folder_of(file) / name))
        sealed = decode(data, verify=False)
    except TapeError as error:
        message = str(error)
        code = "version" if "newest that this version reads" in message else "unreadable"
        return [*found, Trouble(file, _line_in(message), code, hidden(message))]
    stated, count = sealed.header.get("streams"), len(sealed.streams)
    if type(stated) is int and stated != count:
        found.append(Trouble(file, 1, "streams", f"the header states {stated} streams, the file has {count}"))
    found += _age(file, sealed, today, age_days_max)
    found += (Trouble(file, line, "unplayable", why) for line, why in unplayable(sealed.streams, sealed.lines))
    found += _results(file, data, sealed)
    places = [dict(enumerate(lines)) for lines in sealed.lines]
    found += _secrets(file, sealed.streams, places)
    for number, line in made_lines(data):
        found += [_secret(file, number, hit.vendor) for hit in find(line.decode("utf-8", "replace"))]
    return sorted(found, key=lambda trouble: trouble.line)


def _live(file: Path, data: bytes) -> list[Trouble]:
    if reason := spoilt(data):
        return [Trouble(file, _line_in(reason), "unreadable", reason)]
    reader = Reader()
    try:
        records = reader.feed(data)
    except TapeError as error:
        return [Trouble(file, 1, "version", str(error))]
    if not records:
        return [Trouble(file, 0, "unreadable", "neither a live tape nor a sealed one")]
    # Records of a tape whose first lines are missing may be numbered beyond its last line.
    lines = [{record.n: min(record.n, data.count(b"\n")) + 1 for record in records}]
    live = Trouble(file, 0, "unsealed", "a live tape, not made for git: seal it with `wiretape seal`")
    damage = [Trouble(file, data.count(b"\n", 0, at) + 1, "unreadable", reason) for at, reason in reader.damage]
    refused = [Trouble(file, at, "unplayable", why) for at, why in unplayable([records], [[*lines[0].values()]])]
    return [live, *damage, *refused, *_secrets(file, [records], lines)]


def _age(file: Path, sealed: Sealed, today: date, age_days_max: int | None) -> Iterator[Trouble]:
    days, limit_days = age_of(sealed.header, today)
    limits = [limit for limit in (limit_days, age_days_max) if limit is not None]
    if limits and days is None:
        yield Trouble(file, 1, "age", "the header does not state when it was recorded")
    elif limits and days is not None and days > min(limits):
        yield Trouble(file, 1, "age", f"recorded {days} days ago, more than {min(limits)}: record it again")


def _results(file: Path, data: bytes, sealed: Sealed) -> Iterator[Trouble]:
    """Compare the fold and the sums of each stream with its records, and look at its ending."""
    for records, lines, (fold_line, fold) in zip(sealed.streams, sealed.lines, fold_lines(data), strict=True):
        if differs(fold, records) is not None:
            yield Trouble(file, fold_line, "fold", f"the line disagrees with the tape ({_AGAIN})")
        last, line = records[-1], lines[-1]
        ending = last.keys.get("ending")
        if last.kind != "end":
            yield Trouble(file, line, "unfinished", "the stream has no end: it was still running", wrong=False)
        elif isinstance(ending, str) and ending in _SILENT and "run" not in records[0].keys:
            why = "a replay stays silent after it, since the rest of the upstream's answer is unknown"
            yield Trouble(file, line, "ending", f"it ended as {ending}: {why}", wrong=False)
        if summed(records)[-1].keys != last.keys:
            yield Trouble(file, line, "sums", f"the line counts other bytes than the tape has ({_AGAIN})")


def _secrets(file: Path, streams: Sequence[Sequence[Record]], lines: _Lines) -> Iterator[Trouble]:
    """Yield the bodies that may hold secrets, then the secrets."""
    for one in unreadable(streams):
        yield Trouble(file, lines[one.stream][one.n], "unread", f"{one}, so it may hold secrets: seal it again")
    for found in findings(streams):
        where = f" in {found.where}" if found.where else ""
        yield _secret(file, lines[found.stream][found.n], found.vendor, where)


def _secret(file: Path, line: int, vendor: str, where: str = "") -> Trouble:
    return Trouble(file, line, "secret", f"it looks like one of {vendor}{where}: seal it again, and revoke the key")


def _line_in(message: str) -> int:
    first = message.partition("line ")[2].partition(":")[0]
    return int(first) if first.isdigit() else 0
