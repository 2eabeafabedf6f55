"""Tapes on the command line: found by id, the beginning of one, run, file or folder, and read while they grow.

The data folder is read without a lock, whether or not a server holds it. Ended streams come from the catalogue, or from
their tapes if it lacks them; live ones always from their tapes.
"""

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from errno import ENOENT
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record, decode
from wiretape.events.tape.tape import Damage

from ..store.catalogue import SEARCHABLE, peek, read_row
from ..store.catalogue_row import (
    AnswerRow,
    CallRow,
    CatalogueRow,
    Fate,
    Key,
    StreamRow,
    Wanted,
    fated,
    fates,
    opened_row,
    read_whole,
)
from ..store.files import mended
from ..store.folder import LIVE, data_folder, days_in, folders_in, holder, tapes_in
from ..store.store import Filter, Term
from ..store.tape_file import TapeReader, opened_for_reading, records_of
from .common import BAD_USAGE, CANNOT_START, FailedError, root_of

__all__ = [
    "DAMAGED",
    "NO_END",
    "TapeFollower",
    "damage_of",
    "fates_in",
    "only_one",
    "paths_of",
    "read_tape",
    "rows_of",
    "run_named",
    "streams",
    "tapes_in_folder",
    "tapes_of",
    "turns_of",
    "with_fates",
]

#: The ending shown for a tape in a day's folder that has no `end`: it was cut or damaged.
NO_END: Final = "no end"
#: The flag shown for a tape that is damaged.
DAMAGED: Final = "damaged"
_NOT_RECOVERED: Final = (
    "not recovered yet: its server is gone and left the tape without an end, which the next start writes"
)
_CUT: Final = "the tape has no end, and nothing will be written to it any more"
#: How the ids of runs begin; no id of a stream does.
_RUN: Final = "run_"
#: More than any data folder holds.
_ALL: Final = 1 << 31
#: Too short to notice, and no load: one read of a file each time.
_POLL_S: Final = 0.05


def paths_of(name: str, data: str | None, config: str | None, *, folders: bool = False) -> list[Path]:
    """Return the tapes that a name means: a file, all of a folder by name, those of a run, or the one of a stream.

    With `folders` a folder stays one path. Raise `FailedError` if a folder has no tape, a file is missing, or an id is
    unknown or ambiguous.
    """
    if not name:
        raise FailedError("TAPE is empty", BAD_USAGE)
    path = Path(name)
    if path.is_dir() and not folders:
        if not (found := [tape for tape in path.rglob("*.tape") if tape.is_file()]):
            raise FailedError(f"{name}: no .tape file in this folder", CANNOT_START)
        return sorted(found, key=lambda tape: tape.name)
    if path.exists() or path.is_symlink():  # opening a link that leads nowhere says why
        return [path]
    missing = f"{name}: {os.strerror(ENOENT)}"
    if path.suffix or path.name != name:
        raise FailedError(missing, CANNOT_START)
    try:
        if run := run_named(name, data, config):
            return turns_of(*run)
        root = root_of(data, config)
        by_id = tapes_of(root, name)
        return [by_id[only_one(by_id, name, "stream", root)]]
    except FailedError as error:
        if error.code != CANNOT_START:
            raise
        raise FailedError(f"{missing}. {error}", CANNOT_START) from error


def run_named(name: str, data: str | None, config: str | None) -> tuple[Path, str] | None:
    """Return the data folder and the id of the only run whose id begins with this; None for other names."""
    if not name.startswith(_RUN) or Path(name).exists():
        return None
    root = root_of(data, config)
    found = [run for row in rows_of(root, Filter(runs=True), _ALL) if (run := row.run or "").startswith(name)]
    return root, only_one(found, name, "run", root)


def turns_of(root: Path, run: str) -> list[Path]:
    """Return the tapes of a run, in order."""
    rows = sorted(rows_of(root, Filter(run=run), _ALL), key=lambda row: row.turn or 0)
    tapes = tapes_of(root)
    return [tapes[row.stream] for row in rows if row.stream in tapes]


