"""The control app: health, metrics and the streams of a caller below `/wiretape/`, on quart-trio.

Responses are JSON, an event stream or plain text; they are never cached. A failure here becomes a 500 and a log
line and does not affect any stream.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any, Final, cast

from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from ..relay.app import Registry
from ..relay.http_responses import Answer, AnswerError, error, json_answer
from ..store.store import Store
from .metrics import Metrics
from .openapi import document
from .streams import StreamsApi, not_found

__all__ = ["control_app", "given", "readiness", "respond", "stream_body"]

#: Prometheus's text, and OpenMetrics.
_METRICS: Final = (
    "text/plain; version=0.0.4; charset=utf-8",
    "application/openmetrics-text; version=1.0.0; charset=utf-8",
)
_ON_ALL: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def control_app(streams: StreamsApi, *, metrics: Metrics, log_error: Callable[..., None]) -> QuartTrio:
    """Return the app. `Application` has decided access and put the caller into the scope."""
    app = QuartTrio(__name__, static_folder=None)
    app.url_map.merge_slashes = False  # a redirect would reveal which paths exist
    app.config["RESPONSE_TIMEOUT"] = None  # the default ends every stream after 60 s
    app.config["MAX_CONTENT_LENGTH"] = 0  # no request here has a body
    route = partial(app.route, methods=["GET"], provide_automatic_options=False)

    @route("/wiretape/healthz")
    async def get_healthz() -> Response:
        return respond(json_answer(200, {"alive": True}))

    @route("/wiretape/readyz")
    async def get_readyz() -> Response:
        reasons = readiness(streams.store, streams.registry)
        return respond(json_answer(503 if reasons else 200, {"ready": not reasons, "reasons": reasons}))

    @route("/wiretape/metrics")
    async def get_metrics() -> Response:
        exemplars = "application/openmetrics-text" in request.headers.get("Accept", "")
        text = metrics.text(exemplars=exemplars, of=await metrics.together() if metrics.together else None)
        return Response(text, 200, content_type=_METRICS[exemplars])

    @route("/wiretape/openapi.json")
    async def get_openapi() -> Response:
        return respond(json_answer(200, document()))

    # Paths, so that an id with a slash gets the one 404 of everything that does not exist, at the same time.
    @route("/wiretape/streams/<path:stream>")
    async def get_stream(stream: str) -> Response:
        return respond(json_answer(200, await streams.one(given("caller"), stream, request.args)))

    @route("/wiretape/streams/<path:stream>/events")
    async def get_events(stream: str) -> Response:
        last_id = request.headers.get("Last-Event-ID")
        body = await streams.events(given("caller"), stream, request.args, last_id, given("held"))
        return stream_body(body, "text/event-stream")

    @route("/wiretape/streams/<path:stream>/tape")
    async def get_tape(stream: str) -> Response:
        return stream_body(await streams.tape(given("caller"), stream, given("held")), "application/x-ndjson")

    _handle_errors(app, log_error)
    return app


def _handle_errors(app: QuartTrio, log_error: Callable[..., None]) -> None:
    async def refused(refusal: AnswerError) -> Response:
        return respond(refusal.answer)

    async def http_error(fault: HTTPException) -> Response:
        status = fault.code or 500
        if status == 404:
            return respond(not_found())
        allowed = getattr(fault, "valid_methods", None)
        headers = ((b"allow", ", ".join(sorted(allowed)).encode()),) if allowed else ()
        kind, code = "invalid_request_error", f"http_{status}"
        return respond(error(status, f"{fault.name}.", type=kind, code=code, headers=headers))

    async def failed(fault: Exception) -> Response:
        log_error("control_failed", path=request.path, error=type(fault).__name__, message=str(fault))
        return respond(error(500, "Wiretape failed on this request.", type="wiretape_error", code="internal"))

    async def finished(response: Response) -> Response:
        for name, value in _ON_ALL.items():
            response.headers.setdefault(name, value)
        if request.method == "HEAD":
            response.response = response.data_body_class(b"")
        return response

    app.register_error_handler(AnswerError, refused)
    app.register_error_handler(HTTPException, http_error)
    app.register_error_handler(Exception, failed)
    app.after_request(finished)


def readiness(store: Store, registry: Registry) -> list[str]:
    """Return the reasons why no new stream can be taken. They name no path; the log has the details."""
    reasons = ["draining"] if registry.draining else []
    if store.health.gone:
        reasons.append("data_folder_gone")
    elif store.health.failure:
        reasons.append("tape_not_writable")
    return reasons


def given(name: str) -> Any:
    """Return what `Application` put into the scope."""
    return cast("Mapping[str, Any]", request.scope)[name]


def stream_body(body: AsyncGenerator[bytes], content_type: str) -> Response:
    """Return the response with a body that goes on."""
    response = Response(body, 200, content_type=content_type)
    response.headers["x-accel-buffering"] = "no"
    return response


def respond(answer: Answer) -> Response:
    """Return a whole response."""
    headers: Any = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers]
    response = Response(answer.body, answer.status)
    response.headers.clear()
    response.headers.extend(headers)
    return response
