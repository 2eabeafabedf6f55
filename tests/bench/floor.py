"""`python -m tests.bench.floor PORT`: the floor under the proxy, its libraries with as little between them as works.

A bare pass through hypercorn, trio and h11: each frame is read as JSON and written again, each read is one send, and
nothing is taped, folded, repaired, watched or limited. It is no proxy for anybody: what it costs on a machine says how
much of a bar there the runtime has spoken for.
"""

import sys
from typing import Any, Final
from unittest.mock import patch

import h11
import orjson
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio import serve  # pyright: ignore[reportUnknownVariableType]
from hypercorn.trio.tcp_server import TCPServer

from .proxy_parties import UPSTREAM_PORT

_READ_BYTES: Final = 65_536
#: Connections to the upstream that wait for another request.
_IDLE: Final[list[tuple[trio.SocketStream, h11.Connection]]] = []
_as_it_comes: Final = TCPServer.protocol_send


async def _lean_send(self: Any, event: Event) -> None:
    """hypercorn's own takes a lock and a shielded scope for each send, half of what a frame costs."""
    if not isinstance(event, RawData):
        await _as_it_comes(self, event)
        return
    try:
        try:
            sent = self.stream.socket._sock.send(event.data)  # trio's has no call without a checkpoint
        except BlockingIOError:
            sent = 0
        if sent < len(event.data):
            await self.stream.send_all(event.data[sent:])
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        await self.protocol.handle(Closed())


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Any request, asked of the upstream as a chat."""
    if scope["type"] == "lifespan":
        while True:
            await send({"type": (await receive())["type"] + ".complete"})
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    if _IDLE:
        stream, state = _IDLE.pop()
        state.start_next_cycle()
    else:
        stream, state = await trio.open_tcp_stream("127.0.0.1", UPSTREAM_PORT), h11.Connection(h11.CLIENT)
    await stream.send_all(_asked(state, body))
    await _relayed(stream, state, send)
    _IDLE.append((stream, state))


def _asked(state: h11.Connection, body: bytes) -> bytes:
    headers = [("host", "x"), ("content-type", "application/json"), ("content-length", str(len(body)))]
    parts = [
        state.send(h11.Request(method="POST", target=b"/v1/chat/completions", headers=headers)),
        state.send(h11.Data(data=body)),
        state.send(h11.EndOfMessage()),
    ]
    return b"".join(parts)


async def _relayed(stream: trio.SocketStream, state: h11.Connection, send: Any) -> None:
    pending = b""
    while True:
        state.receive_data(await stream.receive_some(_READ_BYTES))
        while (event := state.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Response):
                headers = [(b"content-type", b"text/event-stream")]
                await send({"type": "http.response.start", "status": event.status_code, "headers": headers})
            elif isinstance(event, h11.Data):
                pending += event.data
            elif isinstance(event, h11.EndOfMessage):
                await send({"type": "http.response.body", "body": pending, "more_body": False})
                return
            else:
                sys.exit(f"the yardstick's upstream does not end like this: {event!r}")
        *frames, pending = pending.split(b"\n\n")
        if frames:
            written = b"".join(map(_written, frames))
            await send({"type": "http.response.body", "body": written, "more_body": True})


def _written(frame: bytes) -> bytes:
    payload = frame.removeprefix(b"data: ")
    return b"data: %b\n\n" % (payload if payload == b"[DONE]" else orjson.dumps(orjson.loads(payload)))


def main() -> None:
    """Until it is stopped."""
    config = Config()
    config.bind = [f"127.0.0.1:{int(sys.argv[1])}"]
    config.accesslog = config.errorlog = None
    with patch.object(TCPServer, "protocol_send", _lean_send):
        trio.run(serve, app, config)  # pyright: ignore[reportUnknownArgumentType]


if __name__ == "__main__":
    main()
