"""The streams of a caller: pages of them, one as JSON, its tape, and its events.

Another caller's stream, one that never existed and an invalid id all get the same response, at a fixed time after the
request, so that a caller cannot learn which streams exist (C21).
"""

import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from math import floor
from typing import Any, Final, Protocol, get_args

import trio

from wiretape.events.core.errors import TapeError, WiretapeError
from wiretape.events.core.json_text import dumps
from wiretape.events.core.model import Ending
from wiretape.events.core.settings import Profile
from wiretape.events.emit import Summariser
from wiretape.events.tape.record import encode

from ..limits import NOT_FOUND_STEP_S, OWNERS_MAX, SLICE_RECORDS
from ..relay.delivery import Delivery
from ..relay.http_responses import Answer, error
from ..store.catalogue_row import StreamRow
from ..store.folder import is_stream_id
from ..store.linking import NO_FATES
from ..store.store import PAGE_MAX, Batches, Filter, Store, StoreError
from .event_feed import Following, followed, place_of
from .summary import summary_json

__all__ = ["RefusedError", "Running", "StreamsApi", "not_found"]

_PAGE: Final = 100
#: The last row of a page, as `next` names it.
_CURSOR: Final = re.compile(r"([0-9]{1,15})\.([A-Za-z0-9_-]{1,128})", re.ASCII)
_FLAGS: Final[Mapping[str, bool]] = {"1": True, "true": True, "0": False, "false": False}


class Running(Protocol):
    """The running streams."""

    @property
    def live(self) -> Mapping[str, Delivery]:
        """Running streams by id."""
        ...

    @property
    def draining(self) -> bool:
        """Whether new streams are refused because the server is stopping."""
        ...


