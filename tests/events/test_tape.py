"""Reads to records to lines and back (law L2), what the writer promises, and what a reader says of a broken tape."""

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.chat import DONE, frame, sse, text
from tests.support.make_fixtures import TAPES
from wiretape.events.core.errors import LocalError, TapeError
from wiretape.events.core.json_text import ABSENT
from wiretape.events.core.limits import DAMAGES_MAX, SHAPES_MAX, TAPE_LINE_BYTES_MAX
from wiretape.events.tape.record import NO_KEYS, Record, encode, speaks
from wiretape.events.tape.tape import Damage, Reader, Recorder, reads
from wiretape.events.wire.sse import BOM, Decoder

Reads = list[tuple[int, bytes]]

few = settings(max_examples=2_000 if os.environ.get("WIRETAPE_LAWS") == "full" else 100)


def recorded(upstream: Reads, decoder: Decoder | None = None, end: int = 1 << 40) -> list[Record]:
    """A whole tape of one attempt."""
    recorder = Recorder(decoder)
    records = [recorder.record("open", 0, {"format": 1})]
    for t, data in upstream:
        records += recorder.read(t, data)
        if recorder.decoder.overflow:
            break
    return [*records, *recorder.rest(end), recorder.end(end, {"cause": "eof"})]


def lines(records: Iterable[Record]) -> bytes:
    return b"".join(map(encode, records))


def sealed(body: bytes) -> bytes:
    """A line with the right checksum over any body."""
    return b'{"c":"%08x",%b\n' % (zlib.crc32(body), body)


def read_back(tape: bytes, reader: Reader | None = None) -> tuple[list[Record], list[Damage], bytes]:
    reader = reader or Reader()
    return reader.feed(tape), reader.damage, reader.torn


# -- L2 ---------------------------------------------------------------------------------------------------------------

PIECES: Final = (
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b": c\n\n", b"event: e\n", b"event: \xff\n", b"id: 1\n"),
    *(b"data: {}\n\n", b"data:1\r\n\r\n", b'data: {"a":"\xc3\xa9"}\n\n', b"data: [DONE]\n\n", b"data: 1\n", b"data: "),
    *(b"{", b"}", b"1", b'"', b"\xff", b"\xc3", BOM, b"\0", b'data: "\\ud83d"\n\n', b"data: 1e999\n\n"),
)
BYTES: Final = st.lists(st.sampled_from(PIECES), min_size=1, max_size=20).map(b"".join) | st.binary(
    min_size=1, max_size=40
)
TIMES: Final = st.lists(st.integers(-3, 12) | st.just(7), min_size=1, max_size=12)  # it stops and runs backwards
SIZES: Final = st.lists(st.integers(1, 9) | st.just(40), min_size=1, max_size=6)


def cut(body: bytes, sizes: list[int], times: list[int]) -> Reads:
    upstream: Reads = []
    while body:
        number = len(upstream)
        size = sizes[number % len(sizes)]
        upstream.append((times[number % len(times)], body[:size]))
        body = body[size:]
    return upstream


@few
@given(body=BYTES, sizes=SIZES, times=TIMES, end=st.integers(-3, 20), feed=st.integers(1, 99))
@example(body=b"data: 1\r\n\r\ndata: 2\r\n\r\n", sizes=[1], times=[0], end=0, feed=1)
@example(body=b"\n\n\n", sizes=[1], times=[0], end=0, feed=1)
@example(body=b"data: 1\r\n\r", sizes=[40], times=[1], end=9, feed=99)
@example(body=BOM + b"data: 1\n\n" + BOM + b"data: 1\n\n", sizes=[2], times=[1], end=9, feed=99)
def test_a_tape_gives_back_what_was_read(body: bytes, sizes: list[int], times: list[int], end: int, feed: int) -> None:
    upstream = cut(body, sizes, times)
    records = recorded(upstream, end=end)
    tape = lines(records)

    reader = Reader()
    again = [record for at in range(0, len(tape), feed) for record in reader.feed(tape[at : at + feed])]

    assert (reader.damage, reader.torn, reader.ended) == ([], b"", True)
    assert again == records
    assert [record.n for record in again] == list(range(len(records)))
    given_back = list(reads(again))
    assert [data for _, data in given_back] == [data for _, data in upstream]
    kept = [t for t, _ in given_back]
    assert all(earlier < later for earlier, later in pairwise(kept))
    if all(0 <= t < u for t, u in pairwise(times)) and len(upstream) <= len(times):
        assert kept == [t for t, _ in upstream]
    assert again[-1].keys["bytes"] == len(body)
    assert again[-1].keys["sha256"] == hashlib.sha256(body).hexdigest()


