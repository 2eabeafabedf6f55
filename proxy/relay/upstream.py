"""The upstream's side of a relay: the request to one upstream after the other, and the response that comes back."""

import hashlib
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, TypeVar

import trio

from wiretape.events.core.errors import RequestError
from wiretape.events.dialects import DIALECTS

from ..config.model import Config, Secret
from ..config.urls import base_of, request_target
from ..http1 import Headers
from ..limits import CALLER_KEY_CHARS_MIN
from ..security.access import credentials
from ..security.headers import crossed_headers, taped_answer, to_upstream
from ..security.masking import ErrorMask, KeyMask
from ..security.trace import Trace
from ..store.store import StoreError
from ..upstream.connection import CODINGS, End, Exchange, Head, Inflater, Outgoing, ProtocolError, Read, WireError
from ..upstream.transport import UpstreamTransport
from .attempts import Decision, Failure, Next, Signals, decide
from .crossing import Learned, Plan, Sent, renamed, sent
from .stream_request import StreamRequest, Upload, UploadError, in_thread_if_large

__all__ = ["Shape", "UpstreamRequest", "UpstreamResponse", "shape_of"]


_Response = TypeVar("_Response", bound="UpstreamResponse")
_Secrets = tuple[tuple[Secret, ...], tuple[Secret, ...]]


class Shape(Enum):
    """What the body of a response is made of."""

    FRAMES = auto()
    BODY = auto()
    #: The first bytes decide.
    SNIFF = auto()
    #: Nothing that a client of this dialect could use.
    NOTHING = auto()


