"""A response whose head has come: its reads, decoded and without our keys, and what its body is made of."""

from collections.abc import Awaitable, Iterator, Sequence
from enum import Enum, auto
from typing import Any

import trio

from ..config.secrets import Secret
from ..http_headers import Headers
from ..limits import ERROR_BODY_BYTES_MAX
from ..security.headers import taped_answer
from ..security.masking import ErrorMask, KeyMask
from ..upstream.connection import End, Exchange, Head, Read
from ..upstream.decompression import CODINGS, Inflater
from ..upstream.errors import WireError
from .stream_request import StreamRequest

__all__ = ["Shape", "UpstreamResponse", "shape_of"]


class Shape(Enum):
    """What the body of a response is made of."""

    FRAMES = auto()
    BODY = auto()
    #: The first bytes decide.
    SNIFF = auto()
    #: Nothing that a client of this dialect could use.
    NOTHING = auto()


class UpstreamResponse:
    """One response of the upstream.

    `secrets` are what this upstream was given and may echo; `quoted` is what it may echo in errors alone.
    """

    def __init__(
        self, head: Head, body: Exchange, secrets: Sequence[Secret] = (), *, quoted: Sequence[Secret] = ()
    ) -> None:
        self.status = head.status
        self.body = body
        self.shape = Shape.BODY
        #: What was read ahead to find out what the body is.
        self.seen = b""
        self._mask = KeyMask(secrets) if secrets else None
        mask = self._mask
        self.headers = Headers(head.headers if mask is None else [(n, mask.whole(value)) for n, value in head.headers])
        #: It may echo a key of ours in a coding that can be searched.
        self.searchable = mask is not None and self.header(b"content-encoding").strip().lower() in CODINGS
        if quoted:
            self._mask = ErrorMask(quoted, frames="json" not in self.media_type)
        self._peeked: list[Read | None] = []
        self._error_parts: list[bytes] = []
        self._error_bytes = 0
        self._inflater: Inflater | None = None
        #: What is left of a socket read that was decoded in pieces, and what came after it.
        self._pieces: Iterator[Read] = iter(())
        self._fault: WireError | None = None
        self._t = body.head_t

    @property
    def framed(self) -> bool:
        """Whether the body ended by its own framing."""
        return self.body.end is End.FRAMED

    @property
    def over(self) -> bool:
        """Whether the body ended by its own framing and was taken to its end, so that nothing is left to wait for."""
        if self.body.end is not End.FRAMED or self._peeked or self._inflater is not None:
            return False
        return self._mask is None or not self._mask.waits

    @property
    def decoded(self) -> bool:
        """Whether its bytes differ from those that its headers describe."""
        return self._inflater is not None

    @property
    def masked(self) -> bool:
        """Whether a key was found in it."""
        return self._mask is not None and self._mask.found

    @property
    def media_type(self) -> str:
        """The media type, in lower case."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def header(self, name: bytes) -> str:
        """Return the first header of this name, or an empty string."""
        return self.headers.get(name).decode("latin-1")

    def head_keys(self) -> dict[str, Any]:
        """Return the keys of its `head` record."""
        keys: dict[str, Any] = {"status": self.status, "headers": taped_answer(self.headers)}
        if self._inflater is not None:
            keys["decoded"] = self._inflater.coding
        if self.body.repeated:
            keys["repeated"] = True
        length = self.header(b"content-length")
        if self.header(b"transfer-encoding"):
            keys["framing"] = "chunked"
        elif length:
            keys["framing"] = "length"
            if length.isdecimal():
                keys["length"] = int(length)
        elif not self.framed:
            keys["framing"] = "close"
        return keys

    def end_keys(self) -> dict[str, Any]:
        """Return what its `end` record says of the body: ended by its framing, or by what else if not by us.

        Without this a replay cannot tell a cut from an end.
        """
        if self.body.fault is not None:
            return {"framed": False, "broke": self.body.fault.ending}
        if self.body.end is End.CLOSED:
            return {"framed": False, "broke": "closed"}
        return {"framed": self.framed}

    def decode(self) -> None:
        """Decode a body that comes compressed although that was not asked for, within bounds (U51, U52)."""
        coding = self.header(b"content-encoding").strip().lower()
        if coding and coding != "identity":
            self._inflater = Inflater(coding)

    def receive(self) -> Awaitable[Read | None]:
        """Return what the next socket read brought; a cancelled call has lost nothing."""
        if self._mask is None and self._inflater is None and not self._peeked:
            return self.body.receive()  # no layer of ours around each read
        return self._next()

    async def peek(self) -> bool:
        """Read ahead once; return whether there was anything to read."""
        read = await self._next_read()
        self._peeked.append(read)
        if read is not None:
            self.seen += read.data
        return read is not None

    async def drain(self) -> list[Read]:
        """Return what still comes within a moment, so that the connection can be reused; the body is done with."""
        reads, self._peeked = [read for read in self._peeked if read is not None], []
        try:
            reads += self._pieces
            for read in await self.body.drain():
                reads += self._decoded(read)
            reads += self._last()
        except WireError:
            pass  # nothing needed the rest
        return reads

    def keep_error(self, data: bytes) -> bool:
        """Keep a part of an error's body; return whether there is room for more."""
        self._error_parts.append(data)
        self._error_bytes += len(data)
        return self._error_bytes <= ERROR_BODY_BYTES_MAX

    def error_body(self) -> bytes:
        """Return the body of an error as far as it was kept."""
        return b"".join(self._error_parts)

    async def _next(self) -> Read | None:
        return self._peeked.pop(0) if self._peeked else await self._next_read()

    async def _next_read(self) -> Read | None:
        while True:
            if self._inflater is not None:
                await trio.lowlevel.checkpoint_if_cancelled()
                for piece in self._pieces:
                    return piece
            if self._fault is not None:
                raise self._fault
            read: Read | None = None
            try:
                read = await self.body.receive()
            except WireError as fault:
                self._fault = fault
            if read is None:
                for piece in self._last():
                    return piece
                if self._fault is None:
                    return None
                continue
            self._t = read.t
            self._pieces = self._decoded(read)
            for piece in self._pieces:
                return piece

    def _decoded(self, read: Read) -> Iterator[Read]:
        """Yield what one socket read means, in pieces that are decoded only when they are taken."""
        for data in self._inflater.feed(read.data) if self._inflater is not None else (read.data,):
            shown = self._mask.feed(data) if self._mask is not None else data
            if shown:
                yield read if shown is read.data else Read(read.t, shown)

    def _last(self) -> Iterator[Read]:
        """Yield what was held back in case more would come."""
        held = self._mask.close() if self._mask is not None else b""
        if held:
            yield Read(self._t, held)
        if self._inflater is not None and self._fault is None:
            self._inflater.close()


def shape_of(request: StreamRequest, response: UpstreamResponse) -> Shape:
    """Decide by status and media type; an unknown type leaves it to the first bytes."""
    kind = response.media_type
    if request.verbatim:
        plain = response.header(b"content-encoding").strip().lower() in ("", "identity")
        return Shape.FRAMES if kind == "text/event-stream" and plain else Shape.BODY
    if response.status >= 400:
        return Shape.BODY
    if response.status in (204, 205) or response.status >= 300 or kind == "text/html":
        return Shape.NOTHING
    if not request.streams or kind == "application/json":
        return Shape.BODY
    return Shape.FRAMES if kind == "text/event-stream" else Shape.SNIFF
