"""Requests about what another worker runs: handed to it over its Unix socket, byte for byte, and its answer back.

So readers, back-pressure, resume and what follows when the last reader leaves are seen to in one process.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final

import trio

from ..api.streams import StreamsApi
from ..http1 import Headers
from ..limits import FINAL_SEND_TIMEOUT_S, WORKER_AWAY_S, WORKER_LOOK_S
from ..memory import Charge
from ..relay.http_responses import AnswerError, busy
from ..relay.stream_request import whole_body
from ..security.access import Admission
from ..server.asgi import Receive, Send
from ..store.siblings import Siblings
from ..upstream.connection import Connection, Exchange, Origin, Outgoing, WireError
from .worker import Worker, control_path

__all__ = ["ORIGIN", "Forward", "opened"]

ORIGIN: Final = Origin(tls=False, host="worker", port=0)
_STREAM: Final = re.compile(r"/wiretape/streams/([0-9a-v]{32})(?:/.*)?", re.ASCII)
_RUN: Final = re.compile(rb"/runs/(run_[0-9a-f]{32})(?:/.*)?", re.ASCII)
_HOP: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"expect", b"upgrade"})


async def opened(folder: Path) -> Exchange | None:
    """Return an exchange with the worker of a folder, None if it does not run."""
    with suppress(OSError), control_path(folder) as path:
        return Exchange(Connection(ORIGIN, await trio.open_unix_socket(path)))
    return None


class Forward:
    """Decides which worker answers a request, and asks it if that is another one."""

    def __init__(self, worker: Worker, siblings: Siblings, streams: StreamsApi, id_of: Callable[..., str]) -> None:
        """`id_of` returns the id of the run that a request would start."""
        self._worker = worker
        self._siblings = siblings
        self._streams = streams
        self._id_of = id_of

    async def __call__(
        self, admitted: Admission, scope: Mapping[str, Any], receive: Receive, send: Send, held: Charge
    ) -> bool:
        """Answer the request if another worker must; return whether it did. Raise `AnswerError` if that is away."""
        until, safe = trio.current_time() + WORKER_AWAY_S, scope["method"] in ("GET", "HEAD")
        body = b"" if safe else None
        # Asked each time: a stream that has ended meanwhile is read by any worker.
        while not scope.get("forwarded") and (owner := await self._owner(admitted, scope)) is not None:
            body = await whole_body(receive, self._worker.body_bytes_max, held) if body is None else body
            if body is None:
                return True  # the client has left
            exchange = await opened(owner)
            if exchange is not None and await self._exchange(exchange, scope, body, send):
                return True
            if trio.current_time() >= until or (exchange is not None and not safe):
                raise AnswerError(busy("The worker that has it is being restarted. Retry in a moment.", "worker_away"))
            await trio.sleep(WORKER_LOOK_S)
        return False

    async def _owner(self, admitted: Admission, scope: Mapping[str, Any]) -> Path | None:
        """Return the folder of the other worker that must answer; None if this one can."""
        place, run_id = admitted.place, ""
        if place is None:
            if found := _STREAM.fullmatch(scope["path"]):
                folder = self._siblings.runs_in(found[1])
                # A caller who may not see it is answered as for a stream that there is not.
                here = folder not in self._worker.folders or not await self._streams.shows(admitted.caller, found[1])
                return None if here else folder
        elif place.endpoint == "runs":
            key = admitted.headers.get(b"idempotency-key")
            if named := _RUN.fullmatch(place.tail):
                run_id = named[1].decode()
            elif key and scope["method"] == "POST":
                run_id = self._id_of(admitted.caller, place.route.name, key)
        number = self._worker.owner_of(run_id) if run_id else self._worker.number
        return None if number == self._worker.number else self._worker.folders[number]

    async def _exchange(self, exchange: Exchange, scope: Mapping[str, Any], body: bytes, send: Send) -> bool:
        """Pass a request on, and the answer back; return False if the other worker was killed before it answered."""
        connection, whole = scope["extensions"]["wiretape"], False
        framing = ((b"Content-Length", b"%d" % len(body)),) if body else ()
        headers = (*Headers(scope["headers"]).without(_HOP | {b"content-length"}), *framing, (b"Connection", b"close"))
        target = scope["raw_path"] + b"?" * bool(scope["query_string"]) + scope["query_string"]
        with trio.CancelScope() as reading:
            connection.on_left(reading.cancel)
            async with aclosing(exchange):
                with suppress(WireError):
                    head = await exchange.send(Outgoing(ORIGIN, scope["method"].encode(), target, headers, body))
                    connection.extra_headers = ()  # the other worker has set them
                    passed = Headers(head.headers).without(_HOP)
                    await send({"type": "http.response.start", "status": head.status, "headers": passed})
                    async for read in exchange:
                        await send({"type": "http.response.body", "body": read.data, "more_body": True})
                    whole = True
            connection.on_left(None)  # the last send ends the request, which would count as leaving
        if whole:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + FINAL_SEND_TIMEOUT_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif exchange.head is not None:
            connection.abort()
        return exchange.head is not None or reading.cancelled_caught
