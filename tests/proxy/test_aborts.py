"""175 of the aborted requests of `make aborts`: real sockets and descriptors, nothing is left (G10, G11)"""

from pathlib import Path

import pytest

from tests.proxy.aborts import aborted


@pytest.mark.slow
@pytest.mark.case("C01", "C02")
async def test_requests_that_are_aborted_leave_nothing(tmp_path: Path) -> None:
    figures = await aborted(175, tmp_path)
    assert figures.left == []
    assert figures.aborted > 60
    assert len(figures.closed_s) > 35
    # 50 ms on a quiet machine (docs/internals/laws.md); a second under any load (failures.md G10).
    assert figures.at(0.99) < 1_000
