"""Send the requests of a tape to a live upstream and compare the shapes of the responses.

Later requests name ids of the live responses instead of the recorded ones: those in the same place among all ids of a
response whose member has the same name.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import httpx

from wiretape.events.core import model
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, apply, as_object, dumps, is_list, is_object, locate, parse
from wiretape.events.core.settings import Settings
from wiretape.events.dialects import DIALECTS, PLACES, spoken
from wiretape.events.emit import events
from wiretape.events.tape.record import Record
from wiretape.proxy.config.model import Config, Route, Secret, Speaks, Target
from wiretape.proxy.http1 import Headers
from wiretape.proxy.log import Log, stderr_fd
from wiretape.proxy.serve import Running, running
from wiretape.proxy.upstream.connection import WireError
from wiretape.proxy.upstream.transport import UpstreamTransport

from ..matching.json_diff import joined_path, kind_of
from ..matching.match import request_of
from ..playback.script import Request, answer_of, attempts_of, head_of, is_crossed
from ..redaction.plain_text import opened
from ..sealed.files import Recording
from .compare import Difference, Stream, Streams, each_pair, ending_of, unequal, value_of

__all__ = ["CarriedIds", "LostIdError", "compare_shapes", "live_config", "send_recorded", "verify"]

#: The proxy's path prefix, which the upstream's base path replaces.
_PREFIX: Final = re.compile(r"(?:/[a-z0-9][a-z0-9_-]*)?/v1(?=[/?]|$)")
_SPEAKS: Final[tuple[Speaks, ...]] = ("chat", "responses", "messages")
_WORDS: Final = [places.words for places in PLACES.values()]
#: Endings of a stream that failed on this machine before the upstream could answer.
_FAILED_HERE: Final = frozenset({None, "refused", "internal", "shutdown"})
#: Recorded request headers that may change the response.
_SENT_HEADERS: Final = frozenset({b"content-encoding", b"content-type"})
#: Members that only the provider can read.
_PROOFS: Final = frozenset(name.encode() for words in _WORDS for name in words.proofs)
#: A member whose value is an id, or a proof. Inside a string, such as the arguments of a call, its quotes would be
#: escaped.
_ID: Final = re.compile(
    rb'("(id|toolCallId|container|conversation|\w+_id|%b)"\s*:\s*")([^"\\]{1,65536})' % b"|".join(sorted(_PROOFS))
)
#: Ids as sealing renames them, such as `resp_1`; no provider knows them.
_RENAMED: Final = re.compile(rb"[a-z]{2,8}[-_]\d{1,6}")
#: Members that name an object that the upstream must know.
_STORED: Final = frozenset({b"file_id", b"input_file_id", b"thread_id"}).union(
    _PROOFS, (name.encode() for words in _WORDS for name in words.stored)
)
_PATH_PART: Final = re.compile(rb"[^/?&=]+")

#: The events that have a kind in a shape.
_KINDS: Final[Mapping[type[model.Event], str]] = MappingProxyType(
    {
        model.ReasoningDelta: "reasoning",
        model.TextDelta: "text",
        model.RefusalDelta: "refusal",
        model.ToolCallStarted: "call",
        model.ToolArgumentsDelta: "arguments",
        model.ToolProgress: "progress",
        model.Finish: "finish",
        model.Usage: "usage",
        model.UpstreamError: "error",
        model.Terminator: "terminator",
        model.ForeignFrame: "foreign",
    }
)


async def verify(recording: Recording, url: str, key: Secret | None = None) -> list[Difference]:
    """Return what is different today in all streams, except for parts of runs that asked no model.

    Raise TapeError if a request is missing or cannot be sent again.
    """
    streams = [(number, records) for number, records in enumerate(recording.streams, 1) if not _asks_nothing(records)]
    requests = [_recorded_request(records, number) for number, records in streams]
    tapes: list[list[Record]] = []
    ids, lost = CarriedIds(), ""
    with closing(Log(stderr_fd(), level="error")) as log:
        async with running(_verifying(url, key), log=log) as server:
            for (number, records), request in zip(streams, requests, strict=True):
                try:
                    sent = ids.today(request)
                except LostIdError as error:
                    lost = f"stream {number} cannot be sent again: {error}"
                    break
                tapes.append(await send_recorded(server, _addressed(sent, records)))
                if ending_of(tapes[-1]) in _FAILED_HERE:
                    break
                ids.learn(*opened([records, tapes[-1]]))
    found: list[Difference] = []
    for (number, records), live in zip(streams, tapes, strict=False):
        ending = ending_of(live)
        if ending in _FAILED_HERE and ending_of(records) != ending:
            failures = (record.keys.get("message") for record in reversed(live) if record.kind == "failed")
            raise TapeError(f"stream {number}: {next(failures, None) or 'the upstream cannot be reached'}")
        # The recording's dialect, profile and settings change what events mean.
        names = ("dialect", "profile", "settings")
        settings = {name: records[0].keys[name] for name in names if name in records[0].keys}
        alike = [live[0]._replace(keys={**live[0].keys, **settings}), *live[1:]]
        found += [difference._replace(stream=number) for difference in compare_shapes([records], [alike])]
    if lost and not any(difference.breaking for difference in found):  # a breaking difference explains the lost id
        raise TapeError(lost)
    return found


def live_config(url: str, key: Secret | None = None) -> Config:
    """Configure a proxy that sends each request once and records the response to its end, errors included.

    SDKs hang up at the last event; whether the body had ended by then must not change the tape.
    """
    target, settings = Target(name="live", url=url, key=key), Settings(profile="transparent")
    route = Route(name="", targets=(target,), attempts=1, settings=settings, on_client_gone="drain")
    return Config(data=Path(), port=0, durability="none", routes={"": route})


def _verifying(url: str, key: Secret | None) -> Config:
    """Configure one more route for each dialect of the upstream, and one that crosses into it."""
    config = live_config(url, key)
    [target] = config.routes[""].targets
    routes = dict(config.routes)
    for speaks in _SPEAKS:
        its = replace(
            target, key_header="x-api-key" if DIALECTS[speaks].key_header == b"x-api-key" else "authorization"
        )
        routes[speaks] = replace(config.routes[""], name=speaks, targets=(its,))
        crossing = replace(routes[speaks], name=f"{speaks}-crossed", targets=(replace(its, speaks=speaks),))
        routes[crossing.name] = replace(crossing, settings=Settings())
    return replace(config, routes=routes)


def _addressed(request: Request, records: Stream) -> Request:
    """Return the request with the route and the headers that the upstream's dialect needs."""
    attempt = attempts_of(records)[-1][0].keys
    client, upstream = spoken(records[0].keys.get("dialect")), spoken(attempt.get("dialect"))
    if not client:
        return request
    if isinstance(model := attempt.get("model"), str):  # the route had another name for it
        request = request._replace(body=apply(request.body, locate(request.body, {("model",): dumps(model)})))
    name = f"{upstream}-crossed" if is_crossed(records) else client
    needed = () if is_crossed(records) else DIALECTS[client].needed_headers
    return request._replace(target=f"/{name}".encode() + request.target, headers=[*request.headers, *needed])


