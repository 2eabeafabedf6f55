"""The body of a request that is relayed while it comes: each piece is on the tape before the upstream gets it."""

from collections.abc import AsyncIterator
from typing import Any

import trio

from wiretape.events.errors import WiretapeError

from .asgi import Receive
from .taping import Taping

__all__ = ["Upload", "UploadError"]


class UploadError(WiretapeError):
    """The client's side of it failed, and with which cause the stream ends."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class Upload:
    """Pieces as the client sends them, once."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive = receive
        self._left_bytes = bytes_max
        self._more = True
        self._done = trio.Event()
        self._taping: Taping | None = None

    async def behind(self) -> Any:
        """What the client says after its body; nothing, while the body is on its way."""
        await self._done.wait()
        return await self._receive()

    def abandon(self) -> None:
        """The upstream has answered and wants no more of it."""
        self._more = False
        self._done.set()

    def onto(self, taping: Taping) -> None:
        """Where the pieces are written; before the first is asked for."""
        self._taping = taping

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        taping = self._taping
        assert taping is not None, "an upload is relayed once its tape is known"
        await taping.begun.wait()
        while self._more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise UploadError("client_gone", "the client left in the middle of its request")
            self._more = message.get("more_body", False)
            if not self._more:
                self._done.set()
            data: bytes = message.get("body", b"")
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                raise UploadError("upload", "the request's body is longer than the limit")
            if data:
                record = taping.recorder.record("upload", taping.t(), body=data, verbatim=False)
                taping.emit(record)
                await taping.write([record])
                return data
        raise StopAsyncIteration
