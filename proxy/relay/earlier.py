"""Answers that are on tape: for requests that continue one, and for `GET /v1/responses/{id}`.

Another caller's answer, one that never existed and one that has expired look the same (C21).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import trio

from wiretape.events.core.errors import RequestError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, is_object, parse
from wiretape.events.crossing.turns import Turn
from wiretape.events.dialects import RESPONSES
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.wire.sse import Decoder

from ..config.model import Route
from ..limits import EARLIER_ANSWERS_MAX, ELSEWHERE_AGAIN_S, READ_WHOLE_TIMES
from ..memory import Charge
from ..store.store import StoreError, UnreachableError
from .http_responses import Answer, AnswerError, busy, error, json_answer, not_earlier, take
from .relay import Services
from .stream_request import StreamRequest

__all__ = ["Earlier"]

_ID_CHARS_MAX: Final = 160


class _Taped(NamedTuple):
    """One request and its answer, from a tape."""

    body: dict[str, Any]
    answer: dict[str, Any]


class Earlier:
    """Finds answers of a caller on the tapes of a route."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def turns(self, answer_id: str, route: Route, caller: str, held: Charge) -> Sequence[Turn] | None:
        """Return what was said up to an answer of ours, and None if the upstream made the id.

        Raise `AnswerError` if the answer may not be continued.
        """
        began, said = trio.current_time(), list[Sequence[Turn]]()
        wanted: str = answer_id
        while wanted and len(said) < EARLIER_ANSWERS_MAX:
            taped = await self._find(RESPONSES.stream_of(wanted), route, caller, held)
            if taped is None and not said:
                return None
            if taped is None or not RESPONSES.is_kept(taped.body):
                await not_earlier(began)
                raise AnswerError(_not_found(400, answer_id, RESPONSES.continued, "previous_response_not_found"))
            try:
                said.append(RESPONSES.turns(*taped))
            except RequestError as bad:
                message = f"{RESPONSES.continued}: the earlier request cannot be repeated ({bad})"
                kind = "invalid_request_error"
                raise AnswerError(error(400, message, type=kind, code=bad.code, param=RESPONSES.continued)) from None
            wanted = RESPONSES.continues(taped.body)
        return [turn for turns in reversed(said) for turn in turns]

    async def items(self, ids: Mapping[str, str], route: Route, caller: str, held: Charge) -> dict[str, Any]:
        """Return those of the items with these ids, of these answers, that are ours and may be used again."""
        found = dict[str, Any]()
        for answer_id in list(dict.fromkeys(ids.values()))[:EARLIER_ANSWERS_MAX]:
            taped = await self._find(RESPONSES.stream_of(answer_id), route, caller, held)
            if taped is not None and RESPONSES.is_kept(taped.body):
                said = map(as_object, as_list(taped.answer.get("output")))
                found |= {item["id"]: item for item in said if item.get("id") in ids}
        return found

    async def answer(self, request: StreamRequest) -> Answer | None:
        """Return the answer to a request for an earlier one; None if only the upstream can know it."""
        if request.method not in ("GET", "HEAD"):
            return None
        began, answer_id = trio.current_time(), request.path_tail.rpartition(b"/")[2].decode("latin-1")
        taped = await self._find(RESPONSES.stream_of(answer_id), request.route, request.caller, request.charge)
        if taped is not None and RESPONSES.is_kept(taped.body):
            return json_answer(200, taped.answer)
        speaks = self._services.learned.speaks(request.route.targets[0], RESPONSES.name)
        if taped is None and speaks == RESPONSES.name:
            return None
        await not_earlier(began)
        raise AnswerError(_not_found(404, answer_id, None, "response_not_found"))

    async def _find(self, stream: str, route: Route, caller: str, held: Charge) -> _Taped | None:
        """Return the answer of a stream, if it is this caller's and has ended on this route."""
        store, began = self._services.store, trio.current_time()
        while stream:
            before, taped, away = held.held_bytes, None, False
            try:
                taped = await self._taped(stream, route, caller, held)
            except UnreachableError:
                away = True
            if taped is None and store.late_s and not away:  # as for an answer that is not here
                await store.running([stream])
                away = bool(store.partial)
            if away:
                await not_earlier(began)
                raise AnswerError(busy("The store cannot be reached. Retry later.", "store_unreachable"))
            held.remove(held.held_bytes - before if taped is None else 0)
            if taped is not None or trio.current_time() >= began + store.late_s:
                return taped
            await trio.sleep(ELSEWHERE_AGAIN_S)
        return None

    async def _taped(self, stream: str, route: Route, caller: str, held: Charge) -> _Taped | None:
        records: list[Record] = []
        try:
            batches = self._services.store.read(stream)
            batches.held = held
            async for batch in batches:
                opened = (records or batch)[0].keys
                if (opened.get("caller"), opened.get("route"), opened.get("dialect")) != (
                    caller,
                    route.name,
                    RESPONSES.name,
                ):
                    return None
                take(held, READ_WHOLE_TIMES * sum(len(record.raw or b"") for record in batch))
                records += batch
        except UnreachableError:
            raise
        except StoreError:
            return None
        request = next((record for record in records if record.kind == "request"), None)
        body = as_object(parse(request.raw or b"") if request is not None else ABSENT)
        if not body or records[-1].kind != "end":
            return None
        answer = await trio.to_thread.run_sync(_answer_of, records)
        return _Taped(body, answer) if answer else None


def _answer_of(records: Sequence[Record]) -> dict[str, Any]:
    """Return the answer that a tape emits as one object; nothing for an HTTP error."""
    emitter = Emitter()
    emitted = b"".join(frame for record in records for frame in emitter.feed(record))
    if emitted.startswith(b"{"):
        value = as_object(parse(emitted))
        return value if "error" not in value or "id" in value else {}
    values = [parse(frame.payload) for frame in Decoder().feed(emitted) if frame.payload is not None]
    whole: dict[str, Any] = RESPONSES.whole(value for value in values if is_object(value))
    return whole


def _not_found(status: int, answer_id: str, param: str | None, code: str) -> Answer:
    message = f"Response not found, or not visible with this key: {answer_id[:_ID_CHARS_MAX]}"
    return error(status, message, type="invalid_request_error", code=code, param=param)