@given(body=BYTES, sizes=SIZES, limit=st.integers(1, 30))
def test_a_tape_that_met_a_limit_gives_back_what_was_read(body: bytes, sizes: list[int], limit: int) -> None:
    upstream = cut(body, sizes, [1])
    records = recorded(upstream, Decoder(limit, limit))
    again, damage, _ = read_back(lines(records))
    assert not damage
    taken = b"".join(data for _, data in reads(again))
    assert body.startswith(taken)
    assert [data for _, data in reads(again)] == [data for _, data in upstream][: len(list(reads(again)))]


@few
@given(
    tape=st.lists(BYTES | st.sampled_from([b"\n", *(line + b"\n" for line in TAPES["text"].splitlines())])).map(
        b"".join
    )
)
def test_any_bytes_are_records_or_damage(tape: bytes) -> None:
    records, damage, torn = read_back(tape)
    assert len(records) + len(damage) >= tape.count(b"\n")
    assert tape.endswith(torn)
    list(reads(records))


@few
@given(
    bodies=st.lists(st.binary(max_size=30) | st.sampled_from([b'"n":0,"t":0,"k":"frame"}', b'"n":1,"t":0,"k":"end"}']))
)
def test_any_line_with_a_right_checksum_is_a_record_or_damage(bodies: list[bytes]) -> None:
    tape = b"".join(sealed(body) for body in bodies)
    records, damage, _ = read_back(tape)
    assert len(records) + len(damage) >= len(bodies)
    list(reads(records))


# -- the writer -------------------------------------------------------------------------------------------------------


def keys_of(records: Iterable[Record]) -> list[tuple[str, dict[str, Any]]]:
    return [(record.kind, dict(record.keys)) for record in records]


