"""Our own keys, wherever an upstream echoes them: stars of the same length, in whatever pieces they come (V7)"""

from collections.abc import Iterable

from .headers import key_forms
from .keys import Secret

__all__ = ["KeyMask"]


class KeyMask:
    """`feed` the pieces of one answer in order, `close` at its end; no length changes, so that framing stays true."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._forms = key_forms(secrets)
        self._tail_bytes = max(map(len, self._forms), default=1) - 1
        self._held = b""
        #: A key was there.
        self.found = False

    @property
    def waits(self) -> bool:
        """What came last may be the beginning of a key."""
        return bool(self._held)

    def whole(self, text: bytes) -> bytes:
        """A text that is complete in itself."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, b"*" * len(form))
                self.found = True
        return text

    def feed(self, data: bytes) -> bytes:
        """One more piece; what may be the beginning of a key waits for the next one."""
        data = self.whole(self._held + data if self._held else data)
        held = self._begun(data)
        self._held = data[len(data) - held :]
        return data[: len(data) - held] if held else data

    def close(self) -> bytes:
        """What waited, and is no key."""
        held, self._held = self._held, b""
        return held

    def _begun(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a key."""
        tail = data[max(0, len(data) - self._tail_bytes) :]
        longest = 0
        for form in self._forms:
            at = tail.find(form[:1])
            while at >= 0 and not form.startswith(tail[at:]):
                at = tail.find(form[:1], at + 1)
            if at >= 0:
                longest = max(longest, len(tail) - at)
        return longest
