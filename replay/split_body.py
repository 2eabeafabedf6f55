"""The body of a request, its long lists one line an element, so that an edit of one message is a diff of one line"""

from collections.abc import Sequence
from typing import Any, Final

from wiretape.events.errors import TapeError
from wiretape.events.json_text import elements, is_object, members, parse
from wiretape.events.record import Record

__all__ = ["joined", "split"]

#: Lists of a request, and what one element of each is called.
_LISTS: Final = {"messages": "message", "input": "item", "tools": "tool"}
_SEPARATORS: Final = (b",", b", ")


def split(record: Record) -> tuple[Record, list[bytes]]:
    """The record with its lists emptied (`split` says which, how many elements, and what stood between them), and the
    lines of their elements. A body that is written in any other way stays whole.
    """
    body = record.payload
    if body is None or not is_object(record.value):
        return record, []
    start = body.index(b"{")
    rows: list[list[Any]] = []
    lines: list[bytes] = []
    pieces: list[bytes] = []
    position = 0
    for member in members(body, start):
        name = _LISTS.get(member.key)
        if name is None or body[member.value : member.value + 1] != b"[" or member.key in [row[0] for row in rows]:
            continue
        inside = body[member.value + 1 : member.end - 1]
        texts = [body[begin:end] for begin, end in elements(body, member.value)]
        separator = next((each for each in _SEPARATORS if each.join(texts) == inside), None)
        if separator is None or not texts:
            continue
        rows.append([member.key, len(texts), separator.decode()])
        lines += [b'{"k":"%b","data":%b}' % (name.encode(), text) for text in texts]
        pieces.append(body[position : member.value + 1])
        position = member.end - 1
    if not rows:
        return record, []
    return _with_body(record, b"".join([*pieces, body[position:]]), {**record.keys, "split": rows}), lines


def joined(record: Record, lines: Sequence[bytes]) -> tuple[Record, int]:
    """The record as it was, and how many lines its elements take."""
    body = record.payload
    if body is None:
        raise TapeError("a request that is split, but not JSON")
    keys = {name: value for name, value in record.keys.items() if name != "split"}
    rows = {row[0]: row[1:] for row in record.keys["split"]}
    pieces: list[bytes] = []
    position = at = 0
    for member in members(body, body.index(b"{")):
        if member.key not in rows or body[member.value : member.end] != b"[]":
            continue
        count, separator = rows.pop(member.key)
        head = b'{"k":"%b","data":' % _LISTS.get(member.key, "").encode()
        texts = [line[len(head) : -1] for line in lines[at : at + count] if line.startswith(head)]
        if len(texts) != count:
            raise TapeError(f"{count} lines of {member.key} are due, {len(texts)} are there")
        pieces += [body[position : member.value + 1], separator.encode().join(texts)]
        position, at = member.end - 1, at + count
    if rows:
        raise TapeError(f"the request has no empty list of {', '.join(rows)}")
    return _with_body(record, b"".join([*pieces, body[position:]]), keys), at


def _with_body(record: Record, body: bytes, keys: dict[str, Any]) -> Record:
    return record._replace(keys=keys, raw=body, payload=body, value=parse(body))
