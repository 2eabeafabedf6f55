"""What one admitted request asks for, its body (read within bounds, or relayed as it arrives), and its tool results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import orjson
import trio

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import ABSENT, Edit, as_list, is_object, parse, values_at_most
from wiretape.events.core.limits import JSON_VALUES_MAX
from wiretape.events.core.results import Results
from wiretape.events.core.settings import Facts, Settings
from wiretape.events.crossing.envelope import may_hold
from wiretape.events.crossing.turns import Turn as Said
from wiretape.events.dialects import DIALECTS
from wiretape.events.emission.marks import Marks, find_marks, remove_marks

from ..config.model import Route
from ..http1 import Headers
from ..limits import (
    INFLATE_MEMBERS_MAX,
    INFLATE_RATIO_MAX,
    INFLATE_STEPS,
    LOOK_UP_AGAIN_S,
    PARSE_INLINE_BYTES_MAX,
    READ_WHOLE_TIMES,
)
from ..memory import Charge
from ..server.asgi import Receive
from ..store.catalogue_row import AnswerRow, Link, Running, digests, request_digest
from ..store.store import Store, links_of
from ..upstream.connection import CODINGS, Inflater, LimitError, WireError
from .http_responses import Answer, AnswerError, error, take

__all__ = [
    "CLOSE",
    "Contents",
    "StreamRequest",
    "ToolResults",
    "Turn",
    "Upload",
    "UploadError",
    "contents_of",
    "decoded",
    "history_keys",
    "in_thread_if_large",
    "results_keys",
    "settings_for",
    "too_long",
    "whole_body",
]

_T = TypeVar("_T")

#: Members that other gateways took for the address to send a key to (CVE-2024-6587).
_FORBIDDEN: Final = ("api_base", "base_url", "extra_headers")

#: Sent with an answer to a request whose body is not read to its end.
CLOSE: Final = (b"connection", b"close")

#: What a request may choose for itself: the header, the setting and its words.
_CHOICES: Final[Mapping[bytes, tuple[str, Mapping[bytes, Any]]]] = MappingProxyType(
    {
        b"x-wiretape-on-partial": ("on_partial", {b"error": "error", b"warn": "warn", b"both": "both"}),
        b"x-wiretape-tools": ("tools", {b"live": "live", b"held": "held"}),
        b"x-wiretape-tool-events": ("tool_events", {b"off": False}),
        b"x-hermes-tool-progress": ("tool_events", {b"off": False}),
    }
)


class UploadError(WiretapeError):
    """The client's side of an upload failed; holds the cause that the stream ends with."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class Upload:
    """A body that is relayed while it arrives: an iterator over its pieces, once."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive = receive
        self._left_bytes = bytes_max
        #: There are no more pieces, or the upstream has answered and none is wanted.
        self.done = trio.Event()
        #: The last piece has come.
        self.whole = False

    def __aiter__(self) -> "Upload":
        return self

    async def __anext__(self) -> bytes:
        while not self.done.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                if message.get("limit"):
                    raise UploadError("slow_upload", message["limit"])
                raise UploadError("client_gone", "The client disconnected in the middle of its request.")
            data: bytes = message.get("body", b"")
            self._left_bytes -= len(data)
            if not message.get("more_body", False):
                self.done.set()
                self.whole = self._left_bytes >= 0
            if self._left_bytes < 0:
                raise UploadError("upload", "The request body is longer than the limit.")
            if data:
                return data
        raise StopAsyncIteration

    async def drain(self) -> None:
        """Read what the client sends after its last relayed piece, until it disconnects: it may not read before."""
        await self.done.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def whole_body(receive: Receive, bytes_max: int, held: Charge | None) -> bytes | None:
    """Return the body, or None if the client left; raise `AnswerError` if it is too long or too slow.

    `held` is charged for it as it comes: without a length it could not be charged before.
    """
    parts: list[bytes] = []
    try:
        async for data in Upload(receive, bytes_max):
            if held is not None:
                take(held, READ_WHOLE_TIMES * len(data))
            parts.append(data)
    except UploadError as bad:
        if bad.cause == "client_gone":
            return None
        slow = bad.cause == "slow_upload"  # C16
        raise AnswerError(_bad_request(408, str(bad), "body_timeout", CLOSE) if slow else too_long(bytes_max)) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def decoded(body: bytes, coding: str, bytes_max: int, threads: trio.CapacityLimiter, held: Charge) -> bytes:
    """Return a compressed body as it was before. In a thread, since few bytes may hold many; charged step by step."""
    if coding not in CODINGS:  # RFC 9110 15.5.16: list the ones that can be read
        message = f"The request body is coded as {coding[:80]}; only gzip and deflate are accepted."
        raise AnswerError(_bad_request(415, message, "unsupported_encoding", (b"accept-encoding", b"gzip, deflate")))

    inflater, plain = Inflater(coding, bytes_max), list[bytes]()
    steps = inflater.feed(body)
    try:
        while pieces := await trio.to_thread.run_sync(
            lambda: list(islice(steps, INFLATE_STEPS)), abandon_on_cancel=True, limiter=threads
        ):
            take(held, READ_WHOLE_TIMES * sum(map(len, pieces)))
            plain += pieces
        inflater.close()
        return b"".join(plain)
    except LimitError:
        message = (
            f"The decoded body is longer than {bytes_max} bytes or {INFLATE_RATIO_MAX} times what was sent, "
            f"or has more than {INFLATE_MEMBERS_MAX} members."
        )
        raise AnswerError(_bad_request(413, message, "body_too_large")) from None
    except WireError:
        message = f"The request body is not valid {coding}, or is incomplete."
        raise AnswerError(_bad_request(400, message, "invalid_encoding")) from None


async def in_thread_if_large(body: bytes, work: Callable[[], _T]) -> _T:
    """Do some work on a body; on a large one in a thread, because the loop may stall for 10 ms at most.

    A single call into C still holds the loop up while it keeps Python's lock
    (docs/decisions/2026-11-19-large-requests.md).
    """
    return work() if len(body) <= PARSE_INLINE_BYTES_MAX else await trio.to_thread.run_sync(work)


class Contents(NamedTuple):
    """What is known of the body of a request of a dialect once it was read. Its values are not kept."""

    facts: Facts = Facts(stream=False)
    #: The new tool results, and the number of messages.
    results: Results | None = None
    messages: int = 0
    #: What the dialect must know to ask for usage.
    asks_usage: bool | None = None
    #: Our own markers and warnings in the history that was sent, and the edits that remove them.
    marks: Sequence[Marks] = ()
    cleaning: Sequence[Edit] = ()
    #: The id of the answer that the request continues.
    continues: str = ""
    #: Ids of items that it names instead of repeating them, and those of their answers.
    referenced: Mapping[str, str] = MappingProxyType({})
    #: It may hold envelopes, from an upstream of another dialect that the client had before.
    sealed: bool = False


async def contents_of(
    body: bytes, dialect: str, history: str, held: Charge, parsing: trio.Lock, *, again: bool = False
) -> Contents:
    """Read a body, a large one in a thread and one at a time; raise `AnswerError` if it is not an object for a model.

    `history` is the route's setting. Half of the body's charge is then released, unless it will be read `again`.
    """
    if len(body) <= PARSE_INLINE_BYTES_MAX:
        contents = _contents(body, dialect, history)
    else:
        async with parsing:
            contents = await trio.to_thread.run_sync(_contents, body, dialect, history)
    if not again:
        held.remove(READ_WHOLE_TIMES // 2 * len(body))
    return contents


def _contents(body: bytes, dialect: str, history: str) -> Contents:
    value = parse(body)
    if value is ABSENT and values_at_most(body) > JSON_VALUES_MAX:
        message = f"The request body has more than {JSON_VALUES_MAX} JSON values (commas and opening brackets count)."
        raise AnswerError(_bad_request(413, message, "too_many_values"))
    if value is ABSENT:
        where = ""
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError as exc:
            where = f": line {exc.lineno}, column {exc.colno}"
        raise AnswerError(_bad_request(400, f"The request body is not JSON{where}.", "invalid_json"))
    if not is_object(value):
        raise AnswerError(_bad_request(400, "The request body is not a JSON object.", "invalid_json"))
    for name in _FORBIDDEN:
        if name in value:
            message = f"{name} is not allowed in a request. Upstreams come from the configuration."
            kind = "invalid_request_error"
            raise AnswerError(error(400, message, type=kind, code="parameter_not_allowed", param=name))
    if not dialect:
        return Contents()
    spoken = DIALECTS[dialect]
    said: Any = value.get(spoken.history)
    marks = find_marks(body, value, spoken.history, spoken.calls) if history != "off" else ()
    return Contents(
        spoken.facts(value),
        spoken.results_in(value),
        1 if isinstance(said, str) else len(as_list(said)),
        spoken.asks_usage(value),
        marks,
        remove_marks(body, marks) if history == "repair" and marks else (),
        spoken.continues(value),
        spoken.referenced(value),
        may_hold(body),
    )


def too_long(bytes_max: int) -> Answer:
    """Return the answer to a body beyond the limit."""
    return _bad_request(413, f"The request body is longer than {bytes_max} bytes.", "body_too_large", CLOSE)


def _bad_request(status: int, message: str, code: str, *headers: tuple[bytes, bytes]) -> Answer:
    return error(status, message, type="invalid_request_error", code=code, headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """What makes a stream a turn of a run."""

    run: str
    session: str
    #: The keys of the `run` record, and what the client sent for this turn, as JSON.
    keys: Mapping[str, Any]
    body: bytes | None = None
    #: Set once the first records are on the tape, or never will be.
    written: trio.Event = field(default_factory=trio.Event)


_NO_HEADERS: Final = Headers()
_NO_CONTENTS: Final = Contents()
_DEFAULTS: Final = Settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """One request, complete before its stream begins and never changed."""

    route: Route
    #: The client's, or empty for an exchange that is relayed unread.
    dialect: str
    method: str = "POST"
    #: The raw path after `/v1`, and the raw query.
    path_tail: bytes = b""
    query: bytes = b""
    headers: Headers = _NO_HEADERS
    #: Bytes can be sent again; an upload cannot.
    body: bytes | Upload = b""
    #: Of a request of a dialect.
    contents: Contents = _NO_CONTENTS
    #: What was said before, if the request continues an answer on a tape.
    earlier: Sequence[Said] | None = None
    #: Items of answers on tapes that the request names, by id.
    items: Mapping[str, Any] = field(default_factory=dict[str, Any])
    settings: Settings = _DEFAULTS
    #: What it is charged for its bytes, and later for those of its answer.
    charge: Charge
    caller: str
    #: The client announced that it will come back.
    resumes: bool = False
    #: The path as it is recorded, with secrets masked.
    recorded_path: str = ""
    #: The decoded body, if it came compressed: edits apply to it, and it is sent decoded.
    plain: bytes | None = None
    #: The credential was a key of this Wiretape, and is not passed on.
    own_key: bool = False
    #: It was made for a run: it has no client, and its tape is followed.
    turn: Turn | None = None

    facts: Facts = field(init=False)
    #: A stream was asked for, in a dialect that we read.
    streams: bool = field(init=False)
    #: The answer passes as it comes: nothing is held, and a cut is passed on as a cut.
    verbatim: bool = field(init=False)

    @property
    def insists(self) -> bool:
        """Whether the client repeats a failure regardless of the answer: codex asks 30 times after any 5xx."""
        return any(self.headers.get(name).lower().startswith(b"codex") for name in (b"originator", b"user-agent"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", self.contents.facts)
        object.__setattr__(self, "streams", bool(self.dialect) and self.facts.stream)
        object.__setattr__(self, "verbatim", not self.dialect or self.settings.profile == "transparent")


def settings_for(route: Route, headers: Headers) -> Settings:
    """Return the route's settings with what the request chose for itself; unknown words change nothing."""
    chosen: dict[str, Any] = {}
    for header, value in headers.only(_CHOICES):
        setting, words = _CHOICES[header]
        if value.strip().lower() in words:
            chosen.setdefault(setting, words[value.strip().lower()])
    return replace(route.settings, **chosen) if chosen else route.settings


