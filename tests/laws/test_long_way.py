"""Frames that are known to be canonical take a short way through the core: the long way must come to the same."""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams, tool_streams
from tests.laws.variants import FULL
from tests.support.chat import DONE, call, finish, tape, text
from tests.support.corpus import load, needs_corpus, sampled
from wiretape.events.chat.calls import Calls
from wiretape.events.chat.repair import Repair
from wiretape.events.core.limits import KEPT_CHARS_MAX
from wiretape.events.core.model import Event
from wiretape.events.emission.emit import Emitter
from wiretape.events.tape.record import Record

pytestmark = pytest.mark.slow


MODES: Final = [(sink, repairs) for sink in (True, False) for repairs in (True, False)]


def _no(*_: object) -> bool:
    return False


def _nothing(*_: object) -> None:
    return None


def told(records: Iterable[Record], *, sink: bool, repairs: bool) -> list[Any]:
    """All that comes of a tape: what goes out for each record, the events, and what the live path knows behind it."""
    events: list[Event] = []
    emitter = Emitter(sink=events.append if sink else None, repairs=repairs)
    said: list[Any] = []
    for record in records:
        frames = emitter.feed(record._replace(value=record.read().value))
        calls = [(call.id, call.name, call.arguments, call.state, call.reason) for call in emitter.wire.all_calls()]
        said.append((frames, calls, emitter.wire.ending("eof"), emitter.wire.all_flags(), emitter.wire.overflow))
    return [*said, events, emitter.ledger.counts]


def check(records: list[Record], modes: Sequence[tuple[bool, bool]] = MODES) -> int:
    """How many frames were looked at for a short way for arguments. `modes`: a sink, and whether to tell repairs."""
    with mock.patch.object(Calls, "go_on", autospec=True, side_effect=Calls.go_on) as went:
        short = [told(records, sink=sink, repairs=repairs) for sink, repairs in modes]
    with mock.patch.multiple(Repair, plain=_no, arguments=_nothing, steady=_nothing):
        assert short == [told(records, sink=sink, repairs=repairs) for sink, repairs in modes]
    return went.call_count


@needs_corpus
def test_every_captured_stream_comes_to_the_same_the_long_way() -> None:
    request = {"stream": True, "n": None}
    chosen = load() if FULL else [stream for _, stream in sampled(one_in=40)]
    went = sum(check(tape(stream.body, request=request, tools=mode)) for stream in chosen for mode in ("live", "held"))
    assert went > len(chosen)


@given(
    body=streams() | agent_streams() | tool_streams(),
    cut=st.integers(0, 400),
    reads=st.sampled_from([None, 7, 100]),
    tools=st.sampled_from(["live", "held"]),
)
def test_any_stream_comes_to_the_same_the_long_way(body: bytes, cut: int, reads: int | None, tools: str) -> None:
    check(tape(body[: max(0, len(body) - cut)], reads=reads, request={"stream": True, "n": None}, tools=tools))


_PIECES: Final = ['{"', "a", '":', "[", "]", "}", "{}", '"', "\\", "1", "", "longer than eight", "{}{", '{"a":1}']
_STARTS: Final = [
    call(index=0, id="c", type="function", name="f", arguments=""),
    call(index=0, id="c", type="function", name="f", arguments="{}"),
    call(index=0, id="c", type="function", arguments=""),
    call(index=1, id="d", type="function", name="g", arguments=""),
    call(index=0, id="e", type="custom", custom={"name": "h", "input": "x"}),
]
_MORE: Final[list[dict[str, Any]]] = [{}, {}, {}, {"id": "c"}, {"id": ""}, {"name": "f"}, {"type": "function"}]
_BETWEEN: Final = [*_STARTS, text("and"), b": ping\n\n", finish("tool_calls")]


_INDEXES: Final[list[list[Any]]] = [[0], [0, 1], [0, 2], [0, True], [False]]


def more(arguments: str, index: Any = 0, **members: Any) -> bytes:
    """One more piece."""
    return call(index=index, arguments=arguments, **members)


@st.composite
def pieces(draw: st.DrawFn) -> list[bytes]:
    """Calls in pieces that may be anything, of a few that come again and again, with what may stand between them."""
    said = st.sampled_from(draw(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=3)))
    index, members = st.sampled_from(draw(st.sampled_from(_INDEXES))), draw(st.sampled_from(_MORE))
    piece = st.builds(more, said, index, **{name: st.just(value) for name, value in members.items()})
    behind = draw(st.lists(piece | piece | piece | st.sampled_from(_BETWEEN), max_size=12))
    return [text("hi", role=True), draw(st.sampled_from(_STARTS)), *behind, finish("tool_calls"), DONE]


