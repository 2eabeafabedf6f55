"""The body of a request that is relayed while it comes: each piece is on the tape before the upstream gets it."""

from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from typing import Any

import trio

from wiretape.events.core.errors import WiretapeError

from ..limits import UPLOAD_TIMEOUT_S
from ..server.asgi import Receive
from .recording import Taping

__all__ = ["Upload", "UploadError"]


class UploadError(WiretapeError):
    """The client's side of it failed, and with which cause the stream ends."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


def _nobody() -> None:
    pass


class Upload:
    """Pieces as the client sends them, once."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive = receive
        self._left_bytes = bytes_max
        self._more = True
        self._done = trio.Event()
        self._taping: Taping | None = None
        self._moved: Callable[[], None] = _nobody
        #: With `requests = hash`: of what was relayed.
        self._sum, self._bytes = sha256(), 0
        self._hashed = self._begun = self._whole = False

    async def behind(self) -> Any:
        """What the client says after its body; nothing, while the body is on its way."""
        await self._done.wait()
        return await self._receive()

    def abandon(self) -> None:
        """The upstream has answered and wants no more of it."""
        self._more = False
        self._done.set()

    def onto(self, taping: Taping, moved: Callable[[], None], *, hashed: bool) -> None:
        """Where the pieces are written, before the first is asked for; and who is told that one more has come. With
        `hashed` none is: what they were together is, once no more is relayed.
        """
        self._taping, self._moved = taping, moved
        self._hashed = hashed
        taping.shared()

    def relayed(self) -> None:
        """No more is: where the pieces are not on the tape, it is said what they were."""
        taping = self._taping
        if taping is None or not self._hashed or not self._begun:
            return
        keys: dict[str, Any] = {"bytes": self._bytes, "sha256": self._sum.hexdigest()}
        taping.later(taping.record("upload", keys if self._whole else {**keys, "part": True}))

    def over(self) -> None:
        """The stream has ended; who was told holds the order, and the order this."""
        self._moved = _nobody

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        taping = self._taping
        assert taping is not None, "an upload is relayed once its tape is known"
        await taping.begun.wait()
        self._begun = True
        while self._more:
            message = await self._message()
            self._moved()
            if message["type"] == "http.disconnect":
                raise UploadError("client_gone", "the client left in the middle of its request")
            self._more = message.get("more_body", False)
            if not self._more:
                self._done.set()
            data: bytes = message.get("body", b"")
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                raise UploadError("upload", "the request's body is longer than the limit")
            self._whole = not self._more
            if data:
                await self._kept(taping, data)
                return data
        raise StopAsyncIteration

    async def _kept(self, taping: Taping, data: bytes) -> None:
        self._bytes += len(data)
        if self._hashed:
            self._sum.update(data)
            return
        async with taping.turn:  # cancelled before it has a number, or when it is written
            record = taping.recorder.record("upload", taping.t(), body=data, verbatim=False)
            taping.emit(record)
            await taping.write([record])

    async def _message(self) -> Any:
        """A long upload may take as long as it takes; a client that says nothing for so long is given up (C16)."""
        with trio.move_on_after(UPLOAD_TIMEOUT_S):
            return await self._receive()
        raise UploadError("slow_upload", f"nothing of the request's body came for {UPLOAD_TIMEOUT_S:g} s")
