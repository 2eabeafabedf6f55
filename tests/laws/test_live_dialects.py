"""L3 and L6 over captured streams through the whole proxy, in every pair of dialects: client, tape and `emit` agree."""

import json
import re
from collections.abc import Iterator

import pytest
from trio.testing import MockClock

from tests.conformance.emitted import PAIRS, request_of
from tests.laws.checker import check, transcript_of
from tests.laws.said import payloads, said
from tests.laws.variants import FULL, reads
from tests.support.corpus import PROTOCOLS, Stream, needs_corpus, sampled
from tests.support.dialects import ASKS, FRAMES, PATHS
from tests.support.house import End, Peer, house, post
from wiretape.events.emit import emit
from wiretape.events.tape.record import encode
from wiretape.proxy.config.model import Target


def answers(number: int, stream: Stream) -> Iterator[tuple[bytes, End]]:
    """Yield the stream whole, and its first part before a close or a reset."""
    yield stream.body, "final"
    yield stream.body[: len(stream.body) * (1 + number % 7) // 8], "rst" if number % 2 else "fin"


async def play(stream: Stream, body: bytes, end: End, upstream: str, client: str) -> list[str]:
    """Return what is wrong with one stream through the whole proxy."""
    names = sorted(set(said(payloads(stream.body), upstream).names.values()))
    peer = Peer(*reads(body, "random 1", stream.id), end=end)
    target = Target(name="upstream", url="http://127.0.0.1:9/v1", speaks=upstream)  # type: ignore[arg-type]
    async with house(peer, targets=[target]) as home:
        reader = await home.connect()
        await reader.send(post(json.dumps(request_of(client, names)).encode(), "Connection: close", path=PATHS[client]))
        raw = await reader.rest()
        records = await home.tape()
    answer = transcript_of(raw)
    assert answer is not None, "there is an answer"
    wrong = check(b"".join(map(encode, records)), raw, sent=body)
    if answer.body != emit(records):
        wrong.append(f"L3: {answer.body[-200:]!r} instead of {emit(records)[-200:]!r}")
    return wrong


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize(("upstream", "client"), PAIRS, ids=[" to ".join(pair) for pair in PAIRS])
async def test_client_gets_what_the_tape_emits(
    upstream: str, client: str, part: int, autojump_clock: MockClock
) -> None:
    """All in `make laws`, one of forty in the default suite."""
    found: list[str] = []
    for number, stream in [*sampled(PROTOCOLS[upstream], one_in=80)][part::4]:
        for body, end in [*answers(number, stream)][: 2 if FULL or number % 2 else 1]:
            wrong = await play(stream, body, end, upstream, client)
            found += [f"{stream.id}, {len(body)} bytes and {end}: {each}" for each in wrong]
    assert not found, "\n".join([f"{len(found)} faults", *found[:5]])


#: What is altered in the answer that the client read, and what the checker must say.
ALTERED = {
    "a piece of text is missing": (rb'"hel"', b'""', "V8: (0, 'text') is 'lo'"),
    "a text too much": (rb'"hel"', b'"helhel"', "V8: (0, 'text') is"),
    "other arguments": (rb'\{\\"path\\":(?="[,}\]]*\r?\n)', rb'{\\"paths\\":', "V8: arguments of"),
    "no end": (rb"event: (message_stop|response\.completed)\ndata: .*\n\n", b"", "V1: completed was closed by 0"),
    "other usage": (rb'"output_tokens":5', b'"output_tokens":6', "V2: usage is made up"),
    "a result": (rb'"status":"running"', b'"status":"completed"', "V2: a tool result is made up"),
}


@pytest.mark.parametrize("what", ALTERED)
@pytest.mark.parametrize("dialect", ["responses", "messages"])
async def test_checker_finds_another_answer(dialect: str, what: str, autojump_clock: MockClock) -> None:
    async with house(Peer(*FRAMES[dialect])) as home:
        reader = await home.connect()
        await reader.send(post(ASKS[dialect], "Connection: close", path=PATHS[dialect]))
        raw = await reader.rest()
        tape = b"".join(encode(record) for record in await home.tape())
    assert check(tape, raw) == []
    answer = transcript_of(raw)
    assert answer is not None
    old, new, found = ALTERED[what]
    body = re.sub(old, new, answer.body)
    assert body != answer.body
    head = raw.partition(b"\r\n\r\n")[0]
    wrong = check(tape, b"%b\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (head, len(body), body))
    assert [line for line in wrong if line.startswith(found)], wrong
