"""An answer whose last read holds its last word and its end: written as one batch, and sent as one piece."""

from contextlib import suppress
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from tests.laws.checker import transcript_of
from tests.proxy.scripted import Script, chunk, request_of
from tests.proxy.test_cancel_sweep import Nth
from tests.support.house import DONE, HEAD, House, at_once, call, finish, house, post, role, streams, text
from wiretape.events.core.settings import Settings
from wiretape.events.emission.emit import Emitter, emit
from wiretape.events.tape.record import Record, encode
from wiretape.proxy.config.model import Target
from wiretape.proxy.security.keys import Secret
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import StoreFullError

FRAMES: Final = (role(), text("hi"), text(" you"), call("{}", "look"), finish("tool_calls"), DONE)


class Batches(MemoryStore):
    """Says what was written together; may have to wait for it, or fail once in a way that no store should."""

    def __init__(self, *, waits_s: float = 0, fails: Exception | None = None) -> None:
        super().__init__()
        self.kinds: list[list[str]] = []
        self._waits_s = waits_s
        self._fails = fails

    def waits_for(self, records: Any) -> bool:
        return self._waits_s > 0 or super().waits_for(records)

    async def append(self, stream: str, records: Any, entry: Any = None) -> int:
        self.kinds.append([record.kind for record in records])
        await trio.sleep(self._waits_s)
        if self._fails is not None and "frame" in self.kinds[-1]:
            fails, self._fails = self._fails, None
            raise fails
        return await super().append(stream, records, entry)


async def test_its_frames_and_its_end_are_one_batch_and_one_piece(autojump_clock: MockClock) -> None:
    store = Batches()
    async with house(at_once(*FRAMES), store=store) as home:
        answered = await home.ask()
        assert await home.ending() == ("completed", [])
        assert [event for _, event, _ in home.log if event == "stream_failed"] == []
    assert len(answered.pieces) == 1
    assert (answered.status, answered.ended) == (200, "chunked")
    assert store.kinds[0][-1] == "attempt", "what is asked is on the tape before the answer"
    assert store.kinds[1:] == [["head", *["frame"] * len(FRAMES), "commit", "end"]]


async def test_an_end_that_comes_later_is_not_waited_for(autojump_clock: MockClock) -> None:
    store = Batches()
    async with house(streams(b"".join(FRAMES), end=b""), store=store) as home:
        await home.ask()
    assert store.kinds[-2][-2:] == ["frame", "commit"]
    assert store.kinds[-1] == ["end"]


