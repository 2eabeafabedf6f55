"""One stream's requests to its upstreams: whom to ask, what is sent, and what the head of the answer says."""

import hashlib
from enum import Enum, auto
from typing import Any, Final

import trio

from wiretape.events.emit import EMITTER_VERSION
from wiretape.events.model import UpstreamError
from wiretape.events.record import Record
from wiretape.events.upcast import FORMAT

from .answers import Answer
from .attempts import Decision, Failure, Next, decide
from .body import Body
from .connection import Outgoing, Read
from .errors import WireError
from .exchange import End, Head, Header
from .headers import taped_answer, taped_request, to_upstream
from .inflate import Inflater
from .limits import ERROR_BODY_BYTES_MAX
from .order import Order, unstreamed, with_usage
from .outcome import failure_answer
from .routes import base_of, request_target
from .services import Services
from .taping import Taping
from .upload import Upload, UploadError

__all__ = ["Asked", "Asking", "Shape", "shape_of"]

_SOFTWARE: Final = "wiretape"


class Shape(Enum):
    """What the body of an answer is made of."""

    FRAMES = auto()
    BODY = auto()
    #: Its first bytes decide.
    SNIFF = auto()
    #: Nothing that a client of this dialect could use.
    NOTHING = auto()


class Asked:
    """An answer whose head has come."""

    def __init__(self, head: Head, body: Body) -> None:
        self.status = head.status
        self.headers = head.headers
        self.body = body
        self.shape = Shape.BODY
        #: What was read before anybody knew what it is.
        self.seen = b""
        self._peeked: list[Read | None] = []
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._inflater: Inflater | None = None

    @property
    def framed(self) -> bool:
        """The body ended by its own framing."""
        return self.body.end is End.FRAMED

    def header(self, name: bytes) -> str:
        """The first of this name, or the empty word."""
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name), "")

    def described(self) -> dict[str, Any]:
        """As the `head` record says it."""
        keys: dict[str, Any] = {"status": self.status, "headers": taped_answer(self.headers)}
        if self._inflater is not None:
            keys["decoded"] = self._inflater.coding
        return keys

    def decode(self) -> None:
        """An upstream that compresses all the same is decoded, within bounds (U51, U52)."""
        coding = self.header(b"content-encoding").strip().lower()
        if coding and coding != "identity":
            self._inflater = Inflater(coding)

    async def receive(self) -> Read | None:
        """What the next socket read brought."""
        if self._peeked:
            return self._peeked.pop(0)
        return await self._next()

    async def peek(self) -> bool:
        """One read ahead; whether there was one."""
        read = await self._next()
        self._peeked.append(read)
        if read is not None:
            self.seen += read.data
        return read is not None

    def keep(self, data: bytes) -> bool:
        """Of an answer that says it failed; whether there is room for more."""
        self._kept.append(data)
        self._kept_bytes += len(data)
        return self._kept_bytes <= ERROR_BODY_BYTES_MAX

    def kept(self) -> bytes:
        """The body of an answer that says it failed."""
        return b"".join(self._kept)

    async def _next(self) -> Read | None:
        while True:
            read = await self.body.receive()
            if read is None or self._inflater is None:
                return read
            data = self._inflater.feed(read.data)
            if data:
                return Read(read.t, data)


def shape_of(order: Order, asked: Asked) -> Shape:
    """By status and content type; a word that we do not know leaves it to the first bytes."""
    kind = asked.header(b"content-type").partition(";")[0].strip().lower()
    if order.verbatim:
        plain = asked.header(b"content-encoding").strip().lower() in ("", "identity")
        return Shape.FRAMES if kind == "text/event-stream" and plain else Shape.BODY
    if asked.status >= 400:
        return Shape.BODY
    if asked.status in (204, 205) or asked.status >= 300 or kind == "text/html":
        return Shape.NOTHING
    if not order.streams or kind == "application/json":
        return Shape.BODY
    return Shape.FRAMES if kind == "text/event-stream" else Shape.SNIFF


