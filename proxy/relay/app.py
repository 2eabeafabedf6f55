"""The application: decide access, read a request, start its relay, and deliver the answer; and all running streams."""

import base64
import resource
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any, Final

import trio

from ..config.urls import client_dialect
from ..http1 import Headers
from ..key_patterns import masked_path
from ..limits import (
    CONNECTIONS_A_STREAM,
    CONNECTIONS_SPARE,
    DESCRIPTORS_A_STREAM,
    DESCRIPTORS_RESERVED,
    INFLATED_AT_ONCE,
    MEMORY_A_STREAM_BYTES,
    MEMORY_SMALL_BYTES,
    READ_WHOLE_TIMES,
    UPLOAD_INLINE_BYTES_MAX,
)
from ..memory import Charge
from ..security.access import (
    OWN_PATHS,
    PAGE_HEADERS,
    PAGE_PATH,
    Admission,
    Keys,
    Refusal,
    admit,
    content_type_refusal,
    cors_headers,
    preflight,
)
from ..server.asgi import App, Receive, Send
from ..store.catalogue_row import CatalogueRow
from .counting import TokenCounts
from .crossing import crosses
from .delivery import Delivery
from .earlier import Earlier
from .http_responses import Answer, AnswerError, busy, in_dialect, refused, send_answer, take
from .recording import Ended
from .relay import Relay, Services
from .stream_request import (
    CLOSE,
    Contents,
    StreamRequest,
    Upload,
    contents_of,
    decoded,
    settings_for,
    too_long,
    whole_body,
)
from .upstream import UpstreamRequest

__all__ = ["Application", "Elsewhere", "Registry", "RunsApp", "new_stream_id", "places_that_fit"]

#: Wiretape's own paths that read tapes.
_READERS: Final = (b"/wiretape/streams/", b"/wiretape/diff")
#: 48 bits of time are followed by 112 random ones.
_ID_RANDOM_BYTES: Final = 14
_ID_BYTES: Final = 6 + _ID_RANDOM_BYTES


#: Answers a request for runs, which it may not keep.
RunsApp = Callable[[StreamRequest, Mapping[str, Any], Send], Awaitable[None]]
Elsewhere = Callable[[Admission, Mapping[str, Any], Receive, Send, Charge], Awaitable[bool]]
#: Answers a request of another of our own endpoints, or leaves it to the upstream.
_Endpoint = Callable[[StreamRequest], Awaitable[Answer | None]]