@given(frames=pieces(), tools=st.sampled_from(["live", "held"]))
def test_any_pieces_of_arguments_come_to_the_same_the_long_way(frames: list[bytes], tools: str) -> None:
    check(tape(frames, tools=tools))


@pytest.mark.parametrize(
    "frames",
    [
        [_STARTS[0], more('{"a":'), more("1}"), more('{"b":'), more("2}")],
        [_STARTS[0], more('{"a":1}{'), more('"b":2}')],
        [_STARTS[0], more('["a"]["b'), more('"]')],
        [_STARTS[0], more('{"a":1}'), more('{"'), more('b":2}')],
        [_STARTS[1], more('{"a":'), more("1}")],
        [_STARTS[1], text("and"), more('{"a":'), more("1}")],
        [_STARTS[1], text("and"), more("[1"), more(",2")],
        [_STARTS[2], more('{"a":'), more("1}")],
        [_STARTS[0], _STARTS[3], more('{"a"', 1), more('{"b"'), more(":1}", 1), more(":2}")],
        [call(index=3, id="c", type="function", name="f", arguments=""), more('{"a":', 3), more("1}", 3)],
        [_STARTS[0], more('{"a":', False), more("1}", 0.0)],
        [_STARTS[0], more('{"'), more("over and over"), more("over and over"), more('":1}')],
        [_STARTS[0], more(""), more('"text')],
        [_STARTS[0], call(index=0, arguments='{"a":', name="f"), call(index=0, arguments="1", id="c"), more("}")],
        [_STARTS[0], call(role=True, index=0, arguments='{"a":'), more("1}")],
        [
            _STARTS[0],
            more('{"'),
            call(index=1, id="b", type="function", name="g", arguments="{}"),
            more("a"),
            more('":1}'),
        ],
        [call(index=0, id="c", type="custom", custom={"name": "f", "input": "ls"}), more('{"a":'), more("1}")],
        [call(index=0, id="c", type="custom", custom={"name": "f", "input": ""}), more("a"), more("b")],
    ],
    ids=range(18),
)
@pytest.mark.parametrize("tools", ["live", "held"])
def test_pieces_of_which_each_has_a_rule_of_its_own(frames: list[bytes], tools: str) -> None:
    check(tape([text("hi", role=True), *frames, finish("tool_calls"), DONE], tools=tools))
    check(tape([text("hi", role=True), *frames], tools=tools))


@pytest.mark.parametrize("more_text", [text("and"), more('"a')], ids=["text", "arguments"])
@pytest.mark.parametrize("tools", ["live", "held"])
def test_results_in_the_middle_are_told_with_the_next_frame(more_text: bytes, tools: str) -> None:
    frames = [text("hi", role=True), _STARTS[0], more('{"path":'), more_text, more_text, finish("tool_calls"), DONE]
    records = tape(frames, tools=tools)
    results = [{"id": "r", "name": "read", "output": "x", "failed": False}]
    for at in range(3, len(records) - 1):
        again = [*records[:at], Record(0, records[at].t, "results", {"results": results}), *records[at:]]
        check([record._replace(n=n) for n, record in enumerate(again)])


def test_more_than_any_stream_holds_ends_it_the_same() -> None:
    """8 MB each; with every sink in `make laws`."""
    modes = MODES if FULL else MODES[:1]
    piece = "x" * (KEPT_CHARS_MAX // 3)
    check(
        tape(
            [text("hi", role=True), _STARTS[0], more('{"'), *[more(piece)] * 2, more(piece[:-5_000]), *[more("ab")] * 9]
        ),
        modes,
    )
    check(
        tape(
            [text("hi", role=True), _STARTS[0], more('{"'), *[more(piece + str(n)) for n in range(4)], text("behind")]
        ),
        modes,
    )


def test_a_piece_of_arguments_takes_the_short_way() -> None:
    frames = [text("hi", role=True), _STARTS[0], more('{"path":'), more('"a'), more('b"'), more("}")]
    with mock.patch.object(Repair, "frame", autospec=True, side_effect=Repair.frame) as long:
        emitter = Emitter()
        out = [emitter.feed(record) for record in tape(frames)]
    assert long.call_count == 3  # the first two, and what ends a value
    assert out[4:7] == [[frame] for frame in frames[2:5]]
