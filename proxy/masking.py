"""Keys that an upstream echoes: stars of their length, in whatever pieces they come; a caller's in errors alone (V7)"""

import re
from collections.abc import Iterable
from typing import Final

from .headers import key_forms
from .keys import Secret
from .limits import JUDGED_BYTES_MAX

__all__ = ["ErrorMask", "KeyMask"]

#: How a frame or a whole answer says that it is an error, in all forms that the dialects know (Q65, Q89-Q92). Inside a
#: string of JSON the quotes would be escaped.
_ERROR: Final = re.compile(
    rb'"error"\s*:\s*[{\["]|:\s*"error"|(?:^|[\r\n])(?:event: ?error|error:)|"status_code"\s*:\s*"?[1-9]'
)
_ENDS: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
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
    when the key is seen in it, and waits for its end only if it has not said yet that it is an error, for 16 KiB.
    """

    def __init__(self, secrets: Iterable[Secret], *, frames: bool) -> None:
        """Of an event stream (`frames`) each event is judged by itself, of any other answer all of it."""
        super().__init__(secrets)
        self._frames = frames
        self._probes = tuple(form[-_PROBE_BYTES:] for form in self._forms)
        #: What has passed of the frame that is not over.
        self._before = bytearray()

    def feed(self, data: bytes) -> bytes:
        """One more piece; what holds a key, or may be the beginning of one, waits until it is known what it is in."""
        if not self._held and self._clear(data):
            self._passed(data)
            return data
        data, self._held = self._held + data, b""
        shown: list[bytes] = []
        at = 0
        tail = bytes(self._before[-3:])  # where a blank line may have begun
        for end in _ENDS.finditer(tail + data) if self._frames else ():
            behind = max(0, end.end() - len(tail))
            shown.append(self._judged(data[at:behind]))
            self._before.clear()
            at = behind
        shown.append(self._unended(data[at:]))
        self._passed(shown[-1])
        return b"".join(shown)

    def close(self) -> bytes:
        """What waited: there is no more that could say what it is in."""
        return self._judged(super().close())

    def _clear(self, data: bytes) -> bool:
        for probe in self._probes:
            if probe in data:
                return False
        return data.endswith(b"\n") or not self._begun(data)

    def _judged(self, data: bytes) -> bytes:
        return self.whole(data) if self._tells(data) else data

    def _unended(self, data: bytes) -> bytes:
        """As much of a frame that is not over as can go on."""
        if self._tells(data):
            data = self.whole(data)
            held = self._begun(data)
        elif len(data) > JUDGED_BYTES_MAX:
            held = self._begun(data)
        else:
            found = [at for form in self._forms if (at := data.find(form)) >= 0]
            held = max(self._begun(data), len(data) - min(found, default=len(data)))
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def _tells(self, data: bytes) -> bool:
        return _ERROR.search(self._before + data) is not None

    def _passed(self, data: bytes) -> None:
        before = self._before
        if self._frames and data.endswith(_BLANK):
            before.clear()
            return
        seen = max(0, len(before) - 3)  # where one of them may have begun
        before += data
        if self._frames:
            end = max(before.rfind(blank, seen) for blank in _BLANK)
            del before[: end + 1]  # what is left of a blank line says nothing
        if len(before) > 2 * JUDGED_BYTES_MAX:
            del before[:-JUDGED_BYTES_MAX]
