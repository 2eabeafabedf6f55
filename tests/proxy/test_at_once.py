"""An answer that arrives whole in one read: clients that leave, stores that fail, faults of our own."""

from contextlib import suppress
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from tests.laws.checker import transcript_of
from tests.proxy.scripted import Script
from tests.proxy.test_cancel_sweep import Nth
from tests.support.house import DONE, HEAD, House, Peer, Watched, at_once, call, finish, house, post, role, text
from wiretape.events.emit import Emitter, emit
from wiretape.events.tape.record import Record
from wiretape.proxy.relay.recording import Recording

FRAMES: Final = (role(), text("hi"), text(" you"), call("{}", "look"), finish("tool_calls"), DONE)


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
async def test_disconnect_at_any_step_is_recorded_unless_everything_was_sent(
    autojump_clock: MockClock, how: str
) -> None:
    """The upstream closes its connection, which takes a turn of the scheduler."""

    closing = at_once(*FRAMES, head=HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), end="fin")
    nth = 1
    while await asked_and_left(nth, closing, on_client_gone=how):
        nth += 1
    assert nth > 10


async def test_failure_to_end_a_stream_ends_no_other(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    full = [True]
    store = Watched(lambda record: record.kind == "frame" and bool(full) and full.pop())
    async with house(at_once(*FRAMES), store=store, check=False) as home:
        with monkeypatch.context() as planted:
            planted.setattr(Recording, "close", fails)
            with pytest.raises(trio.BrokenResourceError):
                await home.ask()
            await home.settled()
        assert [event for _, event, _ in home.log] == ["tape_failed", "stream_failed"]
        assert b"[DONE]" in (await home.ask()).body


@pytest.mark.parametrize("kind", ["commit", "end"])
async def test_own_fault_gives_the_client_what_the_tape_has(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await read_badly(monkeypatch, kind, at_once(*FRAMES))


async def test_own_fault_after_a_keepalive_gives_what_the_tape_has(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await read_badly(monkeypatch, "keepalive", Peer(*FRAMES, before_s=40))


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