def history_keys(request: StreamRequest, *, whole: bool) -> dict[str, Any]:
    """Return the keys of the `history` record; `whole` includes the edits, which quote the history."""
    marks = [
        {
            "path": [*one.path, one.key],
            "markers": one.markers,
            "warnings": one.warnings,
            "repaired": one.repairable and bool(request.contents.cleaning),
        }
        for one in request.contents.marks
    ]
    edits = [[edit.start, edit.end, edit.new.decode("utf-8", "replace")] for edit in request.contents.cleaning]
    return {"marks": marks, "edits": edits} if edits and whole else {"marks": marks}


def results_keys(
    found: Results,
    arguments: Sequence[str],
    request_digest: str,
    links: Mapping[str, Link] = MappingProxyType({}),
    *,
    outputs: bool = True,
) -> dict[str, Any]:
    """Return the keys of a `results` record: results, the digests of their arguments, and the calls they answer."""
    rows: list[dict[str, Any]] = []
    for result, digest in zip(found.results, arguments, strict=True):
        row: dict[str, Any] = {"id": result.id}
        row |= {"orphan": True} if result.orphan else {"name": result.name, "arguments": digest}
        row |= {"failed": True} if result.failed else {}
        row |= {"output": result.output} if result.output and outputs else {}
        if link := links.get(result.id):
            row |= {"duration_ms": link.duration_ms, "stream": link.stream}
        rows.append(row)
    keys: dict[str, Any] = {"results": rows, "after": found.after}
    keys |= {"request": request_digest} if request_digest else {}
    return keys | ({"more": found.more} if found.more else {})