WRITTEN: Final[dict[str, tuple[Reads, list[tuple[int, bytes, dict[str, Any], bool]]]]] = {
    # reads -> t, raw, keys and whether the payload is `data`, of each frame and of the rest
    "frames of one read share its time": (
        [(5, b"data: 1\n\ndata: 2\n\n")],
        [(5, b"data: 1\n\n", {}, True), (5, b"data: 2\n\n", {}, True)],
    ),
    "a clock that stands still moves": (
        [(5, b"data: 1\n\n"), (5, b"data: 2\n\n")],
        [(5, b"data: 1\n\n", {}, True), (6, b"data: 2\n\n", {}, True)],
    ),
    "a clock that runs backwards moves": (
        [(5, b"data: 1\n\n"), (3, b"data: 2\n\n"), (9, b"data: 3\n\n")],
        [(5, b"data: 1\n\n", {}, True), (6, b"data: 2\n\n", {}, True), (9, b"data: 3\n\n", {}, True)],
    ),
    "a read boundary inside a frame": (
        [(1, b"data"), (2, b": 1"), (4, b"\n\n")],
        [(4, b"data: 1\n\n", {"cuts": [[1, 4], [2, 7]]}, True)],
    ),
    "a read that ends one frame and begins the next": (
        [(1, b"data: 1\n\nda"), (2, b"ta: 2\n\nd"), (3, b"ata: 3\n\n")],
        [
            (1, b"data: 1\n\n", {}, True),
            (2, b"data: 2\n\n", {"cuts": [[1, 2]]}, True),
            (3, b"data: 3\n\n", {"cuts": [[2, 1]]}, True),
        ],
    ),
    "a read boundary inside a character": (
        [(1, b'data: "\xc3'), (2, b'\xa9"\n\n')],
        [(2, b'data: "\xc3\xa9"\n\n', {"cuts": [[1, 8]]}, True)],
    ),
    "a CR that waited: the read that brought it is a cut at the very end": (
        [(1, b"data: 1\r\n\r"), (2, b"data: 2\n\n")],
        [
            (2, b"data: 1\r\n\r", {"sse": ["data: ", "\r\n\r"], "cuts": [[1, 10]]}, True),
            (2, b"data: 2\n\n", {}, True),
        ],
    ),
    "a CR that waited until the end": (
        [(1, b"data: 1\r\n\r")],
        [(99, b"data: 1\r\n\r", {"sse": ["data: ", "\r\n\r"], "cuts": [[1, 10]]}, True)],
    ),
    "bytes that never became a frame": (
        [(1, b"data: 1\n\nda"), (2, b"ta: 2\n")],
        [(1, b"data: 1\n\n", {}, True), (99, b"data: 2\n", {"cuts": [[1, 2], [2, 8]]}, False)],
    ),
    "a rest that is JSON stays as it came": ([(99, b"{}")], [(99, b"{}", {}, False)]),
    "a rest that came with the end itself has no cut": ([(99, b"data")], [(99, b"data", {}, False)]),
    "stray blank lines belong to the next frame": (
        [(1, b"\n"), (2, b"\ndata: 1\n\n")],
        [(2, b"\n\ndata: 1\n\n", {"sse": ["\n\ndata: ", "\n\n"], "cuts": [[1, 1]]}, True)],
    ),
    "a BOM at the very start": (
        [(1, BOM + b"data: 1\n\n" + BOM + b"data: 2\n\n")],
        [
            (1, BOM + b"data: 1\n\n", {"bom": True, "sse": ["\ufeffdata: ", "\n\n"]}, True),
            (1, BOM + b"data: 2\n\n", {}, False),
        ],
    ),
    "a comment behind a BOM": ([(1, BOM + b": x\n\n")], [(1, BOM + b": x\n\n", {"bom": True}, False)]),
    "an event": (
        [(1, b"event: e\ndata: 1\n\n")], [(1, b"event: e\ndata: 1\n\n", {"event": "e"}, True)]
    ),
    "an event that is not UTF-8": ([(1, b"event: \xff\ndata: 1\n\n")], [(1, b"event: \xff\ndata: 1\n\n", {}, False)]),
    "an event in another place": (
        [(1, b"data: 1\nevent: e\n\n")], [(1, b"data: 1\nevent: e\n\n", {"sse": ["data: ", "\nevent: e\n\n"]}, True)]
    ),
    "a prefix that is not UTF-8": ([(1, b": \xff\ndata: 1\n\n")], [(1, b": \xff\ndata: 1\n\n", {}, False)]),
    "a payload that stands in the prefix too": (
        [(1, b": 1\ndata:1\n\n")], [(1, b": 1\ndata:1\n\n", {"sse": [": ", "\ndata:1\n\n"]}, True)]
    ),
    "a payload of two lines": ([(1, b"data: [\ndata: ]\n\n")], [(1, b"data: [\ndata: ]\n\n", {}, False)]),
    "a payload that is no JSON": ([(1, b"data: [DONE]\n\n")], [(1, b"data: [DONE]\n\n", {}, False)]),
    "an empty payload": ([(1, b"data: \n\n")], [(1, b"data: \n\n", {}, False)]),
    "a comment": ([(1, b": 1\n\n")], [(1, b": 1\n\n", {}, False)]),
}  # fmt: skip


@pytest.mark.parametrize(("upstream", "expected"), WRITTEN.values(), ids=WRITTEN.keys())
def test_what_is_written(upstream: Reads, expected: list[tuple[int, bytes, dict[str, Any], bool]]) -> None:
    records = recorded(upstream, end=99)[1:-1]
    written = [(record.t, record.raw, dict(record.keys), record.payload is not None) for record in records]
    assert written == expected
    assert all((record.kind == "rest") == (record.n == len(records) and not record.raw.endswith((b"\n\n", b"\r\n\r")))
               for record in records if record.raw)  # fmt: skip


