"""One stream's requests to its upstreams: whom to ask, what is sent, and what the head of the answer says."""

import hashlib
from collections.abc import AsyncIterable, Sequence
from functools import partial
from typing import Any, Final

import trio

from wiretape.events.core.json_text import ABSENT, as_list, as_object
from wiretape.events.emission.emit import EMITTER_VERSION
from wiretape.events.tape.record import Record
from wiretape.events.tape.upcast import FORMAT

from ..config.secrets import Secret
from ..config.urls import base_of, request_target
from ..http_headers import Header
from ..limits import CALLER_KEY_CHARS_MIN, UNSTREAMED_MAX
from ..security.headers import taped_request, to_upstream
from ..security.keys import credentials
from ..store.store import StoreError
from ..upstream.body import Body
from ..upstream.connection import Outgoing
from ..upstream.errors import WireError
from ..upstream.exchange import Head
from .attempts import Decision, Failure, Next, decide
from .http_responses import Answer
from .outcome import failure_answer
from .recording import Taping
from .request_body import aside
from .services import Services
from .stream_request import Order, cleaned, history_keys, unstreamed, with_usage
from .tool_results import Answering
from .upload import Upload, UploadError
from .upstream_response import Asked

__all__ = ["Asking"]

_SOFTWARE: Final = "wiretape"