class Application:
    """The ASGI application of the whole proxy.

    Access and routing both look at the raw path, so they agree (CVE-2026-48710).
    """

    def __init__(
        self,
        services: Services,
        keys: Keys,
        registry: "Registry",
        control: App,
        *,
        on_refused: Callable[[Answer, Mapping[str, Any]], None],
        runs: RunsApp | None = None,
    ) -> None:
        """`control` answers Wiretape's own paths, with the caller in its scope; `runs` the requests for runs."""
        self._services = services
        self._keys = keys
        self._registry = registry
        self._control = control
        self._runs = runs
        self._on_refused = on_refused
        #: Answers what another worker must answer, and returns whether it did.
        self.elsewhere: Elsewhere | None = None
        self._earlier = Earlier(services)
        self._endpoints: Mapping[str, _Endpoint] = {
            "count_tokens": TokenCounts(services).answer,
            "response": self._earlier.answer,
        }
        self._decoding = trio.CapacityLimiter(INFLATED_AT_ONCE)
        self._parsing = trio.Lock()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        head, own = scope["method"] == "HEAD", scope["raw_path"].startswith(OWN_PATHS)
        held, request = Charge(self._services.memory, small_bytes=0 if own else MEMORY_SMALL_BYTES), None
        try:
            config, headers = self._services.config, Headers(scope["headers"])
            if config.cors_origins:
                scope["extensions"]["wiretape"].extra_headers = cors_headers(config, headers)
            admitted = admit(config, self._keys, scope, headers)
            if isinstance(admitted, Refusal):
                if permits := preflight(config, scope["method"], headers) if admitted.status == 405 else ():
                    await send_answer(send, Answer(204, permits, b""))
                    return
                raise AnswerError(refused(admitted))  # noqa: TRY301 - one border for every refusal
            if self.elsewhere is not None and await self.elsewhere(admitted, scope, receive, send, held):
                return
            if own:
                if scope["raw_path"].startswith(_READERS):
                    take(held, MEMORY_A_STREAM_BYTES)
                await self._control({**scope, "caller": admitted.caller, "held": held}, receive, send)
                return
            endpoint = admitted.place.endpoint if admitted.place is not None else ""
            runs = self._runs if endpoint == "runs" else None
            if runs is None:
                self._registry.check()
            request = await self._request(admitted, scope, receive, held)
            if runs is not None and request is not None:
                called, request = request, None
                await runs(called, scope, send)
            elif request is not None and endpoint in self._endpoints:
                called, request = request, None
                if answer := await self._endpoints[endpoint](called):
                    await send_answer(send, answer, head=head)
                else:
                    request = called
        except AnswerError as bad:
            self._on_refused(bad.answer, scope)
            answer = in_dialect(bad.answer, client_dialect(scope["raw_path"]))
            if scope["raw_path"].startswith(PAGE_PATH):
                answer = answer._replace(headers=(*answer.headers, *PAGE_HEADERS))
            await send_answer(send, answer, head=head)
        finally:
            if request is None:
                held.release()
        if request is None:
            return  # refused, answered, or the client left before its request was complete
        delivery = self._registry.start(request)
        unread = request.body.drain if isinstance(request.body, Upload) else None
        await delivery.run(self._services.store, send, scope["extensions"]["wiretape"], unread, head=head)

    async def _request(
        self, admission: Admission, scope: Mapping[str, Any], receive: Receive, held: Charge
    ) -> StreamRequest | None:
        """Read and check a request; return None if the client left, raise AnswerError to refuse it."""
        headers, place, bytes_max = admission.headers, admission.place, self._services.config.body_bytes_max
        assert place is not None, "Wiretape's own paths are answered elsewhere"
        posted = scope["method"] == "POST"
        dialect, takes_json = place.dialect if posted else "", place.takes_json and posted
        not_json = content_type_refusal(headers) if takes_json else None
        if not_json is not None:
            raise AnswerError(refused(not_json))
        body = await self._body(headers, receive, bytes_max, held, streamed=not takes_json)
        if body is None:
            return None
        contents, plain = Contents(), None
        transparent = place.route.settings.profile == "transparent"
        if takes_json and isinstance(body, bytes):
            coding = b", ".join(headers.all(b"content-encoding")).decode("latin-1").strip().lower()
            if coding not in ("", "identity"):
                plain = await decoded(body, coding, bytes_max, self._decoding, held)
            contents = await contents_of(
                body if plain is None else plain,
                dialect,
                place.route.history,
                held,
                self._parsing,
                again=crosses(place.route, dialect, transparent=transparent),
            )
        query: bytes = scope["query_string"]
        earlier = None
        if contents.continues and not transparent:
            earlier = await self._earlier.turns(contents.continues, place.route, admission.caller, held)
        items = dict[str, Any]()
        if contents.referenced and not transparent:
            items = await self._earlier.items(contents.referenced, place.route, admission.caller, held)
        if place.endpoint != "runs":  # again: the body may have taken time
            self._registry.check(admission.caller, upload=isinstance(body, Upload))
        return StreamRequest(
            route=place.route,
            dialect=dialect,
            method=scope["method"],
            path_tail=place.tail,
            query=query,
            headers=headers,
            body=body,
            contents=contents,
            earlier=earlier,
            items=items,
            charge=held,
            settings=settings_for(place.route, headers),
            caller=admission.caller,
            resumes=headers.get(b"x-wiretape-resume").strip().lower() == b"on",
            recorded_path=masked_path(scope["raw_path"] + (b"?" + query if query else b"")),
            plain=plain,
            own_key=self._keys.required,
        )

    async def _body(
        self, headers: Headers, receive: Receive, bytes_max: int, held: Charge, *, streamed: bool
    ) -> bytes | Upload | None:
        given = headers.get(b"content-length")
        length = int(given) if given.isdigit() else None if b"transfer-encoding" in headers else 0
        if (length or 0) > bytes_max:
            raise AnswerError(too_long(bytes_max))
        upload = streamed and (length is None or length > UPLOAD_INLINE_BYTES_MAX)
        take(held, MEMORY_A_STREAM_BYTES + (0 if upload else READ_WHOLE_TIMES * (length or 0)))
        if upload:
            return Upload(receive, bytes_max)
        body, reading = None, self._registry.reading
        with trio.CancelScope() as scope:
            reading.add(scope)
            try:
                body = await whole_body(receive, bytes_max, held if length is None else None)
            finally:
                reading.discard(scope)
        if scope.cancelled_caught:
            self._registry.check()
        return body


