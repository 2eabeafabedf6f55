"""A conversation: the streams that tool results link, in order, with the calls of each."""

from typing import Any, Final

from ..api.streams import StreamsApi
from ..store.catalogue_row import NO_FATES, CatalogueRow
from ..store.store import fates_of, links_of

__all__ = ["conversation"]

_TURNS_MAX: Final = 200


async def conversation(streams: StreamsApi, stream: str, now: float) -> list[dict[str, Any]]:
    """Return the rows of the streams before and after one, each with its calls."""
    turns, first, back = dict[str, dict[str, Any]](), stream, {stream}
    while (found := await streams.rows(first)) is not None and len(back) < _TURNS_MAX:
        links = await links_of(streams.store, found.answers, {})
        before = next((link.stream for link in links if link is not None), first)
        if before in back:
            break
        first = before
        back.add(first)
    while (found := await streams.rows(first)) is not None and first not in turns and len(turns) < 2 * _TURNS_MAX:
        calls = await _calls(streams, found, now)
        turns[first] = {**(await streams.listed([found.stream]))[0], "calls": calls}
        first = next((call["answered_by"] for call in calls if call["answered_by"]), first)
    return list(turns.values())


async def _calls(streams: StreamsApi, found: CatalogueRow, now: float) -> list[dict[str, Any]]:
    fates = await fates_of(streams.store, found, now) if found.stream.ending else NO_FATES
    return [
        {
            "id": call.call,
            "name": call.name,
            "state": call.state if (fate := fates.get(call.call)) is None else fate.state.value,
            "created_us": call.handed_us,
            "answered_by": (fate and fate.answered_by) or None,
            "duration_ms": fate and fate.duration_ms,
        }
        for call in found.calls
    ]
