"""Runs on the command line: found in a data folder, and shown as a table, a summary, events, or text as it arrives.

The records of all tapes of a run, in order, are all there is to know about it.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wiretape.events.core.json_text import as_object, parse
from wiretape.events.emit import RunReader
from wiretape.events.folds.run import RunFold
from wiretape.events.folds.run_events import CLOSED

from ..store.catalogue_row import StreamRow
from ..store.folder import holder
from ..store.store import Filter
from .common import FOUND_WRONG, FailedError, escaped
from .show import TapeFollower, only_one, read_tape, rows_of, seconds, tapes_of, when

__all__ = [
    "PREFIX",
    "RunText",
    "event_of",
    "find_run",
    "follow_run",
    "read_run",
    "run_view",
    "runs_table",
    "turns_of",
]

#: How the ids of runs begin; no id of a stream does.
PREFIX: Final = "run_"
#: Characters of an id in a table.
_ID_CHARS: Final = len(PREFIX) + 12
#: More than any data folder holds.
_ALL: Final = 1 << 31
#: Members of events that are printed, in this order.
_SAID: Final = ("tool", "call_id", "preview", "code", "message", "error", "reason", "choice")
#: How often to look for the next turn.
_POLL_S: Final = 0.2


def find_run(root: Path, prefix: str) -> str:
    """Return the id of the only run whose id begins with this."""
    found = [run for row in rows_of(root, Filter(runs=True), _ALL) if (run := row.run or "").startswith(prefix)]
    return only_one(found, prefix, "run", root)


def turns_of(root: Path, run: str) -> list[Path]:
    """Return the tapes of a run, in order."""
    rows = sorted(rows_of(root, Filter(run=run), _ALL), key=lambda row: row.turn or 0)
    tapes = tapes_of(root)
    return [tapes[row.stream] for row in rows if row.stream in tapes]


def follow_run(root: Path, run: str, wrong: list[str]) -> Iterator[bytes]:
    """Yield the events of a run as they arrive, and note what is `wrong` with its tapes.

    Raise `FailedError` if it cannot go on.
    """
    reader, seen = RunReader(), set[str]()
    while reader.run.status not in CLOSED:
        held = holder(root) is not None
        news = [path for path in turns_of(root, run) if path.stem not in seen]
        for path in news:
            seen.add(path.stem)
            with closing(TapeFollower(path)) as tape:
                for record in tape.records():
                    yield from reader.feed(record)
                wrong += [f"{path}: byte {at}: {reason}" for at, reason in tape.damage]
                if not tape.ended:
                    raise FailedError(tape.missing_end, FOUND_WRONG)
        if not (news or held):
            raise FailedError(f"the run is {reader.run.status}, and no server is left that could go on", FOUND_WRONG)
        if not news:
            time.sleep(_POLL_S)


def read_run(root: Path, run: str) -> tuple[list[bytes], RunFold, list[str]]:
    """Return the events of a run so far, its state, and what is wrong with its tapes."""
    reader, frames, wrong = RunReader(), list[bytes](), list[str]()
    for path in turns_of(root, run):
        records, damage, _ = read_tape(path)
        wrong += [f"{path}: byte {at}: {reason}" for at, reason in damage]
        frames += reader.feed(*records)
    return frames, reader.run, wrong


def event_of(frame: bytes) -> dict[str, Any]:
    """Return the event of a frame."""
    return as_object(parse(frame.partition(b"\ndata: ")[2]))


# -- what people read -------------------------------------------------------------------------------------------------


def runs_table(rows: Sequence[StreamRow], runs: Sequence[tuple[RunFold, bool]]) -> Table:
    """Return a table of runs, each with the row of its first stream and whether a tape is damaged."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "when", "route", "model", "state"):
        table.add_column(name, no_wrap=True, max_width={"route": 12, "model": 24}.get(name))
    for name in ("turns", "in/out", "took"):
        table.add_column(name, no_wrap=True, justify="right")
    for row, (run, damaged) in zip(rows, runs, strict=True):
        usage = run.usage or {}
        table.add_row(
            run.run_id[:_ID_CHARS],
            when(row.created)[5:] or "-",
            escaped(row.route) or "-",
            escaped(run.model) or "-",
            _state(run, damaged=damaged),
            str(run.turn),
            f"{usage.get('input_tokens', '-')}/{usage.get('output_tokens', '-')}",
            seconds(run.updated_us - run.created_us),
        )
    return table


def run_view(run: RunFold) -> RenderableType:
    """Render one run."""
    rows: list[tuple[str, str | Text]] = [
        ("run", run.run_id),
        ("when", when(run.created_us // 1_000_000)),
        ("session", run.session),
        ("requested", run.model),
        ("state", _state(run)),
        ("error", run.error),
        ("last event", f"{run.last_event}, {run.sequence} in all"),
        ("usage", ", ".join(f"{name} {count}" for name, count in (run.usage or {}).items())),
        ("streams", "\n".join(run.streams)),
    ]
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in rows:
        if value:
            facts.add_row(name, escaped(value) if isinstance(value, str) else value)
    parts: list[RenderableType] = [facts]
    if run.pending:
        calls = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("waits for", "call", "arguments"):
            calls.add_column(name, overflow="fold")
        for call_id, call in run.pending.items():
            calls.add_row(escaped(call["tool"]), escaped(call_id), escaped(call["arguments"]))
        parts += [Text(), calls]
    if run.output:
        parts += [Text(), Text("output", style="bold"), Text(escaped(run.output))]
    return Group(*parts)


def _state(run: RunFold, *, damaged: bool = False) -> Text:
    style = {"completed": "green", "failed": "bold red", "cancelled": "bold red"}.get(run.status, "cyan")
    return Text(run.status.replace("_", " ") + ", damaged" * damaged, style="bold red" if damaged else style)


class RunText:
    """A run as text that is read while it arrives; `add` returns what an event adds to it."""

    def __init__(self) -> None:
        self._name = ""

    def add(self, event: dict[str, Any]) -> str:
        """Return the next piece; every event but text and reasoning has a line of its own."""
        name = event["event"]
        if name == "reasoning.available":  # its deltas came before, or the text follows
            return ""
        before, self._name = self._name, name
        if name in ("message.delta", "reasoning.delta", "tool.arguments.delta"):
            head = "" if name == "message.delta" else f"[{name.split('.')[0]}] "
            return ("\n" * bool(before) + head if before != name else "") + escaped(event["delta"])
        said = " ".join(str(event[key]) for key in _SAID if event.get(key) is not None)
        end = "\n" * (name.removeprefix("run.") in CLOSED)
        return "\n" * bool(before) + escaped(f"[{name}] {said}".rstrip()) + end
