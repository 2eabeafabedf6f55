"""The streams of a caller: pages of them, one as JSON, its tape, and its events.

Another caller's stream, one that never existed and an invalid id all get the same response, at a fixed time after the
request, so that a caller cannot learn which streams exist (C21).

Events are the frames of a stream, each with an `id:` line, for any number of readers that come late or come back.
An id is `<record>.<ordinal>`: the record that caused the frame, and its place among that record's frames. Ids are a
function of the tape and the profile, the same for every reader. A reader that sends its last id gets what follows it.
"""

import base64
import re
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Final, cast, get_args

import trio

from wiretape.events.core.errors import TapeError, WiretapeError
from wiretape.events.core.json_text import as_list, dumps
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Ending
from wiretape.events.core.settings import Profile
from wiretape.events.emit import Emitter, Summariser
from wiretape.events.folds.summary import StreamSummary, Warned
from wiretape.events.folds.wire import UPSTREAM_CALL
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Damage
from wiretape.events.wire.sse import BOM, Decoder, Frame, parse_block

from ..limits import FOLLOW_KEEPALIVE_S, OWNERS_MAX, SLICE_RECORDS
from ..memory import Charge
from ..relay.app import Registry
from ..relay.http_responses import Answer, AnswerError, busy, error, not_earlier
from ..security.access import OPERATOR
from ..store.catalogue_row import NO_FATES, CatalogueRow, Fate, StreamRow, fated, row_of
from ..store.folder import is_stream_id
from ..store.query import Query, QueryError, parse_query
from ..store.store import (
    PAGE_MAX,
    Batches,
    SearchError,
    Store,
    StoreError,
    StreamMissingError,
    UnreachableError,
    fates_of,
)

__all__ = [
    "Following",
    "StreamsApi",
    "bad_parameter",
    "flag",
    "hidden",
    "hiding",
    "not_found",
    "place_of",
    "row_json",
    "summary_json",
]

_PAGE: Final = 100
_FLAGS: Final[Mapping[str, bool]] = {"1": True, "true": True, "0": False, "false": False}
#: The columns of a row that its caller may see.
_SHOWN: Final = (
    *("created", "created_us", "route", "dialect", "model", "ending", "flags", "input_tokens", "output_tokens"),
    *("first_frame_us", "first_content_us", "duration_us", "status", "path", "attempts", "lost", "spark", "silence_us"),
    *("run", "turn"),
)
_TIMES: Final = ("first_frame_us", "first_content_us", "last_content_us", "longest_silence_us", "longest_pause_us")
_KEEPALIVE: Final = b": keepalive\n\n"
_ID: Final = re.compile(r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,8})", re.ASCII)
_END: Final = b"\n\n"
#: Kinds whose bytes are not frames, even if they look like one.
_NOT_FRAMES: Final = frozenset({"body", "rest", "commit"})


def not_found() -> Answer:
    """Return the one response for everything that does not exist or belongs to another caller."""
    message = "Stream not found, or not visible with this key."
    return error(404, message, type="invalid_request_error", code="not_found")


