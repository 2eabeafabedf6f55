"""The streaming path, a plain ASGI callable: lets a request in, starts its stream, and tails it for the client."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import trio

from wiretape.events.core.json_text import is_object
from wiretape.events.core.settings import Facts

from ..config.urls import Place
from ..http_headers import Headers
from ..limits import UPLOAD_INLINE_BYTES_MAX
from ..security.access import Admission, content_type_refusal
from ..security.headers import masked_path
from ..security.keys import Keys
from ..server.asgi import Receive, Send
from .http_responses import Answer, error, refused, send_answer
from .registry import Registry
from .request_body import CLOSE, BodyError, marked, parsed, read_as, too_long, whole_body
from .services import Services
from .stream_request import Order, facts_of, settings_for
from .tail import tail
from .upload import Upload

__all__ = ["Hot"]


#: Members that gateways before us took for the address to send a key to (CVE-2024-6587).
_NEVER_ASKED: Final = ("api_base", "base_url", "extra_headers")


class Hot:
    """An ASGI app for every admitted request whose path is not Wiretape's own."""

    def __init__(
        self, services: Services, keys: Keys, registry: Registry, *, on_refused: Callable[[int], None]
    ) -> None:
        self._services = services
        self._keys = keys
        self._registry = registry
        self._on_refused = on_refused

    async def __call__(self, admission: Admission, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        head = scope["method"] == "HEAD"
        try:
            order = await self._order(admission, scope, receive)
        except BodyError as failed:
            order = failed.answer
        if order is None:
            return  # the client left before it had asked
        if isinstance(order, Answer):
            self._on_refused(order.status)
            await _refuse(send, order, head=head)
            return
        busy = self._registry.refusal()  # again: the body may have taken its time
        if busy is not None:
            self._on_refused(busy.status)
            await _refuse(send, busy, head=head)
            return
        live = self._registry.start(order)
        behind = order.body.behind if isinstance(order.body, Upload) else None
        await tail(live, self._services.store, behind, send, scope["extensions"]["wiretape"], head=head)

    async def _order(self, admission: Admission, scope: Mapping[str, Any], receive: Receive) -> Order | Answer | None:
        headers, where = admission.headers, admission.place
        assert where is not None, "Wiretape's own paths are answered elsewhere"
        config = self._services.config
        busy = self._registry.refusal()
        if busy is not None:
            return busy
        chat = where.dialect == "chat" and scope["method"] == "POST"
        if chat:
            not_json = content_type_refusal(headers)
            if not_json is not None:
                return refused(not_json)
        body = await self._body(headers, receive, chat=chat)
        if body is None:
            return None
        plain, asked = body, None
        if chat and isinstance(body, bytes):
            plain = await read_as(body, list(headers), config.body_bytes_max)
            asked = await parsed(plain)
            bad = _never_asked(asked)
            if bad is not None:
                return bad
        ordered = self._ordered(scope, where, admission.caller, headers, body, asked, chat=chat)
        if not isinstance(plain, bytes) or not chat:
            return ordered
        if plain is not body:
            ordered = replace(ordered, plain=plain)
        if where.route.history == "off":
            return ordered
        marks, cleaning = await marked(plain, asked, repair=where.route.history == "repair")
        return replace(ordered, history=marks, cleaning=cleaning) if marks else ordered

    async def _body(self, headers: Headers, receive: Receive, *, chat: bool) -> bytes | Upload | None:
        bytes_max = self._services.config.body_bytes_max
        length = headers.get(b"content-length")
        chunked = b"transfer-encoding" in headers
        if not chat and (chunked or (length.isdigit() and int(length) > UPLOAD_INLINE_BYTES_MAX)):
            if length.isdigit() and int(length) > bytes_max:
                raise BodyError(too_long(bytes_max))
            return Upload(receive, bytes_max)
        return await self._whole(receive, length, bytes_max)

    async def _whole(self, receive: Receive, length: bytes, bytes_max: int) -> bytes | None:
        """A stop of the proxy waits for no body: whoever sends one is told to come again."""
        body: bytes | None = None
        with self._registry.coming() as scope:
            body = await whole_body(receive, length, bytes_max)
        if not scope.cancelled_caught:
            return body
        busy = self._registry.refusal()
        assert busy is not None, "nothing else ends the wait"
        raise BodyError(busy._replace(headers=(*busy.headers, CLOSE)))

    def _ordered(
        self,
        scope: Mapping[str, Any],
        where: Place,
        caller: str,
        headers: Headers,
        body: bytes | Upload,
        asked: Any,
        *,
        chat: bool,
    ) -> Order:
        by_name = {name.lower(): value for name, value in headers}
        query: bytes = scope["query_string"]
        raw: bytes = scope["raw_path"] + (b"?" + query if query else b"")
        return Order(
            route=where.route,
            dialect="chat" if chat else "",
            method=scope["method"],
            tail=where.tail,
            query=query,
            headers=list(headers),
            body=body,
            asked=asked,
            facts=facts_of(asked) if chat else Facts(stream=False),
            settings=settings_for(where.route, by_name),
            caller=caller,
            resumes=by_name.get(b"x-wiretape-resume", b"").strip().lower() == b"on",
            path=masked_path(raw),
            own_key=self._keys.required,
        )


def _never_asked(asked: Any) -> Answer | None:
    if not is_object(asked):
        return error(400, "the body is not a JSON object", type="invalid_request_error", code="invalid_json")
    for name in _NEVER_ASKED:
        if name in asked:
            return error(
                400,
                f"{name} is not taken from a request: upstreams come from the configuration",
                type="invalid_request_error",
                code="parameter_not_allowed",
                param=name,
            )
    return None


async def _refuse(send: Send, answer: Answer, *, head: bool) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
        await send_answer(send, answer, head=head)