class Registry:
    """The running streams; `run` holds their tasks."""

    def __init__(
        self, services: Services, *, on_ended: Callable[[Ended], None], on_limited: Callable[[str, str], None]
    ) -> None:
        self.live: dict[str, Delivery] = {}
        self.draining = False
        self._services = services
        self._on_ended = on_ended
        self._on_limited = on_limited
        self._relays: dict[str, Relay] = {}
        self._nursery: trio.Nursery | None = None
        self.streams_max, self.connections_max = places_that_fit(services.config.streams_max)
        self._empty: trio.Event | None = None
        #: Requests whose body is still on its way: a shutdown does not wait for them.
        self.reading: set[trio.CancelScope] = set()
        #: Called when no stream may begin any more.
        self.on_drain: Callable[[], None] = _nothing

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run streams until cancelled; those that still run then end as `shutdown`."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def check(self, caller: str | None = None, *, upload: bool = False) -> None:
        """Raise AnswerError if no stream may begin now; with the `caller`, also if that would take too large a share.

        Uploads that still arrive get half of the places at most, and one key of several three quarters.
        """
        config, health, places, limit = self._services.config, self._services.store.health, self.streams_max, ""
        if self.draining:
            raise AnswerError(busy("Wiretape is shutting down. Retry in a moment.", "shutdown", CLOSE))
        if len(self.live) >= places:
            raise AnswerError(busy(f"Stream limit reached ({places} streams). Retry later.", "streams_max"))
        if health.failure and config.on_log_failure == "stop" and not health.full:
            raise AnswerError(busy("Tapes cannot be written (on_log_failure = stop).", "log_failure"))
        if caller is None or not (upload or len(config.keys) > 1):
            return
        running = list(self._relays.values())
        if upload:
            running = [each for each in running if isinstance(each.body, Upload) and not each.body.done.is_set()]
            places = max(1, places // 2)
            limit = "uploads" if len(running) >= places else ""
        own = [each for each in running if each.delivery.caller == caller]
        if len(config.keys) > 1 and len(own) >= max(1, places * 3 // 4):
            limit = "key_share"
        if limit:
            message = f"No place is left for this request ({limit}, {places} places). Retry later."
            self._on_limited(limit, message)
            raise AnswerError(busy(message, limit))

    def start(self, request: StreamRequest, upstream: UpstreamRequest | None = None) -> Delivery:
        """Start the relay of a request that was not refused, with its charge; return its client's side.

        `upstream` asks in a way of its own.
        """
        assert self._nursery is not None, "streams begin while the registry runs"
        services, stream = self._services, self._services.new_id()
        if upstream is None:
            upstream = UpstreamRequest(stream, request, services.config, services.transport, services.learned)
        relay = self._relays[stream] = Relay(stream, request, services, upstream, self._over)
        self.live[stream] = relay.delivery
        self._nursery.start_soon(relay.run)
        if relay.tool_results is not None:
            self._nursery.start_soon(self._look_up, relay)
        return relay.delivery

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a task that no request can cancel."""
        assert self._nursery is not None, "tasks begin while the registry runs"
        self._nursery.start_soon(self._guarded, task, *args)

    async def _guarded(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await task(*args)
        except Exception as error:  # noqa: BLE001 - P20: a failure of one task ends no other
            self._services.log.error("task_failed", why=repr(error))

    def note(
        self, stream: str, kind: str, keys: Mapping[str, Any], body: bytes | None = None, *, signal: str = "look"
    ) -> None:
        """Write a record on the tape of a stream, and then signal its relay, unless it has ended."""
        if stream in self._relays:
            self._relays[stream].signals.note(kind, keys, body, signal=signal)

    def rows(self, stream: str) -> CatalogueRow | None:
        """Return the rows of a running stream as it is now, its silence since the last record; None if it has none."""
        relay = self._relays.get(stream)
        return None if relay is None or relay.recording.store is None else relay.recording.rows

    async def drain(self, until: float) -> None:
        """Start no stream any more; let those that run end by themselves until then, and end the others."""
        self.draining = True
        self.on_drain()
        for scope in self.reading:
            scope.cancel()
        await self._emptied(until)
        self.end_all()
        await self._emptied(inf)

    def end_all(self) -> None:
        """End every stream as `shutdown`, each as soon as it can record that."""
        for relay in self._relays.values():
            relay.signals.send("shutdown")

    async def _emptied(self, until: float) -> None:
        with trio.CancelScope(deadline=until):
            while self._relays:
                self._empty = trio.Event()
                await self._empty.wait()

    def _over(self, relay: Relay) -> None:
        del self._relays[relay.stream], self.live[relay.stream]
        relay.charge.release()
        if relay.tool_results is not None:
            relay.tool_results.over()
        if not self._relays and self._empty is not None:
            self._empty.set()
        recording = relay.recording
        if recording.catalogue_row is not None:
            ended = relay.ended(recording.catalogue_row)
            self._services.log.ended(ended)
            self._on_ended(ended)

    async def _look_up(self, relay: Relay) -> None:
        assert relay.tool_results is not None
        try:
            await relay.tool_results.look_up(self._services.store)
        except Exception as error:  # noqa: BLE001 - the index is disposable, and the stream can do without it
            self._services.log.error("look_up_failed", why=repr(error))


def _nothing() -> None:
    pass


def new_stream_id(worker: bytes = b"") -> str:
    """Return an id that sorts by time to the millisecond, cannot be guessed, and is a file name on every system.

    Of several workers each has its number after the time.
    """
    when = int(time.time() * 1_000).to_bytes(6, "big")
    random = secrets.token_bytes(_ID_RANDOM_BYTES)
    return base64.b32hexencode((when + worker + random)[:_ID_BYTES]).decode("ascii").lower()


def places_that_fit(streams_max: int) -> tuple[int, int]:
    """Return how many streams and how many clients the descriptor limit allows: each stream has a client, an upstream
    and a tape (P10, L01), and idle clients take no descriptor that a stream needs.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = (2**31 if soft == resource.RLIM_INFINITY else soft) - DESCRIPTORS_RESERVED - CONNECTIONS_SPARE
    streams = max(1, min(streams_max, (free - CONNECTIONS_SPARE) // DESCRIPTORS_A_STREAM))
    clients = min(free - streams * (DESCRIPTORS_A_STREAM - 1), streams * CONNECTIONS_A_STREAM + CONNECTIONS_SPARE)
    return streams, max(1, clients)
