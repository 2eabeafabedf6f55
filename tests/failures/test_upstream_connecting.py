"""Upstreams that cannot be reached: U01 to U06, U57 and U58."""

import errno
import socket
import ssl
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.failures.judged import PLAIN, connecting, error_of, faulty, judged
from tests.proxy.certificates import HOST, needs_openssl, over_tls, server_context, trusting
from tests.proxy.scripted import Reset, Script, chunk, opening, request_of
from tests.support.house import ASKED, DONE, HEAD, Peer, answer, finish, role, text
from wiretape.events.core.settings import Settings
from wiretape.proxy.config.model import Target, UpstreamSettings
from wiretape.proxy.limits import CONNECT_TIMEOUT_S

GOOD = (role(), text("hi"), finish(), DONE)
HTTPS = f"https://{HOST}/v1"
NOBODY = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
NO_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")

ASKS: dict[str, dict[str, Any]] = {
    "a stream": {},
    "a whole answer": {"body": PLAIN},
    "models": {"body": b"", "path": "/v1/models", "method": "GET"},
}


@pytest.mark.case("U01")
@pytest.mark.parametrize("how", ASKS.values(), ids=ASKS)
async def test_refused_connection_is_tried_three_times(how: dict[str, Any], autojump_clock: MockClock) -> None:
    async with faulty() as home:
        connecting(home, opening(NOBODY))
        answered = await home.ask(**how)
        seen = await judged(home, answered, "refused", came=b"")
        assert (answered.status, error_of(answered)["code"]) == (502, "refused")
        assert answered.header(b"x-should-retry") == b"false", "three attempts were made already"
        assert answered.at <= 2
        assert [record.keys["number"] for record in seen.attempts] == [1, 2, 3]
        assert [record.keys["next"] for record in seen.failed] == ["again", "again", "give_up"]
        waits = [record.keys.get("after_ms", 0) for record in seen.failed[:2]]
        assert waits == [250, 500], "each wait is longer than the one before"


@pytest.mark.case("U01")
async def test_upstream_that_recovers_between_attempts_answers(autojump_clock: MockClock) -> None:
    async with faulty(Peer(*GOOD)) as home:
        real, tries = home.upstream.open_tcp, iter([NOBODY, NO_NAME])

        async def open_tcp(host: str, port: int) -> trio.abc.Stream:
            for error in tries:
                raise error
            return await real(host, port)

        connecting(home, open_tcp)
        answered = await home.ask()
        assert (answered.status, answered.body) == (200, b"".join(GOOD))
        seen = await judged(home, answered, "completed", came=b"".join(GOOD))
        assert len(seen.attempts) == 3


@pytest.mark.case("U02", "U04")
@pytest.mark.parametrize("how", ASKS.values(), ids=ASKS)
async def test_endless_connect_is_given_up_at_its_deadline(how: dict[str, Any], autojump_clock: MockClock) -> None:
    async with faulty() as home:
        connecting(home, opening(3_600.0))
        answered = await home.ask(**how)
        seen = await judged(home, answered, "refused", came=b"")
        assert (answered.status, error_of(answered)["code"]) == (504, "refused")
        assert answered.at == pytest.approx(CONNECT_TIMEOUT_S, abs=0.1), "not the limit of reading"
        assert len(seen.attempts) == 1, "it took the whole deadline"


@pytest.mark.case("U02")
async def test_unreachable_upstream_falls_back_to_another(autojump_clock: MockClock) -> None:
    targets = [Target(name="a", url="http://127.0.0.1:9/v1"), Target(name="b", url="http://127.0.0.1:10/v1")]
    async with faulty(Peer(*GOOD), targets=targets) as home:
        real = home.upstream.open_tcp

        async def open_tcp(host: str, port: int) -> trio.abc.Stream:
            if port == 9:
                await trio.sleep_forever()
            return await real(host, port)

        connecting(home, open_tcp)
        answered = await home.ask()
        seen = await judged(home, answered, "completed", came=b"".join(GOOD))
        assert [record.keys["upstream"] for record in seen.attempts] == ["a", "b"]
        assert answered.at == pytest.approx(CONNECT_TIMEOUT_S, abs=0.1)


