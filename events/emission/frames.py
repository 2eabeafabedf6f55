"""Frames on their way to the client: as they came, or parsed and edited, and encoded when they leave."""

from collections.abc import Iterable, Sequence
from typing import Any

from ..core.json_text import ABSENT, dumps
from ..core.limits import UNDELIVERED_BYTES_MAX
from ..wire.sse import encode
from .edits import Edit, Styles, edited
from .ledger import Ledger

__all__ = ["Out", "Outbox"]


class Out:
    """One frame because of record `n`.

    A frame that came (`came`) passes as the very bytes until it is edited. A frame of ours has only a `repair`, the
    reason why it was added; with both, the frame that came was replaced as a whole.
    """

    __slots__ = (
        "_batches",
        "_given",
        "came",
        "changes",
        "event",
        "n",
        "payload",
        "raw",
        "repair",
        "reserialised",
        "value",
    )

    def __init__(
        self,
        n: int,
        value: Any = None,
        *,
        raw: bytes | None = None,
        payload: bytes | None = None,
        came: bytes | None = None,
        repair: str = "",
        event: bytes = b"",
    ) -> None:
        self.n = n
        #: The parsed payload. It may be shared with the record: edits make copies.
        self.value = value
        #: The bytes to send; None if they are to be made of `payload` or `value`.
        self.raw = raw
        self.payload = payload
        self.came = came
        self.repair = repair
        self.event = event
        self.changes: list[Edit] = []
        #: Something was lost in spelling when it was encoded.
        self.reserialised = False
        self._given = value
        self._batches: list[Sequence[Edit]] = []

    def edit(self, edits: Sequence[Edit]) -> None:
        """Change members of the payload."""
        if edits:
            self.value, changes = edited(self.value, edits)
            self.changes += changes
            self._batches.append(edits)
            self.raw = None

    @property
    def size(self) -> int:
        """The bytes that it takes while it waits, before edits."""
        return len(self.raw or self.came or self.payload or dumps(self.value))

    def frame(self) -> bytes:
        """Return the bytes of the frame without entering anything in the ledger."""
        if self.raw is not None:
            return self.raw
        return encode(dumps(self.value) if self.payload is None or self.changes else self.payload, event=self.event)

    def encode(self, styles: Styles, ledger: Ledger) -> bytes:
        """Return the bytes to send, and enter in the ledger what was changed."""
        if self.raw is not None:
            frame = self.raw
        elif self.payload is None:
            frame = encode(dumps(self.value), event=self.event)
        elif not self.changes:
            frame = encode(self.payload)
        else:
            style = styles.of(self.payload, self._given)
            value = self.value
            if style.exact is not ABSENT:
                self.reserialised = True
                ledger.noted(self.n, "reserialised")
                for _ in style.repeated:
                    ledger.noted(self.n, "key_repeated")
                value = style.exact
                for batch in self._batches:
                    value, _ = edited(value, batch)
            frame = encode(style.dumps(value))
        if self.repair:
            whole = frame if self.payload is None or not self.changes else encode(self.payload)
            ledger.frame(self.n, self.repair, self.came, whole)
        if self.payload is not None and self.changes:
            ledger.edited(self.n, self.changes)
        return frame

    def withhold(self, repair: str, ledger: Ledger) -> None:
        """Enter in the ledger that the frame is not sent."""
        if self.came is None:
            ledger.noted(self.n, repair)
        else:
            ledger.frame(self.n, repair, self.came, None)


class Outbox:
    """Frames that may be sent: none is before one that carries content, since until then a retry may replace them."""

    def __init__(self) -> None:
        #: Content has been sent, so no other attempt may follow.
        self.delivered = False
        self._waiting: list[Out] = []
        self._waiting_bytes = 0

    def take(self) -> list[Out]:
        """Return the frames that may be sent now."""
        if not self.delivered:
            return []
        waiting, self._waiting = self._waiting, []
        return waiting

    def send(self, out: Out, *, bounded: bool = True) -> None:
        """Add a frame; too many without content are delivered all the same, unless they are the parts of a body."""
        self._waiting.append(out)
        if not self.delivered and bounded:
            self._waiting_bytes += out.size
            if self._waiting_bytes > UNDELIVERED_BYTES_MAX:
                self.delivered = True

    def send_all(self, outs: Iterable[Out]) -> None:
        """Add some frames."""
        for out in outs:
            self.send(out)

    def discard(self) -> list[Out]:
        """Return the frames that wait, which are not sent."""
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        return waiting
