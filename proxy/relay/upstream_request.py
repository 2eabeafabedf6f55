"""The requests of one stream to its upstreams: which upstream is next, what is sent, and the head that comes back."""

import hashlib
from collections.abc import AsyncIterable
from functools import partial
from typing import Any

import trio

from wiretape.events.core.splice import apply

from ..config.model import Config
from ..config.secrets import Secret
from ..config.urls import base_of, request_target
from ..http_headers import Headers
from ..limits import CALLER_KEY_CHARS_MIN, UNSTREAMED_MAX
from ..security.headers import to_upstream
from ..security.keys import credentials
from ..store.store import StoreError
from ..upstream.connection import Head
from ..upstream.errors import WireError
from ..upstream.transport import UpstreamTransport
from .attempts import Decision, Failure, Next, decide
from .stream_request import StreamRequest, Upload, UploadError, in_thread_if_large, unstreamed, with_usage
from .upstream_response import UpstreamResponse

__all__ = ["UpstreamRequest"]


class UpstreamRequest:
    """Sends a request to one upstream after the other, as the relay decides."""

    def __init__(
        self, request: StreamRequest, config: Config, transport: UpstreamTransport, no_streaming: set[tuple[str, str]]
    ) -> None:
        """`no_streaming` has the routes and models whose upstream is known to refuse to stream."""
        self._request = request
        self._config = config
        self._transport = transport
        self._no_streaming = no_streaming
        self._target = 0
        self._attempt = 1
        known = (request.route.name, request.facts.model) in no_streaming
        self._unstreamed = request.streams and request.route.synthesise and known
        #: The status and headers of the last response, which the client's head is made of.
        self.status = 0
        self.headers = Headers()
        self.result: UpstreamResponse | WireError | UploadError | StoreError | None = None
        #: The digest of the body, if only that is recorded.
        self.sha256 = ""

    def attempt_keys(self, number: int) -> dict[str, Any]:
        """Return the keys of the `attempt` record."""
        target = self._request.route.targets[self._target]
        keys: dict[str, Any] = {"number": number, "upstream": target.name}
        if self._unstreamed:
            keys["unstreamed"] = True
        return keys

    async def body(self) -> bytes | Upload:
        """Return the body as this attempt sends it. It cannot be cancelled, since every tape must have a beginning."""
        request = self._request
        body = request.body
        if not isinstance(body, bytes):
            return body
        usage = request.streams and request.route.include_usage and not request.facts.usage and not self._unstreamed
        hashed = self._config.requests == "hash" and not self.sha256
        edited = bool(request.cleaning) or usage or self._unstreamed

        def edit(plain: bytes) -> bytes:
            plain = apply(plain, request.cleaning) if request.cleaning else plain
            plain = with_usage(plain, request.value) if usage else plain
            return unstreamed(plain) if self._unstreamed else plain

        if hashed or edited:
            with trio.CancelScope(shield=True):
                if hashed:
                    self.sha256 = await in_thread_if_large(body, lambda: hashlib.sha256(body).hexdigest())
                if edited:
                    plain = request.plain or body
                    return await in_thread_if_large(plain, partial(edit, plain))
        return body

    async def send(self, body: bytes | AsyncIterable[bytes], done: trio.Event) -> None:
        """Send the request until the head of the response is there; set `result`, and then the event."""
        try:
            request, target = self._request, self._request.route.targets[self._target]
            headers = to_upstream(request.headers, target, own_key=request.own_key, hermes=request.route.hermes)
            if isinstance(body, bytes) and body:  # it may have been edited
                stale = {b"content-length"} if body is request.body else {b"content-length", b"content-encoding"}
                headers = Headers(headers).without(stale)
            path = request_target(target, request.path_tail, request.query)
            origin = base_of(target.url).origin
            outgoing = self._transport.addressed(origin, request.method.encode("ascii"), path, headers, body)
            head, received = await self._transport.exchange(outgoing)
            if isinstance(request.body, Upload):
                request.body.abandon()
            secrets, quoted = self._secrets(head)
            response = UpstreamResponse(head, received, secrets, quoted=quoted)
            if not request.verbatim or response.searchable:
                try:
                    response.decode()
                except WireError:
                    await received.aclose()
                    raise
            self.result, self.headers, self.status = response, response.headers, response.status
        except (WireError, UploadError, StoreError) as error:
            self.result = error.with_traceback(None)  # its frames hold the connection, which holds the error
        finally:
            done.set()

    async def aclose(self) -> None:
        """Close a response that was not taken, at once."""
        result, self.result = self.result, None
        if isinstance(result, UpstreamResponse):
            await result.body.aclose()

    def decide(self, failure: Failure, now: float) -> Decision:
        """Decide what follows a failure, and prepare the next attempt."""
        request = self._request
        decision = Decision(Next.GIVE_UP)
        # Only what was never sent, or asks for nothing but words, is repeated.
        if isinstance(request.body, bytes) and (request.dialect == "chat" or failure.ending == "refused"):
            decision = decide(
                failure,
                attempt=self._attempt,
                attempts=request.route.attempts,
                elsewhere=self._target + 1 < len(request.route.targets),
                unstreamed=request.streams and request.route.synthesise and not self._unstreamed,
                now=now,
            )
        match decision.next:
            case Next.AGAIN:
                self._attempt += 1
            case Next.ELSEWHERE:
                self._target += 1
                self._attempt = 1
            case Next.UNSTREAMED:
                self._unstreamed = True
            case Next.GIVE_UP:
                pass
        return decision

    def completed(self) -> None:
        """Remember, if the stream was asked for whole, to ask for the next one of this model like that (U12)."""
        if self._unstreamed and len(self._no_streaming) < UNSTREAMED_MAX:
            self._no_streaming.add((self._request.route.name, self._request.facts.model))

    def _secrets(self, head: Head) -> tuple[tuple[Secret, ...], tuple[Secret, ...]]:
        """Return what this upstream was given and may echo anywhere, and in errors alone.

        A key of ours is searched for everywhere. The caller's own is searched for in errors, where upstreams quote it,
        and only if it is too long to be a word: changing what a model says would be worse.
        """
        key = self._request.route.targets[self._target].key
        if key is not None:
            return (key,), ()
        presented = [credential.decode("latin-1") for credential in credentials(self._request.headers)]
        secrets = tuple(Secret(text) for text in presented if len(text) >= CALLER_KEY_CHARS_MIN)
        if head.status >= 400:
            return secrets, ()
        kind = Headers(head.headers).get(b"content-type").lower()
        may_be_error = self._request.dialect == "chat" or b"json" in kind or b"event-stream" in kind
        return (), secrets if may_be_error else ()
