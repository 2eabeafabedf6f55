"""Answers whose HTTP is wrong, compressed or early: U51 to U56 and U59; and what passes as an exchange."""

import gzip
import zlib
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.failures.judged import PLAIN, error_of, faulty, judged, received
from tests.proxy.scripted import Script, chunk
from tests.support.house import ASKED, DONE, HEAD, Peer, answer, finish, role, text
from wiretape.events.core.json_text import dumps
from wiretape.events.core.settings import Settings
from wiretape.proxy.config.model import Target

GOOD = role() + text("hi") + finish() + DONE
WHOLE = dumps(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi" * 2_000}, "finish_reason": "stop"}],
    }
)
EXCHANGES: dict[str, dict[str, Any]] = {
    "a stream": {"body": ASKED},
    "a whole answer": {"body": PLAIN},
    "an exchange": {"body": b"{}", "path": "/v1/embeddings"},
}
ALL = pytest.mark.parametrize("how", EXCHANGES.values(), ids=EXCHANGES)


def head(*lines: str, status: int = 200) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode("latin-1")


# -- compressed -------------------------------------------------------------------------------------------------------


@pytest.mark.case("U51")
@pytest.mark.parametrize(("coding", "packed"), [("gzip", gzip.compress(GOOD)), ("deflate", zlib.compress(GOOD))])
@pytest.mark.parametrize("size", [1, 50, 10_000])
async def test_compressed_stream_is_decoded(coding: str, packed: bytes, size: int, autojump_clock: MockClock) -> None:
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    named = head("Content-Type: text/event-stream", f"Content-Encoding: {coding}", "Transfer-Encoding: chunked")
    async with faulty(Peer(*pieces, head=named)) as home:
        answered = await home.ask()
        assert (answered.status, answered.body) == (200, GOOD)
        assert answered.header(b"content-encoding") is None
        seen = await judged(home, answered, "completed", came=GOOD)
        assert next(record for record in seen.tape if record.kind == "head").keys["decoded"] == coding


@pytest.mark.case("U51")
async def test_compressed_whole_answer_is_decoded_with_its_headers(autojump_clock: MockClock) -> None:
    async with faulty(answer(200, gzip.compress(WHOLE), "Content-Encoding: gzip")) as home:
        answered = await home.ask(PLAIN)
        assert (answered.status, answered.body, answered.ended) == (200, WHOLE, "chunked")
        assert answered.header(b"content-encoding") is None
        await judged(home, answered, "completed", came=WHOLE)


@pytest.mark.case("U51")
async def test_compressed_error_is_decoded(autojump_clock: MockClock) -> None:
    said = b'{"error":{"message":"no"}}'
    async with faulty(answer(400, gzip.compress(said), "Content-Encoding: gzip")) as home:
        answered = await home.ask()
        assert (answered.status, answered.body) == (400, said)
        await judged(home, answered, "upstream_error", came=said)


@pytest.mark.case("U51")
@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "aes128gcm"])
@pytest.mark.parametrize("body", [ASKED, PLAIN], ids=["a stream", "a whole answer"])
async def test_unknown_compression_is_a_protocol_error(coding: str, body: Any, autojump_clock: MockClock) -> None:
    peer = answer(200, b"\x1b\x00\x00", f"Content-Encoding: {coding}", kind="text/event-stream")
    async with faulty(peer) as home:
        answered = await home.ask(body)
        assert (answered.status, error_of(answered)["code"]) == (502, "protocol")
        await judged(home, answered, "protocol", came=b"")
        assert len(peer.requests) == 1


@pytest.mark.case("U51")
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
async def test_damaged_compression_is_a_protocol_error(kind: str, autojump_clock: MockClock) -> None:
    async with faulty(answer(200, b"not gzip at all", "Content-Encoding: gzip", kind=kind)) as home:
        answered = await home.ask()
        assert (answered.status, error_of(answered)["code"]) == (502, "protocol")
        await judged(home, answered, "protocol", came=b"")


@pytest.mark.case("U51")
async def test_compressed_exchange_passes_unchanged(autojump_clock: MockClock) -> None:
    peer = answer(200, gzip.compress(WHOLE), "Content-Encoding: gzip")
    async with faulty(peer, targets=[Target(name="no key of ours", url="http://127.0.0.1:9/v1")]) as home:
        answered = await home.ask(b"", path="/v1/models", method="GET")
        assert (answered.body, answered.header(b"content-encoding"), answered.ended) == (peer.body, b"gzip", "length")
        await judged(home, answered, "completed", came=peer.body)


