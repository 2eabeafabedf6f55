"""Documents generated from the code: `make docs` writes them, a test compares them."""

import dataclasses
from pathlib import Path
from typing import get_args

from tests.support.docs_cli import cli
from tests.support.docs_configuration import configuration
from tests.support.docs_formats import formats
from wiretape.events.chat.repairs import REPAIRS
from wiretape.events.core.lifecycle import STATUS_ON_WIRE, TABLE, TERMINAL, State
from wiretape.events.core.model import Ending, Event

__all__ = ["DOCUMENTS", "write"]

DOCS = Path(__file__).parents[2] / "docs"


def lifecycle() -> str:
    """Return the state table of events/core/lifecycle.py as a diagram and a table."""
    lines = ["# Tool lifecycle", "", "Generated from `events/core/lifecycle.py` by `make docs`.", "", "```mermaid"]
    lines += ["stateDiagram-v2", f"    [*] --> {State.ANNOUNCED.value}"]
    for state, moves in TABLE.items():
        lines += [f"    {state.value} --> {to.value}: {trigger.value}" for trigger, to in moves.items()]
    lines += [f"    {state.value} --> [*]" for state in State if state in TERMINAL]
    lines += ["```", "", "| state | trigger | next state | status on the wire |", "|---|---|---|---|"]
    for state, moves in TABLE.items():
        status = f"`{STATUS_ON_WIRE[state]}`" if state in STATUS_ON_WIRE else "none"
        lines += [f"| {state.value} | {trigger.value} | {to.value} | {status} |" for trigger, to in moves.items()]
        lines += [] if moves else [f"| {state.value} | nothing | - | {status} |"]
    return "\n".join([*lines, ""])


def events() -> str:
    """Return the event union of events/core/model.py as a table."""
    lines = [
        "# Events",
        "",
        "Generated from `events/core/model.py` by `make docs`. Each event carries `n`, the number of its record.",
    ]
    lines += ["", "| event | meaning | fields |", "|---|---|---|"]
    for kind in get_args(Event):
        said = " ".join((kind.__doc__ or "").split())
        fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind) if field.name != "n")
        lines.append(f"| `{kind.__name__}` | {said} | {fields or '-'} |")
    endings = ", ".join(f"`{ending}`" for ending in get_args(Ending))
    return "\n".join([*lines, "", "## Endings", "", f"Every stream has exactly one: {endings}.", ""])


def repairs() -> str:
    """Return the repair names of events/chat/repairs.py as a table."""
    lines = [
        "# Repairs of chat completions",
        "",
        "Generated from `events/chat/repairs.py` by `make docs`. Each difference between",
    ]
    lines += ["what came and what was emitted is one of these, in the ledger of its tape (law L8).", ""]
    lines += ["| repair | meaning |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {said} |" for name, said in REPAIRS.items()), ""])


DOCUMENTS = {
    "lifecycle.md": lifecycle,
    "events.md": events,
    "repairs.md": repairs,
    "cli.md": cli,
    "configuration.md": configuration,
    "formats.md": formats,
}


def write() -> None:
    """Write every generated document."""
    for name, draw in DOCUMENTS.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    write()