def streams(root: Path, which: Filter, limit: int | None) -> tuple[list[StreamRow], int]:
    """Return streams, the latest first, each with what is wrong with its tape now, and how many more there are."""
    limit = limit or _ALL
    rows, tapes = rows_of(root, which, limit), tapes_of(root)
    shown = with_fates(root, rows[:limit])
    listed = [replace(row, flags=(*row.flags, *_faults(tapes.get(row.stream)))) for row in shown]
    if which == Filter():
        return listed, len({*tapes, *(row.stream for row in rows)}) - len(listed)
    counts = [peek(folder, lambda rows: rows.count(which)) or 0 for folder in folders_in(root)]
    more = 0 if which.text else max(0, sum(counts) - limit)
    return listed, more + len(rows) - len(listed)


def with_fates(root: Path, rows: Sequence[StreamRow]) -> list[StreamRow]:
    """Return rows with what became of the calls that were handed over, if the catalogues know."""
    known = fates_in(root, [row.stream for row in rows if row.handed_over])
    return [fated(row, *known[row.stream]) if row.stream in known else row for row in rows]


def fates_in(root: Path, streams: Sequence[str]) -> dict[str, tuple[Sequence[CallRow], Mapping[str, Fate]]]:
    """Return the calls of streams and what became of them: other streams, also of other workers, have the results.

    `root` may be the folder of one worker, or no data folder at all.
    """
    folders, found = [root], dict[str, CatalogueRow]()
    with suppress(OSError):
        folders = folders_in(data_folder(root))
    for folder in folders if streams else ():
        found |= peek(folder, lambda rows: rows.known(streams)) or {}
    wanted = list(dict.fromkeys(Wanted.of(call) for each in found.values() for call in each.calls))
    alike: dict[Key, tuple[dict[CallRow, None], dict[AnswerRow, None]]] = {one.key: ({}, {}) for one in wanted}
    for folder in folders if wanted else ():
        known = peek(folder, lambda rows: [rows.alike(one) for one in wanted]) or [([], []) for _ in wanted]
        for one, (calls, answers) in zip(wanted, known, strict=True):
            alike[one.key][0].update(dict.fromkeys(calls))
            alike[one.key][1].update(dict.fromkeys(answers))
    rows = {key: ([*calls], [*answers]) for key, (calls, answers) in alike.items()}
    return {stream: (each.calls, fates(each.calls, rows, time.time())) for stream, each in found.items()}


def rows_of(root: Path, which: Filter, limit: int) -> list[StreamRow]:
    """Return streams, the latest first: those that are live, and of all others at least so many as the limit.

    `which.ending` may be the empty string, for those that are live.
    """
    rows = {row.stream: row for folder in folders_in(root) for row in _rows_in(folder, which, limit)}
    return sorted(rows.values(), key=lambda row: row.place, reverse=True)


def _rows_in(root: Path, which: Filter, limit: int) -> Iterable[StreamRow]:
    held, tapes = holder(root) is not None, tapes_in_folder(root)
    said, plain = re.findall(r'"((?:[^"]|"")*)"', which.text), replace(which, text="")

    def admits(row: StreamRow) -> bool:
        return plain.admits(row) and all(phrase.lower() in _text_of(tapes[row.stream]) for phrase in said)

    live = [tape for tape in tapes.items() if tape[1].parent.name == LIVE]
    rows = {row.stream: row for row in _rows(live, unheld=not held) if admits(row)}
    page, known = peek(root, lambda rows: (rows.page(which, limit), rows.streams())) or ([], frozenset[str]())
    if which.ending != "":
        # What the catalogue lacks: normally nothing, after its loss everything. Our ids sort by time.
        missing = [tape for tape in tapes.items() if tape[0] not in known and tape[1].parent.name != LIVE]
        missing.sort(key=lambda tape: (tape[1].parent.name, tape[0]), reverse=True)
        ended = [*page, *islice(filter(admits, _rows(missing)), limit)]
        if said:  # and those whose text it lacks
            unread = Term("read < ?", (SEARCHABLE,))
            behind = peek(root, lambda rows: rows.page(replace(plain, terms=(*plain.terms, unread)), _ALL)) or ()
            ended += islice((row for row in behind if row.stream in tapes and admits(row)), limit)
        rows |= {row.stream: row if row.ending else replace(row, ending=NO_END) for row in ended}
    return rows.values()


def _text_of(path: Path) -> str:
    """Return what the model said on a tape, in small letters."""
    with suppress(OSError, TapeError):
        return read_whole(opened_row(path.stem, {}), records_of(path))[1].lower()
    return ""


def tapes_of(root: Path, prefix: str = "") -> dict[str, Path]:
    """Return where the tape of each stream is, of all workers."""
    return {stream: path for folder in folders_in(root) for stream, path in tapes_in_folder(folder, prefix).items()}


