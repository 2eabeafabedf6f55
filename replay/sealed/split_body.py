"""The body of a request with one line for each element of its long lists: editing a message changes one line"""

from collections.abc import Sequence
from typing import Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_list, elements, is_list, is_object, members, parse
from wiretape.events.tape.record import Record

from .joined_bodies import pieces

__all__ = ["LISTS", "TEXT", "joined", "split"]

#: Lists of a request, and the kind of the lines of their elements.
LISTS: Final = {"messages": "message", "input": "item", "tools": "tool"}
#: A line of a body that is not JSON on one line.
TEXT: Final = "text"
_SEPARATORS: Final = (b",", b", ")


def split(record: Record) -> tuple[Record, list[Record]]:
    """Return the record with empty lists, and one record for each of their elements.

    `split` states each list, how many elements it has, and what separates them. A body of text becomes its lines, and
    `split` their number. JSON that is laid out in another way stays in one piece.
    """
    body = record.payload
    if "split" in record.keys:  # a key of another recorder
        return record._replace(keys={**record.keys, "split": {"own": record.keys["split"]}}), []
    if body is None:
        return _text(record)
    if not is_object(record.value):
        return record, []
    present = members(body, body.index(b"{"))
    names = [member.key for member in present]
    rows: list[list[Any]] = []
    lines: list[Record] = []
    kept: list[bytes] = []
    position = 0
    for member in present:
        name = LISTS.get(member.key)
        if name is None or body[member.value : member.value + 1] != b"[" or names.count(member.key) > 1:
            continue
        inside = body[member.value + 1 : member.end - 1]
        texts = [body[begin:end] for begin, end in elements(body, member.value)]
        separator = next((each for each in _SEPARATORS if each.join(texts) == inside), None)
        if separator is None or not texts:
            continue
        rows.append([member.key, len(texts), separator.decode()])
        lines += [Record(0, 0, name, raw=text, payload=text) for text in texts]
        kept.append(body[position : member.value + 1])
        position = member.end - 1
    if not rows:
        return record, []
    return _with_body(record, b"".join([*kept, body[position:]]), {**record.keys, "split": rows}), lines


def _text(record: Record) -> tuple[Record, list[Record]]:
    parts = pieces(record.raw or b"")
    if len(parts) < 2:
        return record, []
    lines = [Record(0, 0, TEXT, raw=part) for part in parts]
    return record._replace(raw=None, keys={**record.keys, "split": len(lines)}), lines


def joined(record: Record, lines: Sequence[Record]) -> tuple[Record, int]:
    """Return the original record, and how many lines its elements take."""
    said: Any = record.keys["split"]
    keys = {name: value for name, value in record.keys.items() if name != "split"}
    if is_object(said):
        return record._replace(keys={**record.keys, "split": said.get("own")}), 0
    if type(said) is int:
        raw = b"".join(_bytes_of(lines, 0, said, TEXT))
        return record._replace(keys=keys, raw=raw, payload=None, value=ABSENT), said
    body = record.payload
    if body is None or not is_object(record.value):
        raise TapeError("a split request that is not JSON")
    rows = _rows(said)
    kept: list[bytes] = []
    position = at = 0
    for member in members(body, body.index(b"{")):
        if member.key not in rows or body[member.value : member.end] != b"[]":
            continue
        count, separator = rows.pop(member.key)
        texts = _bytes_of(lines, at, count, LISTS.get(member.key, ""))
        kept += [body[position : member.value + 1], separator.join(texts)]
        position, at = member.end - 1, at + count
    if rows:
        raise TapeError(f"the request has no empty list of {', '.join(rows)}")
    return _with_body(record, b"".join([*kept, body[position:]]), keys), at


def _rows(said: Any) -> dict[str, tuple[int, bytes]]:
    rows: dict[str, tuple[int, bytes]] = {}
    for row in as_list(said):
        match row:
            case [str(name), int(count), "," | ", " as separator] if count > 0:
                rows[name] = count, separator.encode()
            case _:
                raise TapeError("a request that is split in an unknown way")
    if not is_list(said):
        raise TapeError("a request that is split in an unknown way")
    return rows


def _bytes_of(lines: Sequence[Record], at: int, count: int, kind: str) -> list[bytes]:
    texts = [line.raw or b"" for line in lines[at : at + count] if line.kind == kind]
    if len(texts) != count:
        raise TapeError(f"the request has {len(texts)} of {count} lines of kind {kind}")
    return texts


def _with_body(record: Record, body: bytes, keys: dict[str, Any]) -> Record:
    value = parse(body)
    if value is ABSENT:
        raise TapeError("a request whose lists hold something that is not JSON")
    return record._replace(keys=keys, raw=body, payload=body, value=value)
