"""The metrics: their names and types, what each one counts, and that no request can create a series."""

from typing import Any

import pytest

from tests.proxy.control_cases import ME
from tests.proxy.store_cases import CREATED
from wiretape.proxy.api.metrics import Metrics
from wiretape.proxy.relay.relay import Ended
from wiretape.proxy.store.catalogue_row import CallRow, CatalogueRow, StreamRow


def ended(*states: str, attempts: int = 1, tape_bytes: int = 1_000, **row: Any) -> Ended:
    fields: dict[str, Any] = {"stream": "s1", "route": "", "ending": "completed", "first_content_us": 250_000} | row
    stream = StreamRow(created=CREATED, caller=ME, dialect="chat", model="m", **fields)
    calls = [
        CallRow(caller=ME, call=f"c{n}", stream="s1", name="x", state=state, handed_us=1)
        for n, state in enumerate(states)
    ]
    return Ended(CatalogueRow(stream, tuple(calls)), attempts, tape_bytes, "eof")


def values(metrics: Metrics) -> dict[str, float]:
    lines = [line for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    assert len(found) == len(lines)
    return found


def test_stream_counts_once_under_its_route_and_ending() -> None:
    metrics = Metrics(["", "b"])
    metrics.on_ended(ended("running", "running", "dropped", attempts=3))
    metrics.on_ended(ended(route="b", ending="stalled", flags=("untaped",), first_content_us=None, tape_bytes=0))
    metrics.write_times.counts[0] += 1
    metrics.live = lambda: 7
    metrics.log_lines_dropped = lambda: 2
    found = values(metrics)
    expected = {
        'wiretape_streams_total{ending="completed",route=""}': 1,
        'wiretape_streams_total{ending="stalled",route="b"}': 1,
        "wiretape_streams_untaped_total": 1,
        'wiretape_tool_calls_total{status="running"}': 2,
        'wiretape_tool_calls_total{status="dropped"}': 1,
        "wiretape_streams_dropped_mid_tool_total": 1,
        "wiretape_retries_total": 2,
        "wiretape_log_bytes_total": 1000,
        'wiretape_stream_ttft_seconds_bucket{le="0.1"}': 0,
        'wiretape_stream_ttft_seconds_bucket{le="0.25"}': 1,
        "wiretape_stream_ttft_seconds_sum": 0.25,
        "wiretape_stream_ttft_seconds_count": 1,
        'wiretape_log_write_seconds_bucket{le="2e-06"}': 1,
        "wiretape_streams_live": 7,
        "wiretape_log_lines_dropped_total": 2,
    }
    assert {name: found[name] for name in expected} == expected


def test_no_request_creates_a_series() -> None:
    metrics = Metrics(["a"])
    before = len(values(metrics))
    for number in range(100):
        metrics.on_ended(ended(f"state-{number}", route=f"route-{number}", ending=f"ending-{number}"))
        metrics.refused(1_000 + number)
    found = values(metrics)
    assert found['wiretape_streams_total{ending="other",route="other"}'] == 100
    assert found['wiretape_tool_calls_total{status="other"}'] == 100
    assert found['wiretape_refused_total{status="other"}'] == 100
    assert len(found) == before + 3


@pytest.mark.parametrize(("status", "label"), [(400, "400"), (399, "other"), (599, "599"), (600, "other")])
def test_refusal_counts_under_its_status(status: int, label: str) -> None:
    metrics = Metrics()
    metrics.refused(status)
    assert values(metrics)[f'wiretape_refused_total{{status="{label}"}}'] == 1
    assert metrics.refusals == {label: 1}
