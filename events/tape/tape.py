"""A tape from both ends: reads to records (`Recorder`), lines to records (`Reader`), records to the upstream's reads.

All pure: where the lines go and come from is the caller's business, and time enters as data.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..core.errors import LocalError, TapeError
from ..core.json_text import ABSENT, parse
from ..core.limits import DAMAGES_MAX, SHAPES_MAX, SLICE_BYTES, TAPE_LINE_BYTES_MAX
from ..wire.sse import BOM, Decoder, Frame
from .record import NO_KEYS, Record, Shape, decode
from .upcast import FORMAT, upcast

__all__ = ["Damage", "Reader", "Recorder", "reads"]

_LF: Final = b"\n"


class Recorder:
    """Numbers the records of one tape and turns each read into the frames that it completed.

    Times never run backwards, and each read is later than the one before, so that grouping by `t` gives the reads back
    even under a clock that does not move. Nothing follows `end`.
    """

    def __init__(self, decoder: Decoder | None = None, *, skim: bool = False) -> None:
        """With `skim`, a frame of the same shape as the one before is not parsed: its record has a `shape` instead."""
        self.decoder = decoder or Decoder()
        self._skim = skim
        self._shape: Shape | None = None
        self._shapes_left = SHAPES_MAX
        #: What reads become after an event above a limit, if the stream goes on: `body` or `rest`.
        self.beyond = ""
        self.ended = False
        self._n = 0
        self._t = 0
        self._read_t = -1
        self._bytes = 0
        self._frames = 0
        self._sha256 = hashlib.sha256()
        self._first_frame = True
        # Read boundaries inside the bytes that are no frame yet: their times and places, flat, since a frame may come
        # in eight million reads.
        self._cuts = array("Q")
        self._pending_bytes = 0

    def record(
        self,
        kind: str,
        t: int,
        keys: Mapping[str, Any] = NO_KEYS,
        body: bytes | None = None,
        *,
        verbatim: bool = True,
        value: Any = ABSENT,
    ) -> Record:
        """Any record but a frame. `body` is written as `data` where it is JSON on one line (and `verbatim` allows it).

        `value` is what it parses to, where that is known: parsing 20 MB once more would hold up every other stream.
        """
        if not verbatim or body is None or _LF in body:
            value = ABSENT
        elif value is ABSENT:
            value = parse(body)
        return self._append(Record(self._n, t, kind, keys, body, None if value is ABSENT else body, value))

    def attempt(self, t: int, keys: Mapping[str, Any]) -> list[Record]:
        """Begin an attempt: what the last one left unframed becomes its `rest`, and framing starts over."""
        records = self.rest(t)
        self.decoder = self.decoder.fresh()
        self._bytes = self._frames = 0
        self._sha256 = hashlib.sha256()
        self._first_frame = True
        self._shape, self._shapes_left = None, SHAPES_MAX
        records.append(self.record("attempt", t, keys))
        return records

    def read(self, t: int, data: bytes) -> list[Record]:
        """Return a record for each frame that this read completed."""
        return list(self.each(t, data))

    def each(self, t: int, data: bytes) -> Iterator[Record]:
        """Yield the same records one by one; the iterator must be taken to its end.

        A large read is framed in slices. It stays one read, because a cut at the time of its own frame is not recorded.
        """
        assert data, "an empty read is no read"
        self._take(t, data)
        limit = self.decoder.overflow
        if limit and self.beyond:
            yield self._beyond(data, limit)
            return
        at, size = 0, len(data)
        while at < size:
            if self.decoder.overflow:
                self.decoder.keep(data[at:])
                self._cut(self._read_t, size - at)
                break
            end = size
            if size - at > 2 * SLICE_BYTES:
                found = data.find(b"\n\n", at + SLICE_BYTES, at + 2 * SLICE_BYTES)
                end = at + 2 * SLICE_BYTES if found < 0 else found + 2
            frames = self.decoder.feed(data[at:end])
            if frames:
                yield from self._frame_records(frames, self._read_t, end - at)
            else:
                self._cut(self._read_t, end - at)
            at = end
        if self.beyond and self.decoder.overflow:
            yield from self.rest(self._read_t)

    def _beyond(self, data: bytes, limit: str) -> Record:
        """Return a read after an event above a limit, which is not framed."""
        if self.beyond == "body":
            return self.record("body", self._read_t, NO_KEYS, data)
        return self.record("rest", self._read_t, {"limit": limit}, data, verbatim=False)

    def body(self, t: int, data: bytes, keys: Mapping[str, Any] = NO_KEYS) -> Record:
        """Return a read of an answer that is not a stream."""
        self._take(t, data)
        return self.record("body", self._read_t, keys, data)

    def rest(self, t: int) -> list[Record]:
        """At the end of an attempt's bytes: frames that only the end completed, and bytes that never became one."""
        t = self._t = max(t, self._t)
        records = list(self._frame_records(self.decoder.close(), t, 0))
        if self._pending_bytes:
            keys = self._cut_keys(t)
            if self.decoder.overflow:
                # How many bytes came after the limit depends on the reads, so they may mean nothing (L1).
                keys["limit"] = self.decoder.overflow
            records.append(self.record("rest", t, keys, self.decoder.take_rest(), verbatim=False))
        return records

    def end(self, t: int, keys: Mapping[str, Any]) -> Record:
        """Return the last record: how it ended, and the counts and the checksum of the received bytes."""
        assert not self._pending_bytes, "rest comes before end"
        counts = {"bytes": self._bytes, "frames": self._frames, "sha256": self._sha256.hexdigest()}
        record = self.record("end", t, {**keys, **counts})
        self.ended = True
        return record

    def _append(self, record: Record) -> Record:
        if self.ended:
            raise LocalError(f"a {record.kind} record was written after end")
        if record.t < self._t:
            record = record._replace(t=self._t)
        self._t = record.t
        self._n += 1
        return record

    def _take(self, t: int, data: bytes) -> None:
        if self.ended:
            raise LocalError("a read was recorded after end")
        self._read_t = self._t = max(t, self._t, self._read_t + 1)
        self._bytes += len(data)
        self._sha256.update(data)

    def _frame_records(self, frames: list[Frame], t: int, read_bytes: int) -> Iterator[Record]:
        framed = -self._pending_bytes
        for frame in frames:
            n = self._n  # another record may have been written since the last frame
            raw, payload, _, _, _, canonical = frame
            framed += len(raw)
            shape = self._shape
            if shape is not None and canonical and payload and not self._pending_bytes and shape.fits(payload):
                record = Record(n, t, "frame", NO_KEYS, raw, payload, ABSENT, shape)
            else:
                value = ABSENT if payload is None else parse(payload)
                if canonical and payload and value is not ABSENT and not self._pending_bytes:
                    record = Record(n, t, "frame", NO_KEYS, raw, payload, value, self._next_shape(payload))
                else:
                    record = self._unusual_frame(n, t, frame, value)
                self._first_frame = False
            self._n = n + 1
            yield record
        self._frames += len(frames)
        if frames and framed < read_bytes:
            self._cut(t, read_bytes - framed)

    def _next_shape(self, payload: bytes) -> Shape | None:
        """Return the shape to compare the next frames with; give up on a stream that never repeats one."""
        if not self._skim or not self._shapes_left:
            return None
        self._shape = Shape.of(payload)
        self._shapes_left -= self._shape is not None
        return self._shape

    def _unusual_frame(self, n: int, t: int, frame: Frame, value: Any) -> Record:
        keys: dict[str, Any] = {}
        if self._first_frame and frame.raw.startswith(BOM):
            keys["bom"] = True
        payload = frame.payload
        if value is ABSENT or payload is None or _LF in payload or not _place(frame, payload, keys):
            payload, value = None, ABSENT
        keys.update(self._cut_keys(t))
        return Record(n, t, "frame", keys or NO_KEYS, frame.raw, payload, value)

    def _cut(self, t: int, pending: int) -> None:
        self._pending_bytes += pending
        if self._cuts and self._cuts[-2] == t:  # one more slice of the same read
            self._cuts[-1] = self._pending_bytes
        else:
            self._cuts.extend((t, self._pending_bytes))

    def _cut_keys(self, t: int) -> dict[str, Any]:
        """Return the reads that ended inside the bytes of the record at `t`, or at their very end but earlier."""
        flat = self._cuts
        cuts = [[flat[i], flat[i + 1]] for i in range(0, len(flat), 2) if flat[i] != t]
        del flat[:]
        self._pending_bytes = 0
        return {"cuts": cuts} if cuts else {}