class StreamsApi:
    """The endpoints below `/wiretape/streams`. `caller` is the hash of the request's credential."""

    def __init__(self, store: Store, registry: Registry, wall: Callable[[], float] = time.time) -> None:
        self.store = store
        self.wall = wall
        self.registry = registry
        #: One at a time, since a summary holds all texts of its stream.
        self.summarising = trio.Lock()
        #: The callers of the streams requested last. They never change.
        self._owners: dict[str, str] = {}

    async def page(self, caller: str, query: Mapping[str, str]) -> tuple[dict[str, Any], str]:
        """Return one page of the caller's streams, the latest first, and what it lacks: of `store`, or of `search`."""
        (which, live), limit = self._filter(caller, query), _limit(query)
        rows, lacks = list[StreamRow](), ""
        wanted = min(limit + 1, PAGE_MAX)  # one more than is shown, to know whether another page follows
        while True:
            try:
                page = await self.store.list(which, wanted)
            except SearchError as unable:
                raise _bad_filter(str(unable)) from unable
            if self.store.partial:
                lacks = "search" if which.text else "store"
            running = () if live is None else await self.live(page)
            rows += [row for row in page if live is None or (row.stream in running) == live]
            if len(rows) > limit or len(page) < wanted:
                break
            which = replace(which, before=page[-1])
        last = rows[limit - 1].cursor if len(rows) > limit else None
        return {"streams": await self.listed(rows[:limit]), "next": last}, lacks

    async def listed(self, rows: Sequence[StreamRow]) -> list[dict[str, Any]]:
        """Return rows as JSON: of streams that run here as far as they have come, and what became of calls."""
        live, listed = await self.live(rows), list[dict[str, Any]]()
        known = await self.store.rows([row.stream for row in rows if row.handed_over])
        for row in rows:
            running, found = self.registry.rows(row.stream), known.get(row.stream)
            if found is not None:
                row = fated(row, found.calls, await fates_of(self.store, found, self.wall()))  # noqa: PLW2901
            elif running is not None and not row.ending:
                row = running.stream  # noqa: PLW2901
            listed.append(row_json(row, live=row.stream in live))
        return listed

    async def live(self, rows: Iterable[StreamRow]) -> Collection[str]:
        """Return those of these streams that run, here or elsewhere; a tape that was cut has no ending either."""
        open_ = [row.stream for row in rows if not row.ending]
        here = self.registry.live.keys() & open_
        return here.union(await self.store.running([stream for stream in open_ if stream not in here]))

    async def rows(self, stream: str) -> CatalogueRow | None:
        """Return all rows of a stream, of one that runs as far as it has come."""
        found = self.registry.rows(stream) or (await self.store.rows([stream])).get(stream)
        if found is None and await self.store.running([stream]):
            with suppress(StoreError):  # expired meanwhile
                summarised = await self._summarised(self.store.read(stream))
                found = row_of(stream, summarised.summary, summarised.repairs)
        return found

    def _filter(self, caller: str, query: Mapping[str, str]) -> Query:
        """Return what the parameters choose; `q` and the others must all hold."""
        ending, live, before = query.get("ending"), flag(query, "live"), None
        if ending is not None and ending not in get_args(Ending):
            raise bad_parameter("ending", "one of " + ", ".join(get_args(Ending)))
        if live and ending is not None:
            raise bad_parameter("live", "omitted when ending is given")
        if "before" in query:
            before = StreamRow.at(query["before"])
            if before is None:
                raise bad_parameter("before", "the value of next from an earlier page")
        try:
            which, live_too = parse_query(query.get("q", ""), self.wall())
        except QueryError as unclear:
            raise _bad_filter(str(unclear)) from unclear
        if live_too is not None and live not in (None, live_too):
            raise bad_parameter("live", "the same as in q")
        live = live_too if live is None else live
        return Query(
            replace(
                which,
                caller=None if caller == OPERATOR else caller,
                model=query.get("model"),
                route=query.get("route"),
                ending="" if live and ending is None else ending,
                before=before,
            ),
            live,
        )

    async def one(self, caller: str, stream: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return one stream's summary."""
        began = trio.current_time()
        whole = flag(query, "whole") or False
        batches = await self.open(caller, stream, began)
        # First: of a stream that ends meanwhile the end is read, or at least not missed.
        live = stream in self.registry.live
        live = live or (not self.store.holds(stream) and stream in await self.store.running([stream]))
        try:
            summarised, fates = await self._summarised(batches), NO_FATES
            if next(summarised.summary.wire.calls(), None) is not None:
                found = (await self.store.rows([stream])).get(stream)
                fates = fates if found is None else await fates_of(self.store, found, self.wall())
        except StoreError as gone:  # expired meanwhile
            raise await hidden(began, away=isinstance(gone, UnreachableError)) from None
        return summary_json(stream, summarised, live=live, whole=whole, damage=batches.damage, fates=fates)

    async def _summarised(self, batches: Batches) -> Summariser:
        summarised = Summariser()
        async with self.summarising:
            async for batch in batches:
                for at in range(0, len(batch), SLICE_RECORDS):
                    summarised.feed(*batch[at : at + SLICE_RECORDS])
                    await trio.lowlevel.checkpoint()
        return summarised

    async def events(
        self, caller: str, stream: str, query: Mapping[str, str], last_event_id: str | None, held: Charge | None = None
    ) -> AsyncGenerator[bytes]:
        """Return the body of one stream's events, from the beginning or after an id."""
        began = trio.current_time()
        profile = cast("Profile | None", query.get("profile"))
        if profile not in (None, *get_args(Profile)):
            raise bad_parameter("profile", " or ".join(get_args(Profile)))
        await self.open(caller, stream, began)
        after = place_of(query.get("last_event_id", "") if last_event_id is None else last_event_id)
        following = Following(self.store, stream, profile=profile, after=after)
        async with hiding(began):
            await following.begin(held)
        live, shared = self.registry.live.get(stream), self.store.shared
        if shared is not None and not self.store.holds(stream):
            return following.frames(shared.reading(stream))
        return following.frames(nullcontext() if live is None else live.read())

    async def tape(self, caller: str, stream: str, held: Charge | None = None) -> AsyncGenerator[bytes]:
        """Return the body of one stream's tape."""
        began = trio.current_time()
        batches = await self.open(caller, stream, began)
        batches.held = held
        async with hiding(began):
            return _tape(await _first_of(batches), batches)

    async def open(self, caller: str, stream: str, began: float) -> Batches:
        """Return the tape if the caller may see it; raise `AnswerError` otherwise."""
        away = False
        try:
            if is_stream_id(stream):
                if await self._owner(stream) == caller or caller == OPERATOR:
                    return self.store.read(stream)
                # As for a stream that is not here: what is elsewhere, and that it cannot be asked, looks the same.
                await self.store.running([stream])
                away = bool(self.store.partial)
        except UnreachableError:
            away = True
        except StoreError:
            pass
        raise await hidden(began, away=away)

    async def shows(self, caller: str, stream: str) -> bool:
        """Return whether the caller may see a stream."""
        try:
            return await self._owner(stream) == caller or caller == OPERATOR
        except StoreError:
            return False

    async def _owner(self, stream: str) -> str | None:
        """Return a stream's caller, remembered so that repeated requests neither read tapes nor measure time."""
        owner = self._owners.pop(stream, None)
        if owner is None:
            try:
                first, *_ = await anext(self.store.read(stream))
            except (TapeError, StopAsyncIteration):
                return None
            given = first.keys.get("caller") if first.kind == "open" else None
            if not isinstance(given, str):
                return None
            owner = given
        self._owners[stream] = owner
        if len(self._owners) > OWNERS_MAX:
            del self._owners[next(iter(self._owners))]
        return owner


async def _first_of(batches: Batches) -> list[Record]:
    """Return the first batch, empty if a tape has none; what else is wrong with it is reported when it is read on."""
    with suppress(StopAsyncIteration, TapeError):
        return await anext(batches)
    return []


async def _tape(first: list[Record], batches: Batches) -> AsyncGenerator[bytes]:
    """Yield the lines of a tape, byte for byte, and any damage in a last line."""
    damage: list[dict[str, Any]] = []
    yield b"".join(map(encode, first))
    try:
        async for batch in batches:
            yield b"".join([encode(record) for record in batch])
        damage += [fault._asdict() for fault in batches.damage]
    except (WiretapeError, OSError):
        damage.append({"at": None, "reason": "the rest of the tape is no longer available"})
    if damage:
        yield dumps({"damage": damage}) + b"\n"


@asynccontextmanager
async def hiding(began: float) -> AsyncGenerator[None]:
    """Raise `AnswerError` for a stream that has expired, or that is where it cannot be read now."""
    try:
        yield
    except (StreamMissingError, UnreachableError) as gone:
        raise await hidden(began, away=isinstance(gone, UnreachableError)) from None


async def hidden(began: float, *, away: bool = False) -> AnswerError:
    """Return the error for a hidden stream, or for any while the store is `away`, when it reveals nothing."""
    await not_earlier(began)
    return AnswerError(busy("The store cannot be reached. Retry later.", "store_unreachable") if away else not_found())


def row_json(row: StreamRow, *, live: bool) -> dict[str, Any]:
    """Return a row of the list as JSON."""
    shown = {name: getattr(row, name) for name in _SHOWN}
    tools = [{"name": name, "state": state} for name, state in row.tools]
    empty = {name: getattr(row, name) or None for name in ("model", "ending", "path", "created_us")}
    return {"id": row.stream, "live": live, **shown, **empty, "repairs": sum(row.repairs.values()), "tools": tools}


# -- query parameters -------------------------------------------------------------------------------------------------


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(_PAGE))
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) or not 1 <= int(text) <= PAGE_MAX:
        raise bad_parameter("limit", f"a number from 1 to {PAGE_MAX}")
    return int(text)


