"""L3 and L6 end to end: what each reader got is what the tape emits, and nothing was there before it was written"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.house.tree import ROOT
from tests.laws.checker import check, transcript_of
from tests.laws.plans import planned
from tests.laws.runs import play, played
from tests.proxy.scripted import request_of
from tests.support.house import DONE, Peer, Watched, call, finish, house, post, role, text, usage
from wiretape.events.core.settings import Settings
from wiretape.events.tape.record import Record, encode
from wiretape.proxy.relay.delivery import Delivery
from wiretape.proxy.relay.relay import Relay


#: A log that fails at the end of an answer that came whole; inside of a frame; in the middle of a whole
#: answer (two); at the end of one that was cut.
@pytest.mark.parametrize("seed", [1381, 5972, 6063, 7270, 17657])
def test_a_seed_that_once_showed_a_fault(seed: int) -> None:
    assert played(seed).wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(5))
def test_seeded_runs(tens: int) -> None:
    """Fifty of the two thousand that `make laws` plays; each twice, with the same tape."""
    for seed in range(10 * tens, 10 * tens + 10):
        assert played(seed).wrong == [], f"repeat it with: python -m tests.laws.runs 1 --first {seed}"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_tape_in_another_process() -> None:
    program = "import hashlib; from tests.laws.runs import *; from tests.laws.plans import planned; "
    program += "print([hashlib.sha256(play(planned(seed)).tapes).hexdigest() for seed in range(5)])"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(said) == 1


# -- each check can fail ----------------------------------------------------------------------------------------------


def wrong_of(seeds: Sequence[int]) -> str:
    return "\n".join(line for seed in seeds for line in play(planned(seed)).wrong)


def test_delivered_before_it_is_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Relay._write  # pyright: ignore[reportPrivateUsage] - what is to be broken

    async def hasty(self: Any, records: Sequence[Record], frames: list[bytes] | None = None) -> None:
        if frames and self.delivery.answer is not None:
            self.delivery.publish(list(frames), records[-1].n)
            frames = []
        await write(self, records, frames)

    monkeypatch.setattr(Relay, "_write", hasty)
    assert "L6: stream-00000000000000000000 was given bytes that were not written" in wrong_of(range(8))


def test_a_frame_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    show: Callable[..., None] = Delivery.publish
    shown: Counter[Any] = Counter()

    def forgetful(self: Any, frames: Sequence[bytes], n: int, **how: Any) -> None:
        shown[self] += 1
        if shown[self] != 2:
            show(self, frames, n, **how)

    monkeypatch.setattr(Delivery, "publish", forgetful)
    found = wrong_of(range(8))
    assert "L3: " in found
    assert "checker: " in found


def test_another_order_of_the_same_seed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that hangs on chance gives two tapes."""
    wall = iter(range(1_000_000))
    monkeypatch.setattr("tests.support.house._wall", lambda: 1_700_000_000.0 + next(wall) * 7)
    assert "the same seed gave another tape" in played(0).wrong


async def one_stream() -> tuple[bytes, bytes]:
    """The tape of an answer with a call, and what its client read."""
    body: dict[str, Any] = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": []}
    frames = [role(), text("hi"), text(" you"), call('{"a":1}', "read"), finish("tool_calls"), usage(), DONE]
    async with house(Peer(*frames, every_s=1)) as home:
        client = await home.connect()
        await client.send(post(body, "Connection: close"))
        raw = await client.rest()
        return b"".join(encode(record) for record in await home.tape()), raw


def altered(raw: bytes, old: bytes, new: bytes) -> bytes:
    """Another body in chunks of its own."""
    answer = transcript_of(raw)
    assert answer is not None
    assert old in answer.body
    body = answer.body.replace(old, new)
    return b"%b\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (raw.partition(b"\r\n\r\n")[0], len(body), body)