class ToolResults:
    """The tool results in one request: linked to the calls they answer while the upstream is awaited.

    They are recorded before the first frame, and nothing waits for `look_up`, which runs in a task of its own until
    `keys` takes what it found. The catalogue knows a call once its stream has ended, which may be a moment after the
    client got it all, so it is searched again while there is time.
    """

    def __init__(self, stream: str, request: StreamRequest, found: Results, running: Running, arrived_us: int) -> None:
        self._found = found
        self._running = running
        self._request_digest = request_digest(request.body) if isinstance(request.body, bytes) else ""
        self._arguments = digests(result.arguments for result in found.results)
        self._rows = [
            AnswerRow(
                caller=request.caller,
                call=result.id,
                stream=stream,
                name=result.name,
                arguments=digest,
                after=found.after,
                failed=result.failed,
                arrived_us=arrived_us,
                request=self._request_digest,
            )
            for result, digest in zip(found.results, self._arguments, strict=True)
            if not result.orphan
        ]
        self._links: dict[str, Link] = {}
        self._scope = trio.CancelScope()
        running.enter(self._rows)

    async def look_up(self, store: Store) -> None:
        """Search until every call is found or `keys` ends it."""
        with self._scope:
            for pause_s in (0.0, *LOOK_UP_AGAIN_S):
                await trio.sleep(pause_s)
                missing = [row for row in self._rows if row.call not in self._links]
                if not missing:
                    return
                found = await links_of(store, missing, self._running.like(missing))
                if self._scope.cancel_called:
                    return
                links = [(row, link) for row, link in zip(missing, found, strict=True) if link is not None]
                self._links |= {row.call: link for row, link in links}
                self._running.enter(replace(row, made_by=link.stream) for row, link in links)

    def keys(self, *, outputs: bool) -> dict[str, Any]:
        """End the search and return the keys of the `results` record, with the outputs if wanted."""
        self._scope.cancel()
        return results_keys(self._found, self._arguments, self._request_digest, self._links, outputs=outputs)

    def over(self) -> None:
        """Forget the results: their stream has ended, and the catalogue has them if it ever will."""
        self._scope.cancel()
        self._running.leave(self._rows)
