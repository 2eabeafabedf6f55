"""What callers may know of their own streams: pages of them, one as JSON, its tape, and its frames as they come.

Whoever asks for a stream of somebody else's, for one that never was, or for something that is no id, gets one and the
same answer, and gets it at a fixed moment after he asked (C21).
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import floor
from typing import Any, Final, Protocol, Self, get_args

import trio
from quart.wrappers.response import ResponseBody

from wiretape.events.core.errors import TapeError, WiretapeError
from wiretape.events.core.json_text import dumps
from wiretape.events.core.model import Ending
from wiretape.events.core.settings import Profile
from wiretape.events.emission.summarise import Summariser
from wiretape.events.tape.record import Record, encode

from ..limits import NOT_FOUND_STEP_S, OWNERS_MAX, SLICE_RECORDS
from ..relay.http_responses import Answer, error, json_answer
from ..relay.live import Live
from ..store.catalogue_row import StreamRow
from ..store.linking import NO_FATES
from ..store.store import PAGE_MAX, Batches, Filter, Store, StoreError, is_stream_id
from .event_feed import EventsBody, Following, place_of
from .summary import summary_json

__all__ = ["Running", "StreamsApi", "TapeBody", "not_found"]

_PAGE: Final = 100
#: The last row of a page, as `next` names it.
_CURSOR: Final = re.compile(r"([0-9]{1,15})\.([A-Za-z0-9_-]{1,128})", re.ASCII)
_YES_NO: Final[Mapping[str, bool]] = {"1": True, "true": True, "0": False, "false": False}


class Running(Protocol):
    """What is asked of the registry."""

    @property
    def live(self) -> Mapping[str, Live]:
        """Running streams by id."""
        ...

    @property
    def draining(self) -> bool:
        """No new streams are taken."""
        ...


class _BadParameterError(Exception):
    """A query parameter, and what it may be."""


def not_found() -> Answer:
    """The one answer to all that is not there, or not the caller's."""
    return error(404, "There is nothing here that you may see.", type="invalid_request_error", code="not_found")


class StreamsApi:
    """Each method answers one path; `caller` is who the request's credential says."""

    def __init__(self, store: Store, registry: Running, wall: Callable[[], float] = time.time) -> None:
        self._store = store
        self._wall = wall
        self._registry = registry
        #: Whose stream it is, of those asked for last. It never changes.
        self._owners: dict[str, str] = {}

    async def page(self, caller: str, query: Mapping[str, str]) -> Answer:
        """`/wiretape/streams`."""
        try:
            which, limit, ended_only = _asked(caller, query)
        except _BadParameterError as bad:
            return _bad(*bad.args)
        rows: list[StreamRow] = []
        wanted = min(limit + 1, PAGE_MAX)  # with one more than is shown it is known whether there is another page
        while True:
            page = await self._store.list(which, wanted)
            rows += [row for row in page if row.ending or not ended_only]
            if len(rows) > limit or len(page) < wanted:
                break
            which = replace(which, before=page[-1])
        last = f"{rows[limit - 1].created}.{rows[limit - 1].stream}" if len(rows) > limit else None
        return json_answer(200, {"streams": [_row(row) for row in rows[:limit]], "next": last})

    async def one(self, caller: str, stream: str, query: Mapping[str, str]) -> Answer:
        """`/wiretape/streams/{id}`."""
        began = trio.current_time()
        try:
            whole = _flag(query, "whole") or False
        except _BadParameterError as bad:
            return _bad(*bad.args)
        batches = await self._opened(caller, stream)
        if batches is None:
            return await _hidden(began)
        summarised = Summariser()
        try:
            async for batch in batches:
                await _summed(summarised, batch)
            idle = summarised.summary.wire.idle
            fates = NO_FATES if idle else await self._store.fates(stream, self._wall())
        except StoreError:  # expired meanwhile
            return await _hidden(began)
        said = summary_json(stream, summarised, whole=whole, damage=batches.damage, fates=fates)
        return json_answer(200, said)

    async def events(
        self, caller: str, stream: str, query: Mapping[str, str], last_event_id: str | None
    ) -> Answer | EventsBody:
        """`/wiretape/streams/{id}/events`."""
        began = trio.current_time()
        profile = query.get("profile")
        if profile is not None and profile not in get_args(Profile):
            return _bad("profile", "strict or transparent")
        if await self._opened(caller, stream) is None:
            return await _hidden(began)
        behind = place_of(query.get("last_event_id", "") if last_event_id is None else last_event_id)
        try:
            following = Following(self._store, stream, profile=_profile(profile), behind=behind)
        except StoreError:
            return await _hidden(began)
        return EventsBody(following, self._registry.live.get(stream))

    async def tape(self, caller: str, stream: str) -> "Answer | TapeBody":
        """`/wiretape/streams/{id}/tape`."""
        began = trio.current_time()
        batches = await self._opened(caller, stream)
        return await _hidden(began) if batches is None else TapeBody(batches)

    async def _opened(self, caller: str, stream: str) -> Batches | None:
        """The tape from its first record on, if there is one and it is the caller's."""
        try:
            owner = await self._owner(stream) if is_stream_id(stream) else None
            return self._store.read(stream) if owner == caller else None
        except (StoreError, TapeError, StopAsyncIteration):
            return None

    async def _owner(self, stream: str) -> str | None:
        """Kept, so that who asks again and again makes us read no tape again and again, and can time nothing."""
        owner = self._owners.pop(stream, None)
        if owner is None:
            first, *_ = await anext(self._store.read(stream))
            said = first.keys.get("caller") if first.kind == "open" else None
            if not isinstance(said, str):
                return None
            owner = said
        self._owners[stream] = owner
        if len(self._owners) > OWNERS_MAX:
            del self._owners[next(iter(self._owners))]
        return owner


