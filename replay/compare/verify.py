"""The recorded requests, asked again of a live upstream through the proxy itself: has the shape of its answers changed

What comes back is taped in memory and compared with the recording (compare_shape.py): paths, types, the order of
kinds, status and ending, apart from values.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
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
from wiretape.proxy.upstream.body import Body
from wiretape.proxy.upstream.errors import WireError
from wiretape.proxy.upstream.transport import UpstreamTransport, body_of

from ..matching.carried_ids import Carried, LostId
from ..redaction.body_codec import headers_of, opened
from ..sealed.load import Recording
from .bytes import ending_of
from .difference import Difference
from .shape import shape_differences, shape_of

__all__ = ["Age", "age_of", "asked_again", "run_verified", "verified"]

#: Our prefix, which the live upstream's base path replaces.
_PREFIX: Final = re.compile(r"(?:/[a-z0-9][a-z0-9_-]*)?/v1(?=[/?]|$)")
_CHAT: Final = "/chat/completions"
#: Endings of a stream that was never asked, or not to its end, for reasons of this machine.
_UNASKED: Final = frozenset({None, "refused", "internal", "shutdown"})
#: Headers of a request that the tape keeps and an answer may hang on.
_SENT: Final = frozenset({"content-encoding", "content-type"})


class Age(NamedTuple):
    """How old a recording is; None where its header does not say."""

    days: int | None
    #: The age limit in its header.
    limit_days: int | None

    @property
    def due(self) -> bool:
        """Whether it is older than its header allows; one that names no limit is always due."""
        return self.days is None or self.limit_days is None or self.days > self.limit_days


def age_of(header: Mapping[str, Any], today: date) -> Age:
    """From `recorded` and `max_age_days` of a header."""
    recorded, limit = header.get("recorded"), header.get("max_age_days")
    try:
        days = (today - date.fromisoformat(recorded)).days if isinstance(recorded, str) else None
    except ValueError:
        days = None
    return Age(days, limit if type(limit) is int else None)


async def verified(recording: Recording, url: str, key: Secret | None = None) -> list[Difference]:
    """What is different today, in all streams. Raises TapeError for a request that cannot be sent again, and where
    there is none.
    """
    if not recording.streams:
        raise TapeError("the tape holds no stream that could be asked again")
    requests = [_request_of(records, number) for number, records in enumerate(recording.streams, 1)]
    tapes: list[list[Record]] = []
    carried, lost = Carried(), ""
    log = Log(stderr_fd(), level="error")
    try:
        async with running(_config(url, key), log=log) as server:
            for records, request in zip(recording.streams, requests, strict=True):
                try:
                    tapes.append(await asked_again(server, _today(request, carried)))
                except LostId as error:
                    lost = f"stream {len(tapes) + 1} cannot be sent again: {error}"
                    break
                if ending_of(tapes[-1]) in _UNASKED:
                    break
                carried.learn(*opened([records, tapes[-1]]))
    finally:
        log.close()
    found = [
        difference._replace(stream=number)
        for number, (records, live) in enumerate(zip(recording.streams, tapes, strict=False), 1)
        for difference in _differences(records, live, number)
    ]
    if lost and not any(difference.breaking for difference in found):  # which is why, else
        raise TapeError(lost)
    return found


def _today(request: httpx.Request, carried: Carried) -> httpx.Request:
    url = request.url.copy_with(raw_path=carried.path(request.url.raw_path.decode("ascii")).encode("ascii"))
    headers = [(name, value) for name, value in request.headers.raw if name.lower() not in (b"host", b"content-length")]
    return httpx.Request(request.method, url, headers=headers, content=carried.body(request.content))


def _differences(records: Sequence[Record], live: Sequence[Record], number: int) -> Iterator[Difference]:
    ending = ending_of(live)
    if ending in _UNASKED and ending_of(records) != ending:  # or it is what was recorded
        raise TapeError(f"stream {number}: {_refusal(live)}")
    mine, other = opened([records, _read_as(records, live)])
    yield from shape_differences(shape_of(mine), shape_of(other))


def _read_as(records: Sequence[Record], live: Sequence[Record]) -> list[Record]:
    """With the profile and the settings of the recording, by which its events are read too: `think`, `cumulative`."""
    keys = records[0].keys
    said = {name: keys[name] for name in ("profile", "settings") if name in keys}
    return [live[0]._replace(keys={**live[0].keys, **said}), *live[1:]]


def _config(url: str, key: Secret | None) -> Config:
    """One attempt, passed on as it comes and taped to its end: by default an error status was asked for three times,
    with the waits between, and what the proxy answered in its place had another shape than the recorded one.
    """
    target, settings = Target(name="live", url=url, key=key), Settings(profile="transparent")
    route = Route(name="", targets=(target,), attempts=1, settings=settings, on_client_gone="drain")
    return Config(data=Path(), port=0, durability="none", routes={"": route})


def _request_of(records: Sequence[Record], number: int) -> httpx.Request:
    asked = next((record for record in records if record.kind == "request"), None)
    if asked is None:
        raise TapeError(f"stream {number} has no request that could be sent again")
    if asked.raw is None and ("sha256" in asked.keys or asked.keys.get("streamed")):
        raise TapeError(f"stream {number}: the body of its request is not on the tape, so it cannot be sent again")
    decoded = asked.keys.get("decoded")
    rows = (as_list(row) for row in as_list(asked.keys.get("headers")))
    said = [(str(row[0]), str(row[1])) for row in rows if len(row) == 2 and row[0] in _SENT]
    headers = list(headers_of(said, decoded if isinstance(decoded, str) else ""))
    if asked.raw and not headers:
        headers = [("content-type", "application/json")]
    method, path = str(asked.keys.get("method") or "POST"), str(asked.keys.get("path") or f"/v1{_CHAT}")
    return httpx.Request(method, f"http://wiretape/v1{_tail(path)}", content=asked.raw, headers=headers)


def _tail(path: str) -> str:
    found = _PREFIX.match(path)
    if found is not None:
        return path[found.end() :]
    bare, _, query = path.partition("?")  # an imported one knows nothing of our prefix
    tail = _CHAT if bare.endswith(_CHAT) else bare
    return f"{tail}?{query}" if query else tail


async def asked_again(server: Running, request: httpx.Request) -> list[Record]:
    """The tape of one request, sent through a server that keeps its tapes in memory."""
    own = httpx.URL(server.url)
    url = request.url.copy_with(scheme=own.scheme, host=own.host, port=own.port)
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
    sent = httpx.Request(request.method, url, headers=headers, content=request.content)
    async with UpstreamTransport() as transport:
        response = await transport.handle_async_request(sent)
        stream = response.headers.get("x-wiretape-stream", "")
        said = await _read(body_of(response))
    if not stream:  # the proxy itself refused it: a tape of that alone
        refused = {"message": f"it was refused before it went out: {said[:200].decode('utf-8', 'replace')}"}
        return [Record(0, 0, "failed", refused)]
    batches = server.assembly.services.store.follow(stream)
    return [record async for batch in batches for record in batch]


async def _read(body: Body) -> bytes:
    """As far as it goes: how it ended stands on the tape, whatever the proxy made of it for its client."""
    said: list[bytes] = []
    async with body:
        with suppress(WireError):  # of what it passes on as it came the proxy breaks off where the upstream did
            async for read in body:
                said.append(read.data)  # noqa: PERF401 - a list of all of them is lost with the break
    return b"".join(said)


def _refusal(records: Sequence[Record]) -> str:
    """Why it came to nothing."""
    why = next((record.keys.get("message") for record in reversed(records) if record.kind == "failed"), None)
    return str(why or "the upstream cannot be reached")


def run_verified(recording: Recording, url: str, key: Secret | None = None) -> list[Difference]:
    """The same for who has no event loop."""
    return trio.run(verified, recording, url, key)
