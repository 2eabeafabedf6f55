"""Every tool stream cut at every frame, and twenty of them at every byte: no half call is ever taken for whole."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.laws.said import Said, payloads, said
from tests.laws.variants import FULL, frame_ends
from tests.support.chat import tape
from tests.support.corpus import PROTOCOLS, Stream, drawn, load, needs_corpus
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Ended
from wiretape.events.emit import Emitter, events, summarise
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record

pytestmark = [pytest.mark.slow, needs_corpus]

REQUEST = {"stream": True, "n": None}
MARKS = {
    "chat": (b'"tool_calls":[', b'function_call":{'),
    "responses": (b'"type":"function_call"', b'"type":"custom_tool_call"'),
    "messages": (b'"type":"tool_use"',),
}


def tool_streams(dialect: str, one_in: int = 1) -> list[Stream]:
    """The captured streams that hold a call; all in `make laws`, else the first of each provider and one in so many."""
    holding = [
        stream
        for stream in load(PROTOCOLS[dialect])
        if any(mark in stream.body.replace(b" ", b"") for mark in MARKS[dialect])
    ]
    return [stream for _, stream in drawn(holding, one_in)]


def one_of_each_provider(dialect: str, count: int) -> list[Stream]:
    """The shortest tool stream of every provider that has calls, then more of the shortest."""
    by_size = sorted(tool_streams(dialect), key=lambda stream: len(stream.body))
    first: dict[str, Stream] = {}
    for stream in by_size:
        first.setdefault(stream.provider, stream)
    chosen = list(first.values())
    return (chosen + [stream for stream in by_size if stream not in chosen])[:count]


def check(body: bytes, key: str, dialect: str, **settings: Any) -> None:
    """One ending; a warning names the calls that are open, and only them; nothing half is taken for whole."""
    records = tape(body, request=REQUEST, dialect=dialect, **settings)
    assert sum(isinstance(event, Ended) for event in events(records)) == 1
    wire, found = sent(records, dialect)
    warnings = summarise(records).warnings
    named = sorted(call for warning in warnings for call in warning.calls if call[0] not in wire.ran)
    lost = lost_by_finish(wire) if dialect == "chat" else lost_by_frames(said(payloads(body), dialect), found)
    assert named == sorted(lost), key
    check_states(wire, found, key, dialect)


def sent(records: list[Record], dialect: str) -> tuple[Wire, Said]:
    """Return the live state at the end, and what the client's bytes say to a plain reader."""
    emitter = Emitter()
    out = b"".join(frame for record in records for frame in emitter.feed(record))
    return emitter.wire, said(payloads(out), dialect)


def lost_by_finish(wire: Wire) -> Iterator[tuple[str, str]]:
    """The oracle of chat, from texts alone: calls of a choice whose finish is missing or does not cover them."""
    for choice in wire.choices.values():
        broken = [call for call in choice.calls.values() if not is_json(call.arguments)]
        if choice.finish in ("", "length", "content_filter") or broken:
            yield from ((call.id, call.name) for call in choice.calls.values())


def lost_by_frames(came: Said, found: Said) -> Iterator[tuple[str, str]]:
    """The oracle of the others: calls that came, and whose last frame the client did not get."""
    for (_, call_id), name in came.names.items():
        if call_id not in found.runnable:
            yield call_id, name


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def check_states(wire: Wire, found: Said, key: str, dialect: str) -> None:
    assert wire.ended is not None
    for call in wire.calls():
        assert call.state in (State.RUNNING, State.DROPPED, State.MALFORMED), key
        assert call.state is not State.RUNNING or call.custom or is_json(call.arguments), key
        if dialect != "chat":
            assert (call.state is State.RUNNING) == (call.id in found.runnable), key
    lost = [
        call
        for call in wire.calls()
        if call.state is not State.RUNNING and call.reason not in ("length", "content_filter")
    ]
    assert bool(found.done) == (wire.ended.ending == "completed" and not lost), key
    if lost:
        named = [call["name"] for call in found.errors[-1].get("dropped_tools", ())]
        assert named == [call.name for call in lost] or wire.ended.ending == "upstream_error", key


@pytest.mark.parametrize("part", range(16))
@pytest.mark.parametrize("dialect", PROTOCOLS)
def test_cut_at_every_frame(dialect: str, part: int) -> None:
    """All in `make laws`; in the default suite one of twelve streams, and of one with many frames about forty."""
    for stream in tool_streams(dialect, one_in=12)[part::16]:
        ends = list(frame_ends(stream.body))
        for end in ends if FULL else ends[:: 1 + len(ends) // 40]:
            check(stream.body[:end], f"{stream.id} cut at {end}", dialect)


@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("dialect", PROTOCOLS)
def test_cut_at_every_byte(dialect: str, number: int) -> None:
    """At every byte in `make laws`, at every 121st in the default suite."""
    stream = one_of_each_provider(dialect, 20)[number]
    for end in range(0 if FULL else number, len(stream.body), 1 if FULL else 121):
        check(stream.body[:end], f"{stream.id} cut at {end}", dialect)


@pytest.mark.parametrize("mode", ["warn", "both"])
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("dialect", PROTOCOLS)
def test_held_calls_of_a_cut_stream_are_never_seen(dialect: str, part: int, mode: str) -> None:
    """All of them at every frame in `make laws`, one of twelve at every seventh in the default suite."""
    for stream in tool_streams(dialect, one_in=12)[part::8]:
        ends = list(frame_ends(stream.body))
        for end in ends if FULL else ends[len(stream.id) % 7 :: 7]:
            records = tape(stream.body[:end], request=REQUEST, dialect=dialect, on_partial=mode, tools="held")
            wire, found = sent(records, dialect)
            whole = {(call.choice, call.name) for call in wire.calls() if call.state is State.RUNNING}
            # Clients of the others run a call at its last frame, so with `both` only that one is held.
            seen = {call_id for _, call_id in found.names} if dialect == "chat" or mode == "warn" else found.runnable
            names = {(choice, name) for (choice, call_id), name in found.names.items() if call_id in seen}
            assert names == whole, f"{stream.id} cut at {end}"
