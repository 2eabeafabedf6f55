"""The inspector's endpoints on the control app: the page, and what it reads."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from mimetypes import guess_type
from typing import Any, Final

import trio
from quart import Response, request
from quart_trio import QuartTrio

from wiretape.events.tape.record import Record

from ..api.control import given, respond, stream_body
from ..api.streams import StreamsApi, bad_parameter, flag, hiding, not_found
from ..limits import COMPARED_BYTES_MAX
from ..relay.http_responses import AnswerError, error, json_answer
from ..security.access import PAGE_HEADERS
from .changes import Changes
from .conversation import conversation
from .explanations import explanations
from .feed import Feed, Inspector
from .page import served

__all__ = ["Compare", "inspector_routes"]

#: Returns how the records of two streams differ, as JSON.
Compare = Callable[[Sequence[Record], Sequence[Record]], dict[str, Any]]

_LINES: Final = "application/x-ndjson"


def inspector_routes(app: QuartTrio, streams: StreamsApi, changes: Changes, compare: Compare | None = None) -> None:
    """Add the endpoints. `compare` is not part of the proxy: without it two streams are not compared."""
    route = partial(app.route, methods=["GET"], provide_automatic_options=False)

    @route("/wiretape/ui/")
    @route("/wiretape/ui/<path:place>")
    async def get_page(place: str = "") -> Response:
        name = place if place.startswith("static/") else ""
        if name not in served():
            return respond(not_found())
        kept = {"cache-control": "public, max-age=31536000, immutable" if name else "no-cache"}
        return Response(served()[name], content_type=guess_type(name or "index.html")[0], headers=kept)

    @app.after_request
    async def safe(response: Response) -> Any:
        if request.path.startswith("/wiretape/ui"):
            response.headers.extend([(name.decode(), value.decode()) for name, value in PAGE_HEADERS])
        return response

    @route("/wiretape/explain")
    async def get_explain() -> Response:
        return respond(json_answer(200, explanations()))

    @route("/wiretape/streams")
    async def get_streams() -> Response:
        if flag(request.args, "follow"):
            if len(request.args) > 1:
                raise bad_parameter("follow", "the only parameter")
            return stream_body(changes.follow(streams, given("caller")), _LINES)
        page, lacks = await streams.page(given("caller"), request.args)
        response = respond(json_answer(200, page))
        if lacks:
            response.headers["x-wiretape-partial"] = lacks
        return response

    _stream_routes(app, streams, compare)


def _stream_routes(app: QuartTrio, streams: StreamsApi, compare: Compare | None) -> None:
    """Add the endpoints about one stream, or two."""
    route = partial(app.route, methods=["GET"], provide_automatic_options=False)

    @route("/wiretape/streams/<path:stream>/inspect")
    async def get_inspect(stream: str) -> Response:
        began = trio.current_time()
        repairs, first = flag(request.args, "repairs") or False, request.args.get("from", "0")
        if not (first.isascii() and first.isdigit() and len(first) < 10):
            raise bad_parameter("from", "the number of a record")
        await streams.open(given("caller"), stream, began)
        feed = Feed(streams.store, stream, Inspector(repairs=repairs), int(first))
        async with hiding(began):
            await feed.begin(given("held"))
        return stream_body(feed.frames(nullcontext()), _LINES)  # a look at a stream does not keep its upstream

    @route("/wiretape/streams/<path:stream>/conversation")
    async def get_conversation(stream: str) -> Response:
        await streams.open(given("caller"), stream, trio.current_time())
        return respond(json_answer(200, {"streams": await conversation(streams, stream, streams.wall())}))

    @route("/wiretape/diff")
    async def get_diff() -> Response:
        began, caller = trio.current_time(), given("caller")
        if compare is None:
            raise AnswerError(error(501, "This server compares no streams.", type="wiretape_error", code="no_compare"))
        ids = [request.args.get(name, "") for name in "ab"]
        async with streams.summarising:  # both are read whole
            a, b = [await _records(streams, caller, each, began) for each in ids]
            found = await trio.to_thread.run_sync(compare, a, b)
        for name, rows in zip("ab", [await streams.rows(each) for each in ids], strict=True):
            found[name] = rows and (await streams.listed([rows.stream]))[0]
        return respond(json_answer(200, found))


async def _records(streams: StreamsApi, caller: str, stream: str, began: float) -> list[Record]:
    """Return all records of a stream that is not too large to be compared at once."""
    records, room = list[Record](), COMPARED_BYTES_MAX
    async for batch in await streams.open(caller, stream, began):
        records += batch
        room -= sum(len(record.raw or b"") for record in batch)
        if room < 0:
            why = f"Compare streams beyond {COMPARED_BYTES_MAX} bytes with `wiretape diff`."
            raise AnswerError(error(413, why, type="invalid_request_error", code="too_large"))
    return records
