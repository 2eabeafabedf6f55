"""Frames that repeat a shape: sent by a template while nothing else happens, and read later, all at once.

The text of an answer comes in hundreds of frames that differ in their text and number. Once one of them has been read,
the others are recognised by their bytes; their texts are counted by the reader before it reads anything else.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ..core import model
from ..core.json_text import parse
from ..core.limits import SKIPPED_BYTES_MAX
from ..core.model import Event
from ..tape.record import Record, Shape
from .dialect import Reader, Step, Writer
from .frames import Ledger, Out

__all__ = ["Parts", "Routine"]

_OUR_NUMBER: Final = -1
_NUMBER: Final = re.compile(rb'"sequence_number"\s*+:\s*+(\d++)')


class Parts(NamedTuple):
    """What one attempt is read and written with."""

    reader: Reader
    writer: Writer
    ledger: Ledger
    sink: Callable[[Event], None] | None
    #: Each entry of the ledger is an event for the sink.
    entries: bool
    #: The upstream speaks another dialect than the client.
    crossed: bool


class Routine:
    """How the frames of one shape are sent, and the texts of those that the reader has not seen."""

    def __init__(self, parts: Parts, shape: Shape, event: Event | None, repairs: tuple[str, ...]) -> None:
        self._parts = parts
        self.shape = shape
        #: The event of such a frame for the sink; the events of the others differ in their text.
        self._event: Any = event
        self._repairs = repairs
        #: The frames that come pass as they are.
        self._passes = not (repairs or parts.crossed)
        #: What is sent, with `%b` for each of these slots: places in what varies, or _OUR_NUMBER.
        self._template = b""
        self._slots: tuple[int, ...] = ()
        #: How far their numbers are ahead of ours, if both are numbered.
        self._ahead: int | None = None
        #: Texts that the reader has not seen, and the bytes that it can take before it has to.
        self.skipped: list[bytes] = []
        self._room = min(parts.reader.room, SKIPPED_BYTES_MAX)
        #: Nothing of such a frame is looked at.
        self.unread = False

    @staticmethod
    def of(parts: Parts, shape: Shape | None, record: Record, step: Step, out: Out, frame: bytes) -> "Routine | None":
        """Return how frames like this one are sent, if each text is in what came and in what was sent exactly once."""
        texts = None if shape is None or out.reserialised else shape.texts(record.payload or b"")
        repaired = bool(out.repair) and not parts.crossed
        if shape is None or texts is None or repaired or (parts.entries and parts.crossed):
            return None
        match step.events:
            case [(model.TextDelta() | model.ReasoningDelta()) as delta] if not (parts.entries and out.changes):
                if delta.text != parse(b'"%b"' % texts[shape.place]):
                    return None
                event = delta if parts.sink is not None else None
            case _ if parts.sink is None and parts.writer.number is None and not parts.crossed:
                event = None
            case _:
                return None
        repairs = (*((out.repair,) if out.repair else ()), *(edit.repair for edit in out.changes))
        routine = Routine(parts, shape, event, repairs)
        fits = routine._fill(record.payload or b"", texts, frame)
        if not fits or (out.changes and b"\\u" in routine._template):  # another style may be due for the next text
            return None
        return routine

    def _fill(self, payload: bytes, texts: Sequence[bytes], frame: bytes) -> bool:
        """Make the template of what was sent; return False if a text or a number is not there exactly once."""
        shape, number = self.shape, self._parts.writer.number
        found: list[tuple[int, int, int]] = []
        for slot, text in enumerate(texts):
            string = b'"%b"' % text
            if slot == shape.number or (self._parts.crossed and slot != shape.place):
                continue
            if not text or payload.count(string) != 1 or frame.count(string) != 1:
                return False
            found.append((frame.index(string) + 1, len(text), slot))
        if number is not None:
            numbers = [*_NUMBER.finditer(frame)]
            if len(numbers) != 1 or int(numbers[0][1]) != number - 1:
                return False
            found.append((numbers[0].start(1), len(numbers[0][1]), _OUR_NUMBER))
            self._ahead = None if shape.number < 0 else int(texts[shape.number]) - number + 1
        end = 0
        for at, size, _ in sorted(found):
            self._template += frame[end:at].replace(b"%", b"%%") + b"%b"
            end = at + size
        self._template += frame[end:].replace(b"%", b"%%")
        self._slots = tuple(slot for _, _, slot in sorted(found))
        self.unread = self._passes and self._event is None and self._ahead is None
        return True

    def admits(self, record: Record) -> bool:
        """Return whether a frame that was read from a tape has this shape."""
        fresh = record.shape is None and record.kind == "frame" and record.keys == self.shape.keys
        return fresh and self.shape.texts(record.payload or b"") is not None

    def repeat(self, record: Record, raw: bytes) -> bytes | None:
        """Return the frame of a record like the last one; None if it has to be read after all."""
        texts = record.texts or self.shape.texts(record.payload or b"")
        assert texts is not None, "the record has this shape"
        event, (_, writer, ledger, sink, _, crossed) = self._event, self._parts
        text, number = texts[self.shape.place], writer.number
        if number is not None or crossed:
            ahead = self._ahead
            if not text or (ahead is not None and int(texts[self.shape.number]) - (number or 0) != ahead):
                return None
            self._room -= len(text)
            if self._room < 0:
                return None
            self.skipped.append(text)
        if event is not None and sink is not None and text:
            sink(type(event)(n=record.n, choice=event.choice, text=parse(b'"%b"' % text)))
        for repair in self._repairs:
            ledger.counts[repair] += 1
        if number is not None:
            writer.number = number + 1
        if self._passes:
            return raw
        return self._template % tuple([texts[slot] if slot >= 0 else b"%d" % (number or 0) for slot in self._slots])

    def catch_up(self) -> None:
        """Tell the reader what was sent without it."""
        texts: list[str] = parse(b'["%b"]' % b'","'.join(self.skipped))
        self.skipped.clear()
        self._parts.reader.repeated("".join(texts))
