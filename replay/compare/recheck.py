"""Today's repairs and folds over old tapes: what each comes to now beside what it says of itself"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, as_object, parse
from wiretape.events.core.model import Ended
from wiretape.events.emission.emit import events
from wiretape.events.tape.record import Record
from wiretape.proxy.store.catalogue import peek
from wiretape.proxy.store.catalogue_row import StreamRow, row_of_tape
from wiretape.proxy.store.store import PAGE_MAX, Filter

from ..sealed.blobs import apart, read, write_blobs
from ..sealed.expected import expected
from ..sealed.load import Recording
from ..sealed.load import parse as read_tape
from ..sealed.sealed import MARK, encode
from .difference import Difference, of_change, shortened
from .json_diff import changes
from .pairs import tapes_in

__all__ = ["Refolded", "Refolding", "refold", "refold_paths", "said_and_found"]

#: Flags that the proxy gives beside those of the folds (docs/tape.md).
_FLAGS_OF_THE_PROXY: Final = frozenset(
    {
        "failed_here",
        "history_marked",
        "key_masked",
        "log_failure",
        "unframed",
        "untaped",
        "wrong_content_type",
    }
)
#: What the catalogue says of a stream and a fold can find again.
_CATALOGUED: Final = ("model", "ending", "flags", "input_tokens", "output_tokens", "first_content_us")
_FOLD: Final = b'{"k":"fold"'


class Refolded(NamedTuple):
    """One file."""

    path: Path
    sealed: bool
    streams: int
    size: int
    differences: Sequence[Difference]
    #: Why it could not be read; the rest is empty then.
    error: str = ""
    #: It was sealed anew.
    written: bool = False

    def lines(self) -> Iterator[str]:
        """For a person."""
        done = ", sealed anew" if self.written else ""
        for each in self.differences:
            a, b = (shortened(value, each.at) for value in (each.a, each.b))
            yield f"{self.path}: stream {each.stream}: {each.path}: {a} -> {b}{done}"
        if self.error:
            yield f"{self.path}: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refolding:
    """All of them."""

    files: Sequence[Refolded]
    seconds: float

    @property
    def changed(self) -> int:
        """How many files come to something else today."""
        return sum(bool(one.differences) for one in self.files)

    @property
    def unreadable(self) -> int:
        """How many are no tapes that can be read."""
        return sum(bool(one.error) for one in self.files)

    @property
    def summary(self) -> str:
        """One line, the speed in it."""
        streams, size = (sum(getattr(one, name) for one in self.files) for name in ("streams", "size"))
        speed = size / 1e6 / self.seconds if self.seconds else 0.0
        return (
            f"{len(self.files)} tapes, {streams} streams, {self.changed} changed, {self.unreadable} unreadable; "
            f"{size / 1e6:.1f} MB in {self.seconds:.2f} s ({speed:.1f} MB/s)"
        )


def refold(data: bytes, row: StreamRow | None = None) -> tuple[Recording, list[Difference]]:
    """Of the bytes of one file; what it says of itself is not checked, that is the question.

    `row` is what the catalogue says of a live tape.
    """
    recording = read_tape(data, verify=False)
    folds = [line for line in data.split(b"\n") if line.startswith(_FOLD)] if data.startswith(MARK) else []
    found: list[Difference] = []
    for number, records in enumerate(recording.streams, 1):
        said, now = said_and_found(records, folds[number - 1] if folds else None)
        if row is not None:
            said, now = said | _facts(row), now | _facts(row_of_tape(row.stream, records).stream)
        found += [of_change(change, breaking=True)._replace(stream=number) for change in changes(said, now)]
    return recording, found


def _facts(row: StreamRow) -> dict[str, Any]:
    return {"catalogue": {name: getattr(row, name) for name in _CATALOGUED}}


def _catalogue(folder: Path) -> dict[str, StreamRow]:
    """All rows of a data folder's catalogue, whether or not a server holds it; none of any other folder."""
    rows: dict[str, StreamRow] = {}
    which: Filter | None = Filter()
    while which is not None and (folder / "catalogue.db").is_file():
        found = peek(folder, which, PAGE_MAX)
        page = found.page if found is not None else ()
        rows |= {row.stream: row for row in page}
        which = Filter(before=page[-1]) if len(page) == PAGE_MAX else None
    return rows


def said_and_found(records: Sequence[Record], fold: bytes | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a sealed stream its fold line, of a live one the ending and the flags of its `end`; and the same of today."""
    if fold is not None:
        said = as_object(parse(fold))
        said.pop("k", None)
        return said, expected(records)
    end = next((record.keys for record in reversed(records) if record.kind == "end"), None)
    ended = [event for event in events(records) if isinstance(event, Ended)]
    chat = bool(records) and records[0].keys.get("dialect") == "chat"
    if end is None or not ended or not chat or "ending" not in end:
        return {}, {}  # it still runs, or nobody but the proxy knows how it ended
    flags = sorted(str(flag) for flag in as_list(end.get("flags")) if flag not in _FLAGS_OF_THE_PROXY)
    return {"ending": end["ending"], "flags": flags}, {"ending": ended[-1].ending, "flags": sorted(ended[-1].flags)}


def refold_paths(
    paths: Iterable[Path], *, write: bool = False, clock: Callable[[], float] = time.perf_counter
) -> Refolding:
    """Files, and every tape below folders. With `write` a sealed tape that changed is sealed anew; live ones stay."""
    began = clock()
    files: list[Refolded] = []
    for path in paths:
        rows = _catalogue(path) if path.is_dir() else {}
        tapes = tapes_in(path) if path.is_dir() else [path]
        files += [_file(tape, rows.get(tape.stem), write=write) for tape in tapes]
    if not files:
        raise TapeError("no .tape file is there")
    return Refolding(files=files, seconds=clock() - began)


def _file(path: Path, row: StreamRow | None, *, write: bool) -> Refolded:
    data = short = path.read_bytes()
    sealed = data.startswith(MARK)
    try:
        data = read(path)
        recording, differences = refold(data, None if sealed else row)
    except TapeError as error:
        return Refolded(path, sealed, 0, len(data), (), str(error))
    written = write and sealed and bool(differences)
    if written:
        header = {name: value for name, value in recording.header.items() if name not in ("wiretape", "format")}
        new = encode(header, recording.streams)
        if short != data:
            new, blobs = apart(new)
            write_blobs(path, blobs)
        unfinished = path.with_name(path.name + ".new")
        unfinished.write_bytes(new)
        unfinished.replace(path)
    return Refolded(path, sealed, len(recording.streams), len(data), differences, "", written)
