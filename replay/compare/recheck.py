"""Run today's repairs over old tapes and compare the results with those on the tapes."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, as_object, parse
from wiretape.events.core.model import Ended
from wiretape.events.dialects import spoken
from wiretape.events.emit import events
from wiretape.events.tape.record import NO_KEYS, Record

from ..matching.json_diff import changes, shortened
from ..sealed.files import Recording, read
from ..sealed.files import parse as read_tape
from ..sealed.sealed import MARK, expected, fold_lines
from .compare import Difference, of_change, tapes_in

__all__ = ["RecheckedFile", "recheck", "recheck_paths"]

#: Flags that the proxy adds to those of the events (docs/reference/tape-format.md).
_FLAGS_OF_THE_PROXY: Final = frozenset(
    {"failed_here", "history_marked", "key_masked", "log_failure", "unframed", "untaped", "wrong_content_type"}
)


class RecheckedFile(NamedTuple):
    """The result for one file; `error` is the reason why it could not be read."""

    path: Path
    streams: int
    differences: Sequence[Difference]
    error: str = ""

    def lines(self) -> Iterator[str]:
        for each in self.differences:
            a, b = (shortened(value, each.at) for value in (each.a, each.b))
            yield f"{self.path}: stream {each.stream}: {each.path}: {a} -> {b}"
        if self.error:
            yield f"{self.path}: {self.error}"


def recheck(data: bytes) -> tuple[Recording, list[Difference]]:
    """Return the recording and what has changed."""
    recording = read_tape(data, verify=False)
    folds = [line for _, line in fold_lines(data)] if data.startswith(MARK) else []
    found: list[Difference] = []
    for number, records in enumerate(recording.streams, 1):
        if folds:
            said = as_object(parse(folds[number - 1]))
            said.pop("k", None)
            now = expected(records, like=said)
        else:
            said, now = _live_end(records)
        found += [
            of_change(change, Difference("", None, None, breaking=True, stream=number)) for change in changes(said, now)
        ]
    return recording, found


def _live_end(records: Sequence[Record]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ending and flags, recorded and recomputed; nothing for a running stream or an unknown dialect."""
    end = next((record.keys for record in reversed(records) if record.kind == "end"), NO_KEYS)
    ended = [event for event in events(records) if isinstance(event, Ended)]
    if not ended or "ending" not in end or not spoken(records[0].keys.get("dialect")):
        return {}, {}
    flags = sorted(str(flag) for flag in as_list(end.get("flags")) if flag not in _FLAGS_OF_THE_PROXY)
    return {"ending": end["ending"], "flags": flags}, {"ending": ended[-1].ending, "flags": sorted(ended[-1].flags)}


def recheck_paths(paths: Iterable[Path]) -> list[RecheckedFile]:
    """Check files, and every tape below folders."""
    files: list[RecheckedFile] = []
    for tape in (tape for path in paths for tape in (tapes_in(path) if path.is_dir() else [path])):
        try:
            recording, differences = recheck(read(tape))
            files.append(RecheckedFile(tape, len(recording.streams), differences))
        except TapeError as error:
            files.append(RecheckedFile(tape, 0, (), str(error)))
    if not files:
        raise TapeError("no .tape file found")
    return files
