"""Keys that an upstream echoes: stars of their length, in whatever pieces they come; a caller's in errors alone (V7)"""

import re
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from ..config.secrets import Secret
from ..limits import JUDGED_BYTES_MAX
from .headers import key_forms

__all__ = ["ErrorMask", "KeyMask"]

#: How a frame or a whole answer says that it is an error, in all forms that the dialects know (Q65, Q89-Q92). Inside a
#: string of JSON the quotes would be escaped.
_ERROR: Final = re.compile(
    rb'"error"\s{0,64}:\s{0,64}[{\["]|:\s{0,64}"error"|(?:^|[\r\n])(?:event: ?error|error:)'
    rb'|"status_code"\s{0,64}:\s{0,64}"?[1-9]'
)
#: One of these is in all of that, which is found a hundred times faster; and no such text is longer.
_WORDS: Final = (b"error", b"status_code")
_TOLD_BYTES: Final = 160
_ENDS: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
#: As much of one may have come.
_BLANK_BYTES: Final = 3
_BLANK: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
#: Of a key, what is looked for first: its end is chance where its beginning is a vendor's word, and found faster.
_PROBE_BYTES: Final = 16


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


class ErrorMask(KeyMask):
    """The same of a caller's own keys, where a frame or a whole answer tells of an error: upstreams quote them there.

    Whatever else holds such a key passes as it came: changing what a model says would be worse. So a frame is judged
    when the key is seen in it, and waits for its end only if it has not said yet that it is an error, for 16 KiB: what
    it says behind those does not count, in whatever reads it came. Each byte is looked at once.
    """

    def __init__(self, secrets: Iterable[Secret], *, frames: bool) -> None:
        """Of an event stream (`frames`) each event is judged by itself, of any other answer all of it."""
        super().__init__(secrets)
        self._frames = frames
        self._probes = tuple(form[-_PROBE_BYTES:] for form in self._forms)
        #: Of the frame that is not over: the end of what has passed, and behind it what waits.
        self._text = bytearray()
        self._shown = 0
        #: So much of it was searched for what tells of an error, and where that ends; below 0, where it is cut off.
        self._searched = 0
        self._told: float = inf

    @property
    def waits(self) -> bool:
        """What came last may be the beginning of a key, or in an error."""
        return self._shown < len(self._text)

    def feed(self, data: bytes) -> bytes:
        """One more piece; what holds a key, or may be the beginning of one, waits until it is known what it is in."""
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
        """What waited: there is no more that could say what it is in."""
        shown = self._given(len(self._text), over=True)
        self._next(len(self._text))
        return b"".join(shown)

    def _clear(self, data: bytes) -> bool:
        for probe in self._probes:
            if probe in data:
                return False
        return data.endswith(b"\n") or not self._begun(data)

    def _given(self, end: int, *, over: bool) -> Iterator[bytes]:
        """What can go on of the frame, of which so much is there, and no more will come where it is `over`."""
        text = self._text
        self._search(end)
        while (key := self._key(end)) >= 0:
            yield self._pass(key)
            bound = key + JUDGED_BYTES_MAX
            if self._told <= bound:  # and so it is with all behind it
                text[key:end] = self.whole(bytes(text[key:end]))
                break
            if end <= bound and not over:
                return  # it may still be told
            yield self._pass(key + 1)
        yield self._pass(
            end if over else end - self._begun(bytes(text[max(self._shown, end - self._tail_bytes) : end]))
        )

    def _key(self, end: int) -> int:
        """Where in what waits the next key is, or -1."""
        text, shown = self._text, self._shown
        if text.startswith(self._forms, shown):  # as long as it waits
            return shown if any(text.startswith(form, shown, end) for form in self._forms) else -1
        return min((at for form in self._forms if (at := text.find(form, shown, end)) >= 0), default=-1)

    def _pass(self, end: int) -> bytes:
        passed, self._shown = bytes(self._text[self._shown : end]), end
        return passed

    def _search(self, end: int) -> None:
        """Whether so much of the frame tells of an error."""
        text, begin = self._text, max(0, self._searched - _TOLD_BYTES)
        if self._told == inf and any(text.find(word, begin, end) >= 0 for word in _WORDS):
            error = _ERROR.search(text, begin, end)
            self._told = inf if error is None else error.end()
        self._searched = end

    def _passed(self, data: bytes) -> None:
        text = self._text
        if self._frames and data.endswith(_BLANK):
            if text:
                self._next(len(text))
            return
        begun = max(0, len(text) - _BLANK_BYTES)
        text += data
        if self._frames:
            end = max(at + len(blank) if (at := text.rfind(blank, begun)) >= 0 else 0 for blank in _BLANK)
            if end:
                self._next(end)
        self._shown = len(text)
        self._trim()

    def _next(self, end: int) -> None:
        """Another frame begins there."""
        del self._text[:end]
        self._shown = self._searched = 0
        self._told = inf

    def _trim(self) -> None:
        """Of what has passed no more is kept than is looked at again."""
        if self._shown > 2 * JUDGED_BYTES_MAX:
            self._search(len(self._text))
            cut = self._shown - 2 * _TOLD_BYTES
            del self._text[:cut]
            self._shown -= cut
            self._searched -= cut
            self._told -= cut
