"""What clients received, from the tapes that Wiretape wrote."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wiretape.events.emit import Emitter
from wiretape.events.tape.tape import Reader

from .cells import DIRECT, Found

__all__ = ["taped"]


def taped(found: Sequence[Found], folder: Path) -> list[Found]:
    """Each with its streams, when Wiretape has stopped."""
    streams: defaultdict[str, list[bytes]] = defaultdict(list)
    for path in sorted(folder.rglob("*.tape"), key=lambda path: path.name):  # an id begins with its time
        model, emitted = _read(path)
        streams[model].append(emitted)
    return [each if each.cell.way == DIRECT else replace(each, streams=streams[each.cell.model.name]) for each in found]


def _read(path: Path) -> tuple[str, bytes]:
    emitter, model = Emitter(), ""
    emitted: list[bytes] = []
    for record in Reader().feed(path.read_bytes()):
        emitted += emitter.feed(record)
        if record.kind == "request":
            model = str(record.keys.get("facts", {}).get("model", ""))
    return model, b"".join(emitted)
