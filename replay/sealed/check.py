"""What is wrong with a file that is to be committed as a tape, each finding with its file and line

Wrong: what cannot be read, a fold line that the tape does not come to, a secret, a live tape, one that is too large or
too old. Only told: a line that no review shows, and an ending that a replay cannot give.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, as_object, parse
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader

from ..matching.json_diff import hidden
from ..redaction.body_codec import unreadable
from ..redaction.redact import findings
from ..redaction.shapes import find
from .blobs import LINE_BYTES_MAX, folder_of, strays, together, with_lf
from .edits import summed
from .expected import expected
from .schema import wrong_members
from .sealed import MARK, Sealed, beside, decode, differs, spoilt
from .split_body import LISTS

__all__ = ["Trouble", "check", "check_files"]

_BYTES_MAX: Final = 1_000_000
#: Endings of the client's side: the upstream was not heard to its end, so a replay has nothing to end with.
_SILENT: Final = frozenset({"client_gone", "shutdown", "crashed", "internal"})


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
    """Of these files, and of all `.tape` files in these folders."""
    today = datetime.now(UTC).date()
    found: list[Trouble] = []
    for path in dict.fromkeys(map(_tape_of, paths)):
        inside = sorted(file for file in path.rglob("*.tape") if file.is_file()) if path.is_dir() else [path]
        if not inside:
            found.append(Trouble(path, 0, "empty", "a folder without tapes", wrong=False))
        for file in inside:
            if not file.exists():
                found.append(Trouble(file, 0, "unreadable", "there is no such file"))
            elif not file.is_file():  # a pipe may never say anything, a device never end
                found.append(Trouble(file, 0, "unreadable", "no regular file"))
            else:
                data = file.read_bytes()
                found += check(file, data, today, bytes_max=bytes_max, age_days_max=age_days_max)
                found += [
                    Trouble(stray, 0, "stray", f"no line of {file.name} names it", wrong=False)
                    for stray in strays(file, data)
                ]
    return found


def _tape_of(path: Path) -> Path:
    """What a hook is given may be what lies beside a tape."""
    return path.parent.with_suffix("") if path.parent.name.endswith(".tape.blobs") else path


def check(
    file: Path, data: bytes, today: date, *, bytes_max: int = _BYTES_MAX, age_days_max: int | None = None
) -> list[Trouble]:
    """In order of the lines."""
    if not data.startswith(MARK):
        return _live(file, data)
    found = [*_sizes(file, data, bytes_max)]
    if with_lf(data) != data:
        how = "its lines end in CRLF, as a checkout made them: `*.tape -text` in .gitattributes"
        found.append(Trouble(file, 1, "crlf", how, wrong=False))
    try:
        data = together(data, lambda name: (folder_of(file) / name).read_bytes())
        sealed = decode(data, verify=False)
    except TapeError as error:
        message = str(error)
        code = "version" if "newest that this version reads" in message else "unreadable"
        return [*found, Trouble(file, _line_in(message), code, hidden(message))]
    if type(said := sealed.header.get("streams")) is int and said != len(sealed.streams):
        found.append(Trouble(file, 1, "streams", f"the header says {said} streams, there are {len(sealed.streams)}"))
    found += _age(file, sealed, today, age_days_max)
    found += _folds(file, data, sealed)
    found += _endings(file, sealed)
    found += _sums(file, sealed)
    found += _members(file, data, sealed)
    found += _unreadable(file, sealed.streams, sealed.lines)
    secrets = [*_secrets(file, sealed.streams, data, sealed.lines)]
    said = {trouble.line for trouble in secrets}
    found += secrets + [trouble for trouble in _secrets_beside(file, data) if trouble.line not in said]
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
    # Of a tape whose first lines are gone the last line is named for those that are counted beyond it.
    lines = [[min(record.n, data.count(b"\n")) + 1 for record in records]]
    live = Trouble(
        file, 0, "unsealed", "a live tape, which is not for git: make a sealed one of it with `wiretape seal`"
    )
    return [live, *_unreadable(file, [records], lines), *_secrets(file, [records], data, lines)]


def _sizes(file: Path, data: bytes, bytes_max: int) -> Iterator[Trouble]:
    if len(data) > bytes_max:
        yield Trouble(file, 0, "size", f"{len(data)} bytes, more than {bytes_max}")
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > LINE_BYTES_MAX:
            yield Trouble(file, number, "line", f"{len(line)} bytes long: no review shows it", wrong=False)


def _age(file: Path, sealed: Sealed, today: date, age_days_max: int | None) -> Iterator[Trouble]:
    limits = [limit for limit in (sealed.header.get("max_age_days"), age_days_max) if type(limit) is int]
    recorded = sealed.header.get("recorded")
    try:
        day = date.fromisoformat(recorded) if isinstance(recorded, str) else None
    except ValueError:
        day = None
    if limits and day is None:
        yield Trouble(file, 1, "age", "nothing says when it was recorded")
    elif limits and day is not None and (today - day).days > min(limits):
        yield Trouble(
            file, 1, "age", f"recorded {(today - day).days} days ago, more than {min(limits)}: record it anew"
        )


def _folds(file: Path, data: bytes, sealed: Sealed) -> Iterator[Trouble]:
    for (number, line), records in zip(_lines_of(data, b'{"k":"fold"'), sealed.streams, strict=True):
        if differs(as_object(parse(line)), {"k": "fold", **expected(records)}) is not None:
            yield Trouble(
                file, number, "fold", "the tape comes to something else (edited? `wiretape seal` writes it anew)"
            )


def _members(file: Path, data: bytes, sealed: Sealed) -> Iterator[Trouble]:
    """Which are not what docs/sealed-tape.schema.json says."""
    said: list[tuple[int, str, Mapping[str, Any]]] = [(1, "header", sealed.header)]
    said += [
        (line, record.kind, record.keys)
        for records, lines in zip(sealed.streams, sealed.lines, strict=True)
        for record, line in zip(records, lines, strict=True)
    ]
    said += [(line, "fold", as_object(parse(text))) for line, text in _lines_of(data, b'{"k":"fold"')]
    for line, kind, members in said:
        for wrong in wrong_members(kind, members):
            yield Trouble(file, line, "member", f"{'the header' if kind == 'header' else kind}: {wrong}")


def _lines_of(data: bytes, begins: bytes) -> list[tuple[int, bytes]]:
    return [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.startswith(begins)]


def _endings(file: Path, sealed: Sealed) -> Iterator[Trouble]:
    for records, lines in zip(sealed.streams, sealed.lines, strict=True):
        last = records[-1]
        ending = last.keys.get("ending")
        if last.kind != "end":
            yield Trouble(file, lines[-1], "unfinished", "the stream has no end: it still ran", wrong=False)
        elif isinstance(ending, str) and ending in _SILENT:
            why = "what the upstream would have said after that is not known, so a replay stays silent there"
            yield Trouble(file, lines[-1], "ending", f"it ended as {ending}: {why}", wrong=False)


def _sums(file: Path, sealed: Sealed) -> Iterator[Trouble]:
    for records, lines in zip(sealed.streams, sealed.lines, strict=True):
        if records and summed(records)[-1].keys != records[-1].keys:
            why = "it counts other bytes than stand here (edited? `wiretape seal` writes it anew)"
            yield Trouble(file, lines[-1], "sums", why)


def _unreadable(file: Path, streams: Sequence[Sequence[Record]], lines: Sequence[Sequence[int]]) -> Iterator[Trouble]:
    for one in unreadable(streams):
        line = dict(zip((record.n for record in streams[one.stream]), lines[one.stream], strict=True))[one.n]
        yield Trouble(file, line, "unread", f"{one}: nobody can tell whether a secret is in it: seal it again")


def _secrets(
    file: Path, streams: Sequence[Sequence[Record]], data: bytes, lines: Sequence[Sequence[int]]
) -> Iterator[Trouble]:
    written = data.split(b"\n")
    numbers = [
        {record.n: line for record, line in zip(records, places, strict=True)}
        for records, places in zip(streams, lines, strict=True)
    ]
    for found in findings(streams):
        line = _line_of_element(written, numbers[found.stream][found.n], found.where)
        yield _secret(file, line, found.vendor, f" in {found.where}" if found.where else "")


def _secrets_beside(file: Path, data: bytes) -> Iterator[Trouble]:
    """In lines that are no record."""
    for number, line in beside(data):
        for hit in find(line.decode("utf-8", "replace")):
            yield _secret(file, number, hit.vendor, "")


def _secret(file: Path, line: int, vendor: str, where: str) -> Trouble:
    return Trouble(file, line, "secret", f"it looks like one of {vendor}{where}: seal it again, and revoke the key")


def _line_of_element(written: Sequence[bytes], line: int, where: str) -> int:
    """Elements of long lists of a request stand on lines behind it."""
    at = line
    for row in as_list(as_object(parse(written[line - 1])).get("split")):
        match row:
            case [str(name), int(count), str()]:
                for number in range(count if name in LISTS else 0):
                    if where == f"{name}[{number}]" or where.startswith(f"{name}[{number}]."):
                        return at + 1 + number
                at += count
            case _:
                return line
    return line


def _line_in(message: str) -> int:
    first = message.partition("line ")[2].partition(":")[0]
    return int(first) if first.isdigit() else 0