def flag(query: Mapping[str, str], name: str) -> bool | None:
    """Return a switch; None if it is not given."""
    text = query.get(name)
    if text is not None and text.lower() not in _FLAGS:
        raise bad_parameter(name, "1 or 0")
    return None if text is None else _FLAGS[text.lower()]


def bad_parameter(name: str, allowed: str) -> AnswerError:
    """Return the error for a parameter with another value."""
    message = f"{name} must be {allowed}."
    return AnswerError(error(400, message, type="invalid_request_error", code="invalid_parameter", param=name))


def _bad_filter(message: str) -> AnswerError:
    return AnswerError(error(400, message, type="invalid_request_error", code="invalid_parameter", param="q"))


# -- the events of one stream -----------------------------------------------------------------------------------------


def place_of(last_event_id: str) -> tuple[int, int] | None:
    """Return record and ordinal of the frame a reader has seen last; None, the beginning, for what is not an id."""
    match = _ID.fullmatch(last_event_id.strip())
    return (int(match[1]), int(match[2])) if match else None


class Following:
    """One reader of one stream. It pulls from the tape by position, so a slow reader delays no other."""

    #: What a reader gets after a silence.
    keepalive: bytes = _KEEPALIVE
    #: Records read before other tasks run.
    at_once = SLICE_RECORDS

    def __init__(
        self, store: Store, stream: str, *, profile: Profile | None = None, after: tuple[int, int] | None = None
    ) -> None:
        #: Charged for long lines.
        self.held: Charge | None = None
        self._store = store
        self._stream = stream
        self._after = after
        self._emitter = Emitter(profile)
        self._batches: Batches | None = None
        self._records: list[Record] = []
        self._next_n = 0
        self._ended = False

    async def frames(self, reading: AbstractContextManager[None]) -> AsyncGenerator[bytes]:
        """Yield what `take` returns; meanwhile the context keeps the upstream of a running stream."""
        with reading:
            while (data := await self.take()) is not None:
                yield data

    async def begin(self, held: Charge | None) -> None:
        """Fetch the first records. Raise StoreError if there is no such stream."""
        self.held, self._batches = held, self._store.follow(self._stream)
        self._batches.held = held
        self._records = await _first_of(self._batches)
        self._next_n = self._records[-1].n + 1 if self._records else 0

    async def take(self) -> bytes | None:
        """Return the next frames, or a comment after a silence, or None at the end."""
        while not self._ended:
            records, self._records = self._records[: self.at_once], self._records[self.at_once :]
            data = b"".join(self.shown(records)) if records else await self._wait()
            if data:
                return data
            await trio.lowlevel.checkpoint()
        return None

    async def _wait(self) -> bytes:
        """Fetch the next records; return what to say if there are none."""
        nothing: list[Record] = []
        with trio.move_on_after(FOLLOW_KEEPALIVE_S) as silence:
            try:
                batches = self._batches = self._batches or self._store.follow(self._stream, self._next_n)
                batches.held = self.held
                self._records = await anext(batches, nothing)
            except (WiretapeError, OSError):
                self._ended = True
                message = "the rest of this stream's tape is not available"
                return self.notice("error", {"code": "tape_broken", "message": message})
            if self._records:
                self._next_n = self._records[-1].n + 1
                return b""
            self._ended = True
            return self.notice("damage", [fault._asdict() for fault in batches.damage]) if batches.damage else b""
        assert silence.cancelled_caught, "everything else returns"
        if self._batches is not None and not self._batches.cancellable:
            self._batches = None  # its read may have taken a batch when the deadline cancelled it
        return self.keepalive

    def notice(self, kind: str, value: Any) -> bytes:
        """Return an event without an id, so that no reader resumes after it."""
        return b"event: wiretape.%b\ndata: %b\n\n" % (kind.encode(), dumps({kind: value}))

    def shown(self, records: list[Record]) -> Iterator[bytes]:
        """Yield what the reader gets because of these records."""
        for record in records:
            ordinal = 0
            for given in self._emitter.feed(record):
                for frame in _blocks(given, record):
                    if self._after is None or (record.n, ordinal) > self._after:
                        yield _with_id(frame, record, b"%d.%d" % (record.n, ordinal))
                    ordinal += 1


