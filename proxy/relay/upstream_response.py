"""An answer whose head has come: its reads, decoded and without our keys, and what its body is made of"""

from collections.abc import Awaitable, Iterator, Sequence
from enum import Enum, auto
from typing import Any

import trio

from ..config.secrets import Secret
from ..http_headers import Header
from ..limits import ERROR_BODY_BYTES_MAX
from ..security.headers import taped_answer
from ..security.masking import ErrorMask, KeyMask
from ..upstream.body import Body
from ..upstream.connection import Read
from ..upstream.decompression import CODINGS, Inflater
from ..upstream.errors import WireError
from ..upstream.exchange import End, Head
from .stream_request import Order

__all__ = ["Asked", "Shape", "shape_of"]


class Shape(Enum):
    """What the body of an answer is made of."""

    FRAMES = auto()
    BODY = auto()
    #: Its first bytes decide.
    SNIFF = auto()
    #: Nothing that a client of this dialect could use.
    NOTHING = auto()


class Asked:
    """`secrets` are what this upstream was given and its answer may echo; `quoted` is what it may in errors alone."""

    def __init__(
        self, head: Head, body: Body, secrets: Sequence[Secret] = (), *, quoted: Sequence[Secret] = ()
    ) -> None:
        self.status = head.status
        self.headers: tuple[Header, ...] = tuple(head.headers)
        self.body = body
        self.shape = Shape.BODY
        #: What was read before anybody knew what it is.
        self.seen = b""
        self._mask = KeyMask(secrets) if secrets else None
        if self._mask is not None:
            self.headers = tuple((name, self._mask.whole(value)) for name, value in head.headers)
        self.searchable = self._mask is not None and self.header(b"content-encoding").strip().lower() in CODINGS
        """It may echo a key of ours, in a coding that we can look into."""
        if quoted:
            self._mask = ErrorMask(quoted, frames="json" not in self.kind)
        self._peeked: list[Read | None] = []
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._inflater: Inflater | None = None
        #: Of one socket read what is not given out yet, and what came behind it.
        self._pieces: Iterator[Read] = iter(())
        self._fault: WireError | None = None
        self._t = body.head_t

    @property
    def framed(self) -> bool:
        """The body ended by its own framing."""
        return self.body.end is End.FRAMED

    @property
    def over(self) -> bool:
        """All of it was given out, and it ended by its own framing: nobody who leaves now leaves too early."""
        if not self.framed or self._peeked or self._inflater is not None:
            return False
        return self._mask is None or not self._mask.waits

    @property
    def decoded(self) -> bool:
        """Its bytes are not those that its headers speak of."""
        return self._inflater is not None

    @property
    def masked(self) -> bool:
        """A key was in it that nobody is to read."""
        return self._mask is not None and self._mask.found

    @property
    def kind(self) -> str:
        """What its content type says that it is."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def header(self, name: bytes) -> str:
        """The first of this name, or the empty word."""
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name), "")

    def described(self) -> dict[str, Any]:
        """As the `head` record says it."""
        keys: dict[str, Any] = {"status": self.status, "headers": taped_answer(self.headers)}
        if self._inflater is not None:
            keys["decoded"] = self._inflater.coding
        if self.body.repeated:
            keys["repeated"] = True
        return keys | self._framing()

    def _framing(self) -> dict[str, Any]:
        """How the end of its body is told; nothing of one that has none."""
        if self.header(b"transfer-encoding"):
            return {"framing": "chunked"}
        length = self.header(b"content-length")
        if length:
            return {"framing": "length", "length": int(length)} if length.isdecimal() else {"framing": "length"}
        return {} if self.framed else {"framing": "close"}

    def decode(self) -> None:
        """An upstream that compresses all the same is decoded, within bounds (U51, U52)."""
        coding = self.header(b"content-encoding").strip().lower()
        if coding and coding != "identity":
            self._inflater = Inflater(coding)

    def receive(self) -> Awaitable[Read | None]:
        """What the next socket read brought; a cancelled call has lost nothing."""
        if self._mask is None and self._inflater is None and not self._peeked:
            return self.body.receive()  # no layer of ours around each read
        return self._received() if self._peeked else self._next()

    async def _received(self) -> Read | None:
        return self._peeked.pop(0)

    async def peek(self) -> bool:
        """One read ahead; whether there was one."""
        read = await self._next()
        self._peeked.append(read)
        if read is not None:
            self.seen += read.data
        return read is not None

    async def drain(self) -> list[Read]:
        """For who needs no more: what still comes in a moment, so that the connection can be used again."""
        reads, self._peeked = [read for read in self._peeked if read is not None], []
        try:
            reads += self._pieces
            for read in await self.body.drain():
                reads += self._decoded(read)
            reads += self._last()
        except WireError:
            pass  # nobody needed it
        return reads

    def keep(self, data: bytes) -> bool:
        """Of an answer that says it failed; whether there is room for more."""
        self._kept.append(data)
        self._kept_bytes += len(data)
        return self._kept_bytes <= ERROR_BODY_BYTES_MAX

    def kept(self) -> bytes:
        """The body of an answer that says it failed."""
        return b"".join(self._kept)

    async def _next(self) -> Read | None:
        while True:
            if self._inflater is not None:
                await trio.lowlevel.checkpoint_if_cancelled()
                for piece in self._pieces:
                    return piece
            if self._fault is not None:
                raise self._fault
            try:
                read = await self.body.receive()
            except WireError as fault:
                self._fault, read = fault, None
            if read is not None and self._inflater is not None:
                self._t, self._pieces = read.t, self._decoded(read)
                continue
            if read is not None:
                shown = self._mask.feed(read.data) if self._mask is not None else read.data
                self._t = read.t
                if shown:
                    return read if shown is read.data else Read(read.t, shown)
                continue
            for piece in self._last():
                return piece
            if self._fault is None:
                return None

    def _decoded(self, read: Read) -> Iterator[Read]:
        """What one socket read means, in pieces that are decoded only when they are asked for."""
        for data in self._inflater.feed(read.data) if self._inflater is not None else (read.data,):
            shown = self._mask.feed(data) if self._mask is not None else data
            if shown:
                yield Read(read.t, shown)

    def _last(self) -> Iterator[Read]:
        """What waited for more that does not come."""
        held = self._mask.close() if self._mask is not None else b""
        if held:
            yield Read(self._t, held)
        if self._inflater is not None and self._fault is None:
            self._inflater.close()


def shape_of(order: Order, asked: Asked) -> Shape:
    """By status and content type; a word that we do not know leaves it to the first bytes."""
    kind = asked.kind
    if order.verbatim:
        plain = asked.header(b"content-encoding").strip().lower() in ("", "identity")
        return Shape.FRAMES if kind == "text/event-stream" and plain else Shape.BODY
    if asked.status >= 400:
        return Shape.BODY
    if asked.status in (204, 205) or asked.status >= 300 or kind == "text/html":
        return Shape.NOTHING
    if not order.streams or kind == "application/json":
        return Shape.BODY
    return Shape.FRAMES if kind == "text/event-stream" else Shape.SNIFF
