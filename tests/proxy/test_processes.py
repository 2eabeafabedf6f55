"""A proxy whose requests are aborted (G10, G11) or that is killed (P04): a part of `make aborts` and `make kills`."""

from pathlib import Path

import pytest

from tests.proxy import run_kills
from tests.proxy.aborts import aborted
from tests.proxy.kills import killed


@pytest.mark.slow
@pytest.mark.case("C01", "C02")
async def test_requests_that_are_aborted_leave_nothing(tmp_path: Path) -> None:
    figures = await aborted(120, tmp_path)
    assert figures.left == []
    assert figures.aborted > 40
    assert len(figures.closed_s) > 24
    # 50 ms on a quiet machine (docs/internals/laws.md); a second under any load (failures.md G10).
    assert figures.at(0.99) < 1_000


@pytest.mark.slow
@pytest.mark.case("P04")
async def test_everything_delivered_before_a_kill_is_on_the_tape(tmp_path: Path) -> None:
    figures = await killed(4, tmp_path)
    assert figures.wrong == []
    assert figures.kills == 4
    assert figures.running > 4, "hardly a stream ran when its process was killed"
    assert figures.frames > 80, "hardly anything was delivered"
    assert sorted(figures.recoveries_s)[2] < 1


@pytest.mark.slow
@pytest.mark.case("P04")
async def test_the_kill_check_finds_what_a_buffered_writer_loses(tmp_path: Path) -> None:
    figures = await killed(2, tmp_path, "buffered")
    assert any(line.startswith("L6: ") for line in figures.wrong)


@pytest.mark.slow
@pytest.mark.case("P04")
async def test_every_run_is_in_the_right_state_after_a_kill(tmp_path: Path) -> None:
    """One of the twenty that `make run-kills` makes, with fewer runs."""
    figures = await run_kills.killed(1, tmp_path, each=4)
    assert figures.wrong == []
    assert figures.states["running, then failed"] > 1
    assert figures.states["waiting, then waiting_for_tools"] > 1
    assert figures.events > 20


@pytest.mark.slow
@pytest.mark.case("P04")
async def test_the_kill_check_finds_events_of_a_run_that_are_not_on_its_tape(tmp_path: Path) -> None:
    figures = await run_kills.killed(1, tmp_path, each=2, torn=True)
    assert any("not all are on its tapes" in line for line in figures.wrong)
