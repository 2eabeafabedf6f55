"""HTTP headers as an immutable value: the names keep their spelling and are looked up without regard to case."""

from collections.abc import Collection, Iterable, Iterator
from typing import overload

__all__ = ["Header", "Headers"]

Header = tuple[bytes, bytes]


class Headers:
    """The headers of one message, in the order in which they came. Look-ups take lower-case names."""

    __slots__ = ("_entries", "_first")

    def __init__(self, headers: Iterable[Header] = ()) -> None:
        """Copying another `Headers` is free."""
        self._entries: tuple[tuple[bytes, bytes, bytes], ...]
        self._first: dict[bytes, bytes]
        if isinstance(headers, Headers):
            self._entries, self._first = headers._entries, headers._first  # noqa: SLF001 - the same class
            return
        entries: list[tuple[bytes, bytes, bytes]] = []
        self._first = {}
        for name, value in headers:
            lower = name.lower()
            entries.append((lower, name, value))
            self._first.setdefault(lower, value)
        self._entries = tuple(entries)

    def __iter__(self) -> Iterator[Header]:
        return iter([(name, value) for _, name, value in self._entries])

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._first

    @overload
    def get(self, name: bytes, default: bytes = b"") -> bytes: ...

    @overload
    def get(self, name: bytes, default: None) -> bytes | None: ...

    def get(self, name: bytes, default: bytes | None = b"") -> bytes | None:
        """Return the first value of a header."""
        return self._first.get(name, default)

    def all(self, name: bytes) -> list[bytes]:
        """Return every value of a header."""
        return [value for lower, _, value in self._entries if lower == name] if name in self._first else []

    def media_type(self) -> bytes:
        """Return the media type of `content-type` in lower case, without parameters."""
        return self.get(b"content-type").partition(b";")[0].strip().lower()

    def names(self) -> list[bytes]:
        """Return the lower-case name of each header, repeated ones repeatedly."""
        return [lower for lower, _, _ in self._entries]

    def only(self, names: Collection[bytes], prefixes: tuple[bytes, ...] = ()) -> list[Header]:
        """Return the headers of these names or prefixes, with lower-case names."""
        return [(low, value) for low, _, value in self._entries if low in names or low.startswith(prefixes)]

    def without(self, names: Collection[bytes], prefixes: tuple[bytes, ...] = ()) -> list[Header]:
        """Return all headers but those of these names or prefixes, with their names as they came."""
        return [
            (name, value)
            for lower, name, value in self._entries
            if lower not in names and not lower.startswith(prefixes)
        ]