def test_an_end_says_what_was_received() -> None:
    recorder = Recorder()
    recorder.read(1, b"data: 1\n\nda")
    (rest,) = recorder.rest(2)
    end = recorder.end(3, {"cause": "reset", "bytes": "not this"})
    assert rest == Record(1, 2, "rest", {"cuts": [[1, 2]]}, b"da")
    sha256 = hashlib.sha256(b"data: 1\n\nda").hexdigest()
    assert end == Record(2, 3, "end", {"cause": "reset", "bytes": 11, "frames": 1, "sha256": sha256})
    assert recorder.ended


def test_nothing_follows_the_end() -> None:
    recorder = Recorder()
    recorder.end(0, {})
    things: list[Callable[[], object]] = [
        lambda: recorder.record("keepalive", 1),
        lambda: recorder.read(1, b"x"),
        lambda: recorder.body(1, b"x"),
        lambda: recorder.attempt(1, {}),
        lambda: recorder.end(1, {}),
    ]
    for thing in things:
        with pytest.raises(LocalError, match="after end"):
            thing()
    assert recorder.rest(1) == []


def test_rest_comes_before_the_end() -> None:
    recorder = Recorder()
    recorder.read(1, b"x")
    with pytest.raises(AssertionError, match="rest comes before end"):
        recorder.end(1, {})


def test_an_empty_read_is_no_read() -> None:
    with pytest.raises(AssertionError, match="no read"):
        Recorder().read(1, b"")


def test_a_new_attempt_restarts_frames_and_counts() -> None:
    recorder = Recorder(Decoder(8, 16))
    first = recorder.read(1, BOM + b": 1\n\n: 2\n\nda")
    second = recorder.attempt(1, {"number": 2})
    third = recorder.read(1, BOM + b": 3\n\n" + b"x" * 9)
    assert recorder.decoder.overflow == "line"  # with the same limits
    fourth = recorder.rest(1)
    end = recorder.end(1, {})

    assert keys_of(first + second) == [
        ("frame", {"bom": True}),
        ("frame", {}),
        ("rest", {}),
        ("attempt", {"number": 2}),
    ]
    assert keys_of(third + fourth) == [("frame", {"bom": True}), ("rest", {"limit": "line"})]
    assert [record.t for record in first + second + third + fourth] == [1, 1, 1, 1, 2, 2]
    assert (end.keys["bytes"], end.keys["frames"]) == (17, 1)
    assert end.keys["sha256"] == hashlib.sha256(BOM + b": 3\n\n" + b"x" * 9).hexdigest()
    assert [data for _, data in reads(first + second[:1])] == [BOM + b": 1\n\n: 2\n\nda"]
    assert [data for _, data in reads(third + fourth)] == [BOM + b": 3\n\n" + b"x" * 9]


def test_times_of_records_never_run_backwards() -> None:
    recorder = Recorder()
    records = [recorder.record("open", 7), recorder.record("request", 3)]
    records += recorder.read(2, b": 1\n\n")
    records += [recorder.record("keepalive", 20)]
    records += recorder.read(5, b": 2\n\n: 3")
    records += recorder.rest(1)
    records += [recorder.end(0, {})]
    assert [record.t for record in records] == [7, 7, 7, 20, 20, 20, 20]
    assert list(reads(records)) == [(7, b": 1\n\n"), (20, b": 2\n\n: 3")]


def test_no_time_is_before_the_start() -> None:
    recorder = Recorder()
    assert [recorder.record("open", -3).t, recorder.read(-2, b": 1\n\n")[0].t, recorder.end(-1, {}).t] == [0, 0, 0]


BODIES: Final[dict[str, tuple[bytes, bytes | None, Any]]] = {
    "JSON": (b'{"a": 1}', b'{"a": 1}', {"a": 1}),
    "JSON with a CR": (b"[\r]", b"[\r]", []),
    "JSON on two lines": (b"[\n]", None, None),
    "no JSON": (b"<html>", None, None),
    "not UTF-8": (b"\xff", None, None),
    "nothing": (b"", None, None),
}


