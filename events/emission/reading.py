"""The part of a reader that the dialects share whose payloads have a `type`: SSE blocks before what they say.

Comments, terminators and bytes that are no JSON are withheld, bodies without frames are read, and a frame in an unusual
form is written in the plain one. A frame that needs no repair passes as the bytes that came.
"""

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from ..core import limits
from ..core.json_text import ABSENT, as_object, as_text, is_object, parse, values_at_most
from ..core.model import Event, ForeignFrame
from ..tape.record import Record
from ..wire.sse import BOM, Frame, parse_block
from .dialect import Context, Reader, Step
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


class TypedReader(Reader):
    """Reads the blocks of one attempt; a dialect reads the objects in them, and adds steps."""

    #: The repair of a frame in the plain form that lacks its event line.
    unnamed: ClassVar = "framing"
    #: The types of objects that end an answer.
    ends: ClassVar[tuple[str, ...]]

    def __init__(self, context: Context) -> None:
        self._context = context
        #: The record that is read, and what it means so far.
        self._n = 0
        self._steps: list[Step] = []

    def frame(self, record: Record) -> Sequence[Step]:
        self._n, frame = record.n, record.frame()
        if frame.payload is not None:
            self._payload(frame, frame.payload, record.value)
        elif _SILENT_BLOCK.fullmatch(frame.raw):
            self._unread(frame, "comment")
        else:
            self._unread(frame, "unframed")
            self._damage(frame.raw)
            self._body(frame.raw)
        return self._taken()

    def rest(self, n: int, data: bytes) -> Sequence[Step]:
        """Read the bytes after the last frame: the end of an answer counts without its blank line (Q106)."""
        self._n, frame = n, parse_block(data, first=True)
        value = ABSENT if frame.payload is None else parse(frame.payload)
        ends = is_object(value) and (value.get("type") in self.ends or frame.event == b"error")
        if frame.payload is not None and ends:
            self._payload(frame, frame.payload, value)
        elif not _LINE_OF_STREAM.match(data):
            self._body(data)
        return self._taken()

    def body(self, n: int, data: bytes) -> Sequence[Step]:
        """Read a whole answer where a stream was due (Q93, Q96): an error, an answer, or neither."""
        self._n = n
        self._body(data)
        return self._taken()

    def flush(self) -> Sequence[Step]:
        """Return what waited for another frame."""
        self._lose()
        return self._taken()

    def _body(self, data: bytes) -> None:
        data = data.removeprefix(BOM).strip()
        value = parse(data)
        if value is ABSENT and data.startswith(b"{"):  # a cut like any other; one of too many values stays unread
            self._context.live.overflow |= values_at_most(data) > limits.JSON_VALUES_MAX
        else:
            self._answer(as_object(value))

    def _payload(self, frame: Frame, payload: bytes, value: Any) -> None:
        if payload.strip(b" ") == b"[DONE]":  # Q40
            self._unread(frame, "done_withheld")
            return
        repair = ""
        value = parse(payload) if value is ABSENT else value
        if value is ABSENT:
            payload = payload.decode("utf-8", "replace").encode()
            value, repair = parse(payload), "invalid_utf8"
        if is_object(value):
            event = as_text(value.get("type")).encode()
            if repair:
                self._damage(payload)
            elif not (frame.named and frame.event == event):
                repair = self.unnamed if frame.canonical else "framing"
            if repair:
                payload = payload.replace(b"\n", b" ")  # between tokens: inside a string it would not be JSON
            raw = None if repair else frame.raw
            out = Out(self._n, value, raw=raw, payload=payload, came=frame.raw, repair=repair, event=event)
            self._object(out, frame)
        elif frame.event == b"error":  # Q90, in words
            self._failed(frame.raw, value if isinstance(value, str) else payload.decode())
        elif value is not ABSENT:
            self._unread(frame, "foreign", "foreign")
        elif payload.strip()[:1] in (b"", b":"):  # Q98, Q99
            self._unread(frame, "empty_data")
        else:
            self._unread(frame, "not_json", "not_json")
            self._damage(payload)

    def _taken(self) -> list[Step]:
        steps, self._steps = self._steps, []
        return steps

    def _step(
        self, events: Sequence[Event], out: Out | None = None, *, delivers: bool = False, plain: bool = False
    ) -> None:
        n, choices = (self._n, ()) if out is None else (out.n, (0,))
        self._steps.append(Step(n, events, out, delivers, choices, plain))

    def _withhold(self, out: Out, repair: str, why: str = "") -> None:
        """Enter in the ledger that a frame is not sent, and flag it if there is a reason."""
        out.withhold(repair, self._context.ledger)
        if why:
            self._flag(out.n, why)

    def _unread(self, frame: Frame, repair: str, why: str = "") -> None:
        self._withhold(Out(self._n, came=frame.raw), repair, why)

    def _flag(self, n: int, why: str) -> None:
        self._steps.append(Step(n, [ForeignFrame(n=n, why=why)]))

    #: Read an object in a frame.
    @abstractmethod
    def _object(self, out: Out, frame: Frame) -> None: ...

    #: Read a whole answer.
    @abstractmethod
    def _answer(self, answer: dict[str, Any]) -> None: ...

    #: Fail with an error in words.
    @abstractmethod
    def _failed(self, came: bytes, words: str) -> None: ...

    #: Keep calls from running of which these bytes may have been a part.
    @abstractmethod
    def _damage(self, unread: bytes) -> None: ...

    #: Withhold what waits for another frame, since none follows.
    @abstractmethod
    def _lose(self) -> None: ...