def _asks_nothing(records: Stream) -> bool:
    """Return whether this is a relayed run, or what ended one that waited."""
    return "run" in records[0].keys and not request_of(records).method


def _recorded_request(records: Stream, number: int) -> Request:
    record = next((record for record in records if record.kind == "request"), None)
    if record is None:
        raise TapeError(f"stream {number} has no request to send")
    request = request_of([record])
    if record.raw is None and ("sha256" in record.keys or record.keys.get("streamed")):
        raise TapeError(f"stream {number} cannot be sent again: the body of its request is not on the tape")
    headers = [(name, value) for name, value in request.headers if name in _SENT_HEADERS]
    if request.body and not headers:
        headers = [(b"content-type", b"application/json")]
    path = request.target.decode("latin-1")
    if (prefix := _PREFIX.match(path)) is not None:
        path = path[prefix.end() :]
    elif end := next((words.path for words in _WORDS if path.partition("?")[0].endswith(words.path)), ""):
        path = path[path.index(end) :]  # an imported tape without our prefix
    return Request(request.method, f"/v1{path}".encode(), headers, request.body)


async def send_recorded(server: Running, request: Request) -> list[Record]:
    """Send a request through a server that keeps its tapes in memory, and return its tape."""
    url, received = httpx.URL(server.url + request.target.decode()), bytearray()
    async with aclosing(UpstreamTransport()) as transport:
        sent = transport.addressed(url, request.method, url.raw_path, request.headers, request.body)
        head, body = await transport.exchange(sent)
        stream = Headers(head.headers).get(b"x-wiretape-stream").decode("ascii")
        async with aclosing(body):
            with suppress(WireError):  # the tape records how it broke off
                async for read in body:
                    received += read.data
    if not stream:
        message = f"the proxy refused the request: {received[:200].decode('utf-8', 'replace')}"
        return [Record(0, 0, "failed", {"message": message})]
    batches = server.assembly.services.store.follow(stream)
    return [record async for batch in batches for record in batch]


# -- shapes -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Shape:
    """JSON paths and types, order of kinds, status and ending of one stream's last attempt, but no values."""

    status: Any
    ending: str | None = None
    #: Kinds of events or payloads, in the order in which each came first.
    order: dict[str, None] = field(default_factory=dict[str, None])
    #: The types found at each path, each with the first record that has it.
    paths: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])

    def add(self, value: Any, path: str, n: int) -> None:
        waiting: list[tuple[Any, str]] = [(value, path)]
        while waiting:
            value, path = waiting.pop()
            self.paths.setdefault(path or "(whole)", {}).setdefault(kind_of(value), n)
            if is_object(value):
                waiting += reversed([(part, joined_path(path, key)) for key, part in value.items()])
            elif is_list(value):
                waiting += reversed([(part, f"{path}[]") for part in value])


def compare_shapes(a: Streams, b: Streams) -> Iterator[Difference]:
    """Yield what differs, stream by stream: new paths are benign, other differences would break a reader."""
    return each_pair(a, b, lambda mine, other: _compare(_shape_of(mine), _shape_of(other)))