class Asking:
    """Whom to ask next, and how."""

    def __init__(self, stream: str, order: Order, services: Services) -> None:
        self._order = order
        self._services = services
        self._target = 0
        self._attempt = 1
        #: When the request had come, microseconds since 1970.
        self.arrived_us = int(services.wall() * 1_000_000)
        #: Where it brings tool results, until they are on the tape.
        self.answering = Answering.of(stream, order, services, self.arrived_us)
        known = (order.route.name, order.facts.model) in services.unstreamed
        self._unstreamed = order.streams and order.route.synthesise and known
        #: Of the last answer, for the client's head.
        self.headers: tuple[Header, ...] = ()
        self.status = 0
        self.answered: Asked | WireError | UploadError | StoreError | None = None
        self.gave_up = False
        #: Of the body, where the tape has nothing else of it.
        self._sha256 = ""

    def beginning(self, taping: Taping, attempt: int) -> Sequence[Record]:
        """The records of an attempt that begins; behind the first ones of the tape."""
        if attempt == 1:
            taping.later(*self.opening(taping))
        return taping.recorder.attempt(taping.t(), self.described(attempt))

    def opening(self, taping: Taping) -> list[Record]:
        """The first records of the tape."""
        order, config = self._order, self._services.config
        settings = order.settings
        opened = {
            "format": FORMAT,
            "stream": taping.stream,
            "dialect": order.dialect,
            "profile": settings.profile,
            "created": self.arrived_us // 1_000_000,
            "created_us": self.arrived_us,
            "settings": {
                "on_partial": settings.on_partial,
                "tools": settings.tools,
                "tool_events": settings.tool_events,
                "reasoning": settings.reasoning,
                "cumulative": settings.cumulative,
                "think": settings.think,
                "synthesise": order.route.synthesise,
                "emoji": settings.emoji,
                "hermes": order.route.hermes,
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
            asked["messages"] = len(as_list(as_object(order.asked).get("messages")))
        if body is None:
            asked["streamed"] = True
        elif config.requests == "hash":
            asked |= {"bytes": len(body), "sha256": self._sha256}
            body = None
        value = order.asked if order.dialect == "chat" and order.plain is None else ABSENT
        records = [taping.record("open", opened), taping.record("request", asked, body or None, value)]
        if order.history:
            records.append(taping.record("history", history_keys(order, whole=config.requests == "full")))
        return records

    def bring(self, taping: Taping) -> None:
        """The tool results of the request, if they are not on the tape yet, with what has been found out about them."""
        answering, self.answering = self.answering, None
        if answering is not None:
            taping.later(taping.record("results", answering.keys()))

    def described(self, number: int) -> dict[str, Any]:
        """As the `attempt` record says it."""
        target = self._order.route.targets[self._target]
        keys: dict[str, Any] = {"number": number, "upstream": target.name}
        if self._unstreamed:
            keys["unstreamed"] = True
        return keys

    async def prepare(self) -> bytes | AsyncIterable[bytes]:
        """Return the body as this attempt sends it; not cancelled, since the tape must have a beginning."""
        body = self._order.body
        if isinstance(body, bytes) and (self._hashes or self._edits):
            with trio.CancelScope(shield=True):
                return await self._prepared(body)
        return body

    async def ask(self, body: bytes | AsyncIterable[bytes], done: trio.Event) -> None:
        """Sets `answered`, and then the event."""
        try:
            await self._take(*await self._services.transport.exchange(self._request(body)))
            if isinstance(self._order.body, Upload):
                self._order.body.abandon()
        except (WireError, UploadError, StoreError) as error:
            self.answered = error.with_traceback(None)  # its frames hold the connection, which holds the error
        finally:
            if isinstance(self._order.body, Upload):
                self._order.body.relayed()
            done.set()

    async def _take(self, head: Head, body: Body) -> None:
        ours, callers = self._secrets()
        if head.status >= 400:
            answered = Asked(head, body, ours or callers)
        else:
            answered = Asked(head, body, ours, quoted=callers if self._reads(head) else ())
        if not self._order.verbatim or answered.searchable:
            try:
                answered.decode()
            except WireError:
                await answered.body.aclose()
                raise
        self.headers, self.status = answered.headers, answered.status
        self.answered = answered

    async def aclose(self) -> None:
        """An answer that nobody took is closed; at once, also in a cancelled scope."""
        answered, self.answered = self.answered, None
        if self.answering is not None:
            self.answering.stop()
        if isinstance(answered, Asked):
            await answered.body.aclose()

    def _request(self, body: bytes | AsyncIterable[bytes]) -> Outgoing:
        order = self._order
        target = order.route.targets[self._target]
        headers = to_upstream(order.headers, target, own_key=order.own_key, hermes=order.route.hermes)
        if isinstance(body, bytes) and body:  # which may have been edited
            changed = {b"content-length"} if body is order.body else {b"content-length", b"content-encoding"}
            headers = [header for header in headers if header[0].lower() not in changed]
        path = request_target(target, order.tail, order.query)
        return self._services.transport.addressed(
            base_of(target.url).origin, order.method.encode("ascii"), path, headers, body
        )

    @property
    def _hashes(self) -> bool:
        return self._services.config.requests == "hash" and not self._sha256

    @property
    def _edits(self) -> bool:
        return bool(self._order.cleaning) or self._asks_usage or self._unstreamed

    async def _prepared(self, body: bytes) -> bytes:
        if self._hashes:
            self._sha256 = await aside(body, partial(_sha256, body))
        if self._edits:
            plain = self._order.plain or body
            return await aside(plain, partial(self._edited, plain))
        return body

    def _edited(self, body: bytes) -> bytes:
        """As this attempt sends it."""
        body = cleaned(self._order, body)
        if self._asks_usage:
            body = with_usage(body, self._order.asked)
        return unstreamed(body) if self._unstreamed else body

    @property
    def _asks_usage(self) -> bool:
        order = self._order
        return order.streams and order.route.include_usage and not order.facts.usage and not self._unstreamed

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
            unstreamed=order.streams and order.route.synthesise and not self._unstreamed,
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
            case Next.GIVE_UP:
                raise AssertionError("nothing follows")

    def worked(self) -> None:
        """The stream is complete: where it was not asked for as one, the next one of this model is not either (U12)."""
        known = self._services.unstreamed
        if self._unstreamed and len(known) < UNSTREAMED_MAX:
            known.add((self._order.route.name, self._order.facts.model))

    def answer_of(self, failure: Failure, decision: Decision, stream: str, said: bytes) -> Answer:
        """The HTTP answer of a stream that failed before it had a status; `said` is the upstream's own error."""
        self.gave_up = True
        return failure_answer(failure, stream, self.headers, said, exhausted=decision.exhausted)

    def _secrets(self) -> tuple[tuple[Secret, ...], tuple[Secret, ...]]:
        """What the upstream that is asked was given, and may echo: a key of ours, or else the caller's own.

        That is looked for in errors alone, where upstreams quote it, and only if it is long enough to be no word:
        changing what a model says would be worse.
        """
        key = self._order.route.targets[self._target].key
        if key is not None:
            return (key,), ()
        presented = [credential.decode("latin-1") for credential in credentials(self._order.headers)]
        return (), tuple(Secret(text) for text in presented if len(text) >= CALLER_KEY_CHARS_MIN)

    def _reads(self, head: Head) -> bool:
        """Whether an answer that says it is well may be an error all the same; a file that passes through is none."""
        kind = next((value.lower() for name, value in head.headers if name.lower() == b"content-type"), b"")
        return self._order.dialect == "chat" or b"json" in kind or b"event-stream" in kind


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