def _blocks(given: bytes, record: Record) -> list[Frame | bytes]:
    """Split emitted bytes into frames; bytes that are not frames, such as a plain body, stay as they are."""
    if record.kind == "keepalive":  # followers have keepalives of their own
        return []
    if record.kind in _NOT_FRAMES and given is record.raw:
        return [given]
    if given.startswith(b"data: ") and given.find(_END) == len(given) - 2:
        return [parse_block(given)]
    if record.kind == "frame" or given.startswith((b"data: ", b"event: ")):
        decoder = Decoder(len(given), len(given), first="bom" in record.keys)
        frames = decoder.feed(given) + decoder.close()
        if not decoder.rest:
            return [*frames]
    return [given]


def _with_id(frame: Frame | bytes, record: Record, name: bytes) -> bytes:
    if isinstance(frame, bytes):
        fields: dict[str, Any] = {"status": record.keys["status"]} if "status" in record.keys else {}
        try:
            fields["text"] = frame.decode()
        except UnicodeDecodeError:
            fields["b64"] = base64.b64encode(frame).decode()
        return b"event: wiretape.bytes\nid: %b\ndata: %b\n\n" % (name, dumps(fields))
    raw = frame.raw
    if frame.payload is None:  # an id without data would be an event of its own to some readers
        return raw
    if "bom" in record.keys:
        raw = raw.removeprefix(BOM)
    if frame.id is not None:  # the last id counts
        return b"%b\nid: %b\n\n" % (raw.strip(b"\r\n"), name)
    return b"id: %b\n%b" % (name, raw.lstrip(b"\r\n"))