def tapes_in_folder(root: Path, prefix: str = "") -> dict[str, Path]:
    """Return where each tape of one folder is. They move from `live` to a day, so none is missed in this order."""
    found = {stream: Path(entry.path) for stream, entry in tapes_in(root / LIVE, prefix)}
    for day in days_in(root):
        found |= {stream: Path(entry.path) for stream, entry in tapes_in(root / day.isoformat(), prefix)}
    return found


def _rows(tapes: Iterable[tuple[str, Path]], *, unheld: bool = False) -> Iterator[StreamRow]:
    """Yield the rows of these tapes; none of one that has just ended and moved. `unheld`: no server writes to them."""
    for stream, path in tapes:
        row = read_row(stream, path, *(_recovery(path) if unheld else ()))
        if row is not None:
            yield row.stream


def _faults(tape: Path | None) -> list[str]:
    """Return what is wrong with a tape now, as flags; the catalogue knows only what was written."""
    if tape is None:  # the catalogue lists it, but its tape is gone, or no file any more
        return ["no_tape"]
    with suppress(OSError, TapeError):  # it moved or expired meanwhile, or a later version wrote it
        damage, ended = damage_of(tape)
        return [DAMAGED] if damage or not (ended or tape.parent.name == LIVE) else []
    return []


def damage_of(path: Path) -> tuple[list[Damage], bool]:
    """Return what is wrong with the lines of a tape, and whether it has an end. Raises OSError and TapeError."""
    reader = TapeReader(partial(opened_for_reading, path))
    for _ in reader:
        pass
    return reader.damage, reader.ended


def _recovery(path: Path) -> list[Record]:
    """Return the end that the next start will write to the tape of a server that was killed, if it needs one."""
    with suppress(OSError, TapeError):
        end = decode(mended(path).end[:-1])
        if isinstance(end, Record):
            return [end._replace(keys={**end.keys, "flags": [*end.keys["flags"], "not_recovered_yet"]})]
    return []


def only_one(found: Collection[str], prefix: str, kind: str, root: object) -> str:
    """Return the only id that begins with this prefix, or the one that equals it. Raise `FailedError`."""
    if prefix in found or len(found) == 1:
        return prefix if prefix in found else next(iter(found))
    if not found:
        why = f"No {kind} in {root} has an id that begins with {prefix[:80]!r}"
        raise FailedError(f"{why} (`wiretape ls{' --runs' * (kind == 'run')}` lists them)", CANNOT_START)
    some = ", ".join([*sorted(found)[:3], *(["..."] if len(found) > 3 else [])])
    raise FailedError(f"Ambiguous id {prefix[:80]!r} matches {len(found)} {kind}s: {some}", BAD_USAGE)


def read_tape(path: Path) -> tuple[list[Record], list[Damage], bool]:
    """Return all records, what is wrong with the tape, and whether a server writes to it.

    A missing end is damage. The tape of a server that was killed has the end that the next start will write.
    """
    with closing(TapeFollower(path)) as tape:
        records = list(tape.records(waits=False))
    if not tape.ended and path.parent.name != LIVE:
        tape.damage.append(Damage(path.stat().st_size, tape.missing_end))
    return records, tape.damage, tape.grows


class TapeFollower(TapeReader):
    """One tape that may still grow. Its descriptor stays with the file when the ended tape moves."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = opened_for_reading(path)
        except OSError as error:
            raise FailedError(f"Cannot read {path}: {error.strerror}", CANNOT_START) from error
        super().__init__(partial(os.dup, self._fd))
        self._path = path
        self._live = path.parent.name == LIVE
        #: Why it will not get an end by itself, if it has none.
        self.missing_end = _NOT_RECOVERED if self._live else _CUT
        #: Whether a server may still write to it.
        self.grows = False

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def records(self, *, waits: bool = True) -> Iterator[Record]:
        """Yield records until the end of the tape, or until no server is left that could write more.

        After those of a server that was killed comes the end that the next start will write.
        """
        while True:
            self.grows = self._live and holder(self._path.parent.parent) is not None
            try:
                yield from self
            except TapeError as error:
                raise FailedError(f"{self._path}: {error}", CANNOT_START) from error
            if self.ended or not (self.grows and waits):
                break
            time.sleep(_POLL_S)
        if self._live and not (self.ended or self.grows):
            yield from _recovery(self._path)
