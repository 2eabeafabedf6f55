"""The trace of a stream: taken from the client, shown to it, and passed to upstreams that want it."""

import pytest
from trio.testing import MockClock

from tests.support.house import ASKED, answer, at_once, finish, house, text
from wiretape.events.emit import emit
from wiretape.proxy.config.model import Target
from wiretape.proxy.http1 import Headers
from wiretape.proxy.security.trace import Trace, trace_of

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = f"traceparent: 00-{TRACE}-{PARENT}-01"
#: Of a stream named `s1` without a caller's trace: the beginnings of the SHA-256 of "s1", and of "s1 server 0".
DERIVED, SERVER = "e8bc163c82eee18733288c7d4ac636db", "cda87e8312643d77"


@pytest.mark.parametrize(
    ("header", "parent", "sampled"),
    [
        (f"00-{TRACE}-{PARENT}-01", PARENT, True),
        (f"00-{TRACE}-{PARENT}-00", PARENT, False),
        (f"00-{TRACE}-{PARENT}-03", PARENT, True),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-will-be-like", PARENT, True),
        (f"00-{TRACE}-{PARENT}-01-more", "", True),
        (f"ff-{TRACE}-{PARENT}-01", "", True),
        (f"00-{'0' * 32}-{PARENT}-01", "", True),
        (f"00-{TRACE}-{'0' * 16}-01", "", True),
        (f"00-{TRACE.upper()}-{PARENT}-01", "", True),
        (f"00-{TRACE}-{PARENT}", "", True),
        ("", "", True),
    ],
)
def test_trace_is_the_callers_or_derived(header: str, parent: str, sampled: bool) -> None:
    trace = trace_of("s1", Headers([(b"Traceparent", header.encode())]))
    assert (trace.parent, trace.sampled) == (parent, sampled)
    assert (trace.id, trace.server) == (TRACE if parent else DERIVED, SERVER)
    keys = {"id": trace.id, "span": trace.server} | ({"parent": parent, "sampled": sampled} if parent else {})
    assert Trace.on_tape("s1", keys) == trace
    assert Trace.on_tape("s1", {"id": 5}) == Trace.on_tape("s1", None) == trace_of("s1", Headers())


def test_two_parents_begin_a_new_trace() -> None:
    given = (b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())
    assert trace_of("s1", Headers([given, given])) == trace_of("s1", Headers())


async def test_every_status_names_stream_and_span(autojump_clock: MockClock) -> None:
    failing = answer(401, b'{"error":{"message":"no"}}')
    async with house(at_once(text("hi"), finish(), end="fin"), failing) as home:
        for path in ("/v1/chat/completions", "/v1/chat/completions", "/v1/models"):
            answered = await home.ask(ASKED, GIVEN, path=path)
            opened = (await home.tape())[0].keys
            assert answered.header(b"x-wiretape-stream") == opened["stream"].encode()
            assert opened["trace"] == {
                "id": TRACE,
                "span": Trace.on_tape(opened["stream"], None).server,
                "parent": PARENT,
                "sampled": True,
            }
            assert answered.header(b"traceresponse") == f"00-{TRACE}-{opened['trace']['span']}-01".encode()
        assert [each.status for each in home.answers] == [200, 401, 401]


async def test_only_an_upstream_with_trace_gets_our_span(autojump_clock: MockClock) -> None:
    peer = at_once(text("hi"), finish())
    plain, traced = (Target(name=name, url=f"http://127.0.0.1:9/{name}", trace=name == "b") for name in "ab")
    refusing = answer(503, b"{}")
    async with house(refusing, refusing, peer, targets=[plain, traced], route={"attempts": 1}) as home:
        await home.ask(ASKED, GIVEN, "tracestate: a=b", "baggage: user=1")
        first, second = refusing.requests[0].lower(), refusing.requests[1].lower()
        assert b"tracestate" not in first
        assert b"baggage" not in first
        assert b"traceparent" not in first
        span = Trace.on_tape(home.streams[0], {"id": TRACE}).span("attempt", 2)
        assert f"traceparent: 00-{TRACE}-{span}-01\r\n".encode() in second
        assert b"tracestate: a=b\r\n" in second
        assert b"baggage: user=1\r\n" in second
        assert second.count(b"traceparent") == 1


async def test_what_the_client_gets_does_not_depend_on_the_trace(autojump_clock: MockClock) -> None:
    async with house(at_once(text("hi"), finish())) as home:
        answered = await home.ask(ASKED, GIVEN)
        tape = await home.tape()
        without = {name: value for name, value in tape[0].keys.items() if name != "trace"}
        assert emit([tape[0]._replace(keys=without), *tape[1:]]) == emit(tape) == answered.body