# -- the summary of one stream ----------------------------------------------------------------------------------------


def summary_json(
    stream: str,
    summarised: Summariser,
    *,
    live: bool = True,
    whole: bool = False,
    damage: Sequence[Damage] = (),
    fates: Mapping[str, Fate] = NO_FATES,
) -> dict[str, Any]:
    """Return everything known of a stream; with `whole`, the texts themselves and not only their lengths.

    `live` says whether a server still writes to a tape without an end.
    """
    summary, end = summarised.summary, summarised.summary.end
    live, error = live and end is None, summary.wire.error
    faults: list[dict[str, Any]] = [fault._asdict() for fault in damage]
    if end is None and not (live or faults):
        faults = [{"at": None, "reason": "the tape has no end"}]
    warnings = _of_damaged(summary) if faults else summary.warnings
    return {
        "id": stream,
        **{name: summary.opening.get(name) for name in ("created", "route", "dialect", "profile")},
        "model": summary.facts.get("model") or summary.wire.model or None,
        "live": live,
        "status": summary.status,
        "ending": summary.ending,
        "flags": summary.flags,
        **{name: end and end.keys.get(name) for name in ("cause", "answer")},
        "error": None if error is None else {"message": error.message, "code": error.code},
        "attempts": summary.attempts,
        "timing": {**{name: getattr(summary, name) for name in _TIMES}, "duration_us": summary.t},
        "usage": summary.wire.usage,
        "message": {"id": summary.wire.id, "answers": list(_answers(summary, whole))} if summary.dialect else None,
        "tools": list(_tools(summary, whole, fates, damaged=bool(faults))) if summary.dialect else [],
        "results": as_list(summary.results.get("results")),
        "history": summary.history,
        "warnings": [
            {"code": code, "calls": [{"id": call, "name": name} for call, name in calls]} for code, calls in warnings
        ],
        "repairs": summarised.repairs,
        "received": summary.received,
        "records": summary.records,
        "damage": faults,
    }


def _answers(summary: StreamSummary, whole: bool) -> Iterator[dict[str, Any]]:
    for index, text, reasoning, refusal, finish in summary.answers:
        texts = {"text": text, "reasoning": reasoning, "refusal": refusal}
        lengths = {f"{name}_chars": len(value) for name, value in texts.items()}
        yield {"index": index, "finish": finish or None, **lengths, **(texts if whole else {})}


def _of_damaged(summary: StreamSummary) -> list[Warned]:
    """Return the warnings of a damaged tape: no more than what its end states, and the calls that look lost."""
    stated = [warned.code for warned in summary.warnings if warned.code in (summary.ending, *summary.flags)]
    calls = tuple(call for warned in summary.warnings for call in warned.calls)
    return [Warned("damaged", calls), *(Warned(code, ()) for code in dict.fromkeys(stated))]


def _tools(
    summary: StreamSummary, whole: bool, fates: Mapping[str, Fate], *, damaged: bool
) -> Iterator[dict[str, Any]]:
    for call in summary.wire.all_calls():
        arguments, by_upstream = call.arguments, call.number <= UPSTREAM_CALL
        fate = None if by_upstream else fates.get(call.id)
        state, reason = call.state.value, call.reason or None
        if fate is not None and (damaged or call.state is State.RUNNING):
            state, reason = fate.state.value, None
        elif damaged:  # what is missing may have completed it
            state, reason = "unknown", "damaged"
        yield {
            "id": call.id,
            "name": call.name,
            "choice": call.choice,
            "run_by": "upstream" if by_upstream else "client",
            "state": state,
            "reason": reason,
            "answered_by": (fate and fate.answered_by) or None,
            "duration_ms": fate and fate.duration_ms,
            "moves": [{"n": n, "state": state.value} for n, state in call.moves],
            "arguments_chars": len(arguments),
            **({"arguments": arguments} if whole else {}),
        }
