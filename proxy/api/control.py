"""The control surface: health, metrics, and the streams of a caller, as a quart-trio app below `/wiretape/`.

Every answer is JSON, an event stream or plain text, never a page; none is cached, none has a CORS header, and no fault
in here reaches a stream: an exception is a 500 and a line in the log.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, cast

from quart import Response, request
from quart.wrappers.response import ResponseBody
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from ..config.model import Config
from ..relay.http_responses import Answer, error, json_answer
from ..store.store import Store
from .metrics import Metrics
from .streams import Running, StreamsApi, not_found

__all__ = ["Complaints", "control_app", "readiness"]

_EVENTS: Final = "text/event-stream"
_TAPE: Final = "application/x-ndjson"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_ON_ALL: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

_Handler = Callable[..., Awaitable[Response]]


class Complaints(Protocol):
    """What is asked of the log."""

    def error(self, event: str, /, **fields: object) -> None:
        """Somebody should do something."""
        ...


def control_app(
    *,
    registry: Running,
    store: Store,
    config: Config,
    metrics: Metrics,
    log: Complaints,
    wall: Callable[[], float] = time.time,
) -> QuartTrio:
    """To be mounted as it is: it knows its paths from `/wiretape/` on."""
    app = QuartTrio(__name__, static_folder=None)
    app.url_map.merge_slashes = False  # a redirect is an answer, too, and tells what is there
    app.config["RESPONSE_TIMEOUT"] = None  # the default ends every stream after 60 s without a word
    app.config["MAX_CONTENT_LENGTH"] = config.body_bytes_max
    surface = _Surface(registry=registry, store=store, metrics=metrics, wall=wall)

    def route(path: str, handler: _Handler) -> None:
        app.add_url_rule(path, path, handler, methods=["GET"], provide_automatic_options=False)

    route("/wiretape/healthz", surface.healthz)
    route("/wiretape/readyz", surface.readyz)
    route("/wiretape/metrics", surface.metrics)
    route("/wiretape/streams", surface.streams)
    route("/wiretape/streams/<path:rest>", surface.stream)

    async def refused(fault: HTTPException) -> Response:
        return _whole(_http_error(fault))

    async def failed(fault: Exception) -> Response:
        log.error("control_failed", path=request.path, error=type(fault).__name__, message=str(fault))
        return _whole(error(500, "Wiretape failed on this request.", type="wiretape_error", code="internal"))

    async def finished(response: Response) -> Response:
        response.headers.update(_ON_ALL)
        if request.method == "HEAD":
            response.response = response.data_body_class(b"")
        return response

    app.register_error_handler(HTTPException, refused)
    app.register_error_handler(Exception, failed)
    app.after_request(finished)
    return app


class _Surface:
    """One method a path."""

    def __init__(self, *, registry: Running, store: Store, metrics: Metrics, wall: Callable[[], float]) -> None:
        self._registry = registry
        self._store = store
        self._metrics = metrics
        self._api = StreamsApi(store, registry, wall)

    async def healthz(self) -> Response:
        """The process answers; open to all."""
        return _whole(json_answer(200, {"alive": True}))

    async def readyz(self) -> Response:
        """New streams can be taken; open to all, so it names no path."""
        reasons = readiness(self._store, self._registry)
        return _whole(json_answer(503 if reasons else 200, {"ready": not reasons, "reasons": reasons}))

    async def metrics(self) -> Response:
        """For Prometheus."""
        return Response(self._metrics.text(), 200, content_type=_METRICS)

    async def streams(self) -> Response:
        """A page of the caller's."""
        return _whole(await self._api.page(_caller(), request.args))

    async def stream(self, rest: str) -> Response:
        """One of the caller's, and what there is of it."""
        caller = _caller()
        stream, mark, what = rest.partition("/")
        if mark and what == "events":
            last = request.headers.get("Last-Event-ID")
            return _answered(await self._api.events(caller, stream, request.args, last), _EVENTS)
        if mark and what == "tape":
            return _answered(await self._api.tape(caller, stream), _TAPE)
        return _whole(await self._api.one(caller, stream if not mark else rest, request.args))


def _caller() -> str:
    caller = cast("Mapping[str, Any]", request.scope)["caller"]  # set by `front`
    assert isinstance(caller, str)
    return caller


def readiness(store: Store, registry: Running) -> list[str]:
    """Why no new stream should come here; empty where all is well. The log has the details."""
    reasons: list[str] = []
    if registry.draining:
        reasons.append("draining")
    if store.health.gone:
        reasons.append("data_folder_gone")
    elif store.health.failure:
        reasons.append("tape_not_writable")
    return reasons


def _answered(answer: Answer | ResponseBody, content_type: str) -> Response:
    if isinstance(answer, Answer):
        return _whole(answer)
    response = Response(answer, 200, content_type=content_type)
    response.headers["x-accel-buffering"] = "no"
    return response


def _whole(answer: Answer) -> Response:
    headers: Any = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers]
    response = Response(answer.body, answer.status)
    response.headers.clear()
    response.headers.extend(headers)
    return response


def _http_error(fault: HTTPException) -> Answer:
    status = fault.code or 500
    if status == 404:
        return not_found()
    allowed = getattr(fault, "valid_methods", None)
    headers = ((b"allow", ", ".join(sorted(allowed)).encode()),) if allowed else ()
    return error(status, f"{fault.name}.", type="invalid_request_error", code=f"http_{status}", headers=headers)
