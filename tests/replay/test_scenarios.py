"""The scenarios, recorded through the real proxy, sealed and replayed: nothing is lost."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

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
from wiretape.replay.cli.recording import recorded
from wiretape.replay.playback.player import ORIGINAL, script_of
from wiretape.replay.playback.script import Request
from wiretape.replay.playback.server import listening
from wiretape.replay.seal import EXACT, seal
from wiretape.replay.sealed.files import parse


def resealed(records: Sequence[Record]) -> Sequence[Record]:
    """Return the records after sealing them unchanged."""
    (again,) = parse(seal([records], EXACT)).streams
    return again


async def heard(url: str, name: str) -> Heard:
    port = int(url.removesuffix("/v1").rpartition(":")[2])
    return await trio.to_thread.run_sync(partial(ask, port, BODY[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_replay_equals_its_upstream_on_sockets(name: str, tmp_path: Path, mock_clock: MockClock) -> None:
    mock_clock.rate = 10  # one scenario has four seconds of silence
    async with listening(chosen) as (upstream, _):
        direct = await heard(upstream, name)
        target = Target(name="scripted", url=upstream)
        route = Route(name="", targets=(target,), settings=Settings(profile="transparent"))
        async with running(Config(data=tmp_path, port=0, routes={"": route}), log=Log(None)) as server:
            through = await heard(server.url, name)
    (records,), _ = recorded(tmp_path)
    assert records[-1].keys["ending"] == SCENARIOS[name].ending
    async with listening(lambda _: script_of(resealed(records))) as (url, _):
        again = await heard(url, name)
    assert again.sha256 == direct.sha256 == through.sha256
    assert (again.status, again.ending) == (direct.status, direct.ending) == (through.status, SCENARIOS[name].heard)
    assert through.ending == {"reset": "cut"}.get(direct.ending, direct.ending)  # the proxy never resets a client
    assert again.header("retry-after") == direct.header("retry-after")


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_replay_recorded_again_is_the_same_tape(name: str, autojump_clock: MockClock) -> None:
    """Times may differ by a microsecond, because the clock is a float."""
    del autojump_clock
    request = Request(b"POST", b"/v1/chat/completions", (), BODY[name])
    first = await taped(SCENARIOS[name].script, request=request)
    assert first[-1].keys["ending"] == SCENARIOS[name].ending
    second = await taped(script_of(resealed(first), speed=ORIGINAL), request=request)
    assert [data for _, data in reads(second)] == [data for _, data in reads(first)]
    apart = [abs(again - once) for (again, _), (once, _) in zip(reads(second), reads(first), strict=True)]
    assert max([*apart, abs(second[-1].t - first[-1].t)]) <= 1
    for key in ("ending", "cause", "framed", "broke", "sha256", "bytes", "frames", "flags"):
        assert second[-1].keys.get(key) == first[-1].keys.get(key), key