class RefusedError(Exception):
    """A request that cannot be answered, and the error to send."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def not_found() -> Answer:
    """Return the one response for everything that does not exist or belongs to another caller."""
    message = "Stream not found, or not visible with this key."
    return error(404, message, type="invalid_request_error", code="not_found")


class StreamsApi:
    """The endpoints below `/wiretape/streams`. `caller` is the hash of the request's credential."""

    def __init__(self, store: Store, registry: Running, wall: Callable[[], float] = time.time) -> None:
        self._store = store
        self._wall = wall
        self._registry = registry
        #: The callers of the streams requested last. They never change.
        self._owners: dict[str, str] = {}

    async def page(self, caller: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return one page of the caller's streams, the latest first."""
        which, limit, live = _filter(caller, query), _limit(query), _flag(query, "live")
        rows: list[StreamRow] = []
        wanted = min(limit + 1, PAGE_MAX)  # one more than is shown tells whether there is another page
        while True:
            page = await self._store.list(which, wanted)
            rows += [row for row in page if row.ending or live is not False]
            if len(rows) > limit or len(page) < wanted:
                break
            which = replace(which, before=page[-1])
        last = f"{rows[limit - 1].created}.{rows[limit - 1].stream}" if len(rows) > limit else None
        return {"streams": [_row(row) for row in rows[:limit]], "next": last}

    async def one(self, caller: str, stream: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return one stream's summary."""
        began = trio.current_time()
        whole = _flag(query, "whole") or False
        batches = await self._open(caller, stream, began)
        summarised = Summariser()
        try:
            async for batch in batches:
                for at in range(0, len(batch), SLICE_RECORDS):
                    summarised.feed(*batch[at : at + SLICE_RECORDS])
                    await trio.lowlevel.checkpoint()
            idle = summarised.summary.wire.idle
            fates = NO_FATES if idle else await self._store.fates(stream, self._wall())
        except StoreError:  # expired meanwhile
            raise await _hidden(began) from None
        return summary_json(stream, summarised, whole=whole, damage=batches.damage, fates=fates)

    async def events(
        self, caller: str, stream: str, query: Mapping[str, str], last_event_id: str | None
    ) -> AsyncGenerator[bytes]:
        """Return the body of one stream's events, from the beginning or after an id."""
        began = trio.current_time()
        profiles: dict[str | None, Profile | None] = {None: None, "strict": "strict", "transparent": "transparent"}
        if query.get("profile") not in profiles:
            raise _bad_parameter("profile", "strict or transparent")
        await self._open(caller, stream, began)
        after = place_of(query.get("last_event_id", "") if last_event_id is None else last_event_id)
        try:
            following = Following(self._store, stream, profile=profiles[query.get("profile")], after=after)
        except StoreError:
            raise await _hidden(began) from None
        return followed(following, self._registry.live.get(stream))

    async def tape(self, caller: str, stream: str) -> AsyncGenerator[bytes]:
        """Return the body of one stream's tape."""
        return _tape(await self._open(caller, stream, trio.current_time()))

    async def _open(self, caller: str, stream: str, began: float) -> Batches:
        """Return the tape if it is the caller's; raise `RefusedError` otherwise."""
        try:
            if is_stream_id(stream) and await self._owner(stream) == caller:
                return self._store.read(stream)
        except (StoreError, TapeError, StopAsyncIteration):
            pass
        raise await _hidden(began)

    async def _owner(self, stream: str) -> str | None:
        """Return a stream's caller, remembered so that repeated requests neither read tapes nor measure time."""
        owner = self._owners.pop(stream, None)
        if owner is None:
            first, *_ = await anext(self._store.read(stream))
            given = first.keys.get("caller") if first.kind == "open" else None
            if not isinstance(given, str):
                return None
            owner = given
        self._owners[stream] = owner
        if len(self._owners) > OWNERS_MAX:
            del self._owners[next(iter(self._owners))]
        return owner


async def _tape(batches: Batches) -> AsyncGenerator[bytes]:
    """Yield the lines of a tape, byte for byte, and any damage in a last line."""
    damage: list[dict[str, Any]] = []
    try:
        async for batch in batches:
            yield b"".join([encode(record) for record in batch])
        damage += [{"at": at, "reason": reason} for at, reason in batches.damage]
    except (WiretapeError, OSError):
        damage.append({"at": None, "reason": "the rest of the tape is no longer available"})
    if damage:
        yield dumps({"damage": damage}) + b"\n"


async def _hidden(began: float) -> RefusedError:
    """Return the error for a hidden stream, at the next whole step of time since the request."""
    steps = floor((trio.current_time() - began) / NOT_FOUND_STEP_S) + 1
    await trio.sleep_until(began + steps * NOT_FOUND_STEP_S)
    return RefusedError(not_found())


# -- query parameters -------------------------------------------------------------------------------------------------


def _filter(caller: str, query: Mapping[str, str]) -> Filter:
    ending, before = query.get("ending"), None
    if ending is not None and ending not in get_args(Ending):
        raise _bad_parameter("ending", "one of " + ", ".join(get_args(Ending)))
    if _flag(query, "live"):
        if ending is not None:
            raise _bad_parameter("live", "omitted when ending is given")
        ending = ""
    if "before" in query:
        match = _CURSOR.fullmatch(query["before"])
        if match is None:
            raise _bad_parameter("before", "the value of next from an earlier page")
        before = StreamRow(stream=match[2], created=int(match[1]), caller="", route="", dialect="", model="")
    return Filter(caller=caller, model=query.get("model"), route=query.get("route"), ending=ending, before=before)


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(_PAGE))
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) or not 1 <= int(text) <= PAGE_MAX:
        raise _bad_parameter("limit", f"a number from 1 to {PAGE_MAX}")
    return int(text)


def _flag(query: Mapping[str, str], name: str) -> bool | None:
    text = query.get(name)
    if text is not None and text.lower() not in _FLAGS:
        raise _bad_parameter(name, "1 or 0")
    return None if text is None else _FLAGS[text.lower()]


def _bad_parameter(name: str, allowed: str) -> RefusedError:
    message = f"{name} must be {allowed}."
    return RefusedError(error(400, message, type="invalid_request_error", code="invalid_parameter", param=name))


def _row(row: StreamRow) -> dict[str, Any]:
    return {
        "id": row.stream,
        "created": row.created,
        "route": row.route,
        "dialect": row.dialect,
        "model": row.model or None,
        "live": not row.ending,
        "ending": row.ending or None,
        "flags": list(row.flags),
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "first_frame_us": row.first_frame_us,
        "first_content_us": row.first_content_us,
        "duration_us": row.duration_us,
    }
