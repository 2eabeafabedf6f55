"""Mask keys that an upstream echoes, across any read boundaries. A caller's own key is masked in errors only (V7).

Stars replace a key, so that no length changes and framing stays true.
"""

import re
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from ..config.model import Secret
from ..limits import JUDGED_BYTES_MAX
from .headers import key_forms

__all__ = ["ErrorMask", "KeyMask"]

#: How a frame or a whole response marks itself as an error, in all dialects (Q65, Q89-Q92). Inside a JSON string the
#: quotes would be escaped.
_ERROR: Final = re.compile(
    rb'"error"\s{0,64}:\s{0,64}[{\["]|:\s{0,64}"error"|(?:^|[\r\n])(?:event: ?error|error:)'
    rb'|"status_code"\s{0,64}:\s{0,64}"?[1-9]'
)
#: Every such mark contains one of these words, which is a hundred times faster to find.
_WORDS: Final = (b"error", b"status_code")
#: No mark is longer.
_MARK_BYTES: Final = 160
_ENDS: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
#: How much of a blank line may be at the end of a read.
_BLANK_BYTES: Final = 3
_BLANK: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
#: The end of a key is searched first: it is random, while many keys begin with the same vendor's word.
_PROBE_BYTES: Final = 16


class KeyMask:
    """A filter for one response that masks secrets: `feed` each piece in order, then `close`."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._forms = key_forms(secrets)
        self._tail_bytes = max(map(len, self._forms), default=1) - 1
        self._held = b""
        #: Whether a key was masked.
        self.found = False

    @property
    def waits(self) -> bool:
        """Whether the last piece may end inside a key."""
        return bool(self._held)

    def whole(self, text: bytes) -> bytes:
        """Mask a complete text."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, b"*" * len(form))
                self.found = True
        return text

    def feed(self, data: bytes) -> bytes:
        """Return what can go on; what may be the beginning of a key waits for the next piece."""
        data = self.whole(self._held + data if self._held else data)
        held = self._begun(data)
        self._held = data[len(data) - held :]
        return data[: len(data) - held] if held else data

    def close(self) -> bytes:
        """Return what waited and is not a key."""
        held, self._held = self._held, b""
        return held

    def _begun(self, data: bytes) -> int:
        """Return how many bytes at the end may be the beginning of a key."""
        tail = data[max(0, len(data) - self._tail_bytes) :]
        longest = 0
        for form in self._forms:
            at = tail.find(form[:1])
            while at >= 0 and not form.startswith(tail[at:]):
                at = tail.find(form[:1], at + 1)
            if at >= 0:
                longest = max(longest, len(tail) - at)
        return longest


class ErrorMask(KeyMask):
    """A filter that masks the caller's own keys in errors, where upstreams quote them.

    Anything else passes unchanged: altering a model's words would be worse. A frame that contains the key waits until
    it marks itself as an error, but at most for 16 KiB after the key. Later marks do not count, wherever the reads are
    split. Each byte is searched once.
    """

    def __init__(self, secrets: Iterable[Secret], *, frames: bool) -> None:
        """Judge each event of an event stream (`frames`) by itself, any other response as a whole."""
        super().__init__(secrets)
        self._frames = frames
        self._probes = tuple(form[-_PROBE_BYTES:] for form in self._forms)
        #: The current frame: the end of what has passed (`_shown`), then what waits.
        self._text = bytearray()
        self._shown = 0
        #: How much was searched for an error mark, and where the mark ends (below 0 if that was trimmed).
        self._searched = 0
        self._error_end: float = inf

    @property
    def waits(self) -> bool:
        """Whether something waits that may be a key, or a key in an error."""
        return self._shown < len(self._text)

    def feed(self, data: bytes) -> bytes:
        """Return what can go on; a key, or the beginning of one, waits until it is known whether this is an error."""
        text = self._text
        if self._shown == len(text) and self._clear(data):
            self._passed(data)
            return data
        begun = max(0, len(text) - _BLANK_BYTES)
        text += data
        shown: list[bytes] = []
        while self._frames and (blank := _ENDS.search(text, begun)) is not None:
            shown += self._given(blank.end(), over=True)
            self._next(blank.end())
            begun = 0
        shown += self._given(len(text), over=False)
        self._trim()
        return b"".join(shown)

    def close(self) -> bytes:
        """Return what waited."""
        shown = self._given(len(self._text), over=True)
        self._next(len(self._text))
        return b"".join(shown)

    def _clear(self, data: bytes) -> bool:
        for probe in self._probes:
            if probe in data:
                return False
        return data.endswith(b"\n") or not self._begun(data)

    def _given(self, end: int, *, over: bool) -> Iterator[bytes]:
        """Yield what can go on of the frame, which has come up to `end` and is complete if `over`."""
        text = self._text
        self._search(end)
        while (key := self._key(end)) >= 0:
            yield self._pass(key)
            bound = key + JUDGED_BYTES_MAX
            if self._error_end <= bound:  # so everything after it is in an error, too
                text[key:end] = self.whole(bytes(text[key:end]))
                break
            if end <= bound and not over:
                return  # the mark may still come
            yield self._pass(key + 1)
        yield self._pass(
            end if over else end - self._begun(bytes(text[max(self._shown, end - self._tail_bytes) : end]))
        )

    def _key(self, end: int) -> int:
        """Return where the next key is in what waits, or -1."""
        text, shown = self._text, self._shown
        if text.startswith(self._forms, shown):  # it waits
            return shown if any(text.startswith(form, shown, end) for form in self._forms) else -1
        return min((at for form in self._forms if (at := text.find(form, shown, end)) >= 0), default=-1)

    def _pass(self, end: int) -> bytes:
        passed, self._shown = bytes(self._text[self._shown : end]), end
        return passed

    def _search(self, end: int) -> None:
        """Search the frame up to `end` for an error mark."""
        text, begin = self._text, max(0, self._searched - _MARK_BYTES)
        if self._error_end == inf and any(text.find(word, begin, end) >= 0 for word in _WORDS):
            error = _ERROR.search(text, begin, end)
            self._error_end = inf if error is None else error.end()
        self._searched = end

    def _passed(self, data: bytes) -> None:
        text = self._text
        begun = max(0, len(text) - _BLANK_BYTES)
        text += data
        if self._frames:
            end = max(at + len(blank) if (at := text.rfind(blank, begun)) >= 0 else 0 for blank in _BLANK)
            if end:
                self._next(end)
        self._shown = len(text)
        self._trim()

    def _next(self, end: int) -> None:
        """Start the next frame."""
        del self._text[:end]
        self._shown = self._searched = 0
        self._error_end = inf

    def _trim(self) -> None:
        """Drop what has passed and will not be searched again."""
        if self._shown > 2 * JUDGED_BYTES_MAX:
            self._search(len(self._text))
            cut = self._shown - 2 * _MARK_BYTES
            del self._text[:cut]
            self._shown -= cut
            self._searched -= cut
            self._error_end -= cut
