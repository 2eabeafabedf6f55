"""Streams on the command line: found in a data folder, and shown as a table, a summary, events, or text as it arrives.

The folder is read without a lock, whether or not a server holds it. Ended streams come from the catalogue, or from
their tapes if it lacks them; live ones always from their tapes.
"""

import dataclasses
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT
from wiretape.events.core.model import (
    AttemptStarted,
    Ended,
    Event,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolProgress,
    UpstreamError,
)
from wiretape.events.emit import Emitter
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record, decode
from wiretape.events.tape.tape import Damage

from ..config.load import DEFAULT, Row
from ..store.catalogue import peek, read_row
from ..store.catalogue_row import StreamRow
from ..store.files import mended
from ..store.folder import LIVE, days_in, holder, tapes_in
from ..store.store import Filter
from ..store.tape_file import TapeReader, opened_for_reading
from .common import FOUND_WRONG, FailedError, escaped

__all__ = [
    "ID_CHARS",
    "NO_END",
    "AmbiguousIdError",
    "TapeFollower",
    "TextView",
    "console",
    "damage_of",
    "event_json",
    "event_line",
    "events_of",
    "find",
    "only_one",
    "read_tape",
    "row_json",
    "rows_of",
    "seconds",
    "settings_table",
    "streams",
    "summary_view",
    "table_of",
    "tapes_of",
    "when",
]

_PREVIEW_CHARS: Final = 100
#: Characters of an id in a table: 60 of its 128 bits, which every verb accepts.
ID_CHARS: Final = 12
_PIPE_WIDTH: Final = 160
#: The ending shown for a tape in a day's folder that has no `end`: it was cut or damaged.
NO_END: Final = "no end"
_DAMAGED: Final = "damaged"
_NOT_RECOVERED: Final = (
    "not recovered yet: its server is gone and left the tape without an end, which the next start writes"
)
_CUT: Final = "the tape has no end, and nothing will be written to it any more"

#: Too short to notice, and no load: one read of a file each time.
_POLL_S: Final = 0.05
_LOST: Final = ("dropped", "malformed", "failed", "abandoned", "unknown")
#: The causes in an `end` record that are no endings.
_CAUSES: Final[Mapping[str, str]] = {
    "eof": "the upstream's bytes ended before the answer was whole",
    "closed": "Wiretape closed the connection, after an error or an end that came too early",
    "status": "the upstream answered with an error status",
    "upload": "the request body was longer than the limit",
    "slow_upload": "the request body stopped arriving",
}


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints plain, whole lines into a pipe and never reads text as markup."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)
    if not made.is_terminal:
        made.width = _PIPE_WIDTH
    return made


def events_of(records: Iterable[Record]) -> Iterator[tuple[int, Event]]:
    """Yield each event with the time of its record, which may be a few records before the one that revealed it."""
    seen: list[Event] = []
    times: dict[int, int] = {}
    emitter = Emitter(sink=seen.append)
    for record in records:
        times[record.n] = record.t
        emitter.feed(record)
        for event in seen:
            if isinstance(event, Ended) and "ending" in record.keys:  # of a damaged tape the end knows more
                event = replace(event, ending=record.keys["ending"])  # noqa: PLW2901
            yield times.get(event.n, record.t), event
        seen.clear()


# -- tables -----------------------------------------------------------------------------------------------------------


def row_json(row: StreamRow) -> dict[str, Any]:
    """Return one row of `ls --json`."""
    members = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return {"id": members.pop("stream"), "live": not row.ending, **members, "ending": row.ending or None}


