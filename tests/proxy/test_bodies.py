"""Bodies on the wire: chunks as h11 parses them, and bounded decompression (U51, U52)."""

import gzip
import zlib

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretape.events.core.errors import WiretapeError
from wiretape.proxy.http1 import Dechunker, MalformedError
from wiretape.proxy.limits import (
    CHUNK_EXCESS_BYTES_MAX,
    HEAD_BYTES_MAX,
    INFLATE_FREE_BYTES,
    INFLATE_MEMBERS_MAX,
    INFLATE_RATIO_MAX,
    INFLATE_STEP_BYTES_MAX,
)
from wiretape.proxy.upstream.connection import Inflater, LimitError, ProtocolError, TruncatedError

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def ours(reads: list[bytes]) -> tuple[bytes, bool | None, bytes]:
    """Return the body, whether it is done (None for a fault), and what came after it."""
    dechunker = Dechunker()
    body = b""
    for at, read in enumerate(reads):
        if dechunker.done:
            return body, True, dechunker.rest + b"".join(reads[at:])
        try:
            dechunker.feed(read)
        except MalformedError:
            return body + b"".join(dechunker.parts), None, b""
        body += b"".join(dechunker.parts)
    return body, dechunker.done, dechunker.rest


def theirs(reads: list[bytes]) -> tuple[bytes, bool | None, bytes]:
    machine = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    machine.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    machine.send(h11.EndOfMessage())
    body, done = b"", False
    for read in [HEAD, *filter(None, reads)]:
        machine.receive_data(read)
        try:
            while not done:
                event = machine.next_event()
                if event is h11.NEED_DATA:
                    break
                if isinstance(event, h11.Data):
                    body += event.data
                done = isinstance(event, h11.EndOfMessage)
        except h11.RemoteProtocolError:
            return body, None, b""
    return body, done, machine.trailing_data[0]


chunks = st.lists(
    st.tuples(st.binary(min_size=1, max_size=20), st.sampled_from([b"", b";a=b", b" ", b";x\t"]), st.booleans()),
    max_size=6,
)
tails = st.sampled_from(
    [b"0\r\n\r\n", b"0;e\r\nX: 1\r\n\r\n", b"000\r\n\r\nHTTP/1.1 200", b"0\r\nA: b\r\nC: \r\n\r\n", b"", b"0\r\n"]
)


def coded(pieces: list[tuple[bytes, bytes, bool]], tail: bytes) -> bytes:
    return (
        b"".join(
            (b"%X" if upper else b"%x") % len(data) + extension + b"\r\n" + data + b"\r\n"
            for data, extension, upper in pieces
        )
        + tail
    )


