"""Responses as bytes: every framing, and every way to get it wrong."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretape.events.core.errors import LocalError
from wiretape.proxy.limits import (
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    INFORMATIONAL_MAX,
)
from wiretape.proxy.upstream.connection import End, Exchange, Origin, Outgoing, ProtocolError, TruncatedError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
CLOSED = b"HTTP/1.1 200 OK\r\n\r\n"
CLOSE = b""


def request(method: bytes = b"GET", target: bytes = b"/", *headers: tuple[bytes, bytes], body: bytes = b"") -> Outgoing:
    return Outgoing(Origin(tls=False, host="a", port=80), method, target, ((b"Host", b"a"), *headers), body)


def begun(method: bytes = b"GET") -> Exchange:
    """Return an exchange whose request was sent."""
    exchange = Exchange(None)
    exchange.request(request(method))
    return exchange


def fed(exchange: Exchange, *reads: bytes) -> bytes:
    body = b""
    for read in reads:
        body += exchange.feed(read)
        if exchange.end or exchange.fault:
            break
    return body


@pytest.mark.parametrize(
    ("reads", "body", "end"),
    [
        pytest.param([LENGTH + b"hello"], b"hello", End.FRAMED, id="a length"),
        pytest.param([CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"], b"hello", End.FRAMED, id="chunks"),
        pytest.param([CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"], b"hello", End.FRAMED, id="all chunks of a read"),
        pytest.param([CHUNKED + b"5;a=b\r\nhello\r\n0;c\r\n\r\n"], b"hello", End.FRAMED, id="chunk extensions"),
        pytest.param([CLOSED + b"hel", b"lo", CLOSE], b"hello", End.CLOSED, id="until the connection is closed (U20)"),
        pytest.param([CLOSED, CLOSE], b"", End.CLOSED, id="closed without a byte"),
        pytest.param([b"HTTP/1.0 200 OK\r\n\r\nhello", CLOSE], b"hello", End.CLOSED, id="HTTP/1.0"),
        pytest.param([b"HTTP/1.1 204 No Content\r\n\r\n"], b"", End.FRAMED, id="204"),
        pytest.param([b"HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n"], b"", End.FRAMED, id="304 with a length"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], b"", End.FRAMED, id="a length of nothing"),
        pytest.param([LENGTH + b"hello, and more"], b"hello", End.FRAMED, id="more than its length (U53)"),
        pytest.param([b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello"], b"hello", End.FRAMED, id="no reason"),
    ],
)
def test_body_ends_by_its_framing(reads: list[bytes], body: bytes, end: End) -> None:
    exchange = begun()
    assert fed(exchange, *reads) == body
    assert exchange.end is end
    assert exchange.fault is None
    assert exchange.head is not None


@pytest.mark.parametrize(
    ("reads", "body", "fault"),
    [
        pytest.param([LENGTH + b"hel", CLOSE], b"hel", TruncatedError, id="short of its length (U53)"),
        pytest.param([CHUNKED + b"5\r\nhello\r\n", CLOSE], b"hello", TruncatedError, id="between chunks (U19)"),
        pytest.param([CHUNKED + b"0\r\nX: 1\r\n", CLOSE], b"", TruncatedError, id="inside trailers"),
        pytest.param([CLOSE], b"", TruncatedError, id="before anything"),
        pytest.param([b"HTTP/1.1 200 OK\r\nConte", CLOSE], b"", TruncatedError, id="inside the head"),
        pytest.param([b"HTT", CLOSE], b"", TruncatedError, id="inside the first word"),
        pytest.param([CHUNKED + b"3\r\nhelXX0\r\n\r\n"], b"hel", ProtocolError, id="a chunk without its end (U54)"),
        pytest.param([CHUNKED + b"1\r\nx\r\n100000000000000000\r\n"], b"x", ProtocolError, id="a chunk of 2^68 bytes"),
        pytest.param([CHUNKED + b"1;" + b"e" * HEAD_BYTES_MAX], b"", ProtocolError, id="an endless extension"),
        pytest.param([LENGTH[:-2] + b"Transfer-Encoding: chunked\r\n\r\n5"], b"", ProtocolError, id="both (U54)"),
        pytest.param([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"], b"", ProtocolError, id="gzip"),
        pytest.param([b"HTTP/1.1 100 X\r\n\r\nHTTP/2.0 200 OK\r\n\r\n"], b"", ProtocolError, id="... behind a 1xx"),
        pytest.param([b"\x15\x03\x01\x00\x02\x02\x28"], b"", ProtocolError, id="TLS where there should be none"),
        pytest.param([b"SSH-2.0-OpenSSH\r\n"], b"", ProtocolError, id="another protocol, at its first byte"),
        pytest.param([b"HTTP/1.1 099 X\r\n\r\n"], b"", ProtocolError, id="a status below 100"),
        pytest.param([b"HTTP/1.1 200 OK\r\nA: b\rX: y\r\n\r\n"], b"", ProtocolError, id="a bare CR in a value (U55)"),
        pytest.param([b"HTTP/1.1 200 OK\r\n A: b\r\n\r\n"], b"", ProtocolError, id="a first line that continues"),
    ],
)
def test_fault_is_found_after_data_before_it(reads: list[bytes], body: bytes, fault: type[Exception]) -> None:
    exchange = begun()
    assert fed(exchange, *reads) == body
    assert type(exchange.fault) is fault
    assert exchange.end is None


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_head_limit_is_exact(more: int) -> None:
    block = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: %b\r\n\r\n"
    exchange = begun()
    exchange.feed(block % (b"x" * (HEAD_BYTES_MAX - len(block) + 2 + more)) + b"ok")
    assert isinstance(exchange.fault, ProtocolError) == (more > 0)
    assert (exchange.end is End.FRAMED) == (more <= 0)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_number_of_headers_is_bounded(more: int) -> None:
    exchange = begun()
    exchange.feed(b"HTTP/1.1 204 X\r\n%b\r\n" % (b"A: b\r\n" * (HEADERS_MAX + more)))
    assert isinstance(exchange.fault, ProtocolError) == (more > 0)


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("status", [100, 102, 103])
def test_number_of_1xx_responses_is_bounded(status: int, more: int) -> None:
    exchange = begun()
    exchange.feed(b"HTTP/1.1 %d X\r\n\r\n" % status * (INFORMATIONAL_MAX + more) + LENGTH + b"hello")
    assert isinstance(exchange.fault, ProtocolError) == (more > 0)


@pytest.mark.parametrize("header", [(b"X", b"a\r\nEvil: b"), (b"X: y\r\nEvil", b"b"), (b"X", b"a\0"), (b"", b"a")])
def test_header_injection_is_refused(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(LocalError) as raised:
        Exchange(None).request(request(b"GET", b"/", header))
    assert "Evil" not in str(raised.value)


@pytest.mark.parametrize("target", [b"/a b", b"/a\r\nEvil: b", b""])
def test_target_injection_is_refused(target: bytes) -> None:
    with pytest.raises(LocalError):
        Exchange(None).request(request(b"GET", target))


def test_fault_does_not_quote_received_bytes() -> None:
    for answer in (b"HTTP/1.1 200 OK\r\nA: s3cret\x01\x00\r\n\r\n", CHUNKED + b"s3cret\r\n", CHUNKED + b"1\r\nas3cret"):
        exchange = begun()
        exchange.feed(answer)
        assert exchange.fault is not None
        assert "s3cret" not in str(exchange.fault)


ANSWERS = [
    LENGTH + b"hello",
    b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + b"1;x\r\nh\r\n4\r\nello\r\n0\r\nT: 1\r\n\r\n",
    CLOSED + b"hello",
    CHUNKED + b"5\r\nhello\r\nbad\r\n",
    LENGTH + b"hel",
]


@given(st.sampled_from(ANSWERS), st.lists(st.integers(0, 200), max_size=20))
def test_reads_may_be_cut_anywhere(answer: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(answer), *(cut % len(answer) for cut in cuts)})
    reads = [answer[start:end] for start, end in itertools.pairwise(places)]
    whole, split = begun(), begun()
    assert fed(whole, answer, CLOSE) == fed(split, *reads, CLOSE)
    assert (whole.head, whole.end, str(whole.fault)) == (split.head, split.end, str(split.fault))