def _place(frame: Frame, payload: bytes, keys: dict[str, Any]) -> bool:
    """Return how the frame writes its payload, as keys; False where it must be kept raw."""
    raw = frame.raw
    if frame.canonical:
        return True
    if raw == b"event: %b\ndata: %b\n\n" % (frame.event, payload):
        before, behind = b"", b""
        keys["event"] = ""
    else:
        at = raw.find(payload)
        before, behind = raw[:at], raw[at + len(payload) :]
    try:
        if "event" in keys:
            keys["event"] = frame.event.decode()
        else:
            keys["sse"] = [before.decode(), behind.decode()]
    except UnicodeDecodeError:
        keys.pop("event", None)
        return False
    return True


class Damage(NamedTuple):
    """A fault in a tape, and its byte offset."""

    at: int
    reason: str


class Reader:
    """Incremental tape bytes to verified records. Bad lines are reported with their place, never silently skipped.

    Any bytes whatsoever give records or damage. What raises is a format that is newer than this reader: nothing in such
    a tape can be believed.
    """

    def __init__(self, line_bytes_max: int = TAPE_LINE_BYTES_MAX, damages_max: int = DAMAGES_MAX) -> None:
        #: In order of place; the last one of a full list represents all that follow.
        self.damage: list[Damage] = []
        self.ended = False
        self._damages_max = damages_max
        self._line_bytes_max = line_bytes_max
        self._tail = bytearray()
        self._searched = 0
        self._at = 0
        self._next_n = 0
        self._t = 0
        self._skipping = False
        self._format = FORMAT

    @property
    def torn(self) -> bytes:
        """A last line without its LF: what a crash leaves of a record that was never shown."""
        return bytes(self._tail)

    def feed(self, data: bytes) -> list[Record]:
        """Return the records of the lines that these bytes completed."""
        self._tail += data
        if self._tail.find(_LF, self._searched) < 0:
            self._searched = len(self._tail)
            self._limit_tail()
            return []
        *lines, tail = bytes(self._tail).split(_LF)
        self._tail = bytearray(tail)
        self._searched = len(tail)
        records: list[Record] = []
        for line in lines:
            record = self._line(line)
            if record is not None:
                records.append(record)
            self._at += len(line) + 1
        self._limit_tail()
        return records

    def _limit_tail(self) -> None:
        if self._skipping or len(self._tail) > self._line_bytes_max:
            if not self._skipping:
                self._damaged("line too long")
            self._skipping = True
            self._at += len(self._tail)
            self._tail.clear()
            self._searched = 0

    def _line(self, line: bytes) -> Record | None:
        if self._skipping:
            self._skipping = False
            return None
        record = decode(line) if len(line) <= self._line_bytes_max else "line too long"
        if isinstance(record, str):
            self._damaged(record)
            return None
        if self.ended:
            self._damaged("record after end")
            return None
        if record.n < self._next_n:
            self._damaged(f"record {record.n} again")
            return None
        if record.n > self._next_n:
            self._damaged(f"records {self._next_n} to {record.n - 1} are missing")
        if record.t < self._t:
            self._damaged(f"record {record.n} is earlier than the one before it")
        self._next_n, self._t = record.n + 1, record.t
        return self._known(record)

    def _known(self, record: Record) -> Record:
        if record.kind == "open":
            self._format = self._format_of(record)
        elif record.kind == "end":
            self.ended = True
        return upcast(record, self._format)

    def _format_of(self, record: Record) -> int:
        version = record.keys.get("format")
        if type(version) is not int or version < 1:
            self._damaged("its format is no number of a format")
            return FORMAT
        if version > FORMAT:
            raise TapeError(f"tape format {version} is newer than {FORMAT}, the newest that this version reads")
        return version

    def _damaged(self, reason: str) -> None:
        if len(self.damage) < self._damages_max:
            self.damage.append(Damage(self._at, reason))
        elif len(self.damage) == self._damages_max:
            self.damage.append(Damage(self._at, "more damage from here on"))


def reads(records: Iterable[Record]) -> Iterator[tuple[int, bytes]]:
    """Return the upstream's reads of one attempt, as they came: when, and which bytes."""
    time, parts = 0, list[bytes]()
    for record in records:
        if record.raw is None or record.kind not in ("frame", "rest", "body"):
            continue
        start = 0
        for t, end in [*record.keys.get("cuts", ()), (record.t, len(record.raw))]:
            if end <= start:
                continue
            if t != time and parts:
                yield time, b"".join(parts)
                parts = []
            time = t
            parts.append(record.raw[start:end])
            start = end
    if parts:
        yield time, b"".join(parts)
