"""Bars fail beyond their limits, and each part of the document is written independently."""

from pathlib import Path

import pytest

from .document import put
from .proxy_bars import Figures, bars
from .proxy_idle import Idle
from .proxy_load import Run, medians
from .proxy_report import report


def _run(cpu_us: float, first_byte_ms: float = 1.0, short: str = "") -> Run:
    return Run(cpu_us, 1.0, first_byte_ms, 2.0, 103_000, 1, 1, 50, short)


_KEPT = Figures(
    runs={
        ("wiretape", "paced"): _run(48),
        ("relay", "paced"): _run(40),
        ("litellm", "paced"): _run(288),
        ("wiretape", "latency"): _run(50, first_byte_ms=1.6),
        ("direct", "latency"): _run(5, first_byte_ms=0.1),
        ("wiretape", "1000 streams"): _run(50),
    },
    peak_mb=100,
    idle=Idle(5_000, 5_000, 90_000, 0.01, 30, 0.02, 5_000, 65),
)


def test_figures_at_the_limit_keep_every_bar() -> None:
    assert [bar.what for bar in bars(_KEPT) if not bar.holds] == []
    assert "**no**" not in report(_KEPT, 3, "2 CPUs")


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        pytest.param({("wiretape", "paced"): _run(48.1)}, "against the relay", id="CPU above the relay's share"),
        pytest.param({("litellm", "paced"): _run(287)}, "cheaper than LiteLLM", id="not cheap enough against LiteLLM"),
        pytest.param({("wiretape", "latency"): _run(50, first_byte_ms=1.7)}, "first byte", id="a late first byte"),
        pytest.param({("wiretape", "1000 streams"): _run(50, short="x")}, "1,000 streams", id="a lost frame of many"),
        pytest.param({("wiretape", "paced"): _run(50, short="x")}, "lost in any other", id="a lost frame"),
    ],
)
def test_figure_beyond_its_bar_is_reported(changed: dict[tuple[str, str], Run], what: str) -> None:
    broken = [bar.what for bar in bars(_KEPT._replace(runs={**_KEPT.runs, **changed})) if not bar.holds]
    assert any(what in each for each in broken)


@pytest.mark.parametrize(
    ("figures", "what"),
    [
        pytest.param(_KEPT._replace(peak_mb=101), "200 streams", id="memory of 200 streams"),
        pytest.param(_KEPT._replace(idle=Idle(5_000, 4_999, 1, 0, 30, 0, 1, 65)), "are open", id="an idle one closed"),
        pytest.param(_KEPT._replace(idle=Idle(5_000, 5_000, 90_001, 0, 30, 0, 1, 65)), "of an idle", id="idle memory"),
        pytest.param(_KEPT._replace(idle=Idle(5_000, 5_000, 1, 0.011, 30, 0, 1, 65)), "CPU of all", id="idle CPU"),
    ],
)
def test_many_streams_that_cost_too_much_are_reported(figures: Figures, what: str) -> None:
    assert any(what in bar.what for bar in bars(figures) if not bar.holds)


def test_median_keeps_the_shortfalls_of_every_run() -> None:
    middle = medians([_run(3), _run(1, short="lost"), _run(2)])
    assert (middle.cpu_us_frame, middle.short) == (2, "lost")


def test_parts_of_the_document_are_written_independently(tmp_path: Path) -> None:
    place = tmp_path / "benchmarks.md"
    put("proxy", "\nproxy 1\n", place)
    put("core", "\ncore 1\n\n### Below\n\nrow\n", place)
    both = place.read_text(encoding="utf-8")
    assert both.index("## The core\n\ncore 1") < both.index("row\n\n## The proxy\n\nproxy 1")
    put("proxy", "\nproxy 1\n", place)
    assert place.read_text(encoding="utf-8") == both
