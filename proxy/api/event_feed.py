"""The frames of one stream, each with an `id:` line, for readers that come late, come again, or are many.

An id is `<record>.<ordinal>`: the record on whose account the frame goes out, and its place among that record's frames.
So ids are a function of the tape and the profile, the same for every reader at any time. Whoever comes again with the
last id that it has got is given what stands behind it; an id from the future waits until then; junk is no id at all.
"""

import base64
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Self

import trio
from quart.wrappers.response import ResponseBody

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import dumps
from wiretape.events.core.settings import Profile
from wiretape.events.emission.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.wire.sse import BOM, Decoder, Frame, parse_block

from ..limits import FOLLOW_KEEPALIVE_S, SLICE_RECORDS
from ..relay.live import Live
from ..store.store import Batches, Store

__all__ = ["EventsBody", "Following", "Place", "place_of"]

_KEEPALIVE: Final = b": keepalive\n\n"
_ID: Final = re.compile(r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,8})", re.ASCII)
_END: Final = b"\n\n"
#: Kinds that are emitted as they came, and whose bytes are no frame even where they look like one.
_BYTES: Final = frozenset({"body", "rest", "commit"})


class Place(NamedTuple):
    """Which frame of a stream."""

    n: int
    ordinal: int


def place_of(last_event_id: str) -> Place | None:
    """Behind which frame a reader goes on; None, from the beginning, for what is none of our ids."""
    match = _ID.fullmatch(last_event_id.strip())
    return Place(int(match[1]), int(match[2])) if match else None


class Following:
    """`take` until it gives None. Pulls from the tape by position, so a reader that is slow costs only itself."""

    def __init__(
        self, store: Store, stream: str, *, profile: Profile | None = None, behind: Place | None = None
    ) -> None:
        """Raises StreamMissingError at once."""
        self._store = store
        self._stream = stream
        self._behind = behind
        self._emitter = Emitter(profile)
        self._batches: Batches | None = store.follow(stream)
        self._records: list[Record] = []
        self._at = 0
        self._next_n = 0
        self._in_doubt = False

    async def take(self) -> bytes | None:
        """What there is, or a comment after a silence; None at the end."""
        while True:
            while self._at < len(self._records):
                records = self._records[self._at : self._at + SLICE_RECORDS]
                self._at += len(records)
                data = b"".join(self._frames(records))
                if data:
                    return data
                await trio.lowlevel.checkpoint()
            if self._batches is None:
                return None
            news = await self._more(self._batches)
            if news:
                return news

    async def _more(self, batches: Batches) -> bytes:
        """The next records; or what else is to be told."""
        self._records, self._at = [], 0
        with trio.move_on_after(FOLLOW_KEEPALIVE_S) as silence:
            try:
                self._records = await self._next(batches)
            except StopAsyncIteration:
                self._batches = None
                return _told("damage", [{"at": at, "reason": reason} for at, reason in batches.damage])
            except (WiretapeError, OSError):
                self._batches = None
                return _told("error", {"code": "tape_broken", "message": "the rest of this stream's tape is not there"})
        self._in_doubt = silence.cancelled_caught
        if self._in_doubt:
            return _KEEPALIVE
        self._next_n = self._records[-1].n + 1
        return b""

    async def _next(self, batches: Batches) -> list[Record]:
        if not self._in_doubt:
            return await anext(batches)
        # The silence may have ended the wait in the very moment when a batch was there: then it is read again.
        try:
            records = await anext(batches)
            if records[0].n == self._next_n:
                return records
        except StopAsyncIteration:
            pass
        self._in_doubt = False
        self._batches = self._store.follow(self._stream, self._next_n)
        return await anext(self._batches)

    def _frames(self, records: list[Record]) -> Iterator[bytes]:
        for record in records:
            ordinal = 0
            for given in self._emitter.feed(record):
                for frame in _blocks(given, record):
                    if self._behind is None or (record.n, ordinal) > self._behind:
                        yield _with_id(frame, record, b"%d.%d" % (record.n, ordinal))
                    ordinal += 1


class EventsBody(ResponseBody):
    """The body of an answer of Quart's; as long as it is being sent, the upstream is kept for it."""

    def __init__(self, following: Following, live: Live | None) -> None:
        self._following = following
        self._live = live

    async def __aenter__(self) -> Self:
        if self._live is not None:
            self._live.join()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.leave()

    def __aiter__(self) -> "EventsBody":
        return self

    async def __anext__(self) -> bytes:
        data = await self._following.take()
        if data is None:
            raise StopAsyncIteration
        return data


def _blocks(given: bytes, record: Record) -> list[Frame | bytes]:
    """One by one; bytes that are no blocks, such as the body of a plain answer, as they are."""
    if record.kind in _BYTES and given is record.raw:
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
        said: dict[str, Any] = {"status": record.keys["status"]} if "status" in record.keys else {}
        return b"event: wiretape.bytes\nid: %b\ndata: %b\n\n" % (name, dumps(said | _as_json(frame)))
    raw = frame.raw
    if frame.payload is None:  # an id without data is an event of its own to some readers
        return raw
    if "bom" in record.keys:
        raw = raw.removeprefix(BOM)
    if frame.id is not None:  # the last one counts
        return b"%b\nid: %b\n\n" % (raw.strip(b"\r\n"), name)
    return b"id: %b\n%b" % (name, raw.lstrip(b"\r\n"))


def _as_json(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode()}


def _told(what: str, value: Any) -> bytes:
    """Without an id, so that nobody resumes behind it. The rest is told once the frames before it are out."""
    return b"event: wiretape.%b\ndata: %b\n\n" % (what.encode(), dumps({what: value})) if value else b""
