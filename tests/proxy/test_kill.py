"""A proxy that is killed under load loses nothing that a client was given (P04); six of the kills of `make kills`"""

from pathlib import Path

import pytest

from tests.proxy.kills import killed


@pytest.mark.slow
@pytest.mark.case("P04")
async def test_everything_delivered_before_a_kill_is_on_the_tape(tmp_path: Path) -> None:
    figures = await killed(6, tmp_path)
    assert figures.wrong == []
    assert figures.kills == 6
    assert figures.running > 6, "hardly a stream ran when its process was killed"
    assert figures.frames > 120, "hardly anything was delivered"
    assert sorted(figures.recoveries_s)[3] < 1


@pytest.mark.slow
@pytest.mark.case("P04")
async def test_the_kill_check_finds_what_a_buffered_writer_loses(tmp_path: Path) -> None:
    figures = await killed(2, tmp_path, "buffered")
    assert any(line.startswith("L6: ") for line in figures.wrong)
