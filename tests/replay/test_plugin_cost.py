"""The bar on what a tape costs a test."""

import pytest

from tests.replay.plugin_cost import BAR_MS, WORDS, measured


@pytest.mark.slow
@pytest.mark.parametrize("words", WORDS)
def test_a_tape_costs_a_test_less_than_its_bar(words: int) -> None:
    cost = measured(words, tests=40, runs=2)
    assert min(cost.each, cost.cpu_each) < BAR_MS, f"{cost.each:.1f} ms a test"
