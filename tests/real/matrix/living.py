"""The lifecycle matrix: a conversation equals the direct one, and each call appears twice under one id."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.support.markdown import table

from ..frames import Progress, progress
from ..judge import plain
from .script import DIRECT, LIFECYCLE_WAYS, PEERS, READER, TURNS, Found, Peer, arguments_of

_TEXT = """\
## The life of a tool call

Each client runs a conversation of two turns, with one call and with two in parallel, directly and through
Wiretape, whose frames of the lifecycle are on. **same**: text, arguments that the tool was run with, and finish are as
direct. **shown**: a reader that understands `event: hermes.tool.progress` finds in the bytes that this client got
exactly `running`, then `completed`, under one id for each call. {reader} is such a reader and a client of its own.

{results}
{defects}"""


class Faults(NamedTuple):
    """What is wrong with a conversation: it differs from the direct one, or its calls were shown otherwise."""

    differs: list[str]
    shown: list[str]


def faults(direct: Found, through: Found) -> Faults:
    """Return what is wrong with a conversation."""
    differs: list[str] = []
    if _held(direct.result) != _held(through.result):
        differs.append(f"another result than direct: {json.dumps(_held(through.result), ensure_ascii=False)[:300]}")
    calls = 2 if through.cell.model.cut == "two" else 1
    for way, found in (("direct", direct), ("through", through)):
        if sorted(map(_said, found.ran)) != sorted(_due(found.cell.model.tool, index) for index in range(calls)):
            differs.append(f"{way}, the tool ran with {found.ran}")
    return Faults(differs, list(_shown(through, calls)))


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


def _judged(found: Sequence[Found]) -> dict[tuple[Peer, str, str], Faults]:
    """Return the faults of each conversation through Wiretape."""
    direct = {(each.cell.peer, each.cell.model.cut): each for each in found if each.cell.way == DIRECT}
    return {
        (each.cell.peer, each.cell.model.cut, each.cell.way): faults(direct[each.cell.peer, each.cell.model.cut], each)
        for each in found
        if each.cell.way != DIRECT
    }


def summary(found: Sequence[Found]) -> tuple[str, bool]:
    """Return the faults and one line, and whether there are none."""
    judged = _judged(found)
    wrong = [
        f"{peer.name} | {turns} | {way} | {'; '.join(each.differs + each.shown)}\n"
        for (peer, turns, way), each in judged.items()
        if any(each)
    ]
    return f"{''.join(wrong)}lifecycle matrix: {len(judged)} conversations, {len(wrong)} do not hold", not wrong


def document(found: Sequence[Found]) -> str:
    """Return the chapter."""
    judged = _judged(found)
    columns = [(turns, way) for turns in TURNS for way in LIFECYCLE_WAYS]
    heads = [f"{TURNS[turns]}, {'default' if way == 'error' else f'`{way}`'}" for turns, way in columns]
    rows = [
        [peer.name, *(_word(judged.get((peer, turns, way))) for turns, way in columns)] for peer in (*PEERS, READER)
    ]
    wrong = [
        [peer.name, TURNS[turns], f"`{way}`", "; ".join(each.differs + each.shown).replace("|", "\\|")]
        for (peer, turns, way), each in judged.items()
        if any(each)
    ]
    listed = table(["client", "conversation", "way", "what is wrong"], wrong)
    return _TEXT.format(
        reader=READER.name.capitalize(),
        results=table(["client", *heads], rows),
        defects=f"### What does not hold\n\n{listed}\n" if wrong else "",
    )


def _word(found: Faults | None) -> str:
    if found is None:
        return "-"
    return f"{'**differs**' if found.differs else 'same'}, {'**not shown**' if found.shown else 'shown'}"