def table_of(rows: Sequence[StreamRow]) -> Table:
    """Return a table of streams."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("stream", "when", "route", "model", "ending"):
        table.add_column(name, no_wrap=True, max_width={"route": 12, "model": 24}.get(name))
    for name in ("in/out", "first", "took"):
        table.add_column(name, no_wrap=True, justify="right")
    for row in rows:
        tokens = ("-" if count is None else str(count) for count in (row.input_tokens, row.output_tokens))
        table.add_row(
            row.stream[:ID_CHARS],
            when(row.created)[5:] or "-",
            escaped(row.route) or "-",
            escaped(row.model) or "-",
            _ending(row.ending or LIVE, row.flags),
            "/".join(tokens),
            seconds(row.first_content_us),
            seconds(row.duration_us),
        )
    return table


def settings_table(rows: Iterable[Row]) -> Table:
    """Return a table of settings."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("setting", "value", "from"):
        table.add_column(name, overflow="fold")
    for row in rows:
        origin = Text(escaped(row.origin), style="dim" if row.origin == DEFAULT else "cyan")
        table.add_row(row.name, escaped(row.value) or "-", origin)
    return table


# -- one stream -------------------------------------------------------------------------------------------------------


def summary_view(summary: Mapping[str, Any]) -> RenderableType:
    """Render the JSON of a summary made with `whole`."""
    timing, received = summary["timing"], summary["received"]
    how = f"{summary['dialect']}, profile {summary['profile']}" if summary["dialect"] else "relayed as it came"
    without_end = LIVE if summary["live"] else NO_END
    first, pause, whole = (seconds(timing[name]) for name in ("first_content_us", "longest_pause_us", "duration_us"))
    rows: list[tuple[str, str | Text]] = [
        ("stream", summary["id"]),
        ("when", when(summary["created"] or 0)),
        ("requested", f"{summary['model'] or '-'}, {how}"),
        ("ending", _ending(summary["ending"] or without_end, summary["flags"])),
    ]
    if (cause := summary["cause"]) not in (None, summary["ending"]) and summary["ending"] != "completed":
        rows.append(("cause", _CAUSES.get(cause, str(cause))))
    if error := summary["error"]:
        rows.append(("error", ": ".join(filter(None, (error["code"], error["message"])))))
    rows += [
        *((f"attempt {number}", _attempt(keys)) for number, keys in enumerate(summary["attempts"], 1)),
        ("timing", f"first content {first}, longest pause {pause}, whole {whole}"),
        ("received", f"{received['bytes']} bytes in {received['frames']} frames"),
    ]
    if usage := summary["usage"]:
        rows.append(("usage", ", ".join(f"{name} {count}" for name, count in usage.items() if type(count) is int)))
    if repairs := summary["repairs"]:
        rows.append(("repairs", ", ".join(f"{name} {count}x" for name, count in repairs.items())))
    rows += [("damage", f"byte {damage['at']}: {damage['reason']}") for damage in summary["damage"]]
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in rows:
        facts.add_row(name, escaped(value) if isinstance(value, str) else value)
    parts: list[RenderableType] = [facts]
    for warning in summary["warnings"]:
        calls = ", ".join(f"{call['name'] or 'a tool'} ({call['id'] or '-'})" for call in warning["calls"])
        parts.append(Text(escaped(f"⚠ {warning['code']}{calls and ': '}{calls}"), style="bold red"))
    if summary["tools"]:
        parts += [Text(), _tools(summary["tools"])]
    for answer in summary["message"]["answers"] if summary["message"] else ():
        for name in ("reasoning", "text", "refusal"):
            if answer[name]:
                title = f"{name} of answer {answer['index']}" if answer["index"] else name
                parts += [Text(), Text(title, style="bold"), Text(escaped(answer[name]))]
    return Group(*parts)


def _attempt(keys: Mapping[str, Any]) -> str:
    """Return where an attempt went, how it failed and what followed, and the error of the upstream, each in a line."""
    names = ("upstream", "url", "dialect", "model", "status", "ending", "message")
    lines = [", ".join(f"{name} {keys[name]}" for name in names if keys.get(name) is not None) or "-"]
    if keys.get("lost"):
        lines.append(f"lost by crossing: {', '.join(map(str, keys['lost']))}")
    if failure := keys.get("failure"):
        after = f" after {failure['after_ms'] / 1e3:g} s" if type(failure.get("after_ms")) is int else ""
        lines.append(f"{failure.get('message') or failure.get('ending')} (next: {failure.get('next')}{after})")
    if keys.get("error"):
        lines.append(" ".join(keys["error"].split()))
    return "\n".join(lines)


