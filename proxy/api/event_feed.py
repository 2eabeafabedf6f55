"""The frames of one stream, each with an `id:` line, for any number of readers that come late or come back.

An id is `<record>.<ordinal>`: the record that caused the frame, and its place among that record's frames. Ids are a
function of the tape and the profile, the same for every reader. A reader that sends its last id gets what follows it.
"""

import base64
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final, NamedTuple

import trio

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import dumps
from wiretape.events.core.settings import Profile
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.wire.sse import BOM, Decoder, Frame, parse_block

from ..limits import FOLLOW_KEEPALIVE_S, SLICE_RECORDS
from ..relay.delivery import Delivery
from ..store.store import Batches, Store

__all__ = ["Following", "Place", "followed", "place_of"]

_KEEPALIVE: Final = b": keepalive\n\n"
_ID: Final = re.compile(r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,8})", re.ASCII)
_END: Final = b"\n\n"
#: Kinds whose bytes are not frames, even if they look like one.
_NOT_FRAMES: Final = frozenset({"body", "rest", "commit"})


class Place(NamedTuple):
    """One frame of a stream."""

    n: int
    ordinal: int


def place_of(last_event_id: str) -> Place | None:
    """Return the frame that a reader has seen last, or None, the beginning, for anything that is not an id."""
    match = _ID.fullmatch(last_event_id.strip())
    return Place(int(match[1]), int(match[2])) if match else None


async def followed(following: "Following", live: Delivery | None) -> AsyncGenerator[bytes]:
    """Yield what `following` takes. A running stream keeps its upstream while this is read."""
    if live is not None:
        live.join()
    try:
        while (data := await following.take()) is not None:
            yield data
    finally:
        if live is not None:
            live.leave()


class Following:
    """One reader of one stream. It pulls from the tape by position, so a slow reader delays no other."""

    def __init__(
        self, store: Store, stream: str, *, profile: Profile | None = None, after: Place | None = None
    ) -> None:
        """Raise StreamMissingError if there is no such stream."""
        self._store = store
        self._stream = stream
        self._after = after
        self._emitter = Emitter(profile)
        self._batches: Batches | None = store.follow(stream)
        self._records: list[Record] = []
        self._next_n = 0
        self._ended = False

    async def take(self) -> bytes | None:
        """Return the next frames, or a comment after a silence, or None at the end."""
        while not self._ended:
            records, self._records = self._records[:SLICE_RECORDS], self._records[SLICE_RECORDS:]
            data = b"".join(self._frames(records)) if records else await self._wait()
            if data:
                return data
            await trio.lowlevel.checkpoint()
        return None

    async def _wait(self) -> bytes:
        """Fetch the next records; return what to say if there are none."""
        nothing: list[Record] = []
        with trio.move_on_after(FOLLOW_KEEPALIVE_S) as silence:
            try:
                batches = self._batches = self._batches or self._store.follow(self._stream, self._next_n)
                self._records = await anext(batches, nothing)
            except (WiretapeError, OSError):
                self._ended = True
                message = "the rest of this stream's tape is not available"
                return _notice("error", {"code": "tape_broken", "message": message})
            if self._records:
                self._next_n = self._records[-1].n + 1
                return b""
            self._ended = True
            damage = [{"at": at, "reason": reason} for at, reason in batches.damage]
            return _notice("damage", damage) if damage else b""
        assert silence.cancelled_caught, "everything else returns"
        self._batches = None  # its read may have taken a batch when the deadline cancelled it
        return _KEEPALIVE

    def _frames(self, records: list[Record]) -> Iterator[bytes]:
        for record in records:
            ordinal = 0
            for given in self._emitter.feed(record):
                for frame in _blocks(given, record):
                    if self._after is None or (record.n, ordinal) > self._after:
                        yield _with_id(frame, record, b"%d.%d" % (record.n, ordinal))
                    ordinal += 1


def _blocks(given: bytes, record: Record) -> list[Frame | bytes]:
    """Split emitted bytes into frames; bytes that are not frames, such as a plain body, stay as they are."""
    if record.kind == "keepalive":  # followers have keepalives of their own
        return []
    if record.kind in _NOT_FRAMES and given is record.raw:
        return [given]
    if given.startswith(b"data: ") and given.find(_END) == len(given) - 2:
        return [parse_block(given)]
    if record.kind == "frame" or given.startswith((b"data: ", b"event: ")):
        decoder = Decoder(len(given), len(given), first="bom" in record.keys)
        frames = decoder.feed(given) + decoder.close()
        if not decoder.rest:
            return [*frames]
    return [given]


def _with_id(frame: Frame | bytes, record: Record, name: bytes) -> bytes:
    if isinstance(frame, bytes):
        fields: dict[str, Any] = {"status": record.keys["status"]} if "status" in record.keys else {}
        try:
            fields["text"] = frame.decode()
        except UnicodeDecodeError:
            fields["b64"] = base64.b64encode(frame).decode()
        return b"event: wiretape.bytes\nid: %b\ndata: %b\n\n" % (name, dumps(fields))
    raw = frame.raw
    if frame.payload is None:  # an id without data would be an event of its own to some readers
        return raw
    if "bom" in record.keys:
        raw = raw.removeprefix(BOM)
    if frame.id is not None:  # the last id counts
        return b"%b\nid: %b\n\n" % (raw.strip(b"\r\n"), name)
    return b"id: %b\n%b" % (name, raw.lstrip(b"\r\n"))


def _notice(kind: str, value: Any) -> bytes:
    """Return an event without an id, so that no reader resumes after it."""
    return b"event: wiretape.%b\ndata: %b\n\n" % (kind.encode(), dumps({kind: value}))
