"""Clients that send one request after another: most read to the end, some leave, stall or read slowly."""

import hashlib
import json
import random
import socket
import struct
from typing import Final, NamedTuple

import h11
import trio

from .served import ROUTES
from .upstream import KINDS

#: What clients do, and how often.
_MANNERS: Final = {"read": 66, "leave": 12, "vanish": 4, "stall": 4, "slow": 8, "whole": 6}

#: Nothing here takes longer; a stall lasts for seconds.
_TIMEOUT_S: Final = 90.0


class Received(NamedTuple):
    """What one client received of one stream, without our own comments."""

    stream: str
    kind: str
    manner: str
    status: int
    #: The answer is complete by its own framing.
    whole: bool
    #: The client left before that.
    left: bool
    size: int
    sha256: str


class Soaker:
    """One client; `received` collects the results of all clients."""

    def __init__(self, port: int, seed: int, number: int, received: list[Received], errors: list[str]) -> None:
        self._port = port
        self._chance = random.Random(f"{seed} client {number}")  # noqa: S311
        self._number = number
        self._received = received
        self._errors = errors
        self._stream: trio.SocketStream | None = None

    async def run(self, until: float, kinds: list[str] | None = None) -> None:
        """Request until then, or only these kinds; finish each request."""
        asked = 0
        try:
            while trio.current_time() < until and (kinds is None or asked < len(kinds)):
                chance = self._chance
                kind = kinds[asked] if kinds else chance.choices(list(KINDS), list(KINDS.values()))[0]
                manner = "read" if kinds else chance.choices(list(_MANNERS), list(_MANNERS.values()))[0]
                asked += 1
                with trio.move_on_after(_TIMEOUT_S) as scope:
                    await self._ask(f"soak-{kind}-{self._number}-{asked}", kind, manner)
                if scope.cancelled_caught:
                    self._errors.append(f"{kind} for a client that is to {manner}: no end within {_TIMEOUT_S:g} s")
                    await self._close()
        finally:
            await self._close()

    async def _ask(self, model: str, kind: str, manner: str) -> None:
        asked = {"model": model, "stream": manner != "whole", "messages": [{"role": "user", "content": "go"}]}
        body = json.dumps(asked).encode()
        route = self._chance.choices(list(ROUTES), [80, 10, 10])[0]
        path = f"/{route}/v1/chat/completions" if route else "/v1/chat/completions"
        conversation = h11.Connection(h11.CLIENT)
        headers = [("Host", "127.0.0.1"), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        head = conversation.send(h11.Request(method="POST", target=path, headers=headers))
        request = head + conversation.send(h11.Data(data=body)) + conversation.send(h11.EndOfMessage())
        stream = await self._sent(request, manner)
        answer = _Answer(conversation)
        try:
            left = await self._read(stream, answer, manner)
        except trio.BrokenResourceError:
            answer.broken, left = True, False
        if left and self._chance.random() < 0.5:
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if left or answer.broken or not answer.stays:
            await self._close()
        if not answer.stream:
            if not left:
                self._errors.append(f"{kind} for a client that is to {manner}: no answer, status {answer.status}")
            return
        body = answer.body
        digest = hashlib.sha256(body).hexdigest()
        self._received.append(
            Received(answer.stream, kind, manner, answer.status, answer.whole, left, len(body), digest)
        )

    async def _sent(self, request: bytes, manner: str) -> trio.SocketStream:
        """Send on the connection of the last request if that is still open, else on a new one."""
        if manner in ("slow", "stall"):
            await self._close()
        if self._stream is not None:
            try:
                if not self._stream.socket.is_readable():
                    await self._stream.send_all(request)
                    return self._stream
            except trio.BrokenResourceError:
                pass
            await self._close()
        sock = trio.socket.socket()
        if manner in ("slow", "stall"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await sock.connect(("127.0.0.1", self._port))
        self._stream = trio.SocketStream(sock)
        await self._stream.send_all(request)
        return self._stream

    async def _read(self, stream: trio.SocketStream, answer: "_Answer", manner: str) -> bool:
        """Read to the end, or return True once this client has enough."""
        chance = self._chance
        if manner == "vanish":
            await trio.sleep(0.1 * chance.random())
            return True
        enough = chance.randrange(200, 6_000) if manner == "leave" else 2**40
        stalls = manner == "stall"
        while not answer.whole and not answer.broken:
            answer.feed(await stream.receive_some(1_500 if manner == "slow" else 65_536))
            if len(answer.body) >= enough and not answer.whole:
                return True
            if manner == "slow":
                await trio.sleep(0.005)
            if stalls and answer.body:
                stalls = False
                await trio.sleep(2 + 2 * chance.random())
        return False

    async def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await trio.aclose_forcefully(stream)


class _Answer:
    """The answer so far."""

    def __init__(self, conversation: h11.Connection) -> None:
        self._h11 = conversation
        self._parts: list[bytes] = []
        self.stream = ""
        self.status = 0
        self.whole = self.broken = False

    @property
    def body(self) -> bytes:
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    @property
    def stays(self) -> bool:
        """Another request may follow."""
        return self.whole and self._h11.their_state is h11.DONE and self._h11.trailing_data == (b"", False)

    def feed(self, data: bytes) -> None:
        self._h11.receive_data(data)
        try:
            while not self.whole:
                event = self._h11.next_event()
                if isinstance(event, h11.Response):
                    self.status = event.status_code
                    self.stream = dict(event.headers).get(b"x-wiretape-stream", b"").decode()
                elif isinstance(event, h11.Data):
                    self._parts.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    self.whole = True
                else:
                    break
        except h11.RemoteProtocolError:
            self.broken = True
        if not data and not self.whole:
            self.broken = True
