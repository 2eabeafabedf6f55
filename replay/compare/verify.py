"""Send the requests of a tape to a live upstream and compare the shapes of the responses."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import trio

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list
from wiretape.events.core.settings import Settings
from wiretape.events.tape.record import Record
from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.config.secrets import Secret
from wiretape.proxy.log import Log, stderr_fd
from wiretape.proxy.serve import Running, running
from wiretape.proxy.upstream.errors import WireError
from wiretape.proxy.upstream.transport import UpstreamTransport, body_of

from ..redaction.body_codec import headers_of, opened
from ..sealed.files import Recording
from .bytes import ending_of
from .carried_ids import CarriedIds, LostIdError
from .difference import Difference
from .shape import compare_shapes

__all__ = ["Age", "age_of", "run_verify", "send_recorded", "verify"]

#: The proxy's path prefix, which the upstream's base path replaces.
_PREFIX: Final = re.compile(r"(?:/[a-z0-9][a-z0-9_-]*)?/v1(?=[/?]|$)")
_CHAT: Final = "/chat/completions"
#: Endings of a stream that failed on this machine before the upstream could answer.
_FAILED_HERE: Final = frozenset({None, "refused", "internal", "shutdown"})
#: Recorded request headers that may change the response.
_SENT_HEADERS: Final = frozenset({"content-encoding", "content-type"})


class Age(NamedTuple):
    """The age of a recording and its limit; None where the header does not say."""

    days: int | None
    limit_days: int | None

    @property
    def due(self) -> bool:
        """Whether the recording is older than its limit; one without a limit is always due."""
        return self.days is None or self.limit_days is None or self.days > self.limit_days


def age_of(header: Mapping[str, Any], today: date) -> Age:
    """Read `recorded` and `max_age_days` of a header."""
    recorded, limit = header.get("recorded"), header.get("max_age_days")
    try:
        days = (today - date.fromisoformat(recorded)).days if isinstance(recorded, str) else None
    except ValueError:
        days = None
    return Age(days, limit if type(limit) is int else None)


async def verify(recording: Recording, url: str, key: Secret | None = None) -> list[Difference]:
    """Return what is different today in all streams.

    Raise TapeError if a request is missing or cannot be sent again.
    """
    if not recording.streams:
        raise TapeError("the tape contains no stream")
    requests = [_recorded_request(records, number) for number, records in enumerate(recording.streams, 1)]
    tapes: list[list[Record]] = []
    ids, lost = CarriedIds(), ""
    log = Log(stderr_fd(), level="error")
    try:
        async with running(_config(url, key), log=log) as server:
            for records, request in zip(recording.streams, requests, strict=True):
                try:
                    tapes.append(await send_recorded(server, _with_live_ids(request, ids)))
                except LostIdError as error:
                    lost = f"stream {len(tapes) + 1} cannot be sent again: {error}"
                    break
                if ending_of(tapes[-1]) in _FAILED_HERE:
                    break
                ids.learn(*opened([records, tapes[-1]]))
    finally:
        log.close()
    found: list[Difference] = []
    for number, (records, live) in enumerate(zip(recording.streams, tapes, strict=False), 1):
        ending = ending_of(live)
        if ending in _FAILED_HERE and ending_of(records) != ending:
            failures = (record.keys.get("message") for record in reversed(live) if record.kind == "failed")
            raise TapeError(f"stream {number}: {next(failures, None) or 'the upstream cannot be reached'}")
        differences = compare_shapes([records], [_with_settings_of(records, live)])
        found += [difference._replace(stream=number) for difference in differences]
    if lost and not any(difference.breaking for difference in found):  # a breaking difference explains the lost id
        raise TapeError(lost)
    return found


def _config(url: str, key: Secret | None) -> Config:
    """Configure a proxy that sends each request once and records the response to its end, errors included."""
    target, settings = Target(name="live", url=url, key=key), Settings(profile="transparent")
    route = Route(name="", targets=(target,), attempts=1, settings=settings, on_client_gone="drain")
    return Config(data=Path(), port=0, durability="none", routes={"": route})


def _recorded_request(records: Sequence[Record], number: int) -> httpx.Request:
    request = next((record for record in records if record.kind == "request"), None)
    if request is None:
        raise TapeError(f"stream {number} has no request to send")
    if request.raw is None and ("sha256" in request.keys or request.keys.get("streamed")):
        raise TapeError(f"stream {number} cannot be sent again: the body of its request is not on the tape")
    decoded = request.keys.get("decoded")
    rows = (as_list(row) for row in as_list(request.keys.get("headers")))
    recorded = [(str(row[0]), str(row[1])) for row in rows if len(row) == 2 and row[0] in _SENT_HEADERS]
    headers = list(headers_of(recorded, decoded if isinstance(decoded, str) else ""))
    if request.raw and not headers:
        headers = [("content-type", "application/json")]
    method, path = str(request.keys.get("method") or "POST"), str(request.keys.get("path") or f"/v1{_CHAT}")
    if (prefix := _PREFIX.match(path)) is not None:
        path = path[prefix.end() :]
    elif path.partition("?")[0].endswith(_CHAT):  # an imported tape without our prefix
        path = path[path.index(_CHAT) :]
    return httpx.Request(method, f"http://wiretape/v1{path}", content=request.raw, headers=headers)


def _with_live_ids(request: httpx.Request, ids: CarriedIds) -> httpx.Request:
    url = request.url.copy_with(raw_path=ids.path(request.url.raw_path.decode("ascii")).encode("ascii"))
    headers = [(name, value) for name, value in request.headers.raw if name.lower() not in (b"host", b"content-length")]
    return httpx.Request(request.method, url, headers=headers, content=ids.body(request.content))


def _with_settings_of(records: Sequence[Record], live: Sequence[Record]) -> list[Record]:
    """Return the live records under the recording's profile and settings, which change what events mean."""
    settings = {name: records[0].keys[name] for name in ("profile", "settings") if name in records[0].keys}
    return [live[0]._replace(keys={**live[0].keys, **settings}), *live[1:]]


async def send_recorded(server: Running, request: httpx.Request) -> list[Record]:
    """Send a request through a server that keeps its tapes in memory, and return its tape."""
    own = httpx.URL(server.url)
    url = request.url.copy_with(scheme=own.scheme, host=own.host, port=own.port)
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
    received = bytearray()
    async with UpstreamTransport() as transport:
        sent = httpx.Request(request.method, url, headers=headers, content=request.content)
        response = await transport.handle_async_request(sent)
        stream = response.headers.get("x-wiretape-stream", "")
        async with body_of(response) as body:
            with suppress(WireError):  # the tape records how it broke off
                async for read in body:
                    received += read.data
    if not stream:
        message = f"the proxy refused the request: {received[:200].decode('utf-8', 'replace')}"
        return [Record(0, 0, "failed", {"message": message})]
    batches = server.assembly.services.store.follow(stream)
    return [record async for batch in batches for record in batch]


def run_verify(recording: Recording, url: str, key: Secret | None = None) -> list[Difference]:
    """Run `verify` in an event loop of its own."""
    return trio.run(verify, recording, url, key)