class TapeBody(ResponseBody):
    """The lines of a tape. Of a whole one they are its very bytes; what is wrong with it stands in a last line."""

    def __init__(self, batches: Batches) -> None:
        self._batches: Batches | None = batches

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def __aiter__(self) -> "TapeBody":
        return self

    async def __anext__(self) -> bytes:
        batches = self._batches
        if batches is None:
            raise StopAsyncIteration
        try:
            return b"".join([encode(record) for record in await anext(batches)])
        except StopAsyncIteration:
            self._batches = None
            if not batches.damage:
                raise
            damage = [{"at": at, "reason": reason} for at, reason in batches.damage]
            return dumps({"damage": damage}) + b"\n"
        except (WiretapeError, OSError):
            self._batches = None
            return dumps({"damage": [{"at": None, "reason": "the rest of the tape is not there any more"}]}) + b"\n"


async def _summed(summarised: Summariser, batch: list[Record]) -> None:
    for at in range(0, len(batch), SLICE_RECORDS):
        summarised.feed(*batch[at : at + SLICE_RECORDS])
        await trio.lowlevel.checkpoint()


async def _hidden(began: float) -> Answer:
    """Not before the next whole step of time since the question."""
    steps = floor((trio.current_time() - began) / NOT_FOUND_STEP_S) + 1
    await trio.sleep_until(began + steps * NOT_FOUND_STEP_S)
    return not_found()


# -- what was asked ---------------------------------------------------------------------------------------------------


def _asked(caller: str, query: Mapping[str, str]) -> tuple[Filter, int, bool]:
    """Which streams, how many, and whether those that run are left out."""
    ending, live = query.get("ending"), _flag(query, "live")
    if ending is not None and ending not in get_args(Ending):
        raise _BadParameterError("ending", "one of " + ", ".join(get_args(Ending)))
    if live:
        if ending is not None:
            raise _BadParameterError("live", "left out where an ending is asked for")
        ending = ""
    which = Filter(
        caller=caller, model=query.get("model"), route=query.get("route"), ending=ending, before=_before(query)
    )
    return which, _limit(query), live is False


def _before(query: Mapping[str, str]) -> StreamRow | None:
    if "before" not in query:
        return None
    match = _CURSOR.fullmatch(query["before"])
    if match is None:
        raise _BadParameterError("before", "what an earlier page gave as next")
    return StreamRow(stream=match[2], created=int(match[1]), caller="", route="", dialect="", model="")


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(_PAGE))
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) or not 1 <= int(text) <= PAGE_MAX:
        raise _BadParameterError("limit", f"a number from 1 to {PAGE_MAX}")
    return int(text)


def _flag(query: Mapping[str, str], name: str) -> bool | None:
    text = query.get(name)
    if text is None:
        return None
    if text.lower() not in _YES_NO:
        raise _BadParameterError(name, "1 or 0")
    return _YES_NO[text.lower()]


def _profile(word: str | None) -> Profile | None:
    return "strict" if word == "strict" else "transparent" if word == "transparent" else None


def _bad(name: str, allowed: str) -> Answer:
    return error(400, f"{name} must be {allowed}.", type="invalid_request_error", code="invalid_parameter", param=name)


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