TOLD = b'event: hermes.tool.progress\ndata: {"toolCallId":"call_0","status":"running"}\n\n'
ALTERED = {
    "a frame is missing": (text(" you"), b"", "V3: (0, 'text') lacks"),
    "another text": (b" you", b" all", "V8: (0, 'text') is 'hi all'"),
    "a text too much": (text("hi"), text("hi") * 2, "V8: (0, 'text') is"),
    "another order": (text("hi") + text(" you"), text(" you") + text("hi"), "V8: (0, 'text')"),
    "other arguments": (b'{\\"a\\":1}', b'{\\"a\\":2}', "V8: arguments of (0, 'call_0')"),
    "a call that nobody made": (b'"id":"call_0"', b'"id":"call_9"', "V8: nobody made the call"),
    "no ending": (DONE, b"", "V1: completed was closed by 0 [DONE] and 0 errors"),
    "two endings": (DONE, DONE + DONE, "V1: 1 frames behind the end"),
    "an ending and an error": (DONE, b'data: {"error":{"message":"x"}}\n\n' + DONE, "V1: "),
    "other usage": (b'"total_tokens":3', b'"total_tokens":4', "V2: usage is made up"),
    "a result": (b'"status":"running"', b'"status":"completed"', "V2: a tool result is made up"),
    "told twice": (b"event: hermes", TOLD + b"event: hermes", "L7: call_0"),
}


@pytest.mark.parametrize("what", ALTERED)
async def test_the_checker_finds_another_answer(what: str, autojump_clock: MockClock) -> None:
    tape, raw = await one_stream()
    assert check(tape, raw) == []
    old, new, found = ALTERED[what]
    wrong = check(tape, altered(raw, old, new))
    assert [line for line in wrong if line.startswith(found)], wrong


async def test_the_checker_finds_another_tape(autojump_clock: MockClock) -> None:
    tape, raw = await one_stream()
    lines = tape.splitlines(keepends=True)
    end = lines[-1]
    assert check(b"".join(lines[:-1]), raw)[0] == "V1: 0 endings, and the last record is frame"
    assert "V1: 2 endings, and the last record is end" in check(tape + end, raw)
    assert "numbers have gaps" in check(b"".join([*lines[:5], *lines[6:]]), raw)
    assert "line 5: its checksum does not match" in check(tape.replace(b'"hi"', b'"ho"'), raw)
    assert "V1: 20 bytes behind the last line" in check(tape + b'{"c":"00000000","n":', raw)
    assert check(tape, raw, sent=b"")[0].startswith("V3: of 0 bytes that the upstream sent")


async def test_the_checker_finds_what_a_cut_stream_may_not_say(autojump_clock: MockClock) -> None:
    async with house(Peer(role(), text("hi"), call('{"a":', "read"), end="fin")) as home:
        client = await home.connect()
        await client.send(post())
        raw = b""
        while b"0\r\n\r\n" not in raw:
            raw += await client.receive()
        client.close()
        await home.settled()
        records = await home.tape()
    tape = b"".join(map(encode, records))
    assert check(tape, raw) == []
    claimed = records[-1]._replace(keys={**records[-1].keys, "ending": "completed"})
    assert check(b"".join(map(encode, [*records[:-1], claimed])), raw)[0].startswith("L5: completed, and the upstream")
    error = b'data: {"error"'
    assert "V2: the finish {'tool_calls': 1} is made up" in check(
        tape, altered(raw, error, finish("tool_calls") + error)
    )
    assert "V2: the [DONE] is made up" in check(tape, altered(raw, error, DONE + error))


# -- what the runs found ----------------------------------------------------------------------------------------------


async def test_who_follows_a_stream_whose_end_has_no_room_is_let_go(autojump_clock: MockClock) -> None:
    """Seed 119: the end itself could not be written, and its followers waited for ever."""

    store = Watched(lambda record: record.kind == "end")
    async with house(Peer(role(), text("hi"), finish(), DONE, every_s=1), store=store, check=False) as home:
        client = await home.connect()
        await client.send(post())
        await trio.sleep(2.5)
        follower = await home.connect()
        await follower.send(post(b"", path=f"/wiretape/streams/{home.streams[0]}/events", method="GET"))
        with trio.fail_after(60):
            assert (await follower.response()).ended == "chunked"
        follower.close()
        client.close()


async def test_a_length_that_the_upstream_did_not_keep_is_a_cut_and_no_failure_of_ours(
    autojump_clock: MockClock,
) -> None:
    """Seed 672: the transparent profile leaves an upstream that has said an error, and its length stays unfulfilled."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000\r\n\r\n"

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(head + text("hi") + b'data: {"error":{"message":"overloaded"}}\n\n')
        await stream.receive_some()

    async with house(script, settings=Settings(profile="transparent")) as home:
        answered = await home.ask()
        assert (answered.status, answered.ended in ("cut", "reset")) == (200, True)
        assert home.harness.log == []