@pytest.mark.case("U02")
@pytest.mark.slow
async def test_full_backlog_counts_as_unreachable() -> None:
    """The kernel drops what does not fit: the connect just hangs."""
    listener = socket.socket()
    fillers: list[socket.socket] = []
    try:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            filler = socket.socket()
            fillers.append(filler)
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        await trio.sleep(0.2)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        async with faulty(url=url, upstream=UpstreamSettings(connect_timeout_s=1)) as home:
            connecting(home, trio.open_tcp_stream)
            began = trio.current_time()
            answered = await home.ask()
            assert answered.status == 504
            assert 0.9 < trio.current_time() - began < 30, "the kernel would try for two minutes"
            await judged(home, answered, "refused", came=b"")
    finally:
        for each in (*fillers, listener):
            each.close()


@pytest.mark.case("U03")
@pytest.mark.parametrize("how", ASKS.values(), ids=ASKS)
async def test_unresolvable_name_is_reported_without_any_key(how: dict[str, Any], autojump_clock: MockClock) -> None:
    async with faulty(url="http://no-such-host.test/v1?api-version=1") as home:
        connecting(home, opening(NO_NAME))
        answered = await home.ask(**how)
        seen = await judged(home, answered, "refused", came=b"")
        assert answered.status == 502
        assert "no-such-host.test" in error_of(answered)["message"]
        assert len(seen.attempts) <= 3
        assert answered.at <= 2


@pytest.mark.case("U04")
async def test_slow_resolver_delays_no_other_stream(autojump_clock: MockClock) -> None:
    async with faulty(Peer(role(), *[text("x")] * 20, finish(), DONE, every_s=1)) as home:
        real, slow = home.upstream.open_tcp, [True]

        async def open_tcp(host: str, port: int) -> trio.abc.Stream:
            if slow.pop() if slow else False:
                await trio.sleep(30)
                raise NO_NAME
            return await real(host, port)

        connecting(home, open_tcp)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(home.ask, ASKED)
            await trio.testing.wait_all_tasks_blocked()
            answered = await home.ask()
            gaps = [late[0] - early[0] for early, late in zip(answered.pieces, answered.pieces[1:], strict=False)]
            assert max(gaps) <= 1.05, "V5"
        await judged(home, None, "refused", stream=home.streams[0])
        await judged(home, answered, "completed")


@needs_openssl
@pytest.mark.case("U05")
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("expired", "expired"),
        ("wrong name", "match"),
        ("self-signed", "self"),
        pytest.param("TLS 1.1", "TLS", id="an old version"),
    ],
)
@pytest.mark.parametrize("how", ASKS.values(), ids=ASKS)
async def test_bad_certificate_is_reported_and_refused(
    kind: str, says: str, how: dict[str, Any], autojump_clock: MockClock
) -> None:
    peer = Peer(*GOOD)
    async with faulty(over_tls_quietly(peer, kind), url=HTTPS) as home:
        connecting(home, home.upstream.open_tcp, trusting())
        answered = await home.ask(**how)
        seen = await judged(home, answered, "refused", came=b"")
        assert answered.status == 502
        assert says in error_of(answered)["message"]
        assert HOST in error_of(answered)["message"]
        assert not peer.requests, "nothing was asked without verification"
        assert len(seen.attempts) == 1, "the same certificate would come again"


def over_tls_quietly(script: Script, kind: str = "good") -> Script:
    """The client breaks off the handshake, and the server need not like it."""
    inner = over_tls(script, kind)

    async def wrapped(stream: trio.abc.Stream) -> None:
        try:
            await inner(stream)
        except ssl.SSLError as error:
            raise trio.BrokenResourceError from error

    return wrapped


@needs_openssl
@pytest.mark.case("U05")
async def test_good_certificate_is_accepted(autojump_clock: MockClock) -> None:
    async with faulty(over_tls(Peer(*GOOD)), url=HTTPS) as home:
        connecting(home, home.upstream.open_tcp, trusting())
        answered = await home.ask()
        assert (answered.status, answered.body) == (200, b"".join(GOOD))
        await judged(home, answered, "completed", came=b"".join(GOOD))


