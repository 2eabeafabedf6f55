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
from ..store.folder import folders_in, holder
from .common import FOUND_WRONG, FailedError, escaped
from .show import facts_table, seconds, table, when
from .tapes import TapeFollower, read_tape, turns_of

__all__ = ["RunText", "event_of", "follow_run", "read_run", "run_view", "runs_table"]

#: Characters of an id in a table.
_ID_CHARS: Final = 16
#: Members of events that are printed, in this order.
_SAID: Final = ("tool", "call_id", "preview", "code", "message", "error", "reason", "choice")
#: How often to look for the next turn.
_POLL_S: Final = 0.2


def follow_run(root: Path, run: str, wrong: list[str]) -> Iterator[bytes]:
    """Yield the events of a run as they arrive, and note what is `wrong` with its tapes.

    Raise `FailedError` if it cannot go on.
    """
    reader, seen = RunReader(), set[str]()
    while reader.run.status not in CLOSED:
        held = any(holder(folder) is not None for folder in folders_in(root))
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
    names = "run", f"when ({when(1, '%Z')})", "route", "model", "state"
    made = table(*names, right=("turns", "in/out", "took"), whole=True)
    for row, (run, damaged) in zip(rows, runs, strict=True):
        usage = run.usage or {}
        made.add_row(
            run.run_id[:_ID_CHARS],
            when(row.created),
            escaped(row.route) or "-",
            escaped(run.model) or "-",
            _state(run, damaged=damaged),
            str(run.turn),
            f"{usage.get('input_tokens', '-')}/{usage.get('output_tokens', '-')}",
            seconds(run.updated_us - run.created_us),
        )
    return made


def run_view(run: RunFold) -> RenderableType:
    """Render one run."""
    rows: list[tuple[str, str | Text]] = [
        ("run", run.run_id),
        ("when", when(run.created_us // 1_000_000, "%Y-%m-%d %H:%M:%S %Z")),
        ("session", run.session),
        ("requested", run.model),
        ("state", _state(run)),
        ("error", run.error),
        ("last event", f"{run.last_event}, {run.sequence} in all"),
        ("usage", ", ".join(f"{name} {count}" for name, count in (run.usage or {}).items())),
        ("streams", "\n".join(run.streams)),
    ]
    parts: list[RenderableType] = [facts_table(rows)]
    if run.pending:
        calls = table("waits for", "call", "arguments")
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
