"""The laws of runs over generated turns, whole and cut, and over junk in the records that only runs have."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams, tool_streams
from tests.support.chat import sse
from tests.support.runs import CLOSING, outputs, play, relayed, start, turn
from wiretape.events.core.json_text import dumps
from wiretape.events.emit import RunReader, summarise
from wiretape.events.folds.run import RunFold
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record, decode, encode
from wiretape.events.tape.tape import Recorder

CAUSES = st.sampled_from(["eof", "eof", "eof", "reset", "stalled", "limit", "client_gone", "crashed", "shutdown"])
BODIES = st.sampled_from([{}, {"stream_tool_arguments": True}])
SETTINGS = st.sampled_from([{}, {"tools": "held"}, {"hermes": True}])
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
#: Members of the records and events of runs, of which each may be junk.
MEMBERS: dict[str, list[Any]] = {
    "what": ["start", "outputs", "stop", "expired"],
    "why": ["asked", "waited"],
    "mode": ["own", "relay"],
    "turn": [1, 2],
    "status": ["completed", "failed", "cancelled"],
    "output": ["a"],
    "usage": [{"input_tokens": 1, "output_tokens": 2}],
    "error": ["b", {"message": "c"}],
    "tool_outputs": [[{"call_id": "c0", "output": "x"}]],
    "model": ["m"],
    "delta": ["d\ud83d", "\ude00"],
    "text": ["t"],
    "tool": ["f", "g"],
    "duration": [1.5],
    "choice": ["once"],
    "resolved": [1],
    "event": [
        "message.delta",
        "reasoning.delta",
        "reasoning.available",
        "tool.started",
        "tool.completed",
        "approval.request",
        "approval.responded",
        "run.failed",
    ],
}


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from([*MEMBERS]), max_size=8, unique=True))
    return {name: draw(st.sampled_from(MEMBERS[name]) if draw(st.integers(0, 3)) else JUNK) for name in names}


@st.composite
def own_runs(draw: st.DrawFn) -> list[list[Record]]:
    """Turns that follow one another as the proxy writes them, until the run is closed or waits."""
    more: Any = {"settings": draw(SETTINGS), "body": draw(BODIES)}
    tapes = [start(*_reads(draw), cause=draw(CAUSES), **more)]
    while play(*tapes).run.status == "waiting_for_tools" and len(tapes) < 3:
        number = len(tapes) + 1
        ids: dict[str, str | list[Any]] = dict.fromkeys(play(*tapes).run.pending, draw(st.sampled_from(["x", "", "y"])))
        what = draw(st.sampled_from(["outputs", "outputs", "stop", "expired", "stopped"]))
        if what in ("stop", "expired"):
            tapes.append(turn(number, what, keys={"why": "asked"}, cause="client_gone"))
        else:
            stop: list[Any] = [("stop", {"why": "unwatched"})] if what == "stopped" else []
            tapes.append(outputs(*_reads(draw), *stop, number=number, **ids))
    return tapes


def _reads(draw: st.DrawFn) -> list[Any]:
    data = draw(streams() | tool_streams() | agent_streams())
    places = sorted({0, *draw(st.lists(st.integers(0, len(data)), max_size=3)), len(data)})
    return [data[begin:end] for begin, end in pairwise(places) if begin < end]


@st.composite
def junk_runs(draw: st.DrawFn) -> list[list[Record]]:
    """Tapes whose records of runs, and whose upstream, say anything in any order."""
    kinds = st.sampled_from(["run", "stop", "recovered", "approval", "upstream_run", "attempt", "failed", "head"])
    tapes: list[list[Record]] = []
    for number in range(draw(st.integers(1, 3))):
        parts: list[Any] = []
        for _ in range(draw(st.integers(0, 5))):
            if draw(st.booleans()):
                parts.append(sse(json.dumps(draw(objects())).encode()))
            else:
                parts.append((draw(kinds), draw(objects()), draw(objects().map(dumps) | st.binary(max_size=3))))
        opening: dict[str, Any] = draw(
            st.fixed_dictionaries({}, optional={"run": JUNK, "stream": JUNK, "created_us": JUNK, "session": JUNK})
        )
        mode: Any = draw(st.sampled_from(["own", "relay"]))
        what: Any = draw(st.sampled_from(["start", "start", *MEMBERS["what"]]) | JUNK)
        tapes.append(turn(number, what, draw(objects()), parts, mode=mode, cause=draw(CAUSES), **opening))
    return tapes


@given(own_runs())
def test_a_run_is_closed_once_or_waits(tapes: list[list[Record]]) -> None:
    played = play(*tapes)
    assert played.names[-1] in {*CLOSING, "run.waiting_for_tools"}
    assert sum(name in CLOSING for name in played.names) == (played.run.status != "waiting_for_tools")
    started = [one["call_id"] for one in played.of("tool.started")]
    waited = [call["call_id"] for one in played.of("run.waiting_for_tools") for call in one["calls"]]
    assert {*waited} <= {*started}
    for one in played.of("tool.completed"):
        started.remove(one["call_id"])
    assert bool(played.run.pending) is (played.run.status == "waiting_for_tools")


@given(own_runs())
def test_the_output_is_the_text_of_the_last_turn(tapes: list[list[Record]]) -> None:
    played = play(*tapes)
    before = play(*tapes[:-1]).events
    deltas = "".join(event["delta"] for event in played.events[len(before) :] if event["event"] == "message.delta")
    if played.last["event"] == "run.completed":
        summary = summarise(tapes[-1])
        assert played.last["output"] == played.run.output == deltas == summary.answer().text
        assert summary.ending == "completed"


@given(own_runs())
def test_streamed_arguments_are_those_of_the_call(tapes: list[list[Record]]) -> None:
    played = play(tapes[0])
    pieces: dict[str, str] = {}
    for one in played.of("tool.arguments.delta"):
        pieces[one["call_id"]] = pieces.get(one["call_id"], "") + one["delta"]
    for one in played.of("run.waiting_for_tools"):
        for call in one["calls"]:
            assert not pieces or pieces.get(call["call_id"], "") == call["arguments"]


@settings(max_examples=60)
@given(own_runs() | junk_runs(), st.data())
def test_every_prefix_has_a_state_and_its_events_stay(tapes: list[list[Record]], data: st.DataObject) -> None:
    records = [record for tape in tapes for record in tape]
    events = play(records).events
    place = data.draw(st.integers(0, len(records)))
    prefix = play(records[:place])
    assert prefix.events == events[: len(prefix.events)]


@settings(max_examples=60)
@given(own_runs() | junk_runs(), st.data())
def test_live_and_read_from_disk_are_the_same_in_any_portions(tapes: list[list[Record]], data: st.DataObject) -> None:
    records = [record for tape in tapes for record in tape]
    reader = RunReader()
    live = [frame for record in records for frame in reader.feed(record)]
    again: list[Record] = []
    for record in records:
        decoded = decode(encode(record)[:-1])
        assert isinstance(decoded, Record)
        again.append(decoded)
    place = data.draw(st.integers(0, len(again)))
    stored = RunReader()
    assert [*stored.feed(*again[:place]), *stored.feed(*again[place:])] == live
    assert _state(stored.run) == _state(reader.run)


def _state(run: RunFold) -> dict[str, Any]:
    kept = {key: value for key, value in vars(run).items() if not key.startswith("_")}
    return {**kept, "output": run.output, "usage": run.usage}


def test_records_without_an_open_are_no_run() -> None:
    fold = RunFold()
    assert fold.take(Record(0, 5, "frame", raw=b"data: 1\n\n"), Wire(), []) == []
    assert play(start()[1:]).run.run_id == ""


def test_frames_that_were_recognised_by_their_shape_give_the_same_events() -> None:
    pieces = [sse({"event": "message.delta", "delta": word}) for word in ("one", "two", "three \U0001f600")]
    read = relayed(*pieces)
    recorder = Recorder(skim=True)
    skimmed: list[Record] = []
    for record in read:
        if record.kind == "frame":
            skimmed += recorder.read(record.t, record.raw or b"")
        else:
            skimmed.append(recorder.record(record.kind, record.t, record.keys, record.raw))
    assert any(record.shape for record in skimmed)
    assert play(skimmed).events == play(read).events