@pytest.mark.case("U06")
@pytest.mark.parametrize("how", ASKS.values(), ids=ASKS)
async def test_hanging_handshake_is_given_up_at_the_connect_deadline(
    how: dict[str, Any], autojump_clock: MockClock
) -> None:
    async def hangs(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await trio.sleep_forever()

    async with faulty(hangs, url=HTTPS) as home:
        answered = await home.ask(**how)
        await judged(home, answered, "refused", came=b"")
        assert answered.status == 504
        assert answered.at == pytest.approx(CONNECT_TIMEOUT_S, abs=0.1)
        assert "TLS" in error_of(answered)["message"]


@needs_openssl
@pytest.mark.case("U57")
async def test_only_http_1_1_is_offered(autojump_clock: MockClock) -> None:
    offered: list[str | None] = []

    async def script(stream: trio.abc.Stream) -> None:
        context = server_context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        tls = trio.SSLStream(stream, context, server_side=True)
        await tls.do_handshake()
        offered.append(tls.selected_alpn_protocol())
        await Peer(*GOOD)(tls)

    async with faulty(script, url=HTTPS) as home:
        connecting(home, home.upstream.open_tcp, trusting())
        answered = await home.ask()
        assert answered.status == 200
        assert offered == ["http/1.1"]
        await judged(home, answered, "completed")


@pytest.mark.case("U57")
@pytest.mark.parametrize(
    "says",
    [
        pytest.param(b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x64\0\4\x7f\xff\0\0\0\1\0\0\0\0", id="its settings"),
        pytest.param(b"\0\0\x08\7\0\0\0\0\0\0\0\0\0\0\0\0\x0b", id="goodbye"),
        pytest.param(b"\0\0\x04\3\0\0\0\0\1\0\0\0\x0b", id="be calm"),
        pytest.param(b"\0\0\0\4\0\0\0\0\0" * 10_000, id="a flood"),
    ],
)
@pytest.mark.parametrize("how", ASKS.values(), ids=ASKS)
async def test_http_2_frames_are_a_protocol_error(says: bytes, how: dict[str, Any], autojump_clock: MockClock) -> None:
    async with faulty(Peer(head=says, end="stall")) as home:
        answered = await home.ask(**how)
        seen = await judged(home, answered, "protocol", came=b"")
        assert (answered.status, error_of(answered)["code"]) == (502, "protocol")
        assert len(seen.attempts) == 1


@pytest.mark.case("U58")
@pytest.mark.parametrize("end", ["fin", "rst"])
@pytest.mark.parametrize("body", [ASKED, PLAIN], ids=["a stream", "a whole answer"])
async def test_stale_idle_connection_is_replaced_silently(end: Any, body: Any, autojump_clock: MockClock) -> None:
    async def once(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(HEAD + b"".join(map(chunk, GOOD)) + b"0\r\n\r\n")
        await trio.sleep(10)
        if end == "rst":
            raise Reset

    good = answer(200, b'{"choices":[]}') if body is PLAIN else Peer(*GOOD)
    async with faulty(once, good) as home:
        await home.ask()
        assert len(home.transport.pool) == 1
        await trio.sleep(20)
        answered = await home.ask(body)
        assert answered.status == 200
        seen = await judged(
            home, answered, "completed" if body is ASKED else "protocol", *(["not_a_stream"] if body is PLAIN else [])
        )
        assert len(seen.attempts) == 1, "it is no attempt of its own"
        assert len(home.upstream.opened) == 2
        heads = [record.keys for record in await home.tape() if record.kind == "head"]
        assert [keys.get("repeated") for keys in heads] == [True], "but the tape says it"


@pytest.mark.case("U58")
@pytest.mark.parametrize(
    ("path", "asked", "attempts"), [("/v1/chat/completions", ASKED, 2), ("/v1/images/generations", {"prompt": "x"}, 1)]
)
async def test_processed_request_is_not_repeated_silently(
    path: str, asked: Any, attempts: int, autojump_clock: MockClock
) -> None:
    async def worker(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(HEAD + b"".join(map(chunk, GOOD)) + b"0\r\n\r\n")
        await request_of(stream)
        await trio.sleep(3)

    async with faulty(worker, Peer(*GOOD)) as home:
        await home.ask()
        assert len(home.transport.pool) == 1
        answered = await home.ask(asked, path=path)
        assert (answered.status == 200) == (attempts == 2)
        assert (await home.kinds()).count("attempt") == attempts
        assert len(home.upstream.opened) == attempts


@pytest.mark.case("U01", "U17")
@pytest.mark.parametrize("profile", ["transparent"])
async def test_transparent_profile_retries_before_a_head(profile: Any, autojump_clock: MockClock) -> None:
    async with faulty(settings=Settings(profile=profile)) as home:
        connecting(home, opening(NOBODY))
        answered = await home.ask()
        seen = await judged(home, answered, "refused", came=b"")
        assert answered.status == 502
        assert len(seen.attempts) == 3