class UpstreamRequest:
    """Sends a request to one upstream after the other, as the relay decides."""

    #: Those of the relay.
    signals: Signals
    #: That of the stream, if there is one.
    trace: Trace | None = None

    def __init__(
        self, stream: str, request: StreamRequest, config: Config, transport: UpstreamTransport, learned: Learned
    ) -> None:
        self._stream = stream
        self._request = request
        self._config = config
        self._transport = transport
        self._learned = learned
        self._target = 0
        self._attempt = 1
        #: All attempts, of which `_attempt` counts those at the present upstream.
        self._number = 0
        known = (request.route.name, request.facts.model) in learned.unstreamed
        self._unstreamed = request.streams and request.route.synthesise and known
        #: Upstreams that were found to have no path for the client's dialect, by this request.
        self._pathless: set[str] = set()
        self._uncounted = False
        self._plan = self._next_plan()
        self._sent = Sent(b"")
        #: The status and headers of the last response, which the client's head is made of.
        self.status = 0
        self.headers = Headers()
        self.result: UpstreamResponse | WireError | UploadError | StoreError | RequestError | None = None
        #: The digest of the body, if only that is recorded.
        self.sha256 = ""

    @property
    def crossed(self) -> bool:
        """Whether the upstream of this attempt speaks another dialect than the client."""
        return self._plan.dialect != self._request.dialect

    @property
    def dialect(self) -> str:
        """The dialect of the upstream of this attempt."""
        return self._plan.dialect

    @property
    def lost(self) -> Sequence[str]:
        """What the request lost when it was crossed."""
        return self._sent.lost

    def _next_plan(self) -> Plan:
        request, target = self._request, self._request.route.targets[self._target]
        dialect = request.dialect
        if dialect and not request.verbatim:
            dialect = "chat" if target.name in self._pathless else self._learned.speaks(target, dialect)
        crossed, streams = dialect != request.dialect, request.streams and not self._unstreamed
        counted = (
            streams and dialect == "chat" and (crossed or (request.route.include_usage and not request.facts.usage))
        )
        counted = counted and not (self._uncounted or target.name in self._learned.uncounted)
        return Plan(target, dialect, self._unstreamed, counted)

    def attempt_keys(self, number: int) -> dict[str, Any]:
        """Return the keys of the `attempt` record."""
        keys: dict[str, Any] = {"number": number, "upstream": self._plan.target.name}
        if self._plan.unstreamed:
            keys["unstreamed"] = True
        if self._sent.model:
            keys["model"] = self._sent.model
        if self._sent.crossing is not None:
            crossing = {**self._sent.crossing, "lost": [*self._sent.lost]}
            if self._config.requests == "hash":  # it repeats what the client asked
                crossing["echo"] = {}
            keys |= {"dialect": self._plan.dialect, "crossing": crossing}
        return keys

    async def body(self) -> bytes | Upload:
        """Return the body as this attempt sends it. It cannot be cancelled, since every tape must have a beginning."""
        request, plan = self._request, self._plan
        body, contents, route = request.body, request.contents, request.route
        self._sent, self.result = Sent(b""), None
        self._number += 1
        if not isinstance(body, bytes):
            return body
        hashed = self._config.requests == "hash" and not self.sha256
        edited = self.crossed or bool(contents.cleaning) or plan.counted or plan.unstreamed
        if request.dialect and not (edited or request.verbatim):
            edited = bool(route.models and renamed(route, request.facts.model))
            edited = edited or contents.sealed
        if hashed or edited:
            with trio.CancelScope(shield=True):
                if hashed:
                    self.sha256 = await in_thread_if_large(body, lambda: hashlib.sha256(body).hexdigest())
                if edited:
                    try:
                        self._sent = await in_thread_if_large(request.plain or body, partial(sent, request, plan))
                    except RequestError as bad:  # known once the tape has begun
                        self.result = bad
                        return b""
                    return self._sent.body
        return body

    async def send(self, body: bytes | AsyncIterable[bytes], done: trio.Event) -> None:
        """Send the request until the head of the response is there; set `result`, and then the event."""
        request = self._request
        try:
            if isinstance(self.result, RequestError):
                return
            tail = request.path_tail
            if self.crossed:
                tail = tail.removesuffix(DIALECTS[request.dialect].path) + DIALECTS[self._plan.dialect].path
            outgoing = self._outgoing(request.method.encode("ascii"), tail, body)
            answered = await self._transport.exchange(outgoing, once=request.route.repeats != "always")
            response = await self._response(*answered, UpstreamResponse)
            if isinstance(request.body, Upload):
                request.body.done.set()
            self.result, self.headers, self.status = response, response.headers, response.status
            if response.status < 400 and self._plan.target.name in self._pathless:
                self._learned.note(self._learned.foreign, (self._plan.target.name, request.dialect))
        except (WireError, UploadError, StoreError) as error:
            self.result = error.with_traceback(None)  # its frames hold the connection, which holds the error
        finally:
            done.set()

    async def ask(
        self, method: bytes, path_tail: bytes, body: bytes | AsyncIterable[bytes], kind: "type[_Response]"
    ) -> "_Response":
        """Send one request to the present upstream; return the response once its head is there, or raise."""
        outgoing = self._outgoing(method, path_tail, body)
        answered = await self._transport.exchange(outgoing, once=self._request.route.repeats != "always")
        return await self._response(*answered, kind)

    def _outgoing(self, method: bytes, path_tail: bytes, body: bytes | AsyncIterable[bytes]) -> Outgoing:
        request, target, query = self._request, self._plan.target, self._request.query
        stale: tuple[bytes, ...] = ()
        if isinstance(body, bytes) and body:  # it may have been edited
            stale = (b"content-length",) if body is request.body else (b"content-length", b"content-encoding")
        given, hermes = request.headers, request.route.hermes
        if self.crossed:
            theirs, ours = DIALECTS[request.dialect], DIALECTS[self._plan.dialect]
            given = crossed_headers(given, theirs, ours)
            query = b"&".join(part for part in query.split(b"&") if part.partition(b"=")[0] not in theirs.parameters)
        headers = to_upstream(given, target, own_key=request.own_key, hermes=hermes, stale=stale)
        if not (request.verbatim or b"idempotency-key" in request.headers):
            headers.append((b"idempotency-key", self._stream.encode("ascii")))
        if target.trace and self.trace is not None:
            headers.append(self.trace.traceparent(self._number))
        path = request_target(target, path_tail, query)
        return self._transport.addressed(base_of(target.url).origin, method, path, headers, body)

    async def _response(self, head: Head, received: Exchange, kind: "type[_Response]") -> "_Response":
        answered = Headers(head.headers)
        secrets = self._secrets(head.status, answered)
        try:
            return kind(head.status, answered, received, secrets, verbatim=self._request.verbatim)
        except WireError:
            await received.aclose()
            raise

    async def aclose(self) -> None:
        """Close a response that was not taken, at once."""
        result, self.result = self.result, None
        if isinstance(result, UpstreamResponse):
            await result.body.aclose()

    def decide(self, failure: Failure, now: float) -> Decision:
        """Decide what follows a failure, and prepare the next attempt."""
        decision = self._decide(failure, now)
        self._plan = self._next_plan() if decision.next is not Next.GIVE_UP else self._plan
        return decision

    def _decide(self, failure: Failure, now: float) -> Decision:
        request, decision = self._request, Decision(Next.GIVE_UP)
        if failure.no_path and self._may_cross():  # it did nothing, so this is no repetition
            self._pathless.add(self._plan.target.name)
            return Decision(Next.CROSSED)
        if failure.uncounted and self._plan.counted:
            self._uncounted = True
            self._learned.note(self._learned.uncounted, self._plan.target.name)
            return Decision(Next.UNCOUNTED)
        # Only what was never sent, or asks for nothing but words, is repeated.
        if isinstance(request.body, bytes) and (request.dialect or failure.ending == "refused"):
            decision = decide(
                failure,
                attempt=self._attempt,
                attempts=request.route.attempts,
                elsewhere=self._target + 1 < len(request.route.targets),
                unstreamed=request.streams and request.route.synthesise and not self._unstreamed,
                now=now,
            )
        repeats = request.route.repeats
        if decision.next is not Next.GIVE_UP and (
            repeats == "never" or (repeats == "before_send" and failure.ending != "refused")
        ):
            decision = Decision(Next.GIVE_UP, exhausted=True)  # nor is the client to repeat it
        if decision.next is Next.AGAIN:
            self._attempt += 1
        elif decision.next is Next.ELSEWHERE:
            self._target += 1
            self._attempt = 1
        elif decision.next is Next.UNSTREAMED:
            self._unstreamed = True
        return decision

    def _may_cross(self) -> bool:
        """Return whether an upstream that has no path for this request is to be asked in chat."""
        return self._plan.target.speaks == "auto" and not (self.crossed or self._request.dialect in ("", "chat"))

    def completed(self) -> None:
        """Remember, if the stream was asked for whole, to ask for the next one of this model like that (U12)."""
        if self._unstreamed:
            self._learned.note(self._learned.unstreamed, (self._request.route.name, self._request.facts.model))

    def _secrets(self, status: int, headers: Headers) -> _Secrets:
        """Return what this upstream was given and may echo anywhere, and in errors alone.

        A key of ours is searched for everywhere. The caller's own is searched for in errors, where upstreams quote it,
        and only if it is too long to be a word: changing a model's words would be worse.
        """
        key = self._plan.target.key
        if key is not None:
            return (key,), ()
        presented = credentials(self._request.headers)
        secrets = tuple([Secret(key.decode("latin-1")) for key in presented if len(key) >= CALLER_KEY_CHARS_MIN])
        if status >= 400:
            return secrets, ()
        kind = headers.get(b"content-type").lower()
        may_be_error = bool(self._request.dialect) or b"json" in kind or b"event-stream" in kind
        return (), secrets if may_be_error else ()


