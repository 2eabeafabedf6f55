"""The seven scenarios: recorded through the real proxy, sealed, replayed, heard on a bare socket: nothing is lost."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.replay.raw_client import Heard, ask
from tests.replay.scenarios import BODY, SCENARIOS, chosen
from tests.replay.virtual import taped
from wiretape.events.record import Record
from wiretape.events.settings import Settings
from wiretape.events.tape import reads
from wiretape.proxy.config import Config, Route, Target
from wiretape.proxy.log import Log
from wiretape.proxy.serve import running
from wiretape.replay.load import parse
from wiretape.replay.player import INSTANT, ORIGINAL, Speed, script_of
from wiretape.replay.record import recorded
from wiretape.replay.script import Request
from wiretape.replay.seal import EXACT, seal
from wiretape.replay.server import listening

#: Of each read, at original speed.
ERROR_S_MAX = 0.005
TRIES_MAX = 3


def resealed(records: Sequence[Record]) -> Sequence[Record]:
    """There and back, with nothing changed."""
    (again,) = parse(seal([records], EXACT)).streams
    return again


# -- on sockets -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def proxy_before(upstream: str, data: Path) -> AsyncGenerator[int]:
    """The real one; its port."""
    route = Route(
        name="",
        targets=(Target(name="scripted", url=upstream),),
        settings=Settings(profile="transparent"),
    )
    log = Log(None)
    try:
        async with running(Config(data=data, port=0, routes={"": route}), log=log) as server:
            yield int(server.url.rpartition(":")[2])
    finally:
        log.close()


async def heard(port: int, name: str) -> Heard:
    return await trio.to_thread.run_sync(ask, port, BODY[name])


async def replayed(records: Sequence[Record], name: str, speed: Speed) -> Heard:
    script = script_of(records, speed=speed)
    async with listening(lambda _: script) as (url, _):
        return await heard(int(url.removesuffix("/v1").rpartition(":")[2]), name)


async def in_all_forms(name: str, data: Path) -> tuple[Heard, Heard, Sequence[Record]]:
    """Asked directly, asked while it is recorded, and the recording."""
    async with listening(chosen) as (upstream, _):
        direct = await heard(int(upstream.removesuffix("/v1").rpartition(":")[2]), name)
        async with proxy_before(upstream, data) as port:
            through = await heard(port, name)
    (records,), _ = recorded(data)
    return direct, through, resealed(records)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
async def test_what_comes_back_is_what_came(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    direct, through, records = await in_all_forms(name, tmp_path)
    assert records[-1].keys["ending"] == scenario.ending
    assert direct.ending == scenario.heard
    assert through.ending == {"reset": "cut"}.get(scenario.heard, scenario.heard), "the proxy itself resets nobody"

    instant = await replayed(records, name, INSTANT)
    original, errors = await at_original_speed(records, name)
    for again in (instant, original):
        assert again.sha256 == direct.sha256 == through.sha256
        assert (again.status, again.ending) == (direct.status, direct.ending)
        assert again.header("retry-after") == direct.header("retry-after")
    assert original.sizes == [len(data) for _, data in reads(records)] == direct.sizes
    assert max(errors) < ERROR_S_MAX, f"late by {[round(error * 1e3, 1) for error in errors]} ms"


async def at_original_speed(records: Sequence[Record], name: str) -> tuple[Heard, list[float]]:
    """And how far each read is from its time since the request; once more where others had the machine meanwhile."""
    began = next(record.t for record in reversed(records) if record.kind == "attempt")
    due = [(t - began) / 1e6 for t, _ in reads(records)]
    tries = 0
    while True:
        again, tries = await replayed(records, name, ORIGINAL), tries + 1
        errors = [abs(at - when) for (at, _), when in zip(again.reads, due, strict=False)]
        if max(errors) < ERROR_S_MAX or tries == TRIES_MAX:
            return again, errors


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