@pytest.mark.case("U51", "U07")
async def test_compressed_exchange_is_searched_for_our_key(autojump_clock: MockClock) -> None:
    async with faulty(answer(200, gzip.compress(WHOLE), "Content-Encoding: gzip")) as home:
        answered = await home.ask(b"", path="/v1/models", method="GET")
        assert (answered.body, answered.header(b"content-encoding"), answered.ended) == (WHOLE, None, "chunked")
        await judged(home, answered, "completed")


@pytest.mark.case("U52")
@pytest.mark.parametrize("coding", ["gzip", pytest.param("deflate", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
async def test_decompression_bomb_ends_as_limit(kind: str, coding: str, autojump_clock: MockClock) -> None:
    plain = b": " + b"x" * 60_000_000
    bomb = gzip.compress(plain) if coding == "gzip" else zlib.compress(plain)
    peer = answer(200, bomb, f"Content-Encoding: {coding}", kind=kind)
    async with faulty(peer) as home:
        answered = await home.ask()
        assert (answered.status, error_of(answered)["code"]) == (502, "limit")
        seen = await judged(home, answered, "limit", *(["not_a_stream"] if kind == "application/json" else []))
        assert seen.end["bytes"] <= 8 * 1024 * 1024


@pytest.mark.case("U52")
async def test_bomb_after_content_ends_the_stream_as_limit(autojump_clock: MockClock) -> None:
    bomb = gzip.compress(role() + text("hi") + b": " + b"x" * 60_000_000)
    named = head("Content-Type: text/event-stream", "Content-Encoding: gzip", "Transfer-Encoding: chunked")
    async with faulty(Peer(bomb, head=named)) as home:
        answered = await home.ask()
        assert answered.status in (200, 502)
        assert error_of(answered)["code"] == "limit"
        await judged(home, answered, "limit")


# -- lengths, chunks, heads -------------------------------------------------------------------------------------------


@pytest.mark.case("U53")
async def test_content_length_too_short_for_the_stream_is_a_cut(autojump_clock: MockClock) -> None:
    """Fewer bytes come than were promised."""
    named = head("Content-Type: text/event-stream", "Content-Length: 5000")
    async with faulty(Peer(role() + text("hi"), head=named, end="fin")) as home:
        answered = await home.ask()
        assert error_of(answered)["code"] == "truncated"
        await judged(home, answered, "truncated", came=role() + text("hi"))


@pytest.mark.case("U53")
@ALL
async def test_bytes_beyond_the_content_length_are_ignored(how: dict[str, Any], autojump_clock: MockClock) -> None:
    body, kind = (GOOD, "text/event-stream") if how["body"] is ASKED else (WHOLE, "application/json")
    named = head(f"Content-Type: {kind}", f"Content-Length: {len(body)}")
    async with faulty(Peer(body + b"HTTP/1.1 200 OK\r\nX-Evil: 1\r\n\r\n", head=named)) as home:
        answered = await home.ask(**how)
        assert (answered.status, answered.body) == (200, body)
        await judged(home, answered, "completed", came=body)
        assert len(home.transport.pool) == 0, "nothing follows on this connection"


BAD_HEADS: dict[str, tuple[str, bytes]] = {
    "U53 a negative length": ("U53", head("Content-Length: -1")),
    "U53 a length with a sign": ("U53", head("Content-Length: +5")),
    "U53 two lengths": ("U53", head("Content-Length: 5", "Content-Length: 6")),
    "U53 a length that is a word": ("U53", head("Content-Length: ten")),
    "U53 a length of 2^64 bytes": ("U53", head(f"Content-Length: {2**64}")),
    "U54 both framings": ("U54", head("Content-Length: 5", "Transfer-Encoding: chunked")),
    "U54 another coding": ("U54", head("Transfer-Encoding: gzip, chunked")),
    "U55 a header of 200 KB": ("U55", head("X: " + "x" * 200_000)),
    "U55 10,000 headers": ("U55", head(*[f"X-{n}: 1" for n in range(10_000)])),
    "U55 a bare CR in a value": ("U55", head("X: a\rSet-Cookie: b=c")),
    "U55 a NUL in a value": ("U55", head("X: a\0b")),
    "U55 a name with a space": ("U55", head("X y: a")),
    "U55 an endless status line": ("U55", b"HTTP/1.1 200 " + b"x" * 200_000),
    "U56 a flood of 100": ("U56", head(status=100) * 10_000),
    "U56 a flood of 103": ("U56", head("Link: </a>", status=103) * 10_000),
    "U57 no HTTP": ("U57", b"SSH-2.0-OpenSSH_9.6\r\n"),
}


@pytest.mark.parametrize(
    "says", [pytest.param(bad, id=name, marks=pytest.mark.case(case)) for name, (case, bad) in BAD_HEADS.items()]
)
@ALL
async def test_invalid_head_is_a_protocol_error(says: bytes, how: dict[str, Any], autojump_clock: MockClock) -> None:
    async with faulty(peer := Peer(head=says, end="stall")) as home:
        answered = await home.ask(**how)
        assert (answered.status, error_of(answered)["code"]) == (502, "protocol")
        assert not {b"x", b"set-cookie", b"link"} & {name for name, _ in answered.headers}
        await judged(home, answered, "protocol", came=b"")
        assert len(peer.requests) == 1
        assert len(home.transport.pool) == 0


@pytest.mark.case("U55")
async def test_a_folded_header_does_not_become_two(autojump_clock: MockClock) -> None:
    named = head("Content-Type: text/event-stream", "X-A: a\r\n Set-Cookie: b=c", "Transfer-Encoding: chunked")
    async with faulty(Peer(GOOD, head=named)) as home:
        answered = await home.ask()
        assert b"set-cookie" not in {name for name, _ in answered.headers}
        assert answered.status in (200, 502)
        assert (await home.ending())[0] in ("completed", "protocol")


BAD_CHUNKS = {
    "a size that is no number": b"xyz\r\n",
    "a size of 30 digits": b"1" * 30 + b"\r\nabc",
    "a chunk that is longer than its size": b"3\r\nabcdef\r\n",
    "a flood of extensions": b"".join(b"1;" + b"e" * 200 + b"\r\nx\r\n" for _ in range(2_000)),
    "an endless extension": b"1;" + b"e" * 200_000,
}


@pytest.mark.case("U54")
@pytest.mark.parametrize("bad", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
@pytest.mark.parametrize("before", [b"", role(), role() + text("hi")], ids=["first", "behind a role", "behind content"])
async def test_invalid_chunks_end_the_stream(before: bytes, bad: bytes, autojump_clock: MockClock) -> None:
    pieces = [chunk(before)] if before else []
    async with faulty(peer := Peer(*pieces, bad, head=HEAD, raw=True, every_s=0.1, end="stall")) as home:
        answered = await home.ask()
        delivered = b"hi" in before
        assert answered.status == (200 if delivered else 502)
        assert error_of(answered)["code"] == "protocol"
        framed = (bad.startswith((b"3\r\nabc", b"1;e")) and b"\r\nx" in bad) or b"abcdef" in bad
        seen = await judged(home, answered, "protocol", *(["not_a_stream"] if framed else []))
        assert received(seen.tape).startswith(before)
        assert (len(peer.requests), len(home.transport.pool)) == (1, 0)


@pytest.mark.case("U54")
@ALL
async def test_trailers_are_dropped(how: dict[str, Any], autojump_clock: MockClock) -> None:
    body, kind = (GOOD, "text/event-stream") if how["body"] is ASKED else (WHOLE, "application/json")
    named = head(f"Content-Type: {kind}", "Transfer-Encoding: chunked", "Trailer: X-Evil")
    pieces = (chunk(body) + b"0\r\nX-Evil: 1\r\nSet-Cookie: a=b\r\n\r\n",)
    async with faulty(Peer(*pieces, head=named, raw=True)) as home:
        answered = await home.ask(**how)
        assert (answered.status, answered.body) == (200, body)
        assert not {b"x-evil", b"set-cookie", b"trailer"} & {name for name, _ in answered.headers}
        await judged(home, answered, "completed", came=body)
        assert len(home.transport.pool) == 1


@pytest.mark.case("U56")
@ALL
async def test_informational_responses_are_skipped(how: dict[str, Any], autojump_clock: MockClock) -> None:
    body, kind = (GOOD, "text/event-stream") if how["body"] is ASKED else (WHOLE, "application/json")
    named = (
        head(status=100)
        + head("Link: </a>", status=103)
        + head(f"Content-Type: {kind}", f"Content-Length: {len(body)}")
    )
    async with faulty(Peer(body, head=named)) as home:
        answered = await home.ask(**how)
        assert (answered.status, answered.body, answered.informational) == (200, body, [])
        await judged(home, answered, "completed", came=body)


# -- early, and as it comes -------------------------------------------------------------------------------------------


def early(status: int, body: bytes) -> Script:
    """Return an upstream that answers while the request still arrives."""

    async def script(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(head("Content-Type: application/json", "Content-Length: 2", status=status) + body)
        await trio.sleep_forever()

    return script


@pytest.mark.case("U59")
@pytest.mark.parametrize("status", [200, 413])
async def test_early_answer_to_an_upload_is_delivered(status: int, autojump_clock: MockClock) -> None:
    async with faulty(early(status, b"no")) as home:
        client = await home.connect()
        await client.send(b"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1:8787\r\nContent-Length: 10000000\r\n\r\n")
        await client.send(b"x" * 1_000)
        answered = await client.response(method="POST")
        assert (answered.status, answered.body) == (status, b"no")
        await judged(home, answered, "completed" if status == 200 else "upstream_error", came=b"no")
        client.close()


@pytest.mark.case("U59")
async def test_early_answer_to_a_large_chat_request_is_delivered(autojump_clock: MockClock) -> None:
    async with faulty(early(413, b"{}")) as home:
        answered = await home.ask({**ASKED, "messages": [{"role": "user", "content": "x" * 1_000_000}]})
        assert (answered.status, answered.body) == (413, b"{}")
        await judged(home, answered, "upstream_error", "not_a_stream", came=b"{}")


@pytest.mark.case("U59")
async def test_upload_is_recorded_before_it_is_sent_upstream(autojump_clock: MockClock) -> None:
    async with faulty(peer := answer(200, b"ok")) as home:
        client = await home.connect()
        await client.send(b"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1:8787\r\nTransfer-Encoding: chunked\r\n\r\n")
        for letter in (b"a", b"b", b"c"):
            await client.send(chunk(letter * 1_000))
            await trio.sleep(1)
        await client.send(b"0\r\n\r\n")
        answered = await client.response(method="POST")
        assert (answered.status, answered.body) == (200, b"ok")
        seen = await judged(home, answered, "completed", came=b"ok")
        uploaded = b"".join(record.raw or b"" for record in seen.tape if record.kind == "upload")
        assert uploaded == b"a" * 1_000 + b"b" * 1_000 + b"c" * 1_000
        assert peer.requests[0].endswith(b"0\r\n\r\n")
        client.close()


@pytest.mark.case("U53", "U16")
@pytest.mark.parametrize(
    ("method", "status", "lines", "body"),
    [
        ("HEAD", 200, ["Content-Length: 5000", "X-A: 1"], b""),
        ("GET", 204, ["X-A: 1"], b""),
        ("GET", 304, ["ETag: x", "X-A: 1"], b""),
        ("DELETE", 200, ["Content-Length: 2", "X-A: 1"], b"{}"),
        ("GET", 200, ["Content-Length: 0", "X-A: 1"], b""),
    ],
)
async def test_other_exchanges_pass_unchanged(
    method: str, status: int, lines: list[str], body: bytes, autojump_clock: MockClock
) -> None:
    async with faulty(Peer(body, head=head(*lines, status=status), raw=True)) as home:
        answered = await home.ask(b"", path="/v1/models", method=method)
        assert (answered.status, answered.body, answered.header(b"x-a")) == (status, body, b"1")
        given = next((line.partition(": ")[2].encode() for line in lines if line.startswith("Content-Length")), None)
        assert given is None or answered.header(b"content-length") == given
        await judged(home, answered, "completed", came=body)
        assert len(home.transport.pool) == 1, "and its connection is used again"


@pytest.mark.case("U20")
async def test_exchange_ended_by_a_close_is_flagged_unframed(autojump_clock: MockClock) -> None:
    async with faulty(peer := Peer(b"abc", head=head("Content-Type: text/plain"), end="fin")) as home:
        answered = await home.ask(b"", path="/v1/files/1/content", method="GET")
        assert (answered.status, answered.body, answered.ended) == (200, b"abc", "chunked")
        await judged(home, answered, "completed", "unframed", came=peer.body)


@pytest.mark.case("U38", "U19")
@pytest.mark.parametrize(("end", "ending"), [("final", "completed"), ("fin", "truncated"), ("rst", "reset")])
async def test_event_stream_of_another_endpoint_is_framed_but_not_repaired(
    end: Any, ending: str, autojump_clock: MockClock
) -> None:
    frames = (b"event: response.created\ndata: {}\n\n", b"data: not json\r\n\r\n", b": hello\n\n", b"data: hal")
    async with faulty(peer := Peer(*frames, end=end)) as home:
        answered = await home.ask(ASKED, path="/v1/completions")
        assert answered.body == peer.body
        assert (answered.ended == "chunked") is (end == "final")
        seen = await judged(home, answered, ending, came=peer.body)
        kinds = [record.kind for record in seen.tape]
        assert (kinds.count("frame"), kinds.count("rest")) == (3, 1)


@pytest.mark.case("U59")
async def test_transparent_profile_passes_a_foreign_body(autojump_clock: MockClock) -> None:
    async with faulty(answer(200, b"<html>", kind="text/html"), settings=Settings(profile="transparent")) as home:
        answered = await home.ask()
        assert (answered.status, answered.body) == (200, b"<html>")
        await judged(home, answered, "protocol", "not_a_stream", came=b"<html>")
