"""After the soak: every tape is undamaged, has one end, and emits exactly what its client received."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from wiretape.events.emit import emit
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader

from .clients import Received

#: The only endings that these faults can lead to; `internal` or `crashed` is our own bug.
_NEVER = frozenset({"internal", "crashed", "shutdown"})


class Checked(NamedTuple):
    """The tapes of a soak, and what is wrong with them."""

    tapes: int
    endings: Counter[str]
    compared: int
    wrong: list[str]


def checked(data: Path, received: Iterable[Received]) -> Checked:
    """Compare all tapes below `data` with all that clients received."""
    had = {each.stream: each for each in received}
    endings: Counter[str] = Counter()
    wrong: list[str] = []
    tapes = compared = 0
    for path in sorted(data.rglob("*.tape")):
        tapes += 1
        faults, records = _read(path)
        wrong += [f"{path.stem}: {fault}" for fault in faults]
        ends = [record for record in records if record.kind == "end"]
        ending = str(ends[-1].keys.get("ending")) if ends else "none"
        endings[ending] += 1
        if len(ends) != 1 or ending in _NEVER or path.parent.name == "live":
            wrong.append(f"{path.stem}: {len(ends)} ends, ending {ending}, in {path.parent.name}/")
        if (client := had.pop(path.stem, None)) is not None:
            compared += 1
            if fault := _compared(client, records):
                wrong.append(f"{path.stem} ({client.kind}, {client.manner}, {ending}): {fault}")
    wrong += [f"{stream}: no tape" for stream in had]
    return Checked(tapes, endings, compared, wrong)


def _read(path: Path) -> tuple[list[str], list[Record]]:
    reader = Reader()
    records = reader.feed(path.read_bytes())
    faults = [f"damage at byte {damage.at}: {damage.reason}" for damage in reader.damage]
    return [*faults, *(["a torn last line"] if reader.torn else [])], records


def _compared(client: Received, records: list[Record]) -> str:
    """Return differences from the tape; a client that left got its beginning."""
    emitted = emit(records)
    status = next((record.keys.get("status") for record in records if record.kind == "commit"), None)
    if client.status != status:
        return f"the client was given {client.status}, the tape says {status}"
    if client.size > len(emitted) or (client.size < len(emitted) and not client.left):
        return f"the client got {client.size} bytes, the tape emits {len(emitted)}"
    if hashlib.sha256(emitted[: client.size]).hexdigest() != client.sha256:
        return "the client got other bytes than the tape emits"
    if not client.left and not client.whole:
        return "the client's connection was cut"
    return ""