def _known(call: Mapping[str, Any]) -> str:
    """Return what is known of a call, and no more: a client may run what it should not."""
    state, reason = str(call["state"]), f" ({call['reason']})" if call["reason"] else ""
    if state == "unknown":
        return "the tape is damaged here"
    if call["run_by"] == "upstream":
        return "end not reported" + reason if state == "dropped" else f"{state} at the upstream"
    if state in ("dropped", "malformed"):
        by = (call["answered_by"] or "")[:ID_CHARS]
        return f"not completed{reason}; " + (
            f"executed by the client (result in stream {by})" if by else "no result seen"
        )
    return {"running": "handed over; no result seen", "abandoned": "abandoned; no result seen"}.get(state, state)


def _tools(calls: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("tool", "call", "state", "took", "answered by", "arguments"):
        table.add_column(name, overflow="fold")
    for call in calls:
        table.add_row(
            escaped(call["name"]),
            escaped(call["id"]),
            Text(escaped(_known(call)), style="red" if call["state"] in _LOST else "green"),
            "-" if call["duration_ms"] is None else f"{call['duration_ms'] / 1e3:.2f}s",
            (call["answered_by"] or "-")[:ID_CHARS],
            escaped(call["arguments"]),
        )
    return table


# -- events -----------------------------------------------------------------------------------------------------------


def event_json(t: int, event: Event) -> dict[str, Any]:
    """Return one line of `--events --json`."""
    members = {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value for name, value in _members(event)
    }
    return {"n": event.n, "t": t, "event": _word(event), **members}


def event_line(t: int, event: Event) -> str:
    """Return one line of `--events`."""
    members = " ".join(f"{name}={_short(value)}" for name, value in _members(event))
    return f"{event.n:>6} {t / 1e6:>10.3f}s  {_word(event):<24}{members}"


def _members(event: Event) -> Iterator[tuple[str, Any]]:
    """Yield an event's members; what a repair added has no `before`, what it removed no `after`."""
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name != "n" and value is not ABSENT:
            yield field.name, value


class TextView:
    """A stream as text that is read while it arrives; `add` returns what an event adds to it."""

    def __init__(self) -> None:
        self._wire = Wire()
        self._kind: type[Event] | None = None

    def add(self, event: Event) -> str:
        """Return the next piece."""
        if isinstance(event, AttemptStarted):
            self._wire = Wire()
        self._wire.apply(event)
        match event:
            case TextDelta() | ReasoningDelta() | RefusalDelta():
                return self._turn(event, f"[{_word(event).split('_')[0]}] ") + escaped(event.text)
            case ToolCallStarted():
                return self._turn(event, f"[tool] {escaped(event.name)} ", always=True)
            case ToolArgumentsDelta():
                return escaped(event.text)
            case ToolProgress():
                return self._turn(event, f"[tool] {escaped(event.name)} {escaped(event.status)}", always=True)
            case UpstreamError():
                return self._turn(event, f"[error] {escaped(event.message)}")
            case Ended():
                lost = [call.name for call in self._wire.all_calls() if call.state.value in ("dropped", "malformed")]
                names = f" (lost: {escaped(', '.join(lost))})" if lost else ""
                return self._turn(event, f"[{event.ending}]{names}") + "\n"
            case _:
                return ""

    def _turn(self, event: Event, head: str, *, always: bool = False) -> str:
        """Begin a new line where another kind of event begins."""
        before, self._kind = self._kind, type(event)
        if before is type(event) and not always:
            return ""
        return ("" if before is None else "\n") + ("" if head == "[text] " else head)


def _word(event: Event) -> str:
    """Return the name of the class in snake case: tool_call_started."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", type(event).__name__).lower()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _PREVIEW_CHARS else text[: _PREVIEW_CHARS - 1] + "…"


def _ending(ending: str, flags: Sequence[str]) -> Text:
    words = ", ".join([ending, *(flag.replace("_", " ") for flag in flags)])
    return Text(escaped(words), style={"completed": "green", LIVE: "cyan"}.get(ending, "bold red"))


def when(created: int) -> str:
    return datetime.fromtimestamp(created, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S") if created else "-"


def seconds(us: int | None) -> str:
    return "-" if us is None else f"{us / 1e6:.2f}s"


# -- the data folder --------------------------------------------------------------------------------------------------


class AmbiguousIdError(FailedError):
    """More than one stream matches this id."""


def streams(root: Path, which: Filter, limit: int) -> list[StreamRow]:
    """Return streams, the latest first, each with what is wrong with its tape now."""
    rows, tapes = rows_of(root, which, limit), tapes_of(root)
    return [replace(row, flags=(*row.flags, *_faults(tapes.get(row.stream)))) for row in rows]


def rows_of(root: Path, which: Filter, limit: int) -> list[StreamRow]:
    """Return streams, the latest first. `which.ending` may be the empty string, for those that are live."""
    held = holder(root) is not None
    live = ((stream, Path(entry.path)) for stream, entry in tapes_in(root / LIVE))
    rows = {row.stream: row for row in _rows(live, unheld=not held) if which.admits(row)}
    page, known = peek(root, lambda rows: (rows.page(which, limit), rows.streams())) or ([], frozenset[str]())
    if which.ending != "":
        # What the catalogue lacks: normally nothing, after its loss everything. Our ids sort by time.
        missing = [tape for tape in tapes_of(root).items() if tape[0] not in known and tape[1].parent.name != LIVE]
        missing.sort(key=lambda tape: (tape[1].parent.name, tape[0]), reverse=True)
        ended = [*page, *islice(filter(which.admits, _rows(missing)), limit)]
        rows |= {row.stream: row if row.ending else replace(row, ending=NO_END) for row in ended}
    return sorted(rows.values(), key=lambda row: row.place, reverse=True)[:limit]


def tapes_of(root: Path, prefix: str = "") -> dict[str, Path]:
    """Return where the tape of each stream is. They move from `live` to a day, so none is missed in this order."""
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
        return [_DAMAGED] if damage or not (ended or tape.parent.name == LIVE) else []
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


def find(root: Path, prefix: str) -> Path:
    """Return the tape of the only stream whose id begins with this prefix, or equals it."""
    found = tapes_of(root, prefix)
    return found[only_one(found, prefix, "stream", root)]


def only_one(found: Collection[str], prefix: str, kind: str, root: Path) -> str:
    """Return the only id that begins with this prefix, or the one that equals it. Raise `FailedError`."""
    if prefix in found or len(found) == 1:
        return prefix if prefix in found else next(iter(found))
    if not found:
        raise FailedError(f"No {kind} in {root} has an id that begins with {prefix[:80]!r}", FOUND_WRONG)
    some = ", ".join([*sorted(found)[:3], *(["..."] if len(found) > 3 else [])])
    raise AmbiguousIdError(f"Ambiguous id {prefix[:80]!r} matches {len(found)} {kind}s: {some}", FOUND_WRONG)


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
            raise FailedError(f"Cannot read {path}: {error.strerror}", FOUND_WRONG) from error
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
                raise FailedError(f"{self._path}: {error}", FOUND_WRONG) from error
            if self.ended or not (self.grows and waits):
                break
            time.sleep(_POLL_S)
        if self._live and not (self.ended or self.grows):
            yield from _recovery(self._path)
