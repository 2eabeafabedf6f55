"""Every tool stream cut at every frame, and twenty of them at every byte: no half call is ever taken for whole."""

import json
from collections.abc import Iterable, Iterator

import pytest

from tests.laws.variants import FULL
from tests.support.chat import DONE, tape
from tests.support.corpus import Stream, drawn, load, needs_corpus
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Ended, Event
from wiretape.events.emit import Emitter, emit, events, summarise
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record
from wiretape.events.wire.sse import Decoder

pytestmark = [pytest.mark.slow, needs_corpus]

REQUEST = {"stream": True, "n": None}


def tool_streams(one_in: int = 1) -> list[Stream]:
    """The captured streams that hold a call; all in `make laws`, else the first of each provider and one in so many."""
    holding = [
        stream
        for stream in load()
        if b'"tool_calls":[' in stream.body.replace(b" ", b"") or b'function_call":{' in stream.body
    ]
    return [stream for _, stream in drawn(holding, one_in)]


def one_of_each_provider(count: int) -> list[Stream]:
    """The shortest tool stream of every provider that has calls, then more of the shortest."""
    by_size = sorted(tool_streams(), key=lambda stream: len(stream.body))
    first: dict[str, Stream] = {}
    for stream in by_size:
        first.setdefault(stream.provider, stream)
    chosen = list(first.values())
    return (chosen + [stream for stream in by_size if stream not in chosen])[:count]


def frame_ends(body: bytes) -> Iterator[int]:
    """Yield the place after every frame."""
    at = 0
    for frame in Decoder().feed(body):
        at += len(frame.raw)
        yield at


def check(records: list[Record], key: str) -> None:
    """One ending; a warning names the calls that are open, and only them; nothing half is taken for whole."""
    seen = list(events(records))
    assert sum(isinstance(event, Ended) for event in seen) == 1
    summary = summarise(records)
    named = sorted(call for warning in summary.warnings for call in warning.calls)
    assert named == sorted(lost_calls(summary.wire)), key
    check_states(seen, records, key)


def lost_calls(wire: Wire) -> Iterator[tuple[str, str]]:
    """The oracle, from texts alone: calls of a choice without a finish, or with one that does not cover them."""
    for said in wire.choices.values():
        broken = [call for call in said.calls.values() if not is_json(call.arguments)]
        if said.finish in ("", "length", "content_filter") or broken:
            yield from ((call.id, call.name) for call in said.calls.values())


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def check_states(seen: list[Event], records: Iterable[Record], key: str) -> None:
    emitter = Emitter()
    sent = [frame for record in records for frame in emitter.feed(record)]
    ended = seen[-1]
    assert isinstance(ended, Ended)
    for call in emitter.wire.calls():
        assert call.state in (State.RUNNING, State.DROPPED, State.MALFORMED), key
        assert call.state is not State.RUNNING or is_json(call.arguments), key
    lost = [
        call
        for call in emitter.wire.calls()
        if call.state is not State.RUNNING and call.reason not in ("length", "content_filter")
    ]
    whole = ended.ending == "completed" and not lost
    assert (DONE in sent) == whole, key
    if lost:
        told = json.loads(sent[-1].partition(b"data: ")[2])["error"]
        assert [call["name"] for call in told["dropped_tools"]] == [
            call.name for call in lost
        ] or ended.ending == "upstream_error"


@pytest.mark.parametrize("part", range(16))
def test_cut_at_every_frame(part: int) -> None:
    """All in `make laws`; in the default suite one of three streams, and of one with many frames about forty."""
    for stream in tool_streams(one_in=3)[part::16]:
        ends = list(frame_ends(stream.body))
        for end in ends if FULL else ends[:: 1 + len(ends) // 40]:
            check(tape(stream.body[:end], request=REQUEST), f"{stream.id} cut at {end}")


@pytest.mark.parametrize("number", range(20))
def test_cut_at_every_byte(number: int) -> None:
    """At every byte in `make laws`, at every 61st in the default suite."""
    stream = one_of_each_provider(20)[number]
    for end in range(0 if FULL else number, len(stream.body), 1 if FULL else 61):
        check(tape(stream.body[:end], request=REQUEST), f"{stream.id} cut at {end}")


@pytest.mark.parametrize("mode", ["warn", "both"])
@pytest.mark.parametrize("part", range(8))
def test_held_calls_of_a_cut_stream_are_never_seen(part: int, mode: str) -> None:
    """All of them at every frame in `make laws`, one of three at every seventh in the default suite."""
    for stream in tool_streams(one_in=3)[part::8]:
        ends = list(frame_ends(stream.body))
        for end in ends if FULL else ends[len(stream.id) % 7 :: 7]:
            records = tape(stream.body[:end], request=REQUEST, on_partial=mode, tools="held")
            whole = set(_running(records))
            assert _seen_by_a_client(emit(records)) == whole, f"{stream.id} cut at {end}"


def _running(records: list[Record]) -> Iterator[tuple[int, str]]:
    emitter = Emitter()
    for record in records:
        emitter.feed(record)
    yield from ((call.choice, call.name) for call in emitter.wire.calls() if call.state is State.RUNNING)


def _seen_by_a_client(sent: bytes) -> set[tuple[int, str]]:
    found: set[tuple[int, str]] = set()
    for frame in Decoder().feed(sent):
        if frame.payload is None or frame.payload == b"[DONE]":
            continue
        for choice in json.loads(frame.payload).get("choices", ()):
            delta = choice["delta"]
            entries = [entry["function"] for entry in delta.get("tool_calls", ()) if "function" in entry]
            entries += [delta["function_call"]] if "function_call" in delta else []
            found.update((choice["index"], entry["name"]) for entry in entries if "name" in entry)
    return found