class Asking:
    """Whom to ask next, and how."""

    def __init__(self, order: Order, services: Services) -> None:
        self._order = order
        self._services = services
        self._target = 0
        self._attempt = 1
        self._unstreamed = order.streams and (order.route.name, order.facts.model) in services.unstreamed
        #: Of the last answer, for the client's head.
        self.headers: tuple[Header, ...] = ()
        self.status = 0
        self.answered: Asked | WireError | UploadError | None = None
        self.gave_up = False

    def opening(self, taping: Taping) -> list[Record]:
        """The first records of the tape."""
        order, config = self._order, self._services.config
        settings = order.settings
        opened = {
            "format": FORMAT,
            "stream": taping.stream,
            "dialect": order.dialect,
            "profile": settings.profile,
            "created": int(self._services.wall()),
            "settings": {
                "on_partial": settings.on_partial,
                "tools": settings.tools,
                "tool_events": settings.tool_events,
                "reasoning": settings.reasoning,
                "cumulative": settings.cumulative,
                "think": settings.think,
            },
            "software": _SOFTWARE,
            "emitter": EMITTER_VERSION,
            "route": order.route.name,
            "caller": order.caller,
        }
        headers = taped_request(order.headers, config.secrets)
        asked: dict[str, Any] = {"method": order.method, "path": order.path, "headers": headers}
        body = order.body if isinstance(order.body, bytes) else None
        if order.dialect == "chat":
            asked["facts"] = order.facts.to_keys()
        if body is None:
            asked["streamed"] = True
        elif config.requests == "hash":
            asked |= {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
            body = None
        return [taping.record("open", opened), taping.record("request", asked, body or None)]

    def described(self, number: int) -> dict[str, Any]:
        """As the `attempt` record says it."""
        target = self._order.route.targets[self._target]
        keys: dict[str, Any] = {"number": number, "upstream": target.name}
        if self._unstreamed:
            keys["unstreamed"] = True
        return keys

    async def ask(self, done: trio.Event) -> None:
        """Sets `answered`, and then the event."""
        try:
            answered = Asked(*await self._services.transport.exchange(self._request()))
            if not self._order.verbatim:
                answered.decode()
            self.headers, self.status = answered.headers, answered.status
            self.answered = answered
            if isinstance(self._order.body, Upload):
                self._order.body.abandon()
        except (WireError, UploadError) as error:
            self.answered = error
        finally:
            done.set()

    def _request(self) -> Outgoing:
        order = self._order
        target = order.route.targets[self._target]
        body = order.body
        if isinstance(body, bytes) and order.streams:
            if order.route.include_usage and not order.facts.usage and not self._unstreamed:
                body = with_usage(body, order.asked)
            if self._unstreamed:
                body = unstreamed(body)
        headers = to_upstream(order.headers, target, own_key=order.own_key, hermes=order.route.hermes)
        if isinstance(body, bytes):  # which may have been edited
            headers = [header for header in headers if header[0].lower() != b"content-length"]
        path = request_target(target, order.tail, order.query)
        return self._services.transport.addressed(
            base_of(target.url).origin, order.method.encode("ascii"), path, headers, body
        )

    def decide(self, failure: Failure, now: float) -> Decision:
        """What follows this failure."""
        order = self._order
        repeatable = isinstance(order.body, bytes)
        if not repeatable or (order.dialect != "chat" and failure.ending != "refused"):
            return Decision(Next.GIVE_UP)  # only what was never sent, or asks for nothing but words, is asked again
        return decide(
            failure,
            attempt=self._attempt,
            attempts=order.route.attempts,
            elsewhere=self._target + 1 < len(order.route.targets),
            unstreamed=order.streams and not self._unstreamed,
            now=now,
        )

    def follow(self, decision: Decision) -> None:
        """The next attempt is as decided."""
        match decision.next:
            case Next.AGAIN:
                self._attempt += 1
            case Next.ELSEWHERE:
                self._target += 1
                self._attempt = 1
            case Next.UNSTREAMED:
                self._unstreamed = True
                self._services.unstreamed.add((self._order.route.name, self._order.facts.model))
            case Next.GIVE_UP:
                raise AssertionError("nothing follows")

    def answer_of(
        self, failure: Failure, decision: Decision, stream: str, said: bytes, error: UpstreamError | None
    ) -> Answer:
        """The HTTP answer of a stream that failed before it had a status; `said` is the upstream's own error body."""
        self.gave_up = True
        target = self._order.route.targets[self._target]
        secrets = [target.key] if target.key is not None else []
        return failure_answer(failure, stream, self.headers, said, error, secrets=secrets, exhausted=decision.exhausted)