@pytest.mark.parametrize(("body", "payload", "value"), BODIES.values(), ids=BODIES.keys())
def test_a_body_is_data_where_it_is_json_on_one_line(body: bytes, payload: bytes | None, value: Any) -> None:
    records = [Recorder().record("request", 1, {"method": "POST"}, body), Recorder().body(1, body, {"more": True})]
    for record in records:
        assert (record.raw, record.payload) == (body, payload)
        assert payload is None or record.value == value
        assert read_back(encode(record))[0] == [record]
    if payload is not None:
        known = Recorder().record("request", 1, {"method": "POST"}, body, is_json=True)
        assert (known.payload, known.value, known.read().value) == (payload, ABSENT, value)
    verbatim = Recorder().record("request", 1, NO_KEYS, body, verbatim=False)
    assert (verbatim.raw, verbatim.payload, verbatim.keys) == (body, None, NO_KEYS)


def test_reads_takes_only_what_was_received() -> None:
    records = [
        Record(0, 0, "request", {}, b"asked"),
        Record(1, 1, "attempt"),
        Record(2, 2, "commit", {}, b"sent"),
        Record(3, 3, "frame", {"cuts": [[1, 2]]}, b"abcd"),
        Record(4, 3, "keepalive"),
        Record(5, 3, "frame", {}, b"ef"),
        Record(6, 4, "body"),
        Record(7, 9, "rest", {"cuts": [[4, 2]]}, b"gh"),
    ]
    assert list(reads(records)) == [(1, b"ab"), (3, b"cdef"), (4, b"gh")]
    assert list(reads([])) == []


# -- the reader -------------------------------------------------------------------------------------------------------

SMALL: Final = lines(recorded([(1, b'data: "\xc3'), (3, b'\xa9"\n\n: \xff\n\n: c')], end=9))
SMALL_LINES: Final = SMALL.splitlines(keepends=True)
SMALL_RECORDS: Final = Reader().feed(SMALL)


def test_a_tape_torn_at_any_byte_gives_the_records_before() -> None:
    for size in range(len(SMALL)):
        whole = SMALL[:size].count(b"\n")
        reader = Reader()
        assert reader.feed(SMALL[:size]) == SMALL_RECORDS[:whole]
        assert (reader.damage, reader.ended) == ([], False)
        assert reader.torn == SMALL[:size][len(b"".join(SMALL_LINES[:whole])) :]
        assert reader.feed(SMALL[size:]) == SMALL_RECORDS[whole:]
        assert (reader.damage, reader.torn, reader.ended) == ([], b"", True)


def test_every_flipped_bit_is_damage_or_a_torn_tail() -> None:
    for at in range(len(SMALL)):
        for bit in range(8):
            broken = bytearray(SMALL)
            broken[at] ^= 1 << bit
            records, damage, torn = read_back(bytes(broken))
            line = SMALL[:at].count(b"\n")
            start = len(b"".join(SMALL_LINES[:line]))
            if at == len(SMALL) - 1:
                assert (damage, torn) == ([], SMALL_LINES[-1][:-1] + bytes([broken[at]]))
            else:
                assert damage[0].at == start
            assert all(record in SMALL_RECORDS for record in records)
            assert records[:line] == SMALL_RECORDS[:line]


def junk(at: int, line: bytes) -> bytes:
    return b"".join([*SMALL_LINES[:at], line, *SMALL_LINES[at:]])


