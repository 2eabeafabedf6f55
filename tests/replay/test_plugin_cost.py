"""The bar on what a tape costs a test."""

import pytest

from tests.replay.plugin_cost import BAR_MS, WORDS, measured
from tests.support.pace import QUIET_S, paced


@pytest.mark.slow
@pytest.mark.parametrize("words", WORDS)
async def test_a_tape_costs_a_test_less_than_its_bar(words: int) -> None:
    """By the clock, or else by CPU time as of the quiet machine: beside a neighbour both are more."""
    async with paced() as pace:
        cost = measured(words, tests=12, runs=2)
    cpu_ms = cost.cpu_each * QUIET_S / pace.loop_s
    assert min(cost.each, cpu_ms) < BAR_MS, f"{cost.each:.1f} ms a test, {cpu_ms:.1f} ms of CPU"
