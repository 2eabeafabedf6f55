"""The answers that the client of one stream may get: every head names the stream and what its request lost."""

from collections.abc import Callable
from typing import Final

from wiretape.events.core.settings import Facts, Settings
from wiretape.events.dialects import DIALECTS
from wiretape.events.emission.dialect import Context
from wiretape.events.emission.frames import Ledger
from wiretape.events.folds.wire import Wire

from ..http1 import Header, Headers
from ..limits import LOST_BYTES_MAX
from . import http_responses
from .attempts import Failure
from .http_responses import Answer, error, in_dialect, our_error, stream_header, wrapped_error
from .stream_request import StreamRequest
from .upstream import UpstreamRequest, UpstreamResponse

__all__ = ["ClientAnswers"]

_FINAL: Final = (b"x-should-retry", b"false")


class ClientAnswers:
    """Makes the heads and errors of one stream, in the shape that its client reads."""

    def __init__(
        self,
        stream: str,
        request: StreamRequest,
        upstream: UpstreamRequest,
        wall: Callable[[], float],
    ) -> None:
        self._stream = stream
        self._request = request
        self._upstream = upstream
        self._wall = wall
        #: On every answer: the stream and the span of the request.
        assert upstream.trace is not None, "every stream has one"
        trace = upstream.trace
        response = f"00-{trace.id}-{trace.server}-0{trace.sampled:d}".encode("ascii")
        self._named = (stream_header(stream), (b"traceresponse", response))

    @property
    def _own(self) -> tuple[Header, ...]:
        lost = ", ".join(dict.fromkeys(self._upstream.lost)).encode("ascii", "replace")[:LOST_BYTES_MAX]
        return (*self._named, (b"x-wiretape-lost", lost)) if lost else self._named

    def stream_head(self) -> Answer:
        """Return the head of a stream."""
        return http_responses.stream_head(self._upstream.headers, *self._own)

    def relayed_head(self, response: UpstreamResponse) -> Answer:
        """Return the head of an answer that passes as it comes, or whole in the client's dialect."""
        changed = response.decoded or self._upstream.crossed
        return http_responses.relayed_head(response.status, response.headers, *self._own, changed=changed)

    def ours(self, reason: str) -> Answer:
        """Return the answer to a failure on our side."""
        return in_dialect(our_error(reason, *self._own), self._request.dialect)

    def failure(self, failure: Failure, body: bytes, *, exhausted: bool) -> Answer:
        """Return the answer of a stream that failed before it had a status: the upstream's own error, or ours.

        Clients that repeat a failure after all our attempts would multiply them: Claude Code and the SDKs obey a
        header, codex repeats every 5xx up to 30 times regardless, so it gets a 400.
        """
        request = self._request
        if failure.answered or body:
            answer = wrapped_error(
                failure.status or 502,
                self._upstream.headers,
                body,
                crossed=self._upstream.crossed and failure.answered,
            )
        else:
            status = failure.status or (504 if failure.timed_out or failure.ending == "stalled" else 502)
            kind, code = "invalid_request_error" if status == 400 else "upstream_error", failure.code or failure.ending
            answer = error(status, failure.message, type=kind, code=code, param=failure.param)
        waits = bool(failure.retry_after) and not exhausted
        final = exhausted or (request.dialect != "chat" and answer.status >= 500 and not waits)
        headers = answer.headers
        if final:  # the upstream's own advice was followed already
            headers = (*Headers(headers).without({b"x-should-retry"}), _FINAL)
        status = 400 if answer.status >= 500 and request.insists else answer.status
        return in_dialect(answer._replace(status=status, headers=(*headers, *self._own)), request.dialect)

    def closing(self) -> bytes:
        """Return the closing frames of a stream on which our own reading failed, so that its state is unknown."""
        created = int(self._wall())
        context = Context(Facts(), Settings(), self._stream, created, Wire(), Ledger(), frozenset())
        frames = DIALECTS[self._request.dialect].writer(context).close(0, "internal", (), set())
        return b"".join(out.frame() for out in frames)
