"""The endpoints below `/v1/runs` and `/<route>/v1/runs`, on ASGI itself: a thousand viewers must be cheap.

Another caller's run, one that never existed and one whose beginning has expired get the same response, at a fixed time
after the request (C21).
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import trio

from wiretape.events.chat.run_request import RunRequestError
from wiretape.events.core.json_text import parse
from wiretape.events.folds.run import RunFold
from wiretape.events.folds.run_events import CLOSED

from ..config.model import Route
from ..http1 import Header
from ..limits import FINAL_SEND_TIMEOUT_S, RUNS_PAGE_MAX
from ..memory import Charge
from ..relay.http_responses import Answer, AnswerError, busy, error, json_answer, not_earlier, send_answer
from ..relay.relay import Services
from ..relay.stream_request import StreamRequest
from ..server.asgi import Send
from ..store.catalogue_row import StreamRow
from ..store.store import StoreError, StreamMissingError, UnreachableError
from .runs import Runs

__all__ = ["RunsApi", "run_json"]

_PAGE: Final = 20
_ID: Final = re.compile(r"run_[0-9a-f]{32}", re.ASCII)
_SEQUENCE: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_HEAD: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
)
_T = TypeVar("_T")
_Endpoint = Callable[[StreamRequest, str], Awaitable[Answer]]


class RunsApi:
    """Answers requests that were admitted and read."""

    def __init__(self, runs: Runs, services: Services) -> None:
        self._runs = runs
        self._services = services
        #: What follows `/runs`, by method.
        self._endpoints: Mapping[str, Mapping[str, _Endpoint]] = {
            "": {"POST": self._start, "GET": self._page},
            "{run}": {"GET": self._one, "DELETE": self._delete},
            "{run}/events": {"GET": self._events_head},
            "{run}/tool_outputs": {"POST": self._outputs},
            "{run}/approval": {"POST": self._approval},
            "{run}/stop": {"POST": self._stop},
        }

    async def __call__(self, call: StreamRequest, scope: Mapping[str, Any], send: Send) -> None:
        """Answer one request, or raise `AnswerError`."""
        await self._translated(call, self._answer(call, scope, send))

    async def asked(self, what: str, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Answer what another machine was asked about a stream that was recorded here, or runs. Raise nothing."""
        charge = Charge(self._services.memory)
        try:
            if what == "forget":
                await self._services.store.delete([keys["stream"]])
                return {}
            route, body = Route(name=keys["route"], targets=()), keys["body"].encode("latin-1")
            call = StreamRequest(route=route, dialect="", charge=charge, caller=keys["caller"], body=body)
            endpoint = self._endpoints[f"{{run}}/{what}"]["POST"]
            answer = await self._translated(call, endpoint(call, keys["run"]))
        except AnswerError as bad:
            answer = bad.answer
        except Exception as failure:  # noqa: BLE001 - one question has no answer, and nothing else fails
            self._services.log.error("run_failed", run=keys.get("run"), why=repr(failure))
            return {}
        finally:
            charge.release()
        return {"status": answer.status, "body": parse(answer.body)}

    async def _translated(self, call: StreamRequest, answering: Awaitable[_T]) -> _T:
        """Return the result of answering a request, or raise `AnswerError`."""
        began = trio.current_time()
        try:
            return await answering
        except RunRequestError as bad:
            status = {"invalid_parameter": 400, "run_not_found": 404}.get(bad.code, 409)
            raise _error(status, str(bad), bad.code, bad.param) from None
        except StreamMissingError:
            await not_earlier(began)
            raise _error(404, "Run not found, or not visible with this key.", "run_not_found") from None
        except UnreachableError as failure:
            message = f"What other machines have of this run cannot be read now ({failure}). Retry in a moment."
            raise AnswerError(busy(message, "store_unreachable")) from None
        except StoreError as failure:
            self._services.log.error("run_failed", path=call.recorded_path, why=str(failure))
            raise AnswerError(busy("The tapes of this run cannot be read or written.", "log_failure")) from None

    async def _answer(self, call: StreamRequest, scope: Mapping[str, Any], send: Send) -> None:
        run_id, _, part = call.path_tail.decode("latin-1").removeprefix("/runs").removeprefix("/").partition("/")
        which = f"{{run}}/{part}" if part else "{run}" if run_id else ""
        methods, head = self._endpoints.get(which, {}), call.method == "HEAD"
        if run_id and not (methods and _ID.fullmatch(run_id)):
            raise StreamMissingError(run_id)
        endpoint = methods.get("GET" if head else call.method)
        if endpoint is None:
            allow = b"allow", ", ".join(methods).encode()
            raise _error(405, "This method is not possible here.", "http_405", None, allow)
        if self._services.config.requests == "hash":
            raise _error(501, "Runs need the bodies of their requests. Set requests = full.", "runs_off")
        if part == "events" and not head:
            await self._events(call, run_id, scope, send)
        else:
            await send_answer(send, await endpoint(call, run_id), head=head)

    async def _start(self, call: StreamRequest, _: str) -> Answer:
        return json_answer(202, {"run_id": await self._runs.start(call), "status": "started"})

    async def _page(self, call: StreamRequest, _: str) -> Answer:
        query = _query(call)
        limit, before = query.get("limit", str(_PAGE)), None
        if not _SEQUENCE.fullmatch(limit) or not 1 <= int(limit) <= RUNS_PAGE_MAX:
            raise RunRequestError("limit", f"limit must be a number from 1 to {RUNS_PAGE_MAX}.")
        if "before" in query and (before := StreamRow.at(query["before"])) is None:
            raise RunRequestError("before", "before must be the value of next from an earlier page.")
        found, last = await self._runs.page(call, int(limit), before)
        return json_answer(200, {"object": "list", "data": [run_json(live.fold) for live in found], "next": last})

    async def _one(self, call: StreamRequest, run_id: str) -> Answer:
        live = await self._runs.find(call, run_id)
        self._runs.note_read(live)
        return json_answer(200, run_json(live.fold))

    async def _outputs(self, call: StreamRequest, run_id: str) -> Answer:
        await self._runs.outputs(call, run_id)
        return json_answer(202, {"run_id": run_id, "status": "running"})

    async def _approval(self, call: StreamRequest, run_id: str) -> Answer:
        return await self._runs.approve(call, run_id)

    async def _stop(self, call: StreamRequest, run_id: str) -> Answer:
        await self._runs.stop(call, run_id)
        return json_answer(200, {"run_id": run_id, "status": "stopping"})

    async def _delete(self, call: StreamRequest, run_id: str) -> Answer:
        await self._runs.delete(call, run_id)
        return json_answer(200, {"run_id": run_id, "deleted": True})

    async def _events_head(self, call: StreamRequest, run_id: str) -> Answer:
        await self._runs.find(call, run_id)
        return Answer(200, _HEAD, b"")

    async def _events(self, call: StreamRequest, run_id: str, scope: Mapping[str, Any], send: Send) -> None:
        """Send the events of a run to one viewer; the server cuts it if it does not read."""
        given = call.headers.get(b"last-event-id").decode("latin-1") or _query(call).get("last_event_id", "")
        after = int(given) if _SEQUENCE.fullmatch(given) else 0
        connection, whole = scope["extensions"]["wiretape"], False

        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        async with self._runs.watched(call, run_id) as live:
            with trio.CancelScope() as viewing:
                connection.on_left(viewing.cancel)
                await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
                whole = await self._runs.view(live, after, call.charge, write)
                connection.on_left(None)  # the last send ends the request, which would count as leaving
        if whole:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + FINAL_SEND_TIMEOUT_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            connection.abort()


def run_json(fold: RunFold) -> dict[str, Any]:
    """Return a run as clients see it."""
    optional = {
        "output": fold.output if fold.status in CLOSED else None,
        "usage": fold.usage,
        "error": fold.error or None,
    }
    return {
        "object": "hermes.run",
        "run_id": fold.run_id,
        "status": fold.status,
        "created_at": fold.created_us / 1e6,
        "updated_at": fold.updated_us / 1e6,
        "session_id": fold.session or None,
        "model": fold.model or None,
        "last_event": fold.last_event or None,
        "last_sequence": fold.sequence,
        **{name: value for name, value in optional.items() if value is not None},
        "pending_calls": list(fold.pending.values()),
        "metadata": fold.metadata,
        "streams": [f"/wiretape/streams/{stream}" for stream in fold.streams],
    }


def _error(status: int, message: str, code: str, param: str | None = None, *headers: Header) -> AnswerError:
    return AnswerError(error(status, message, type="invalid_request_error", code=code, param=param, headers=headers))


def _query(call: StreamRequest) -> dict[str, str]:
    return dict(parse_qsl(call.query.decode("latin-1"), keep_blank_values=True))
