"""Run today's repairs over old tapes and compare the results with what the tapes say of themselves."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, as_object, parse
from wiretape.events.core.model import Ended
from wiretape.events.emit import events
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.proxy.store.catalogue import Rows, peek
from wiretape.proxy.store.catalogue_row import StreamRow, row_of_tape
from wiretape.proxy.store.store import PAGE_MAX, Filter

from ..matching.json_diff import changes, shortened
from ..sealed.files import Recording, read
from ..sealed.files import parse as read_tape
from ..sealed.sealed import MARK, encode, expected
from .compare import tapes_in
from .levels import Difference, of_change

__all__ = ["RecheckedFile", "recheck", "recheck_paths"]

#: Flags that the proxy adds to those of the events (docs/tape.md).
_FLAGS_OF_THE_PROXY: Final = frozenset(
    {"failed_here", "history_marked", "key_masked", "log_failure", "unframed", "untaped", "wrong_content_type"}
)
#: Columns of the catalogue that a tape alone decides.
_CATALOGUED: Final = ("model", "ending", "flags", "input_tokens", "output_tokens", "first_content_us")
_SUMMARY: Final = b'{"k":"fold"'


class RecheckedFile(NamedTuple):
    """The result for one file; `error` says why it could not be read."""

    path: Path
    sealed: bool
    streams: int
    size: int
    differences: Sequence[Difference]
    error: str = ""
    written: bool = False

    def lines(self) -> Iterator[str]:
        """Describe it for a person."""
        done = ", sealed again" if self.written else ""
        for each in self.differences:
            a, b = (shortened(value, each.at) for value in (each.a, each.b))
            yield f"{self.path}: stream {each.stream}: {each.path}: {a} -> {b}{done}"
        if self.error:
            yield f"{self.path}: {self.error}"


def recheck(data: bytes, row: StreamRow | None = None) -> tuple[Recording, list[Difference]]:
    """Return the recording and what has changed; `row` is the catalogue's row of a live tape."""
    recording = read_tape(data, verify=False)
    folds = [line for line in data.split(b"\n") if line.startswith(_SUMMARY)] if data.startswith(MARK) else []
    found: list[Difference] = []
    for number, records in enumerate(recording.streams, 1):
        said, now = _sealed_summary(folds[number - 1], records) if folds else _live_end(records)
        if row is not None:
            fresh = row_of_tape(row.stream, records).stream
            said, now = (
                {**each, "catalogue": {name: getattr(one, name) for name in _CATALOGUED}}
                for each, one in ((said, row), (now, fresh))
            )
        found += [
            of_change(change, Difference("", None, None, breaking=True, stream=number)) for change in changes(said, now)
        ]
    return recording, found


def _sealed_summary(line: bytes, records: Sequence[Record]) -> tuple[dict[str, Any], dict[str, Any]]:
    said = as_object(parse(line))
    said.pop("k", None)
    return said, expected(records, like=said)


def _live_end(records: Sequence[Record]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ending and flags, recorded and recomputed; nothing for a running stream or another dialect."""
    end = next((record.keys for record in reversed(records) if record.kind == "end"), NO_KEYS)
    ended = [event for event in events(records) if isinstance(event, Ended)]
    if not ended or "ending" not in end or records[0].keys.get("dialect") != "chat":
        return {}, {}
    flags = sorted(str(flag) for flag in as_list(end.get("flags")) if flag not in _FLAGS_OF_THE_PROXY)
    return {"ending": end["ending"], "flags": flags}, {"ending": ended[-1].ending, "flags": sorted(ended[-1].flags)}


def recheck_paths(paths: Iterable[Path], *, write: bool = False) -> list[RecheckedFile]:
    """Check files, and every tape below folders. With `write`, seal changed sealed tapes again; live ones stay."""
    files: list[RecheckedFile] = []
    for path in paths:
        rows = _catalogue(path) if path.is_dir() else {}
        tapes = tapes_in(path) if path.is_dir() else [path]
        files += [_check_file(tape, rows.get(tape.stem), write=write) for tape in tapes]
    if not files:
        raise TapeError("no .tape file found")
    return files


def _catalogue(folder: Path) -> dict[str, StreamRow]:
    """Return all rows of a data folder's catalogue, also while a server uses it; empty for any other folder."""
    rows: dict[str, StreamRow] = {}
    which: Filter | None = Filter()
    while which is not None and (folder / "catalogue.db").is_file():
        page = peek(folder, partial(Rows.page, which=which, limit=PAGE_MAX)) or []
        rows |= {row.stream: row for row in page}
        which = Filter(before=page[-1]) if len(page) == PAGE_MAX else None
    return rows


def _check_file(path: Path, row: StreamRow | None, *, write: bool) -> RecheckedFile:
    data = path.read_bytes()
    sealed = data.startswith(MARK)
    try:
        data = read(path)
        recording, differences = recheck(data, None if sealed else row)
    except TapeError as error:
        return RecheckedFile(path, sealed, 0, len(data), (), str(error))
    written = write and sealed and bool(differences)
    if written:
        header = {name: value for name, value in recording.header.items() if name not in ("wiretape", "format")}
        new = encode(header, recording.streams)
        unfinished = path.with_name(path.name + ".new")
        unfinished.write_bytes(new)
        unfinished.replace(path)
    return RecheckedFile(path, sealed, len(recording.streams), len(data), differences, "", written)
