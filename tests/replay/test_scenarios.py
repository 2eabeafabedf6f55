"""The scenarios, recorded through the real proxy, sealed and replayed: nothing is lost."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.replay.raw_client import Heard, ask
from tests.replay.scenarios import BODY, SCENARIOS, chosen
from wiretape.events.core.settings import Settings
from wiretape.events.tape.record import Record
from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.log import Log
from wiretape.proxy.serve import running
from wiretape.replay.cli.recording import recorded
from wiretape.replay.playback.player import script_of
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
