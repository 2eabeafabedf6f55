"""What is written or read by hand is what h11 writes and reads; whatever it would find fault with is left to it."""

import h11
import pytest

from wiretape.proxy.limits import HEAD_BYTES_MAX, HEADERS_MAX
from wiretape.proxy.server.plain import answer_head, header_lines, read_answer, request_head
from wiretape.proxy.server.request_guard import Guard

HEADERS = [(b"content-type", b"text/event-stream"), (b"X-Mixed", b"a  b;\tc=\xe9"), (b"x_1", b"*")]
NASTY = [
    [(b"a", b"b\r\nc: d")],
    [(b"a", b"b\nc: d")],
    [(b"a", b"b\rc")],
    [(b"a\r\nc", b"d")],
    [(b"a: b\r\nc", b"d")],
    [(b"a", b"\x00")],
    [(b"a", b"\x7f")],
    [(b"a", b" b")],
    [(b"a", b"b\t")],
    [(b"a", b"")],
    [(b"a b", b"c")],
    [(b"a:", b"c")],
    [(b"", b"c")],
    [(b"\xe9", b"c")],
]


def written(closes: bool) -> bytes:
    """As h11 answers a request that says how its connection is to end."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"GET / HTTP/1.1\r\nhost: x\r\n" + b"connection: close\r\n" * closes + b"\r\n")
    server.next_event()
    sent = server.send(h11.Response(status_code=200, headers=HEADERS, reason=b"OK"))
    assert sent is not None
    return sent


@pytest.mark.parametrize("closes", [False, True])
def test_the_head_of_a_stream_is_h11s(closes: bool) -> None:
    assert answer_head(200, HEADERS, closes=closes) == written(closes)


@pytest.mark.parametrize("nasty", NASTY)
def test_nothing_that_could_be_read_as_another_head_is_written(nasty: list[tuple[bytes, bytes]]) -> None:
    assert header_lines(nasty) is None
    assert answer_head(200, nasty, closes=False) is None
    assert request_head(b"GET", b"/", [(b"host", b"x"), *nasty], 0) is None


@pytest.mark.parametrize("name", [b"Connection", b"content-length", b"Transfer-Encoding", b"upgrade"])
def test_the_framing_of_a_stream_is_ours(name: bytes) -> None:
    assert answer_head(200, [(name, b"5")], closes=False) is None


@pytest.mark.parametrize(
    ("method", "target", "headers", "body"),
    [
        (b"POST", b"/v1/x?y=%20", [(b"Host", b"a:1"), *HEADERS, (b"Content-Length", b"2")], b"{}"),
        (b"GET", b"/", [(b"host", b"a")], b""),
        (b"PUT", b"/", [(b"host", b"a"), (b"content-length", b"0")], b""),
    ],
)
def test_a_request_is_h11s(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    client = h11.Connection(h11.CLIENT)
    sent = client.send(h11.Request(method=method, target=target, headers=headers))
    assert request_head(method, target, headers, len(body)) == sent
    client.send(h11.Data(data=body))
    client.send(h11.EndOfMessage())


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        (b"/ HTTP/1.1\r\nx: y", [(b"host", b"a")]),
        (b"/a b", [(b"host", b"a")]),
        (b"", [(b"host", b"a")]),
        (b"/", []),
        (b"/", [(b"x", b"y"), (b"host", b"a")]),
        (b"/", [(b"host", b"a"), (b"Host", b"b")]),
        (b"/", [(b"host", b"a"), (b"content-length", b"1")]),
        (b"/", [(b"host", b"a"), (b"content-length", b"0"), (b"Content-Length", b"0")]),
        (b"/", [(b"host", b"a"), (b"Transfer-Encoding", b"chunked")]),
        (b"/", [(b"host", b"a"), (b"connection", b"close")]),
        (b"/", [(b"host", b"a"), (b"expect", b"100-continue")]),
        (b"/", [(b"host", b"a"), (b"upgrade", b"h2c")]),
    ],
)
def test_a_request_that_is_not_plain_is_left_to_h11(target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    assert request_head(b"GET", target, headers, 0) is None


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream \r\nTransfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "head",
    [
        HEAD,
        HEAD + b"connection: keep-alive\r\n",
        HEAD + b"x:\t y \r\nX-Empty:\r\nx-other:a\tb\xff\r\n",
        HEAD.replace(b"OK", b""),
        HEAD.replace(b"200 OK", b"503 Try \xe9 again"),
    ],
)
def test_an_answer_is_read_as_h11_reads_it(head: bytes) -> None:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(head + b"\r\n1\r\nx")
    event = client.next_event()
    assert isinstance(event, h11.Response)
    read = read_answer(head + b"\r\n1\r\nx")
    assert read is not None
    assert read.status == event.status_code
    assert read.reason == bytes(event.reason)
    assert read.headers == tuple(event.headers.raw_items())
    assert client.trailing_data[0] == (head + b"\r\n1\r\nx")[read.end :]


@pytest.mark.parametrize(
    "answer",
    [
        HEAD,
        HEAD[:-2] + b"\n\r\n",
        HEAD.replace(b"\r\n", b"\n") + b"\n\r\n\r\n",
        HEAD.replace(b"1.1", b"1.0") + b"\r\n",
        HEAD.replace(b"200", b"100") + b"\r\n",
        HEAD.replace(b"200", b"101") + b"\r\n",
        HEAD.replace(b"200", b"204") + b"\r\n",
        HEAD.replace(b"200", b"304") + b"\r\n",
        HEAD.replace(b"200 OK", b"200") + b"\r\n",
        HEAD.replace(b"200 OK", b"2000 OK") + b"\r\n",
        HEAD.replace(b"200 OK", b"200 O\x00K") + b"\r\n",
        HEAD.replace(b"chunked", b"gzip, chunked") + b"\r\n",
        HEAD.replace(b"chunked", b"Chunked") + b"\r\n",
        HEAD.replace(b"Transfer-Encoding: chunked", b"x: y") + b"\r\n",
        HEAD + b"Content-Length: 5\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n",
        HEAD + b"Connection: close\r\n\r\n",
        HEAD + b"Connection: keep-alive, close\r\n\r\n",
        HEAD + b"Upgrade: h2c\r\n\r\n",
        HEAD + b" folded: line\r\n\r\n",
        HEAD + b"no colon\r\n\r\n",
        HEAD + b"a b: c\r\n\r\n",
        HEAD + b"a : c\r\n\r\n",
        HEAD + b"a: b\x00\r\n\r\n",
        HEAD + b"a: b\nc: d\r\n\r\n",
        HEAD + b"a: b\r\n" * HEADERS_MAX + b"\r\n",
        HEAD + b"a: " + b"b" * HEAD_BYTES_MAX + b"\r\n\r\n",
    ],
)
def test_an_answer_that_is_not_plain_is_left_to_h11(answer: bytes) -> None:
    assert read_answer(answer) is None


def test_what_the_guard_lets_through_it_has_read_as_h11_does() -> None:
    request = b"POST /v1/x?y HTTP/1.1\r\nHost: a\r\nX-Mixed:  b c \t\r\nempty:\r\nContent-Length: 2\r\n\r\n{}"
    guard = Guard()
    assert guard.add(request) == request
    server = h11.Connection(h11.SERVER)
    server.receive_data(request)
    event = server.next_event()
    assert isinstance(event, h11.Request)
    asked = guard.asked
    assert asked is not None
    assert (asked.method, asked.target, asked.old) == (event.method, event.target, False)
    assert asked.headers == list(event.headers)
    assert asked.single == {b"host": b"a", b"content-length": b"2"}
    assert request[asked.end :] == b"{}"