STARTS: Final = [len(b"".join(SMALL_LINES[:number])) for number in range(6)]
OPEN: Final = sealed(b'"n":0,"t":0,"k":"open","format":1}')
NO_FORMAT: Final = [(0, "its format is not the number of a format")]
BROKEN: Final[dict[str, tuple[bytes, list[int], list[tuple[int, str]]]]] = {
    # tape -> numbers of the records that it gives, and the damage: byte, reason
    "whole": (SMALL, [0, 1, 2, 3, 4], []),
    "empty": (b"", [], []),
    "junk in the middle": (junk(2, b"junk\n"), [0, 1, 2, 3, 4], [(STARTS[2], "not a record")]),
    "an empty line in the middle": (junk(2, b"\n"), [0, 1, 2, 3, 4], [(STARTS[2], "not a record")]),
    "junk in place of a record": (
        SMALL.replace(SMALL_LINES[2], b"junk\n"),
        [0, 1, 3, 4],
        [(STARTS[2], "not a record"), (STARTS[2] + 5, "records 2 to 2 are missing")],
    ),
    "CRLF line ends": (OPEN[:-1] + b"\r\n", [], [(0, "not a record")]),
    "two records on one line": (OPEN[:-1] + OPEN, [], [(0, "checksum does not match")]),
    "a record is missing": (
        b"".join(SMALL_LINES[:1] + SMALL_LINES[2:]),
        [0, 2, 3, 4],
        [(STARTS[1], "records 1 to 1 are missing")],
    ),
    "the first records are missing": (b"".join(SMALL_LINES[3:]), [3, 4], [(0, "records 0 to 2 are missing")]),
    "a record twice": (junk(2, SMALL_LINES[1]), [0, 1, 2, 3, 4], [(STARTS[2], "record 1 again")]),
    "a block twice": (
        b"".join(SMALL_LINES[:3] + SMALL_LINES[1:]),
        [0, 1, 2, 3, 4],
        [(STARTS[3], "record 1 again"), (STARTS[3] + len(SMALL_LINES[1]), "record 2 again")],
    ),
    "a record after the end": (
        SMALL + sealed(b'"n":5,"t":9,"k":"keepalive"}'),
        [0, 1, 2, 3, 4],
        [(len(SMALL), "record after end")],
    ),
    "a second tape behind the first": (SMALL + OPEN, [0, 1, 2, 3, 4], [(len(SMALL), "record after end")]),
    "a time before the last one": (
        OPEN + sealed(b'"n":1,"t":5,"k":"x"}') + sealed(b'"n":2,"t":4,"k":"x"}') + sealed(b'"n":3,"t":4,"k":"x"}'),
        [0, 1, 2, 3],
        [(len(OPEN) + 37, "record 2 is earlier than the one before it")],
    ),
    "no format": (sealed(b'"n":0,"t":0,"k":"open"}'), [0], NO_FORMAT),
    "format 0": (sealed(b'"n":0,"t":0,"k":"open","format":0}'), [0], NO_FORMAT),
    "format true": (sealed(b'"n":0,"t":0,"k":"open","format":true}'), [0], NO_FORMAT),
    "format 1.0": (sealed(b'"n":0,"t":0,"k":"open","format":1.0}'), [0], NO_FORMAT),
}  # fmt: skip


