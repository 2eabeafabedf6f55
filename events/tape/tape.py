"""A tape from both ends: reads to records (`Recorder`), lines to records (`Reader`), records to the upstream's reads.

All pure: where the lines go and come from is the caller's business, and time enters as data.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..core.errors import LocalError, TapeError
from ..core.json_text import ABSENT, parse
from ..core.limits import DAMAGES_MAX, SHAPES_MAX, TAPE_LINE_BYTES_MAX
from ..wire.sse import BOM, Decoder, Frame
from .record import FORMAT, NO_KEYS, RECEIVED, Record, Shape, decode

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
        #: What reads become after an event above a limit, if the stream goes on: `body` or `rest`.
        self.beyond = ""
        self.ended = False
        self._skim = skim
        self._n = 0
        self._t = 0
        self._read_t = -1
        # Read boundaries inside the bytes that are no frame yet: their times and places, flat, since a frame may come
        # in eight million reads.
        self._cuts = array("Q")
        self._pending_bytes = 0
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        self._bytes = self._frames = 0
        self._sha256 = hashlib.sha256()
        self._shape: Shape | None = None
        self._shape_event = b""
        self._shapes_left = SHAPES_MAX if self._skim else 0

    def record(
        self,
        kind: str,
        t: int,
        keys: Mapping[str, Any] = NO_KEYS,
        body: bytes | None = None,
        *,
        verbatim: bool = True,
        is_json: bool = False,
    ) -> Record:
        """Return any record but a frame. A `body` of JSON on one line is written as `data`, unless not `verbatim`.

        With `is_json` the body is known to be JSON, and is not parsed: 20 MB would hold up every other stream.
        """
        if self.ended:
            raise LocalError(f"a {kind} record was written after end")
        fits = verbatim and body is not None and _LF not in body
        value = parse(body) if fits and body is not None and not is_json else ABSENT
        payload = body if fits and (is_json or value is not ABSENT) else None
        self._t = max(t, self._t)
        self._n += 1
        return Record(self._n - 1, self._t, kind, keys, body, payload, value)

    def attempt(self, t: int, keys: Mapping[str, Any]) -> list[Record]:
        """Begin an attempt: what the last one left unframed becomes its `rest`, and framing starts over."""
        records = self.rest(t)
        self.decoder = self.decoder.fresh()
        self._begin_attempt()
        return [*records, self.record("attempt", t, keys)]

    def read(self, t: int, data: bytes, *, more: bool = False) -> list[Record]:
        """Return a record for each frame that this read completed; with `more`, `data` continues the read before.

        A large read may thus be recorded in slices. It stays one read: a cut at the time of its own frame is left out.
        """
        assert data, "an empty read is no read"
        t = self._take(t, data, more=more)
        decoder = self.decoder
        limit = decoder.overflow
        if limit and self.beyond:
            if self.beyond == "body":
                return [self.record("body", t, NO_KEYS, data)]
            return [self.record("rest", t, {"limit": limit}, data, verbatim=False)]
        if limit:
            decoder.keep(data)
            self._cut(t, len(data))
            return []
        records: list[Record] = []
        frames = decoder.feed(data)
        framed = -self._pending_bytes
        for frame in frames:
            raw, payload, event, _, canonical, named = frame
            framed += len(raw)
            shape = None if self._pending_bytes else self._shape
            same = shape is not None and (canonical if not shape.keys else named and event == self._shape_event)
            texts = shape.texts(payload) if shape is not None and same and payload else None
            if shape is not None and texts is not None:
                records.append(Record(self._n, t, "frame", shape.keys, raw, payload, ABSENT, shape, texts))
                self._n += 1
                self._frames += 1
            else:
                records.append(self._frame(t, frame))
        if not frames:
            self._cut(t, len(data))
        elif framed < len(data):
            self._cut(t, len(data) - framed)
        if self.beyond and decoder.overflow:
            records += self.rest(t)
        return records

    def body(self, t: int, data: bytes, keys: Mapping[str, Any] = NO_KEYS) -> Record:
        """Return a read of an answer that is not a stream."""
        return self.record("body", self._take(t, data), keys, data)

    def rest(self, t: int) -> list[Record]:
        """Return the frames that only the end of the attempt's bytes completed, and the bytes that never became one."""
        t = self._t = max(t, self._t)
        records = [self._frame(t, frame) for frame in self.decoder.close()]
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

    def _take(self, t: int, data: bytes, *, more: bool = False) -> int:
        """Count the bytes of a read and return its time."""
        if self.ended:
            raise LocalError("a read was recorded after end")
        if not more:
            self._read_t = self._t = max(t, self._t, self._read_t + 1)
        self._bytes += len(data)
        self._sha256.update(data)
        return self._read_t

    def _frame(self, t: int, frame: Frame) -> Record:
        """Return the record of a frame that is parsed."""
        raw, payload, event, _, canonical, named = frame
        keys: dict[str, Any] = {}
        shape = None
        value = ABSENT if payload is None else parse(payload)
        if (canonical or (named and event.isascii())) and value is not ABSENT and not self._pending_bytes:
            keys = {"event": event.decode()} if named else keys
            if self._shapes_left and payload:
                # Give up on a stream that never repeats one.
                shape = self._shape = Shape.of(payload, keys or NO_KEYS)
                self._shape_event = event
                self._shapes_left -= shape is not None
        else:
            if not self._frames and raw.startswith(BOM):
                keys["bom"] = True
            if value is ABSENT or payload is None or _LF in payload or not _place(frame, payload, keys):
                payload, value = None, ABSENT
            keys |= self._cut_keys(t)
        self._frames += 1
        self._n += 1
        return Record(self._n - 1, t, "frame", keys or NO_KEYS, raw, payload, value, shape)

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
    """Add to the keys how the frame writes its payload; return False where it must be kept raw."""
    raw = frame.raw
    if frame.canonical:
        return True
    try:
        if frame.named:
            keys["event"] = frame.event.decode()
        else:
            before, _, after = raw.partition(payload)
            keys["sse"] = [before.decode(), after.decode()]
    except UnicodeDecodeError:
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

    def __init__(self, line_bytes_max: int = TAPE_LINE_BYTES_MAX) -> None:
        #: In order of place; the last one of a full list represents all that follow.
        self.damage: list[Damage] = []
        self.ended = False
        self._line_bytes_max = line_bytes_max
        self._tail = bytearray()
        self._at = 0
        self._next_n = 0
        self._t = 0
        self._skipping = False

    @property
    def torn(self) -> bytes:
        """A last line without its LF: what a crash leaves of a record that was never shown."""
        return bytes(self._tail)

    def feed(self, data: bytes) -> list[Record]:
        """Return the records of the lines that these bytes completed."""
        records: list[Record] = []
        if _LF in data:
            *lines, data = (bytes(self._tail) + data).split(_LF)
            self._tail.clear()
            for line in lines:
                record = self._line(line)
                if record is not None:
                    records.append(record)
                self._at += len(line) + 1
        self._tail += data
        if self._skipping or len(self._tail) > self._line_bytes_max:
            if not self._skipping:
                self._damaged("line too long")
            self._skipping = True
            self._at += len(self._tail)
            self._tail.clear()
        return records

    def _line(self, line: bytes) -> Record | None:
        if self._skipping:
            self._skipping = False
            return None
        record = decode(line) if len(line) <= self._line_bytes_max else "line too long"
        if isinstance(record, Record) and (self.ended or record.n < self._next_n):
            record = "record after end" if self.ended else f"record {record.n} again"
        if isinstance(record, str):
            self._damaged(record)
            return None
        if record.n > self._next_n:
            self._damaged(f"records {self._next_n} to {record.n - 1} are missing")
        if record.t < self._t:
            self._damaged(f"record {record.n} is earlier than the one before it")
        self._next_n, self._t = record.n + 1, record.t
        self.ended = record.kind == "end"
        if record.kind == "open":
            version = record.keys.get("format")
            if type(version) is not int or version < 1:
                self._damaged("its format is not the number of a format")
            elif version > FORMAT:
                raise TapeError(f"tape format {version} is newer than {FORMAT}, the newest that this version reads")
        return record

    def _damaged(self, reason: str) -> None:
        if len(self.damage) <= DAMAGES_MAX:
            last = len(self.damage) == DAMAGES_MAX
            self.damage.append(Damage(self._at, "more damage from here on" if last else reason))


def reads(records: Iterable[Record]) -> Iterator[tuple[int, bytes]]:
    """Return the upstream's reads of one attempt, as they came: when, and which bytes."""
    time, parts = 0, list[bytes]()
    for record in records:
        if record.raw is None or record.kind not in RECEIVED:
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
