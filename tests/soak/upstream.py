"""An upstream of raw sockets that does what the request's model names: all that providers do, well and badly."""

import json
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

_STREAM: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_UNFRAMED: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_DONE: Final = b"data: [DONE]\n\n"

#: Longer than the idle limit of the routes; and shorter, but longer than a keepalive.
_STALL_S: Final = 6.0
_PAUSE_S: Final = 2.5


class _Exchange:
    """One request on one connection."""

    def __init__(self, stream: trio.SocketStream, chance: random.Random, again: bool) -> None:
        self.stream = stream
        self.chance = chance
        #: Another attempt of the same request.
        self.again = again
        #: The connection may be used again.
        self.stays = True

    async def send(self, *frames: bytes) -> None:
        """Send frames in one chunk."""
        data = b"".join(frames)
        await self.stream.send_all(b"%x\r\n%b\r\n" % (len(data), data))

    async def texts(self, count: int, gap_s: float) -> None:
        """Send pieces of text at a pace."""
        for n in range(count):
            await self.send(_delta(content=f" word{n}"))
            await trio.sleep(gap_s * self.chance.random() * 2)

    async def call(self, arguments: str) -> None:
        """Send a tool call in pieces."""
        function = {"name": "write_file", "arguments": ""}
        await self.send(_delta(tool_calls=[{"index": 0, "id": "call_soak", "type": "function", "function": function}]))
        for at in range(0, len(arguments), 9):
            await self.send(_delta(tool_calls=[{"index": 0, "function": {"arguments": arguments[at : at + 9]}}]))
            await trio.sleep(0.01 * self.chance.random())

    def reset(self) -> None:
        """Break the connection by a reset."""
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stays = False


_Act = Callable[[_Exchange], Awaitable[None]]


def _framed(act: _Act) -> _Act:
    """Put an event stream around what it does, with the last chunk unless it breaks the connection."""

    async def run(x: _Exchange) -> None:
        await x.stream.send_all(_STREAM)
        await act(x)
        if x.stays:
            await x.stream.send_all(_LAST_CHUNK)

    return run


@_framed
async def _text(x: _Exchange) -> None:
    await x.send(_delta(role="assistant", content=""))
    await x.texts(x.chance.randrange(5, 60), 0.02)
    await x.send(_delta("stop"), _DONE)


@_framed
async def _tool(x: _Exchange) -> None:
    await x.send(_delta(role="assistant"))
    await x.call('{"path": "notes.txt", "text": "one two three four five"}')
    await x.send(_delta("tool_calls"), _DONE)


@_framed
async def _large(x: _Exchange) -> None:
    """Send more than any socket holds, as fast as possible, so that a slow client falls behind."""
    for n in range(60):
        await x.send(*[_delta(content=f" word{n}.{m}") for m in range(50)])
    await x.send(_delta("stop"), _DONE)


@_framed
async def _reset(x: _Exchange) -> None:
    await x.texts(x.chance.randrange(0, 20), 0.02)
    await x.stream.send_all(b"ff\r\n" + _delta(content=" half")[: x.chance.randrange(1, 60)])
    await trio.sleep(0.02)
    x.reset()


@_framed
async def _reset_in_call(x: _Exchange) -> None:
    await x.call('{"path": "notes.txt", "te')
    x.reset()


@_framed
async def _no_done(x: _Exchange) -> None:
    await x.texts(x.chance.randrange(1, 20), 0.02)


async def _close(x: _Exchange) -> None:
    await x.stream.send_all(_UNFRAMED)
    for n in range(x.chance.randrange(1, 20)):
        await x.stream.send_all(_delta(content=f" word{n}"))
    x.stays = False


@_framed
async def _pause(x: _Exchange) -> None:
    await x.texts(3, 0.02)
    await trio.sleep(_PAUSE_S)
    await x.texts(3, 0.02)
    await x.send(_delta("stop"), _DONE)


@_framed
async def _stall(x: _Exchange) -> None:
    await x.texts(3, 0.02)
    await _silent(x)


async def _silent(x: _Exchange) -> None:
    """Send nothing more, perhaps not even a head."""
    await trio.sleep(_STALL_S)
    x.stays = False


