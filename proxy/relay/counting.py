"""`POST /v1/messages/count_tokens`: counted by the upstream if it can, or else estimated here.

Claude Code asks this dozens of times a second, so an upstream that cannot count gets one request only.
"""

from typing import Final

import trio

from wiretape.events.core.json_text import apply, as_object, as_text, dumps, locate, parse
from wiretape.events.crossing.envelope import may_hold
from wiretape.events.dialects import MESSAGES

from ..limits import COUNT_ANSWER_BYTES_MAX, COUNT_ANSWER_S
from ..upstream.connection import WireError
from .attempts import failed_status
from .crossing import renamed
from .http_responses import Answer, json_answer, wrapped_error
from .relay import Services
from .stream_request import StreamRequest, in_thread_if_large
from .upstream import UpstreamRequest, UpstreamResponse

__all__ = ["TokenCounts"]

_ESTIMATED: Final = (b"x-wiretape-estimated", b"true")


class TokenCounts:
    """Answers how many tokens a request would take."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def answer(self, request: StreamRequest) -> Answer | None:
        """Return the answer; None for a request that only the upstream may answer."""
        learned, target = self._services.learned, request.route.targets[0]
        if request.method != "POST" or request.settings.profile == "transparent" or not isinstance(request.body, bytes):
            return None
        body = request.plain or request.body
        value = as_object(await in_thread_if_large(body, lambda: parse(body)))
        if learned.speaks(target, MESSAGES.name) == MESSAGES.name and target.name not in learned.estimated:
            model = renamed(request.route, as_text(value.get("model")))
            asked = apply(body, locate(body, {("model",): dumps(model)})) if model else request.body
            if may_hold(body):
                asked = await in_thread_if_large(body, lambda: MESSAGES.unsealed(asked if model else body))
            counted = await self._counted(request, asked)
            if counted is not None:
                return counted
        tokens = await in_thread_if_large(body, lambda: MESSAGES.estimated_tokens(value))
        return json_answer(200, {"input_tokens": tokens}, headers=(_ESTIMATED,))

    async def _counted(self, request: StreamRequest, body: bytes) -> Answer | None:
        """Return the upstream's answer; None if it does not count, or does not answer.

        Unless the connection failed, it is then not asked again.
        """
        services = self._services
        upstream = UpstreamRequest("", request, services.config, services.transport, services.learned)
        with trio.move_on_after(COUNT_ANSWER_S):
            try:
                answer = await upstream.ask(b"POST", request.path_tail, body, UpstreamResponse)
                said = await answer.whole(COUNT_ANSWER_BYTES_MAX)
            except WireError:
                return None
            counts = type(as_object(parse(said)).get("input_tokens")) is int
            failed = answer.status >= 400
            if counts or (failed and not failed_status(answer.status, answer.headers, said, streams=False).no_path):
                return wrapped_error(answer.status, answer.headers, said)
        services.learned.note(services.learned.estimated, request.route.targets[0].name)
        return None
