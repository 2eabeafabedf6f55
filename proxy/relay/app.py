"""The streaming path as an ASGI app: reads an admitted request, starts its relay, and delivers the answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio

from wiretape.events.chat.history import Found
from wiretape.events.chat.request import facts
from wiretape.events.core.json_text import is_object
from wiretape.events.core.settings import Facts
from wiretape.events.core.splice import Edit

from ..http_headers import Headers
from ..limits import INFLATED_AT_ONCE, UPLOAD_INLINE_BYTES_MAX
from ..security.access import Admission, content_type_refusal
from ..security.headers import masked_path
from ..security.keys import Keys
from ..server.asgi import Receive, Send
from .http_responses import Answer, error, refused, send_answer
from .registry import Registry
from .relay import Services
from .stream_request import (
    CLOSE,
    BodyError,
    StreamRequest,
    Upload,
    decoded,
    marks_in,
    parsed,
    settings_for,
    too_long,
    whole_body,
)

__all__ = ["RelayApp"]

#: Members that other gateways took for the address to send a key to (CVE-2024-6587).
_FORBIDDEN: Final = ("api_base", "base_url", "extra_headers")


class RelayApp:
    """An ASGI app for every admitted request whose path is not Wiretape's own."""

    def __init__(
        self, services: Services, keys: Keys, registry: Registry, *, on_refused: Callable[[int], None]
    ) -> None:
        self._services = services
        self._keys = keys
        self._registry = registry
        self._on_refused = on_refused
        self._decoding = trio.CapacityLimiter(INFLATED_AT_ONCE)

    async def __call__(self, admission: Admission, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        head = scope["method"] == "HEAD"
        try:
            request = await self._request(admission, scope, receive)
            if isinstance(request, StreamRequest):
                request = self._registry.refusal() or request  # again, since the body may have taken its time
        except BodyError as bad:
            request = bad.answer
        if request is None:
            return  # the client left before its request was complete
        if isinstance(request, Answer):
            self._on_refused(request.status)
            await send_answer(send, request, head=head)
            return
        delivery = self._registry.start(request)
        unread = request.body.drain if isinstance(request.body, Upload) else None
        await delivery.run(self._services.store, send, scope["extensions"]["wiretape"], unread, head=head)

    async def _request(
        self, admission: Admission, scope: Mapping[str, Any], receive: Receive
    ) -> StreamRequest | Answer | None:
        """Read and check a request; return an answer to refuse it, or None if the client left."""
        headers, place, bytes_max = admission.headers, admission.place, self._services.config.body_bytes_max
        assert place is not None, "Wiretape's own paths are answered elsewhere"
        busy = self._registry.refusal()
        if busy is not None:
            return busy
        chat = place.dialect == "chat" and scope["method"] == "POST"
        not_json = content_type_refusal(headers) if chat else None
        if not_json is not None:
            return refused(not_json)
        body = await self._body(headers, receive, bytes_max, chat=chat)
        if body is None:
            return None
        value: Any = None
        plain: bytes | None = None
        history: Sequence[Found] = ()
        cleaning: Sequence[Edit] = ()
        if chat and isinstance(body, bytes):
            coding = b", ".join(headers.all(b"content-encoding")).decode("latin-1").strip().lower()
            plain = await decoded(body, coding, bytes_max, self._decoding)
            value = await parsed(plain)
            forbidden = _forbidden(value)
            if forbidden is not None:
                return forbidden
            if place.route.history != "off":
                history, cleaning = await marks_in(plain, value, repair=place.route.history == "repair")
        query: bytes = scope["query_string"]
        return StreamRequest(
            route=place.route,
            dialect="chat" if chat else "",
            method=scope["method"],
            path_tail=place.tail,
            query=query,
            headers=headers,
            body=body,
            value=value,
            facts=facts(value) if chat else Facts(stream=False),
            settings=settings_for(place.route, headers),
            caller=admission.caller,
            resumes=headers.get(b"x-wiretape-resume").strip().lower() == b"on",
            recorded_path=masked_path(scope["raw_path"] + (b"?" + query if query else b"")),
            history=history,
            cleaning=cleaning,
            plain=None if plain is body else plain,
            own_key=self._keys.required,
        )

    async def _body(self, headers: Headers, receive: Receive, bytes_max: int, *, chat: bool) -> bytes | Upload | None:
        length = headers.get(b"content-length")
        size = int(length) if length.isdigit() else 0
        if not chat and (b"transfer-encoding" in headers or size > UPLOAD_INLINE_BYTES_MAX):
            if size > bytes_max:
                raise BodyError(too_long(bytes_max))
            return Upload(receive, bytes_max)
        body: bytes | None = None
        with self._registry.reading() as scope:  # a shutdown does not wait for bodies
            body = await whole_body(receive, length, bytes_max)
        if not scope.cancelled_caught:
            return body
        busy = self._registry.refusal()
        assert busy is not None, "a shutdown refuses all"
        raise BodyError(busy._replace(headers=(*busy.headers, CLOSE)))


def _forbidden(value: Any) -> Answer | None:
    if not is_object(value):
        return error(400, "The request body is not a JSON object.", type="invalid_request_error", code="invalid_json")
    for name in _FORBIDDEN:
        if name in value:
            message = f"{name} is not allowed in a request. Upstreams come from the configuration."
            return error(400, message, type="invalid_request_error", code="parameter_not_allowed", param=name)
    return None
