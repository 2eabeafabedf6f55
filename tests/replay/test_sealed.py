"""The sealed form: every tape comes back record by record, from files that a person can read."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.variants import FULL
from tests.replay.captured import each_protocol, recorded
from tests.replay.made import stream
from tests.support.corpus import sampled
from tests.support.make_fixtures import TAPES
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, parse, values_at_most
from wiretape.events.core.limits import TIMES_VALUES_MAX
from wiretape.events.tape.record import Record
from wiretape.events.tape.record import encode as line_of
from wiretape.events.tape.tape import Reader, Recorder, reads
from wiretape.events.wire.sse import BOM
from wiretape.replay.playback.script import event_stream, json_answer
from wiretape.replay.sealed import files
from wiretape.replay.sealed.sealed import decode, encode

STREAMS = [Reader().feed(TAPES[name]) for name in sorted(TAPES)]

# -- any recorder-made tape -------------------------------------------------------------------------------------------

_PIECES: Final = (
    b'data: {"choices":[{"index":0,"delta":{"content":"h\xc3\xa9\\ud83d"}}]}\n\n',
    b'event: message_start\ndata: {"a":1}\n\n', b"data: [DONE]\n\n", b": hi\n\n", b"data: 1\r\n\r\n", b"data:{}\n\n",
    b"data: x\ndata: y\n\n", BOM, b"\r", b"\n", b"\n\n", b"data: {", b"\xff\xfe", b"data: \xe2\x80\xa8\n\n",
    b"id: 1\n\n", b'data: {"data":{"k":"fold"}}\n\n',
)  # fmt: skip

_BODIES: Final = st.lists(st.sampled_from(_PIECES) | st.binary(max_size=30), max_size=8).map(b"".join)
_JSON_BODIES: Final = (
    b'{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}],"tools":[ {} ]}',
    b'{"messages": [{"a": 1}, {"b": 2}], "messages": [], "input": [1, "x"]}',
    b'{"messages":[],"messages":[{"a":1}]}',
    b'{\n  "messages": [\n    {}\n  ]\n}',
    b"[1,2]",
    b'"text"',
    b"\x00\xff\n\xfe",
    b"12\n34\n",
)
_KEYS: Final = st.dictionaries(
    st.sampled_from(["status", "headers", "split", "own", "at", "cuts_", "é", "more"]),
    st.sampled_from([1, None, "x", [["a", "b"]], {"own": 1}, True, 1.5]),
    max_size=3,
)
_KINDS: Final = st.sampled_from(
    ["head", "failed", "results", "history", "commit", "keepalive", "gone", "request", "clock", "fold", "message",
     "item", "tool", "text", "answer", "uploaded", "=", "=fold", "novel", "open"]
)  # fmt: skip


@st.composite
def _reads_of(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    body = draw(_BODIES)
    places = sorted(draw(st.sets(st.integers(1, max(1, len(body) - 1)), max_size=6))) if len(body) > 1 else []
    parts = [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
    return [(draw(st.integers(0, 1_000)), part) for part in parts if part]


@st.composite
def tapes(draw: st.DrawFn, long: int = 300_000) -> list[Record]:
    """Draw a recording: several attempts, streams and bodies, with any records between them, ended or not."""
    recorder, t = Recorder(), 0
    lengthy = (b"x" * (long // 15) + b"\n" + "ü".encode() * (long // 15), b'{"input":"' + b"y" * long + b'"}')
    bodies = st.sampled_from([*_JSON_BODIES, *lengthy])
    dialect = draw(st.sampled_from(["chat", "", "novel"]))
    opened = {"format": 1, "stream": "s", "created": draw(st.integers(0, 9)), "dialect": dialect, "caller": "c"}
    records = [recorder.record("open", 0, opened)] if draw(st.booleans()) else []

    def between() -> None:
        for _ in range(draw(st.integers(0, 2))):
            body = draw(st.none() | bodies | st.binary(max_size=9))
            verbatim = draw(st.booleans())
            records.append(recorder.record(draw(_KINDS), t, draw(_KEYS), body, verbatim=verbatim))

    def uploaded() -> None:
        for _ in range(draw(st.integers(0, 3))):
            body = draw(bodies | st.binary(min_size=1, max_size=5))
            records.append(recorder.record("upload", t, body=body, verbatim=False))

    for number in range(draw(st.integers(1, 2))):
        between()
        records += recorder.attempt(t, {"number": number + 1})
        uploaded()
        streamed = draw(st.booleans())
        for gap, data in draw(_reads_of()):
            t += gap
            if streamed:
                records += recorder.read(t, data)
            else:
                records.append(recorder.body(t, data))
            if draw(st.integers(0, 3)) == 0:
                between()
        t += draw(st.integers(0, 1_000))
        records += recorder.rest(t)
    if draw(st.booleans()):
        records.append(recorder.end(t, {"cause": "eof"}))
    return records or [recorder.record("open", 0, opened)]


@given(st.lists(tapes(), min_size=1, max_size=2))
def test_any_recording_comes_back_as_it_was(streams: list[list[Record]]) -> None:
    sealed = encode({}, streams)
    found = decode(sealed)
    assert found.streams == streams
    assert [list(map(line_of, records)) for records in found.streams] == [
        list(map(line_of, Reader().feed(b"".join(map(line_of, records))))) for records in found.streams
    ]
    for line in sealed.splitlines():
        assert isinstance(json.loads(line), dict)


# -- the corpus -------------------------------------------------------------------------------------------------------


@each_protocol
def test_captures_come_back_byte_for_byte(protocol: str) -> None:
    captures = list(sampled(protocol))
    assert len(captures) > 10
    for seed, capture in captures:
        records = recorded(capture.body, protocol, seed)
        found = decode(encode({"exact": True}, [records]))
        assert found.streams == [records], capture.id
        assert list(reads(found.streams[0])) == list(reads(records))
        assert b"".join(data for _, data in reads(found.streams[0])) == capture.body


# -- what is refused --------------------------------------------------------------------------------------------------


def test_wrong_fold_line_is_refused() -> None:
    data = encode({}, STREAMS)
    edited = data.replace(b'"ending":"', b'"ending":"not_', 1)
    assert edited != data
    with pytest.raises(TapeError, match="the fold line disagrees with the tape in 'ending'"):
        decode(edited)
    decode(edited, verify=False)


def _without_clock(data: bytes) -> bytes:
    return b"".join(line + b"\n" for line in data.splitlines() if not line.startswith(b'{"k":"clock"'))


_SMALL: Final = encode({}, [STREAMS[-1]])
_REFUSED: Final[Mapping[str, tuple[bytes, str]]] = MappingProxyType(
    {
        "newer": (b'{"wiretape":"sealed","format":99}\n', "sealed in format 99; 1 is the newest"),
        "format no number": (b'{"wiretape":"sealed","format":"1"}\n', "line 1: not the header"),
        "torn": (_SMALL[:-1], "its end is missing"),
        "no fold": (_SMALL.rsplit(b"\n", 2)[0] + b"\n", "line 2: a stream without its fold line"),
        "no clock": (_without_clock(_SMALL), "stream 1, from line 2: no clock line after the first one"),
        "clock of less": (_SMALL.replace(b'"lines":[0,', b'"lines":['), "clock line is too short"),
        "clock of more": (_SMALL.replace(b'"lines":[0,', b'"lines":[0,0,'), "describes more than the stream has"),
        "no uploads": (
            _SMALL.replace(b'"lines":[0,', b'"uploads":["xx"],"lines":[0,'),
            "holds something that is not a time",
        ),
        "no time": (_SMALL.replace(b'"lines":[0,', b'"lines":["0",'), "holds something that is not a time"),
        "a message too many": (
            _SMALL.replace(b'{"k":"attempt"', b'{"k":"message","data":1}\n{"k":"attempt"'),
            "unexpected line of kind message",
        ),
        "a message too few": (_SMALL.replace(b'{"k":"message"', b'{"k":"tool"'), "has 0 of 1 lines of kind message"),
        "an element that is none": (
            _SMALL.replace(b'{"k":"message","data":', b'{"k":"message","raw":"}","was":'),
            "whose lists hold something that is not JSON",
        ),
        "a list that is split": (
            _SMALL.replace(b'"data":{"model": "synthetic", "stream": true, "messages": []}', b'"data":[[]]'),
            "split request that is not JSON",
        ),
        "half a character between": (_SMALL.replace(b'1,","]]', b'1,"\\ud800"]]'), "split in an unknown way"),
        "none of them": (_SMALL.replace(b'1,","]]', b'-1,","]]'), "split in an unknown way"),
        "a clock that opens otherwise": (
            _SMALL.replace(b'"open":{"stream"', b'"open":{"raw":1,"stream"'),
            "may not set these members of the first record",
        ),
        "a clock with a novel kind": (
            _SMALL.replace(b'"commit",{', b'"novel",{'),
            "holds something that is not a record",
        ),
        "a clock with our words": (
            _SMALL.replace(b'"commit",{', b'"commit",{"b64":1,'),
            "holds something that is not a record",
        ),
        "a clock with half a character": (
            _SMALL.replace(b'{"status":200}]]', b'{"status":200},"\\ud800"]]'),
            "holds something that is not a record",
        ),
        "no JSON": (_SMALL.replace(b'{"k":"attempt"', b'{"k":"attempt'), "its line"),
    }
)


@pytest.mark.parametrize("name", sorted(_REFUSED))
def test_damaged_tape_is_refused_with_the_place(name: str) -> None:
    data, why = _REFUSED[name]
    assert data != _SMALL
    with pytest.raises(TapeError, match=why):
        decode(data)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    ("left", "why"),
    [
        (2, ""),
        (
            1,
            r"line 1: the header states 2 streams, and the file has 1: was it cut short\? .* write \"streams\":1 there",
        ),
        (0, "and the file has 0: .*"),
    ],
)
def test_file_cut_after_a_stream_is_refused(left: int, why: str, verify: bool) -> None:
    """Seen: it was replayed, verified and sealed again as a conversation of fewer streams."""
    streams = [STREAMS[-1], STREAMS[-1]]
    whole = encode({"streams": 2}, streams).split(b'\n{"k":"open"')
    data = b'\n{"k":"open"'.join(whole[: left + 1]) + b"\n" * (left < 2)
    if not why:
        assert len(files.parse(data, verify=verify).streams) == 2
        return
    with pytest.raises(TapeError, match=why):
        files.parse(data, verify=verify)
    if not left:
        return  # without a stream there is nothing to play
    for by_hand in (data.replace(b'"streams":2', b'"streams":%d' % left), data.replace(b',"streams":2', b"")):
        assert len(files.parse(by_hand, verify=verify).streams) == left


def test_a_stream_of_very_many_reads_is_sealed_and_read() -> None:
    """Four numbers for each read are more than the values that are read of a request or an answer."""
    recorder = Recorder()
    records = [recorder.record("open", 0, {"format": 1}), *recorder.attempt(0, {"number": 1})]
    for t in range(1, 130_000):
        records += recorder.read(t, b":")
    records += [*recorder.rest(130_000), recorder.end(130_000, {"cause": "eof"})]
    assert Reader().feed(b"".join(map(line_of, records))) == records
    assert decode(encode({}, [records])).streams == [records]


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_strangers_clock_is_read_up_to_a_bound(beyond: int) -> None:
    header, opened, clock, rest = encode({}, [STREAMS[0]]).split(b"\n", 3)
    more = b"0," * (TIMES_VALUES_MAX - values_at_most(clock) - 2 + beyond) + b"0"
    clock = clock.replace(b'{"k":"clock",', b'{"k":"clock","x":[%b],' % more)
    with pytest.raises(TapeError, match="no clock line") if beyond else nullcontext():
        decode(b"\n".join([header, opened, clock, rest]))


def test_a_stream_without_records_cannot_be_sealed() -> None:
    with pytest.raises(TapeError, match="stream 1 cannot be sealed: it has no records"):
        encode({}, [[]])


def test_a_damaged_recording_cannot_be_sealed() -> None:
    with pytest.raises(TapeError, match="stream 1 cannot be sealed: its records contradict each other"):
        encode({}, [STREAMS[0][1:]])


@pytest.mark.parametrize(("opens", "closes"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("depth", [300, *range(975, 1001, 5 if not FULL else 1)])
def test_deeply_nested_json_is_sealed(opens: bytes, closes: bytes, depth: int) -> None:
    nested = opens * depth + b"1" + closes * depth
    counted = b'data: {"choices":[],"usage":%b}\n\n' % nested
    for script in (event_stream([b"data: %b\n\n" % nested, counted]), json_answer(nested)):
        records = stream(script)
        request = records[1]._replace(raw=b'{"a":%b}' % nested, payload=None)
        records[1] = request._replace(payload=request.raw) if parse(request.raw or b"") is not ABSENT else request
        again = decode(encode({}, [records])).streams[0]
        assert [(each.kind, each.raw) for each in again] == [(each.kind, each.raw) for each in records]


# -- formats ----------------------------------------------------------------------------------------------------------


def test_a_fold_line_without_a_version_is_read_and_one_of_a_newer_version_is_not() -> None:
    sealed = encode({}, [STREAMS[0]])
    old, newer = (sealed.replace(b'"version":2,', other) for other in (b"", b'"version":3,'))
    assert decode(old).streams == decode(sealed).streams
    with pytest.raises(TapeError, match="version"):
        decode(newer)
