"""The seven scenarios: recorded through the real proxy, sealed, replayed, heard on a bare socket: nothing is lost."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
import trio
from trio.testing import MockClock

from tests.replay.raw_client import Heard, ask
from tests.replay.scenarios import BODY, SCENARIOS, chosen
from tests.replay.virtual import taped
from wiretape.events.core.settings import Settings
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads
from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.log import Log
from wiretape.proxy.serve import running
from wiretape.proxy.upstream.body import Body
from wiretape.proxy.upstream.connection import Read
from wiretape.replay.cli.recording import recorded
from wiretape.replay.playback.player import INSTANT, ORIGINAL, Speed, script_of
from wiretape.replay.playback.script import Request, Script
from wiretape.replay.playback.server import listening
from wiretape.replay.seal import EXACT, seal
from wiretape.replay.sealed.load import parse

#: Of each read, at original speed: what a clock of floats, cut to microseconds, does to it.
ERROR_S_MAX = 0.000_005


def resealed(records: Sequence[Record]) -> Sequence[Record]:
    """There and back, with nothing changed."""
    (again,) = parse(seal([records], EXACT)).streams
    return again


# -- on sockets -------------------------------------------------------------------------------------------------------


class Turns:
    """Real sockets, and a clock that stands still until all that is due has been read: then it jumps to what is due
    next. So however late a busy machine wakes anybody, no two pieces meet and no time is late by it.
    """

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        #: Of the body, what its reader has; -1 while that has no head.
        self._read = -1
        self._more = trio.Event()
        self._asked = trio.Event()

    def answered(self, script: Script) -> Script:
        """From now on it is played."""
        self._asked.set()
        return script

    def took(self, size: int) -> None:
        """What its reader tells."""
        self._read = max(0, self._read) + size
        self._more.set()
        self._more = trio.Event()

    async def play(self, script: Script) -> None:
        """One answer, from the request on."""
        await self._asked.wait()
        at, due = trio.current_time() + script.head_delay_s, 0
        self._jump(at)
        for delay_s, what in script.steps:
            while self._read < due:
                await self._more.wait()
            at += delay_s
            self._jump(at)
            due += len(what) if isinstance(what, bytes) else 0

    def _jump(self, at: float) -> None:
        """A little further, lest a rounded time be one that has not come yet."""
        self._clock.jump(max(0.0, at + 1e-7 - trio.current_time()))


@asynccontextmanager
async def proxy_before(upstream: str, data: Path) -> AsyncGenerator[str]:
    """The real one; its URL."""
    route = Route(
        name="",
        targets=(Target(name="scripted", url=upstream),),
        settings=Settings(profile="transparent"),
    )
    log = Log(None)
    try:
        async with running(Config(data=data, port=0, routes={"": route}), log=log) as server:
            yield server.url
    finally:
        log.close()


async def heard(url: str, name: str, script: Script, turns: Turns, *, direct: bool = True) -> Heard:
    """What a client hears that asks there and is answered with this script; with a proxy between, that reads it."""
    port = int(url.removesuffix("/v1").rpartition(":")[2])
    now = trio.lowlevel.current_clock().current_time

    def took(size: int) -> None:
        if direct:
            trio.from_thread.run_sync(turns.took, size)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.play, script)
        found = await trio.to_thread.run_sync(partial(ask, port, BODY[name], now=now, took=took))
        nursery.cancel_scope.cancel()
    return found


def telling(turns: Turns) -> Callable[[Body], Awaitable[Read | None]]:
    """The proxy's reading of an answer, which is told."""
    receive = Body.receive

    async def received(body: Body) -> Read | None:
        turns.took(0)
        read = await receive(body)
        turns.took(0 if read is None else len(read.data))
        return read

    return received


async def replayed(records: Sequence[Record], name: str, speed: Speed, clock: MockClock) -> Heard:
    script, turns = script_of(records, speed=speed), Turns(clock)
    async with listening(lambda _: turns.answered(script)) as (url, _):
        return await heard(url, name, script, turns)


async def in_all_forms(name: str, data: Path, clock: MockClock) -> tuple[Heard, Heard, Sequence[Record]]:
    """Asked directly, asked while it is recorded, and the recording."""
    direct = await asked_of(name, None, clock)
    through = await asked_of(name, data, clock)
    (records,), _ = recorded(data)
    return direct, through, resealed(records)


async def asked_of(name: str, data: Path | None, clock: MockClock) -> Heard:
    """Through the proxy where it has a folder."""
    script, turns = SCENARIOS[name].script, Turns(clock)
    async with listening(lambda request: turns.answered(chosen(request))) as (upstream, _):
        if data is None:
            return await heard(upstream, name, script, turns)
        async with proxy_before(upstream, data) as url:
            with mock.patch.object(Body, "receive", telling(turns)):
                through = await heard(url, name, script, turns, direct=False)
            clock.rate = 1.0  # it stops in its own time
            return through


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
async def test_what_comes_back_is_what_came(name: str, tmp_path: Path, mock_clock: MockClock) -> None:
    scenario = SCENARIOS[name]
    direct, through, records = await in_all_forms(name, tmp_path, mock_clock)
    assert records[-1].keys["ending"] == scenario.ending
    assert direct.ending == scenario.heard
    assert through.ending == {"reset": "cut"}.get(scenario.heard, scenario.heard), "the proxy itself resets nobody"

    mock_clock.rate = 0.0
    instant = await replayed(records, name, INSTANT, mock_clock)
    original = await replayed(records, name, ORIGINAL, mock_clock)
    for again in (instant, original):
        assert again.sha256 == direct.sha256 == through.sha256
        assert (again.status, again.ending) == (direct.status, direct.ending)
        assert again.header("retry-after") == direct.header("retry-after")
    assert original.sizes == [len(data) for _, data in reads(records)] == direct.sizes
    began = next(record.t for record in reversed(records) if record.kind == "attempt")
    errors = [at - (t - began) / 1e6 for (at, _), (t, _) in zip(original.reads, reads(records), strict=True)]
    assert max(map(abs, errors)) < ERROR_S_MAX, f"late by {[round(error * 1e3, 3) for error in errors]} ms"


# -- in virtual time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
async def test_to_the_microsecond_in_virtual_time(name: str, autojump_clock: MockClock) -> None:
    """Twice through the proxy: the second time its upstream is the replay, so both tapes must say the same."""
    del autojump_clock
    first = await taped(SCENARIOS[name].script, asked(name))
    assert first[-1].keys["ending"] == SCENARIOS[name].ending
    second = await taped(script_of(resealed(first), speed=ORIGINAL), asked(name))
    assert [data for _, data in reads(second)] == [data for _, data in reads(first)]
    apart = [abs(again - once) for (again, _), (once, _) in zip(reads(second), reads(first), strict=True)]
    assert max(apart) <= 1, "a clock of floats, cut to microseconds"
    for key in ("ending", "cause", "framed", "broke", "sha256", "bytes", "frames", "flags"):
        assert second[-1].keys.get(key) == first[-1].keys.get(key), key
    assert abs(second[-1].t - first[-1].t) <= 1


def asked(name: str) -> Request:
    return Request(b"POST", b"/v1/chat/completions", (), BODY[name])