async def test_they_may_follow_frames_that_came_before(autojump_clock: MockClock) -> None:
    async def in_two(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(HEAD + chunk(b"".join(FRAMES[:2])))
        await trio.sleep(1)
        await stream.send_all(chunk(b"".join(FRAMES[2:])) + b"0\r\n\r\n")

    store = Batches()
    async with house(in_two, store=store) as home:
        answered = await home.ask()
    assert [at for at, _ in answered.pieces] == [answered.at, answered.at + 1]
    assert store.kinds[-2:] == [["head", "frame", "frame", "commit"], [*["frame"] * (len(FRAMES) - 2), "end"]]


@pytest.mark.parametrize(
    ("frames", "settings"),
    [
        ((role(), text("hi")), Settings()),
        ((role(), text("hi"), b'data: {"error":{"message":"no"}}\n\n', DONE), Settings()),
        (FRAMES, Settings(profile="transparent")),
    ],
    ids=["no last word", "an error of the upstream's", "what passes as it came"],
)
async def test_what_ends_in_another_way_is_judged_first(
    autojump_clock: MockClock, frames: tuple[bytes, ...], settings: Settings
) -> None:
    store = Batches()
    async with house(at_once(*frames), store=store, settings=settings) as home:
        answered = await home.ask()
        cause = (await home.tape())[-1].keys["cause"]
    assert answered.ended == "chunked"
    assert store.kinds[-1] == ["end"]
    assert cause == ("closed" if b"error" in answered.body and DONE in frames else "eof")


async def asked_and_left(nth: int, script: Script, **route: Any) -> bool:
    """Whether there was such a step; the client leaves at it, and is sent all, or its tape says that it was not."""
    async with house(script, check=False, route=route) as home:
        client = await home.connect()

        def leave() -> None:
            with suppress(OSError):  # the proxy was faster
                client.fin()

        instrument = Nth(nth, leave)
        trio.lowlevel.add_instrument(instrument)
        got = b""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await client.send(post())
            while data := await client.receive():
                got += data
        trio.lowlevel.remove_instrument(instrument)
        client.close()
        await home.settled()
        if home.streams:
            await told(home, got)
        return instrument.left <= 0


async def told(home: House, got: bytes) -> None:
    """Who was not sent all is `gone` on its tape."""
    tape = await home.tape()
    answered = transcript_of(got)
    if answered is None or answered.body != emit(tape):
        assert "gone" in [record.kind for record in tape], "it was not sent all"


@pytest.mark.parametrize("how", ["cancel", "drain"])
async def test_who_leaves_at_any_step_is_sent_all_or_is_gone(autojump_clock: MockClock, how: str) -> None:
    """The upstream closes its connection, which takes a turn of the scheduler."""

    async def closing(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        head = HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        await stream.send_all(head + b"".join(map(chunk, FRAMES)) + b"0\r\n\r\n")

    nth = 1
    while await asked_and_left(nth, closing, on_client_gone=how):
        nth += 1
    assert nth > 10


async def test_where_a_write_waits_it_is_not_waited_for_with_the_end(autojump_clock: MockClock) -> None:
    """Who leaves meanwhile has been sent nothing of it, and its tape says so."""
    store = Batches(waits_s=1)
    async with house(at_once(*FRAMES), store=store, check=False) as home:
        client = await home.connect()
        await client.send(post())
        await trio.sleep(1.5)  # the opening took one, and the frames are on their way
        client.close()
        await home.settled()
        tape = await home.tape()
    assert [kinds[-1] for kinds in store.kinds] == ["attempt", "commit", "gone", "end"]
    assert [record.keys["at"] for record in tape if record.kind == "gone"] == [0]


async def test_a_store_that_fails_as_none_should_hides_no_end(autojump_clock: MockClock) -> None:
    async with house(at_once(*FRAMES), store=Batches(fails=RuntimeError("no thread")), check=False) as home:
        answered = await home.ask()
        await home.settled()
        tape = await home.tape()
        assert [event for _, event, _ in home.log if event == "stream_failed"] == ["stream_failed"]
    assert (answered.status, answered.ended) == (200, "chunked")
    assert tape[-1].kind == "end"
    assert answered.body == emit(tape)


async def test_where_the_second_try_has_room_all_is_as_it_was_meant(autojump_clock: MockClock) -> None:
    """For the client, the tape, the log and the count of bytes."""
    async with house(at_once(*FRAMES), store=Batches(fails=StoreFullError("no room")), check=False) as home:
        answered = await home.ask()
        assert await home.ending() == ("completed", [])
        tape = await home.tape()
        assert [how for level, _, how in home.log if level == "ended"] == [{"cause": "closed", "attempts": 1}]
        written = sum(len(encode(record)) for record in tape)
        assert f"wiretape_log_bytes_total {written}".encode() in home.assembly.metrics.text()
    assert (answered.status, answered.body) == (200, emit(tape))


async def test_a_key_that_was_masked_is_flagged(autojump_clock: MockClock) -> None:
    key = "sk-0123456789abcdefghij"
    targets = [Target(name="upstream", url="http://127.0.0.1:9/v1", key=Secret(key))]
    async with house(at_once(role(), text(f"it is {key}"), finish(), DONE), targets=targets) as home:
        answered = await home.ask()
        assert await home.ending() == ("completed", ["key_masked"])
    assert key.encode() not in answered.body


@pytest.mark.parametrize("kind", ["commit", "end"])
async def test_where_our_own_reading_fails_the_client_gets_what_its_tape_says(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await read_badly(monkeypatch, kind, at_once(*FRAMES))


async def test_so_it_does_where_a_keepalive_had_fixed_the_status(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await trio.sleep(40)
        await stream.send_all(HEAD + b"".join(map(chunk, FRAMES)) + b"0\r\n\r\n")

    await read_badly(monkeypatch, "keepalive", silent)


async def read_badly(monkeypatch: pytest.MonkeyPatch, kind: str, script: Script) -> None:
    """The live emitter fails once, at the first record of a kind."""
    feed, failed = Emitter.feed, list[Record]()

    def failing(self: Emitter, record: Record) -> list[bytes]:
        if record.kind == kind and not failed:
            failed.append(record)
            raise RuntimeError("a fault of our own")
        return feed(self, record)

    async with house(script, check=False) as home:
        monkeypatch.setattr(Emitter, "feed", failing)
        answered = await home.ask()
        await home.settled()
        tape = await home.tape()
    assert failed
    assert answered.body == emit(tape)
    assert tape[-1].kind == "end"
    assert [record.keys["status"] for record in tape if record.kind == "commit"][-1] == answered.status