def _shape_of(records: Stream) -> _Shape:
    shape = _Shape(status=head_of(records).get("status"))
    # The status already says that it is an error. Its event depends on when the proxy passed the response on.
    refused = isinstance(shape.status, int) and shape.status >= 400
    for event in events(records, repairs=False):
        if isinstance(event, model.AttemptStarted):
            shape.order.clear()
        elif isinstance(event, model.Ended):
            shape.ending = event.ending
        elif type(event) in _KINDS and not (refused and isinstance(event, model.UpstreamError)):
            shape.order.setdefault(_KINDS[type(event)])
    upstream = spoken(attempts_of(records)[-1][0].keys.get("dialect")) or spoken(records[0].keys.get("dialect"))
    body: list[Record] = []
    for record in attempts_of(records)[-1]:
        if record.kind == "rest":
            shape.order.setdefault("rest")
        elif record.kind == "body":
            body.append(record)
        # The upstream's clock decides where comments fall, and `[DONE]` has its own event.
        elif record.kind == "frame" and (value := value_of(record)) is not ABSENT:
            kind = ""
            if upstream != "chat":  # the type of a payload, or else the name of its event
                said = as_object(value).get("type")
                kind = said if isinstance(said, str) else record.frame().event.decode("utf-8", "replace")
                shape.order.setdefault(kind or "data")
            shape.add(value, kind, record.n)
    value = parse(b"".join(record.raw or b"" for record in body))
    if value is not ABSENT:
        shape.add(value, "body", body[0].n)
    return shape


def _compare(a: _Shape, b: _Shape) -> Iterator[Difference]:
    yield from unequal("status", a.status, b.status, breaking=True)
    for path in [*a.paths, *(path for path in b.paths if path not in a.paths)]:
        types, other = a.paths.get(path, {}), b.paths.get(path, {})
        parent = path.rpartition(".")[0]
        # Report only the top of a missing or new branch.
        if parent and not types and parent not in a.paths:
            continue
        if parent and not other and parent in a.paths and parent not in b.paths:
            continue
        if types.keys() != other.keys():
            breaking = bool(types) and (not other or bool(other.keys() - types.keys()))
            mine, found = (" or ".join(sorted(each)) or None for each in (types, other))
            # The first record with a new type, or else the first one.
            new = {name: n for name, n in other.items() if name not in types} or other
            records = min(types.values(), default=None), min(new.values(), default=None)
            yield Difference(path, mine, found, breaking, None, *records)
    order_a, order_b = list(a.order), list(b.order)
    if order_a != order_b:
        rest = iter(order_b)
        inserted = all(kind in rest for kind in order_a)
        yield Difference("order of kinds", order_a, order_b, breaking=not inserted)
    yield from unequal("ending", a.ending, b.ending, breaking=True)


# -- ids that later requests carry -------------------------------------------------------------------------------------


class LostIdError(Exception):
    """A request names an id that has no counterpart today."""


class CarriedIds:
    """The ids of the responses so far, recorded and live."""

    def __init__(self) -> None:
        #: The live id for each recorded one; None if the live response has none in its place.
        self._live: dict[bytes, bytes | None] = {}

    def learn(self, recorded: Stream, live: Stream) -> None:
        """Pair the ids of one response; both must have decoded bodies."""
        then, now = _ids_by_name(recorded), _ids_by_name(live)
        for name, ids in then.items():
            others = now.get(name, [])
            for at, id_ in enumerate(ids):
                same = id_ if id_ in others else others[at] if at < len(others) else None
                if same is not None or id_ not in self._live:
                    self._live[id_] = same

    def today(self, request: Request) -> Request:
        """Return the request to send today, with the ids of live responses; raise LostIdError."""
        body = request.body
        refers = b'"item_reference"' in body

        def member(found: re.Match[bytes]) -> bytes:
            name, id_ = found[2], found[3]
            # A result whose call is not part of the same request belongs to a stored response.
            alone = name == b"call_id" and body.count(b'"%b"' % id_) == 1
            stored = name in _STORED or alone or (name == b"id" and refers)
            return b"%b%b" % (found[1], self._replaced(id_, stored=stored))

        def part(found: re.Match[bytes]) -> bytes:
            return self._replaced(found[0], stored=True) if found[0] in self._live else found[0]

        return request._replace(target=_PATH_PART.sub(part, request.target), body=_ID.sub(member, body))

    def _replaced(self, id_: bytes, *, stored: bool) -> bytes:
        if id_ not in self._live and stored and _RENAMED.fullmatch(id_):
            raise LostIdError(f"it names {id_.decode()}, which no response on the tape gave out")
        live = self._live.get(id_, id_)
        if live is None and stored:
            raise LostIdError(f"it names {id_.decode()}, and the live response has no id in its place")
        return id_ if live is None else live


def _ids_by_name(records: Stream) -> dict[bytes, list[bytes]]:
    """Return the ids of a response by the name of their member, each once, in order."""
    found: dict[bytes, list[bytes]] = {}
    for member in _ID.finditer(answer_of(records)):
        ids = found.setdefault(member[2], [])
        if member[3] not in ids:
            ids.append(member[3])
    return found