@pytest.mark.parametrize(("tape", "numbers", "damage"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_tape_is_reported_with_the_place(
    tape: bytes, numbers: list[int], damage: list[tuple[int, str]]
) -> None:
    for size in (1, 7, max(1, len(tape))):
        reader = Reader()
        records = [record for at in range(0, len(tape), size) for record in reader.feed(tape[at : at + size])]
        assert [record.n for record in records] == numbers
        assert reader.damage == damage
        assert reader.torn == b""


@pytest.mark.parametrize("version", [2, 10**17], ids="format {}".format)
def test_a_newer_format_is_refused_by_its_number(version: int) -> None:
    with pytest.raises(TapeError, match=f"tape format {version} is newer than 1, the newest that this version reads"):
        read_back(sealed(b'"n":0,"t":0,"k":"open","format":%d}' % version))


def test_unknown_kinds_and_keys_are_kept() -> None:
    tape = OPEN + sealed(b'"n":1,"t":0,"k":"theirs","x":{"y":[null]},"data":[1]}')
    assert read_back(tape)[0][1] == Record(1, 0, "theirs", {"x": {"y": [None]}}, b"[1]", b"[1]", [1])


LONG: Final = sealed(b'"n":1,"t":0,"k":"x","raw":"%b"}' % (b"x" * 60))
LINE_BYTES: Final = len(LONG) - 1


@pytest.mark.parametrize("size", [1, 7, 1000], ids="in reads of {}".format)
@pytest.mark.parametrize(
    ("limit", "numbers", "damage"),
    [
        (LINE_BYTES + 1, [0, 1, 2], []),
        (LINE_BYTES, [0, 1, 2], []),
        (LINE_BYTES - 1, [0, 2], [(len(OPEN), "line too long"), (len(OPEN) + len(LONG), "records 1 to 1 are missing")]),
    ],
    ids=["limit-1", "limit", "limit+1"],
)
def test_a_line_has_a_limit(size: int, limit: int, numbers: list[int], damage: list[tuple[int, str]]) -> None:
    tape = OPEN + LONG + sealed(b'"n":2,"t":0,"k":"x"}')
    reader = Reader(line_bytes_max=limit)
    records = [record for at in range(0, len(tape), size) for record in reader.feed(tape[at : at + size])]
    assert [record.n for record in records] == numbers
    assert reader.damage == damage


def test_a_line_too_long_is_not_kept() -> None:
    reader = Reader(line_bytes_max=9)
    for _ in range(9):
        reader.feed(b"12345")
        assert len(reader.torn) <= 9
    assert (reader.damage, reader.torn) == ([(0, "line too long")], b"")
    reader.feed(b"\nx\ny")
    assert (reader.damage, reader.torn) == ([(0, "line too long"), (46, "not a record")], b"y")


def test_the_list_of_damages_has_a_limit() -> None:
    for more, listed in [(-1, -1), (0, 0), (1, 1), (9, 1)]:
        reader = Reader()
        reader.feed(b"\n" * (DAMAGES_MAX + more))
        assert len(reader.damage) == DAMAGES_MAX + listed
        assert reader.damage[DAMAGES_MAX:] == [(DAMAGES_MAX, "more damage from here on")][: max(0, listed)]


@pytest.mark.slow
def test_the_limits_in_force_are_those_of_the_limits_file() -> None:
    reader = Reader()
    reader.feed(b"x" * TAPE_LINE_BYTES_MAX)
    assert len(reader.torn) == TAPE_LINE_BYTES_MAX
    reader.feed(b"x")
    assert (reader.damage, reader.torn) == ([(0, "line too long")], b"")


@pytest.mark.parametrize(
    "frame", [b"data:\n\n", b"data: {}\r\n\r\n", b"data: 1\ndata: 2\n\n", b": " + b"x" * 99 + b"\n\n"]
)
def test_a_read_of_many_slices_is_one_read(frame: bytes) -> None:
    data = frame * (300 // len(frame)) + b"data: half"
    recorder = Recorder()
    slices = [data[at : at + 30] for at in range(0, len(data), 30)]
    records = [record for at, part in enumerate(slices) for record in recorder.read(7, part, more=at > 0)]
    records += recorder.rest(9)
    assert {record.t for record in records[:-1]} == {7}
    assert all("cuts" not in record.keys for record in records[:-1])
    assert list(reads(records)) == [(7, data)]


@pytest.mark.parametrize("beyond", ["body", "rest"])
def test_what_goes_on_beyond_a_limit_is_kept_read_by_read(beyond: Any) -> None:
    """Law L2 holds for what only passes: no byte is lost, and each read stays one."""
    upstream = [(1, b"data: 1\n\n"), (2, b"data: " + b"x" * 30), (3, b"x" * 10), (4, b"\n\ndata: 2\n\n")]
    recorder = Recorder(Decoder(20, 20))
    recorder.beyond = beyond
    records = [record for t, data in upstream for record in recorder.read(t, data)]
    assert [record.kind for record in records] == ["frame", "rest", beyond, beyond]
    records += [*recorder.rest(5), recorder.end(5, {"cause": "eof"})]
    found, damage, _ = read_back(lines(records))
    assert (list(reads(found)), damage) == (upstream, [])


def test_bytes_after_a_limit_in_the_same_read_are_kept() -> None:
    recorder = Recorder(Decoder(line_bytes_max=100, event_bytes_max=100))
    data = b"data: 1\n\n" + b"x" * 200 + b"\n" * 900
    records = [*recorder.read(7, data), *recorder.rest(9)]
    assert b"".join(record.raw or b"" for record in records) == data
    assert list(reads(records)) == [(7, data)]


def test_an_event_of_many_slices_has_one_cut_for_each_read() -> None:
    first, second = b"data: " + b"x" * 500, b"y" * 300 + b"\n\n"
    recorder = Recorder()
    records = [*recorder.read(7, first[:90]), *recorder.read(7, first[90:], more=True), *recorder.read(8, second)]
    assert [record.keys["cuts"] for record in records] == [[[7, len(first)]]]
    assert list(reads(records)) == [(7, first), (8, second)]


def test_skimming_recorder_leaves_repeated_shapes_unparsed_until_the_shape_changes() -> None:
    recorder = Recorder(skim=True)
    frames = [b'data: {"content":"%b"}\n\n' % text for text in (b"a", b"b", b"c\\u00e9", b"d")]
    first, second, third, fourth = recorder.read(1, b"".join(frames))
    assert first.shape is not None
    assert (first.value, second.value, third.value) == ({"content": "a"}, ABSENT, {"content": "c\u00e9"})
    assert second.shape is first.shape
    assert third.shape is not first.shape
    assert fourth.shape is third.shape
    (after,) = [record for record in recorder.attempt(2, {}) + recorder.read(3, frames[0]) if record.kind == "frame"]
    assert after.value == {"content": "a"}


def test_skimming_recorder_gives_up_on_padding_that_never_repeats() -> None:
    recorder = Recorder(skim=True)
    frames = [b'data: {"content":"a","pad":%d}\n\n' % number for number in range(SHAPES_MAX + 1)]
    *records, last = recorder.read(1, b"".join(frames))
    assert all(record.shape for record in records)
    assert last.shape is None


def test_skimming_recorder_parses_frames_cut_between_reads() -> None:
    recorder = Recorder(skim=True)
    whole = b'data: {"content":"a"}\n\n'
    assert recorder.read(1, whole + whole[:9])[0].shape is not None
    (record,) = recorder.read(2, whole[9:])
    assert (record.value, record.shape) == ({"content": "a"}, None)


def test_reads_after_a_limit_belong_to_the_rest() -> None:
    upstream = [(1, b"data: 1\n\n"), (2, b"data: " + b"x" * 30), (3, b"y" * 10)]
    recorder = Recorder(Decoder(20, 20))
    records = [record for t, data in upstream for record in recorder.read(t, data)]
    records += [*recorder.rest(5), recorder.end(5, {"cause": "limit"})]
    assert [record.kind for record in records] == ["frame", "rest", "end"]
    assert list(reads(records)) == upstream


KEEPALIVE = b": keepalive\n\n"


@pytest.mark.parametrize(
    "alive",
    [text("a"), frame({}), DONE, b"data: {\n\n", b"data: {}\r\n\r\n", b"event: x\ndata: {}\n\n", b"data: \xff\n\n"],
)
def test_any_data_resets_the_stall_timer(alive: bytes) -> None:
    (record,) = Recorder().read(1, alive)
    assert speaks(record)
    assert speaks(record, hermes=True)


@pytest.mark.parametrize(
    "silent",
    [b": c\n\n", b"event: x\n\n", b"data:\n\n", b"data: : c\n\n", b"event: ping\ndata: {}\n\n", sse({"type": "ping"})],
)
def test_comments_and_pings_are_none(silent: bytes) -> None:
    (record,) = Recorder().read(1, silent)
    assert not speaks(record)
    assert not speaks(record, hermes=True)


def test_a_keepalive_is_life_of_an_agent_alone() -> None:
    (record,) = Recorder().read(1, KEEPALIVE)
    assert (speaks(record), speaks(record, hermes=True)) == (False, True)


def test_recorder_that_does_not_skim_gives_no_frame_a_shape() -> None:
    (record,) = Recorder().read(1, b'data: {"content":"a"}\n\n')
    assert record.shape is None