class UpstreamResponse:
    """A response whose head has come: its reads, decoded and without our keys, and what its body is made of.

    A body that comes compressed although that was not asked for is decoded, within bounds (U51, U52).
    """

    def __init__(self, status: int, headers: Headers, body: Exchange, secrets: _Secrets, *, verbatim: bool) -> None:
        """`secrets` are what this upstream was given and may echo anywhere, and what in errors alone."""
        everywhere, quoted = secrets
        self.status = status
        self.body = body
        self.shape = Shape.BODY
        self._mask = KeyMask(everywhere) if everywhere else None
        mask = self._mask
        self.headers = headers if mask is None else Headers([(name, mask.whole(value)) for name, value in headers])
        #: The media type and the content coding, in lower case.
        self.media_type = self.headers.media_type().decode("latin-1")
        self.coding = self.headers.get(b"content-encoding").decode("latin-1").strip().lower()
        self._inflater: Inflater | None = None
        # A response that passes as it comes is decoded only if it may echo a key of ours.
        if self.coding not in ("", "identity") and (not verbatim or (mask is not None and self.coding in CODINGS)):
            self._inflater = Inflater(self.coding)
        #: Whether its bytes differ from those that its headers describe.
        self.decoded = self._inflater is not None
        if quoted:
            self._mask = ErrorMask(quoted, frames="json" not in self.media_type)
        #: What was read ahead to find out what the body is.
        self._peeked: list[Read | None] = []
        #: What is left of a socket read that was decoded in pieces, and what came after it.
        self._pieces: Iterator[Read] = iter(())
        self._fault: WireError | None = None
        self._t = body.head_t

    @property
    def over(self) -> bool:
        """Whether the body ended by its own framing and was taken to its end, so that nothing is left to wait for."""
        if self.body.end is not End.FRAMED or self._peeked or self._inflater is not None:
            return False
        return self._mask is None or not self._mask.waits

    @property
    def masked(self) -> bool:
        """Whether a key was found in it."""
        return self._mask is not None and self._mask.found

    def head_keys(self) -> dict[str, Any]:
        """Return the keys of its `head` record."""
        keys: dict[str, Any] = {"status": self.status, "headers": taped_answer(self.headers)}
        if self._inflater is not None:
            keys["decoded"] = self._inflater.coding
        if self.body.repeated:
            keys["repeated"] = True
        length = self.headers.get(b"content-length").decode("latin-1")
        if self.headers.get(b"transfer-encoding"):
            keys["framing"] = "chunked"
        elif length:
            keys["framing"] = "length"
            if length.isdecimal():
                keys["length"] = int(length)
        elif self.body.end is not End.FRAMED:
            keys["framing"] = "close"
        return keys

    def end_keys(self) -> dict[str, Any]:
        """Return what its `end` record says of the body: ended by its framing, or by what else if not by us.

        Without this a replay cannot tell a cut from an end.
        """
        if self.body.fault is not None:
            return {"framed": False, "broke": self.body.fault.ending}
        if self.body.end is End.CLOSED:
            return {"framed": False, "broke": "closed"}
        return {"framed": self.body.end is End.FRAMED}

    def receiver(self) -> Callable[[], Awaitable[Read | None]]:
        """Return what waits for the next read: no layer of ours where nothing is masked or decoded."""
        if self._mask is None and self._inflater is None and not self._peeked:
            return self.body.receive
        return self._next

    async def peek(self) -> bool:
        """Read ahead once; return whether there was anything to read."""
        read = await self._next_read()
        self._peeked.append(read)
        return read is not None

    @property
    def seen(self) -> bytes:
        """What was read ahead."""
        return b"".join(read.data for read in self._peeked if read is not None)

    async def drain(self) -> list[Read]:
        """Return what still comes within a moment, so that the connection can be reused; the body is done with."""
        reads, self._peeked = [read for read in self._peeked if read is not None], []
        try:
            reads += self._pieces
            for read in await self.body.drain():
                reads += self._decoded(read)
            reads += self._last()
        except WireError:
            pass  # nothing needed the rest
        return reads

    async def whole(self, bytes_max: int) -> bytes:
        """Return the body of a short answer, and close it; raise `WireError` for a cut or a long one."""
        body = b""
        try:
            while (read := await self._next()) is not None:
                body += read.data
                if len(body) > bytes_max:
                    raise ProtocolError(f"The upstream's answer is longer than {bytes_max} bytes.")
        finally:
            await self.body.aclose()
        return body

    async def _next(self) -> Read | None:
        return self._peeked.pop(0) if self._peeked else await self._next_read()

    async def _next_read(self) -> Read | None:
        while True:
            if self._inflater is not None:
                await trio.lowlevel.checkpoint_if_cancelled()
                for piece in self._pieces:
                    return piece
            if self._fault is not None:
                raise self._fault
            read: Read | None = None
            try:
                read = await self.body.receive()
            except WireError as fault:
                self._fault = fault
            if read is None:
                for piece in self._last():
                    return piece
                if self._fault is None:
                    return None
                continue
            self._t = read.t
            self._pieces = self._decoded(read)
            for piece in self._pieces:
                return piece

    def _decoded(self, read: Read) -> Iterator[Read]:
        """Yield what one socket read means, in pieces that are decoded only when they are taken."""
        for data in self._inflater.feed(read.data) if self._inflater is not None else (read.data,):
            shown = self._mask.feed(data) if self._mask is not None else data
            if shown:
                yield read if shown is read.data else Read(read.t, shown)

    def _last(self) -> Iterator[Read]:
        """Yield what was held back in case more would come."""
        held = self._mask.close() if self._mask is not None else b""
        if held:
            yield Read(self._t, held)
        if self._inflater is not None and self._fault is None:
            self._inflater.close()


def shape_of(request: StreamRequest, response: UpstreamResponse) -> Shape:
    """Decide by status and media type; an unknown type leaves it to the first bytes."""
    kind = response.media_type
    if request.verbatim:
        plain = response.coding in ("", "identity")
        return Shape.FRAMES if kind == "text/event-stream" and plain else Shape.BODY
    if response.status >= 400:
        return Shape.BODY
    if response.status in (204, 205) or response.status >= 300 or kind == "text/html":
        return Shape.NOTHING
    if not request.streams or kind == "application/json":
        return Shape.BODY
    return Shape.FRAMES if kind == "text/event-stream" else Shape.SNIFF
