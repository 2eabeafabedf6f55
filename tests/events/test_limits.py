"""Every bound is an integer, named for what it counts, and has a test of its own where it acts."""

from pathlib import Path

import pytest

from wiretape.events.core import limits

TESTS = Path(__file__).parent


@pytest.mark.parametrize("name", [name for name in vars(limits) if name.isupper()])
def test_a_bound_is_a_number_and_is_tested(name: str) -> None:
    assert isinstance(getattr(limits, name), int)
    assert name.endswith(("_MAX", "_MIN", "_BYTES"))
    lowered = name.lower()
    tests = [path.read_text() for path in TESTS.rglob("test_*.py") if path.name != "test_limits.py"]
    assert any(name in text or lowered in text for text in tests)
