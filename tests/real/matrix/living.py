"""The lifecycle matrix: a conversation equals the direct one, and each call appears twice under one id."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ..judge import plain
from ..report import table
from .progress import Progress, progress
from .script import DIRECT, LIFECYCLE_WAYS, PEERS, READER, TURNS, Found, arguments_of

_TEXT = """\
## The life of a tool call

Each client runs a conversation of two turns, with one call and with two in parallel, directly and through
Wiretape, whose frames of the lifecycle are on. **same**: text, arguments that the tool was run with, and finish are as
direct. **shown**: a reader that understands `event: hermes.tool.progress` finds in the bytes that this client got
exactly `running`, then `completed`, under one id for each call. {reader} is such a reader and a client of its own.

{results}
{defects}"""


def faults(direct: Found, through: Found) -> Iterator[str]:
    """Yield what is wrong with a conversation."""
    if _held(direct.result) != _held(through.result):
        yield f"another result than direct: {json.dumps(_held(through.result), ensure_ascii=False)[:300]}"
    calls = 2 if through.cell.model.cut == "two" else 1
    for way, found in (("direct", direct), ("through", through)):
        if sorted(map(_said, found.ran)) != sorted(_due(found.cell.model.tool, index) for index in range(calls)):
            yield f"{way}, the tool ran with {found.ran}"
    yield from _shown(through, calls)


def _shown(through: Found, calls: int) -> Iterator[str]:
    seen = [each for stream in through.streams or [] for each in progress(stream)]
    live = [Progress(*each) for turn in through.result["turns"] for each in turn.get("progress", [])]
    if live and live != seen:
        yield f"the reader got {live}, the tape has {seen}"
    ids = list(dict.fromkeys(each.id for each in seen))
    if len(ids) != calls:
        yield f"{len(ids)} calls were shown, not {calls}"
    for one in ids:
        words = [each.status for each in seen if each.id == one]
        if words != ["running", "completed"]:
            yield f"shown as {', '.join(words)}"


def _held(result: dict[str, Any]) -> dict[str, Any]:
    """Return what the client holds. Parallel calls run at once, and opencode lists them as they end."""
    turns = [{key: value for key, value in turn.items() if key != "progress"} for turn in result["turns"]]
    held = plain(result | {"turns": turns})
    for turn in held["turns"]:
        turn["calls"].sort(key=str)
    return held | {"ran": sorted(held["ran"], key=str)}


def _said(line: str) -> str:
    return json.dumps(json.loads(line), sort_keys=True) if line.startswith("{") else line


def _due(tool: str, index: int) -> str:
    """Return the line that the tool writes: its arguments, or those of its command."""
    arguments = arguments_of(tool, index)
    command = str(arguments.get("command", ""))
    return command.removeprefix("./record ") if command else json.dumps(arguments, sort_keys=True)


def _pairs(found: Sequence[Found]) -> Iterator[tuple[Found, Found]]:
    direct = {(each.cell.peer, each.cell.model.cut): each for each in found if each.cell.way == DIRECT}
    for each in found:
        if each.cell.way != DIRECT:
            yield direct[each.cell.peer, each.cell.model.cut], each


def summary(found: Sequence[Found]) -> tuple[str, bool]:
    """Return the faults and one line, and whether there are none."""
    pairs = list(_pairs(found))
    wrong = [
        f"{each.cell.peer.name} | {each.cell.model.cut} | {each.cell.way} | {'; '.join(said)}\n"
        for direct, each in pairs
        if (said := list(faults(direct, each)))
    ]
    return f"{''.join(wrong)}lifecycle matrix: {len(pairs)} conversations, {len(wrong)} do not hold", not wrong


def document(found: Sequence[Found]) -> str:
    """Return the chapter."""
    judged = {
        (each.cell.peer, each.cell.model.cut, each.cell.way): list(faults(direct, each))
        for direct, each in _pairs(found)
    }
    columns = [(turns, way) for turns in TURNS for way in LIFECYCLE_WAYS]
    heads = [
        f"{says}, {'default' if way == 'error' else f'`{way}`'}" for says in TURNS.values() for way in LIFECYCLE_WAYS
    ]
    rows = [
        [peer.name, *(_word(judged.get((peer, turns, way))) for turns, way in columns)] for peer in (*PEERS, READER)
    ]
    wrong = [
        [peer.name, TURNS[turns], f"`{way}`", "; ".join(each).replace("|", "\\|")]
        for (peer, turns, way), each in judged.items()
        if each
    ]
    listed = table(["client", "conversation", "way", "what is wrong"], wrong)
    return _TEXT.format(
        reader=READER.name.capitalize(),
        results=table(["client", *heads], rows),
        defects=f"### What does not hold\n\n{listed}\n" if wrong else "",
    )


def _word(found: list[str] | None) -> str:
    if found is None:
        return "-"
    shown = (
        "shown"
        if not any(each.startswith(("shown", "the reader")) or "were shown" in each for each in found)
        else "**not shown**"
    )
    same = "same" if not any(each.startswith("another") or "the tool ran" in each for each in found) else "**differs**"
    return f"{same}, {shown}"
