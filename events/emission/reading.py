"""The part of a reader that the dialects share whose payloads have a `type`: SSE blocks before what they say.

Comments, terminators and bytes that are no JSON are withheld, bodies without frames are read, and a frame in an unusual
form is written in the plain one. A frame that needs no repair passes as the bytes that came.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ..core import limits
from ..core.json_text import ABSENT, as_object, as_text, is_object, parse, values_at_most
from ..core.model import ForeignFrame
from ..tape.record import Record
from ..wire.sse import BOM, Frame, parse_block
from .dialect import Context, Step
from .frames import Out

__all__ = ["TypedReader"]

#: A block of nothing but comments and fields that dispatch nothing (Q97, Q99, Q100).
_SILENT_BLOCK: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:(?::|(?:event|id|retry)(?=[:\r\n]))[^\r\n]*+[\r\n]++|[\r\n]++)*+"
)
#: How a line of a stream may begin, which may be cut; `rest` that begins otherwise never was one (Q93, Q96).
_LINE_OF_STREAM: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?[\r\n]*(?:(?:data|event|id|retry|)(?::|\Z)|(?:d|da|dat|e|ev|eve|even|i|r|re|ret|retr)\Z)"
)


class TypedReader(ABC):
    """Reads the blocks of one attempt; a dialect reads the objects in them."""

    #: The repair of a frame in the plain form that lacks its event line.
    unnamed: ClassVar = "framing"

    def __init__(self, context: Context) -> None:
        self._context = context

    def frame(self, record: Record) -> Sequence[Step]:
        n, frame = record.n, record.frame()
        if frame.payload is not None:
            return self._payload(n, frame, frame.payload, record.value)
        if _SILENT_BLOCK.fullmatch(frame.raw):
            return self._withheld(n, frame.raw, "comment")
        self._withheld(n, frame.raw, "unframed")
        return [*self._damaged(n, frame.raw), *self.body(n, frame.raw)]

    def rest(self, n: int, data: bytes) -> Sequence[Step]:
        """Read the bytes after the last frame: the end of an answer counts without its blank line (Q106)."""
        frame = parse_block(data, first=True)
        value = ABSENT if frame.payload is None else parse(frame.payload)
        if frame.payload is not None and is_object(value) and self._ends(value, frame.event):
            return self._payload(n, frame, frame.payload, value)
        return () if _LINE_OF_STREAM.match(data) else self.body(n, data)

    def body(self, n: int, data: bytes) -> Sequence[Step]:
        """Read a whole answer where a stream was due (Q93, Q96): an error, an answer, or neither."""
        data = data.removeprefix(BOM).strip()
        value = parse(data)
        if value is ABSENT and data.startswith(b"{"):  # a cut like any other; one of too many values stays unread
            self._context.live.overflow |= values_at_most(data) > limits.JSON_VALUES_MAX
            return ()
        return self._answer(n, as_object(value))

    def supply(self, n: int) -> Sequence[Step]:  # noqa: ARG002 - the frame that ends an answer brings everything
        return ()

    def opening(self, n: int) -> Sequence[Step]:  # noqa: ARG002 - the upstream begins its answer itself
        return ()

    def _payload(self, n: int, frame: Frame, payload: bytes, value: Any) -> Sequence[Step]:
        if payload.strip(b" ") == b"[DONE]":  # Q40
            return self._withheld(n, frame.raw, "done_withheld")
        repair, damaged = "", list[Step]()
        value = parse(payload) if value is ABSENT else value
        if value is ABSENT:
            payload = payload.decode("utf-8", "replace").encode()
            value, repair = parse(payload), "invalid_utf8"
        if is_object(value):
            event = as_text(value.get("type")).encode()
            damaged = self._damaged(n, payload) if repair else []
            if not repair and not (frame.named and frame.event == event):
                repair = self.unnamed if frame.canonical else "framing"
            if repair:
                payload = payload.replace(b"\n", b" ")  # between tokens: inside a string it would not be JSON
            raw = None if repair else frame.raw
            out = Out(n, value, raw=raw, payload=payload, came=frame.raw, repair=repair, event=event)
            return [*damaged, *self._object(out, frame)]
        if frame.event == b"error":  # Q90, in words
            return self._failed(n, frame.raw, value if isinstance(value, str) else payload.decode())
        if value is not ABSENT:
            return self._foreign(n, frame.raw, "foreign")
        if payload.strip()[:1] in (b"", b":"):  # Q98, Q99
            return self._withheld(n, frame.raw, "empty_data")
        return [*self._foreign(n, frame.raw, "not_json"), *self._damaged(n, payload)]

    def _withheld(self, n: int, came: bytes | None, repair: str) -> list[Step]:
        """Enter in the ledger that a frame is not sent."""
        self._context.ledger.frame(n, repair, came, None)
        return []

    def _foreign(self, n: int, came: bytes | None, why: str) -> list[Step]:
        """Withhold a frame that deserves a flag."""
        return [*self._withheld(n, came, why), Step(n, [ForeignFrame(n=n, why=why)])]

    #: Return whether an object ends an answer.
    @abstractmethod
    def _ends(self, value: Mapping[str, Any], event: bytes) -> bool: ...

    #: Read an object in a frame.
    @abstractmethod
    def _object(self, out: Out, frame: Frame) -> Sequence[Step]: ...

    #: Read a whole answer.
    @abstractmethod
    def _answer(self, n: int, answer: dict[str, Any]) -> Sequence[Step]: ...

    #: Return the failure for an error in words.
    @abstractmethod
    def _failed(self, n: int, came: bytes, words: str) -> Sequence[Step]: ...

    #: Return the step that keeps calls from running of which these bytes may have been a part.
    @abstractmethod
    def _damaged(self, n: int, unread: bytes) -> list[Step]: ...