async def _error(x: _Exchange, status: bytes = b"500 Oops") -> None:
    body = b'{"error":{"message":"soak","type":"server_error","code":null}}'
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nRetry-After: 0\r\nContent-Length: %d\r\n\r\n"
    await x.stream.send_all(head % (status, len(body)) + body)


async def _error_once(x: _Exchange) -> None:
    await (_text(x) if x.again else _error(x, b"503 Busy"))


async def _too_many(x: _Exchange) -> None:
    await (_tool(x) if x.again else _error(x, b"429 Too Many Requests"))


async def _refused(x: _Exchange) -> None:
    await _error(x, b"400 Bad Request")


@_framed
async def _slow(x: _Exchange) -> None:
    await x.texts(20, 0.2)
    await x.send(_delta("stop"), _DONE)


@_framed
async def _error_frame(x: _Exchange) -> None:
    await x.texts(x.chance.randrange(0, 10), 0.02)
    await x.send(b'data: {"error":{"message":"overloaded","type":"server_error","code":503}}\n\n')


@_framed
async def _comments(x: _Exchange) -> None:
    for _ in range(5):
        await x.send(b": processing\n\n")
        await trio.sleep(0.1)


@_framed
async def _bytes(x: _Exchange) -> None:
    """Send one byte a chunk: chunks, frames and words are cut everywhere."""
    body = b"".join([_delta(role="assistant", content="å"), _delta(content=" word"), _delta("stop"), _DONE])
    for at in range(len(body)):
        await x.send(body[at : at + 1])


async def _garbage(x: _Exchange) -> None:
    await x.stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\n\r\n<html>oh</html>")


_KINDS: Final[dict[str, tuple[int, _Act]]] = {
    "text": (30, _text),
    "tool": (14, _tool),
    "large": (4, _large),
    "reset": (6, _reset),
    "resetcall": (4, _reset_in_call),
    "nodone": (5, _no_done),
    "close": (4, _close),
    "pause": (4, _pause),
    "stall": (2, _stall),
    "silent": (1, _silent),
    "error": (3, _error),
    "once": (4, _error_once),
    "toomany": (4, _too_many),
    "refused": (2, _refused),
    "slow": (3, _slow),
    "frame": (4, _error_frame),
    "comments": (2, _comments),
    "bytes": (3, _bytes),
    "garbage": (1, _garbage),
}
#: Each kind of stream, and how often it is requested.
KINDS: Final = {kind: weight for kind, (weight, _) in _KINDS.items()}


class SoakUpstream:
    """The upstream of the soak; `open` counts its connections."""

    def __init__(self, seed: int) -> None:
        self.open = 0
        self._seed = seed
        #: Models that were requested: each name is used for one request, and again for its next attempts.
        self._seen: set[str] = set()

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; report the port."""
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1_024)
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            task_status.started(listener.socket.getsockname()[1])

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.open += 1
        try:
            async with stream:
                while await self._exchange(stream):
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            self.open -= 1

    async def _exchange(self, stream: trio.SocketStream) -> bool:
        request = await _request(stream)
        if request is None:
            return False
        model: str = request["model"]
        exchange = _Exchange(stream, random.Random(f"{self._seed} {model}"), model in self._seen)  # noqa: S311
        self._seen.add(model)
        if not request.get("stream"):
            await stream.send_all(_whole(model))
            return True
        await _KINDS[model.split("-")[1]][1](exchange)
        return exchange.stays


async def _request(stream: trio.SocketStream) -> dict[str, Any] | None:
    seen = b""
    while (end := seen.find(b"\r\n\r\n")) < 0:
        data = await stream.receive_some()
        if not data:
            return None
        seen += data
    head, body = seen[:end].lower(), seen[end + 4 :]
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        data = await stream.receive_some()
        if not data:
            return None
        body += data
    assert len(body) == length, "no client pipelines here"
    asked: dict[str, Any] = json.loads(body)
    return asked


def _delta(finish: str | None = None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-soak", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "soak"}
    return b"data: %b\n\n" % json.dumps({**head, "choices": [choice]}, ensure_ascii=False).encode()


def _whole(model: str) -> bytes:
    message = {"role": "assistant", "content": f"whole {model}"}
    answer = {"id": "chatcmpl-soak", "object": "chat.completion", "created": 1, "model": "soak"}
    body = json.dumps({**answer, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