@st.composite
def cut(draw: st.DrawFn) -> list[bytes]:
    wire = coded(draw(chunks), draw(tails))
    places = sorted(draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    return [wire[begin:end] for begin, end in zip([0, *places], [*places, len(wire)], strict=True) if begin < end]


@given(cut())
def test_well_framed_body_is_read_as_h11_reads_it_however_cut(reads: list[bytes]) -> None:
    assert ours(reads) == theirs(reads)


@given(cut(), st.integers(0, 200), st.sampled_from(b"\r\n \t;0aFgX:\x00-+\xff"))
def test_damaged_body_is_read_as_strictly_as_by_h11(reads: list[bytes], at: int, byte: int) -> None:
    wire = bytearray(b"".join(reads))
    if not wire:
        return
    wire[at % len(wire)] = byte
    body, done, behind = ours([bytes(wire)])
    their_body, their_done, their_behind = theirs([bytes(wire)])
    if done:
        assert (body, done, behind) == (their_body, their_done, their_behind)
    else:  # as strict or stricter: h11 accepts a bare LF after trailers
        assert their_body.startswith(body)


def fault_of(wire: bytes, step: int) -> int:
    """Return the byte at which a body fed in steps is refused."""
    dechunker = Dechunker()
    for at in range(0, len(wire), step):
        try:
            dechunker.feed(wire[at : at + step])
        except MalformedError:
            return at
    raise AssertionError("it was not given up")


def test_dripping_size_line_is_bounded() -> None:
    assert fault_of(b"5;" + b"x" * 2 * HEAD_BYTES_MAX, 1) == HEAD_BYTES_MAX


def test_framing_is_bounded_over_all_reads() -> None:
    costly = b"1;" + b"x" * 1_000 + b"\r\na\r\n"
    at = fault_of(costly * 40, len(costly))
    assert CHUNK_EXCESS_BYTES_MAX - len(costly) <= at <= CHUNK_EXCESS_BYTES_MAX + 2 * len(costly)


def test_dripping_trailers_are_bounded() -> None:
    assert fault_of(b"0\r\nX:" + b"w" * 2 * HEAD_BYTES_MAX, 1) == 3 + HEAD_BYTES_MAX
    assert fault_of(b"0\r\nX: 1\n\n", 1) == 7
    assert fault_of(b"0\r\nX:" + b"w" * 20_000 + b"\r\n\r\n", 1) == 20_008


TEXT = bytes(range(256)) * 40


def decoded(coding: str, wire: bytes, step: int) -> bytes:
    inflater = Inflater(coding)
    text = b"".join(piece for at in range(0, len(wire), step) for piece in inflater.feed(wire[at : at + step]))
    inflater.close()
    return text


@pytest.mark.parametrize("step", [1, 7, 100_000])
@pytest.mark.parametrize(
    ("coding", "wire", "text"),
    [
        ("gzip", gzip.compress(TEXT), TEXT),
        ("x-gzip", gzip.compress(TEXT) + gzip.compress(b"more"), TEXT + b"more"),
        ("deflate", zlib.compress(TEXT), TEXT),
        ("gzip", b"", b""),
    ],
    ids=["gzip", "several members", "deflate", "nothing at all"],
)
def test_input_may_be_cut_anywhere(coding: str, wire: bytes, text: bytes, step: int) -> None:
    assert decoded(coding, wire, step) == text


@pytest.mark.parametrize(
    ("coding", "wire", "error"),
    [
        ("br", b"", ProtocolError),
        ("gzip", b"not gzip at all", ProtocolError),
        ("gzip", gzip.compress(TEXT)[:-9], TruncatedError),
        ("gzip", gzip.compress(bytes(10_000_000)), LimitError),
    ],
    ids=["a coding that we have not", "damage", "half of it", "a bomb"],
)
def test_invalid_input_raises(coding: str, wire: bytes, error: type[WiretapeError]) -> None:
    with pytest.raises(error):
        decoded(coding, wire, 1_000)


def test_output_steps_are_bounded() -> None:
    wire = gzip.compress(b"".join(b"%d" % number for number in range(400_000)))
    pieces = list(Inflater("gzip").feed(wire))
    assert max(map(len, pieces)) <= INFLATE_STEP_BYTES_MAX
    assert len(pieces) > 2


EMPTY = gzip.compress(b"", mtime=0)


def test_number_of_members_of_a_request_is_bounded() -> None:
    wire = EMPTY * (INFLATE_MEMBERS_MAX - 1) + gzip.compress(TEXT)
    assert b"".join(Inflater("gzip", len(TEXT)).feed(wire)) == TEXT
    with pytest.raises(LimitError):
        list(Inflater("gzip", len(TEXT)).feed(EMPTY + wire))


def test_ratio_of_a_request_counts_only_beyond_free_size() -> None:
    line = b"2026-01-01 00:00:00 INFO ok\\n"
    text = line * (INFLATE_FREE_BYTES // len(line))
    wire = gzip.compress(text)
    assert len(text) > 2 * len(wire) * INFLATE_RATIO_MAX
    assert b"".join(Inflater("gzip", len(text)).feed(wire)) == text
    with pytest.raises(LimitError):
        list(Inflater("gzip", len(text) - 1).feed(wire))
    with pytest.raises(LimitError):
        list(Inflater("gzip", 2 * len(text)).feed(gzip.compress(text + 100 * line)))
