"""docs/internals/clients.md: what each agent showed, in tables."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.markdown import table

from ..clients import version_table
from ..processes import RUN
from .agents import AGENTS
from .scenes import DIRECT, ENDINGS, LLAMA, PLACES, Cell, Found

PLACE: Final = Path(__file__).parents[3] / "docs/internals/clients.md"

_TEXT: Final = """\
# Real clients in three dialects

Written by `make test-real`. Agents as people install them run over loopback, with a scripted upstream that speaks only
one dialect and answers 404 to the paths of the others: directly in their own dialect, and through one `wiretape serve`
with a route for each upstream (`speaks` is set where Responses and Messages cross to each other). `{llama}` is
llama-cpp-python with a tiny model, which speaks only chat completions.

A column is what the upstream speaks. **holds**: the agent got every answer, its tools ran once each with what was said,
and what a scene demands besides is there.

{scenes}
{faults}## The scenes

{says}
## Cut streams

The first answer is cut, and so is each repetition; the agent retries by its own defaults. A cell says what
the user sees, and how many requests the agent sent for one user turn. **Bold** marks a fault: a tool that ran although
the end of its call was never sent to the agent, a success, no end, or more requests than the agent's limit.
*handed over*: the event that ends the call had gone out, so the agent runs the tool before it knows what follows
(`tools = "held"` keeps that event back until the upstream's own end).

Limits: {limits}. After a whole text, Claude Code may send one more: it asks up to three times to be continued, each
time with a longer history.

{cuts}

{cut}
## Versions

{versions}"""

#: Every run adds its rows.
_ROWS: Final = RUN / "dialects-rows.json"


class Row(NamedTuple):
    """What is kept of a cell, from one run to the next."""

    faults: list[str]
    word: str


Key = tuple[str, str, str]


def key_of(cell: Cell) -> Key:
    """Return what names a cell: agent, scene, way."""
    return cell.agent.name, cell.scene.name, cell.way


def read_rows() -> dict[Key, Row]:
    """Return the rows of earlier runs."""
    if not _ROWS.exists():
        return {}
    kept: list[list[Any]] = json.loads(_ROWS.read_text(encoding="utf-8"))
    return {(agent, scene, way): Row(faults, word) for agent, scene, way, faults, word in kept}


def write_rows(rows: Mapping[Key, Row]) -> None:
    """Keep rows for later runs."""
    _ROWS.write_text(json.dumps([[*key, *row] for key, row in rows.items()], ensure_ascii=False), encoding="utf-8")


def row_of(found: Found) -> Row:
    """Return the row of a cell."""
    return Row(list(found.faults), word(found))


def is_cut(cell: Cell) -> bool:
    """Return whether the upstream's stream breaks in a cell."""
    return bool(cell.scene.place)


def document(cells: Sequence[Cell], rows: Mapping[Key, Row]) -> str:
    """Return the whole document."""
    cut = [cell for cell in cells if is_cut(cell)]
    whole = [cell for cell in cells if not is_cut(cell)]
    wrong = [f"- {', '.join(key_of(cell))}: {'; '.join(said)}" for cell in whole if (said := rows[key_of(cell)].faults)]
    limits = {agent.name.partition(",")[0]: agent.requests_max for agent in AGENTS}
    return _TEXT.format(
        llama=LLAMA,
        scenes=_table("scene", _WAYS, whole, lambda cell: "**no**" if rows[key_of(cell)].faults else "holds"),
        faults="\n".join([*wrong, "", ""]) if wrong else "",
        says=table(["scene", "agents", "what happens"], _says(whole)),
        limits=", ".join(f"{name} {most}" for name, most in limits.items()),
        cuts="\n".join(f"- {name}: {says}" for name, says in (*PLACES.items(), *ENDINGS.items())),
        cut=_table("cut", _CUT_WAYS, cut, lambda cell: rows[key_of(cell)].word),
        versions=version_table(agent.package for agent in AGENTS),
    )


def _table(head: str, columns: Sequence[str], cells: Sequence[Cell], said: Callable[[Cell], str]) -> str:
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for cell in cells:
        rows.setdefault((cell.agent.name, cell.scene.name), {})[_column(cell)] = said(cell)
    lines = [[*key, *(row.get(column, "-") for column in columns)] for key, row in rows.items()]
    return table(["agent", head, *columns], lines)


#: The columns, and those of the cuts.
_WAYS: Final = ("direct", "chat", "Responses", "Messages", LLAMA)
_CUT_WAYS: Final = ("direct", "own dialect", "own dialect, held", "in front of chat")


def _column(cell: Cell) -> str:
    if cell.way in (DIRECT, LLAMA):
        return cell.way
    if not is_cut(cell):
        dialect = cell.way.removeprefix("to-")
        return dialect if dialect == "chat" else dialect.capitalize()
    if cell.way.endswith("-held"):
        return "own dialect, held"
    return "own dialect" if cell.way == cell.agent.dialect else "in front of chat"


def _says(cells: Sequence[Cell]) -> Iterator[list[str]]:
    by_scene: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.way != LLAMA:
            by_scene.setdefault((cell.scene.name, cell.scene.says), []).append(cell.agent.name.partition(",")[0])
    for (scene, says), named in by_scene.items():
        names = list(dict.fromkeys(named))
        yield [scene, "all" if len(names) > 2 else ", ".join(names), says]


def word(found: Found) -> str:
    """Return what the user sees of a cut stream."""
    end = "no end" if found.endless else "error" if found.shown.error else "success"
    ran = "*handed over*, " if found.handed and found.ran else "tool ran, " if found.ran else ""
    said = f"{ran}{end} ({found.requests})"
    return f"**{said}**" if list(found.faults) else said


def summary(cells: Sequence[Cell], rows: Mapping[Key, Row]) -> Mapping[str, int]:
    """Return the numbers of cells and of faults, without the direct ones of cut streams."""
    mine = [rows[key_of(cell)] for cell in cells if cell.way != DIRECT or not is_cut(cell)]
    return {"cells": len(mine), "do not hold": sum(1 for row in mine if row.faults)}
