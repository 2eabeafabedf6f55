"""Typed netstrings to values, as far as mitmproxy writes them: `3:abc,` is bytes, `2:42#` a number, `0:~` nothing"""

import re
from typing import Any, Final

from wiretape.events.core.errors import TapeError

__all__ = ["read_all"]

_SIZE: Final = re.compile(rb"(\d{1,12}):")
_NESTING_MAX: Final = 32


def read_all(data: bytes) -> list[Any]:
    """Every value of the file; raises TapeError with the byte at which it is none."""
    values, at = list[Any](), 0
    while at < len(data):
        value, at = _value(data, at, len(data), 0)
        values.append(value)
    return values


def _value(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    size = _SIZE.match(data, at, end)
    if size is None:
        raise TapeError(f"byte {at}: no length")
    start = size.end()
    stop = start + int(size[1])
    if stop >= end:
        raise TapeError(f"byte {at}: it ends too early")
    if depth > _NESTING_MAX:
        raise TapeError(f"byte {at}: nested too deeply")
    try:
        return _read(data, start, stop, depth), stop + 1
    except ValueError:
        raise TapeError(f"byte {at}: no value of its type") from None


def _read(data: bytes, start: int, stop: int, depth: int) -> Any:
    kind = data[stop : stop + 1]
    if kind == b"]":
        return _items(data, start, stop, depth)
    if kind == b"}":
        items = _items(data, start, stop, depth)
        if len(items) % 2 or not all(isinstance(key, str | bytes) for key in items[::2]):
            raise TapeError(f"byte {start}: an object without a name or a value")
        return {key if isinstance(key, str) else key.decode("utf-8", "replace"): value for key, value in _two(items)}
    text = data[start:stop]
    match kind:
        case b",":
            return text
        case b";":
            return text.decode("utf-8", "surrogateescape")
        case b"#" if len(text) <= 20:
            return int(text)
        case b"^":
            return float(text)
        case b"!" if text in (b"true", b"false"):
            return text == b"true"
        case b"~" if not text:
            return None
        case _:
            raise TapeError(f"byte {stop}: an unknown type")


def _two(items: list[Any]) -> Any:
    return zip(items[::2], items[1::2], strict=True)


def _items(data: bytes, at: int, end: int, depth: int) -> list[Any]:
    items: list[Any] = []
    while at < end:
        item, at = _value(data, at, end, depth + 1)
        items.append(item)
    return items
