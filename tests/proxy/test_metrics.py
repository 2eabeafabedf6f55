"""What is counted, under which names, and that no request can make a series of its own."""

import re
from typing import Any

import pytest

from tests.proxy.control_cases import ME, put
from tests.proxy.store_cases import CREATED, stream_of
from tests.support.chat import text
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.proxy.api.metrics import Counter, Gauge, Histogram, Metrics, Sampler, gaps_of
from wiretape.proxy.limits import SAMPLED_RECORDS_MAX, SAMPLED_STREAMS_MAX
from wiretape.proxy.relay.registry import Ended
from wiretape.proxy.store.catalogue_row import CallRow, CatalogueRow, StreamRow
from wiretape.proxy.store.memory import MemoryStore

LINE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\\]*(?:\\.[^"\\]*)*"(,[a-z]+="[^"\\]*(?:\\.[^"\\]*)*")*\})? [0-9.e+-]+')


def ended(*states: str, attempts: int = 1, tape_bytes: int = 1_000, **row: Any) -> Ended:
    told: dict[str, Any] = {"stream": "s1", "route": "", "ending": "completed", "first_content_us": 250_000} | row
    stream = StreamRow(created=CREATED, caller=ME, dialect="chat", model="m", **told)
    calls = [
        CallRow(caller=ME, call=f"c{n}", stream="s1", name="x", state=state, handed_us=1)
        for n, state in enumerate(states)
    ]
    return Ended(CatalogueRow(stream, tuple(calls)), attempts, tape_bytes, "eof")


def values(metrics: Metrics) -> dict[str, str]:
    lines = metrics.text().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_the_page_has_every_name_that_is_promised_and_one_type_for_each() -> None:
    metrics = Metrics([""])
    metrics.on_ended(ended("running", "dropped"))
    metrics.refused(503)
    page = metrics.text().decode()
    assert page.endswith("\n")
    types = dict(line.split()[2:] for line in page.splitlines() if line.startswith("# TYPE"))
    assert types == {
        "wiretape_streams_total": "counter",
        "wiretape_streams_untaped_total": "counter",
        "wiretape_tool_calls_total": "counter",
        "wiretape_streams_dropped_mid_tool_total": "counter",
        "wiretape_histories_marked_total": "counter",
        "wiretape_retries_total": "counter",
        "wiretape_log_bytes_total": "counter",
        "wiretape_refused_total": "counter",
        "wiretape_log_lines_dropped_total": "counter",
        "wiretape_stream_ttft_seconds": "histogram",
        "wiretape_inter_chunk_seconds": "histogram",
        "wiretape_log_write_seconds": "histogram",
        "wiretape_streams_live": "gauge",
    }
    assert [line for line in page.splitlines() if not line.startswith("# ") and not LINE.fullmatch(line)] == []
    assert len(values(metrics)) == len([line for line in page.splitlines() if not line.startswith("#")])


def test_a_stream_counts_once_under_its_route_and_ending() -> None:
    metrics = Metrics(["", "b"])
    metrics.on_ended(ended("running", "running", "dropped", attempts=3))
    metrics.on_ended(ended(route="b", ending="stalled", flags=("untaped",), first_content_us=None, tape_bytes=0))
    metrics.log_wrote(2e-6)
    metrics.live = lambda: 7
    metrics.log_lines_dropped = lambda: 2
    said = values(metrics)
    expected = {
        'wiretape_streams_total{route="",ending="completed"}': "1",
        'wiretape_streams_total{route="b",ending="stalled"}': "1",
        "wiretape_streams_untaped_total": "1",
        'wiretape_tool_calls_total{status="running"}': "2",
        'wiretape_tool_calls_total{status="dropped"}': "1",
        "wiretape_streams_dropped_mid_tool_total": "1",
        "wiretape_retries_total": "2",
        "wiretape_log_bytes_total": "1000",
        'wiretape_stream_ttft_seconds_bucket{le="0.1"}': "0",
        'wiretape_stream_ttft_seconds_bucket{le="0.25"}': "1",
        'wiretape_stream_ttft_seconds_bucket{le="+Inf"}': "1",
        "wiretape_stream_ttft_seconds_sum": "0.25",
        "wiretape_stream_ttft_seconds_count": "1",
        'wiretape_log_write_seconds_bucket{le="2e-06"}': "1",
        "wiretape_streams_live": "7",
        "wiretape_log_lines_dropped_total": "2",
    }
    assert {name: said[name] for name in expected} == expected


def test_no_request_makes_a_series() -> None:
    metrics = Metrics(["a"])
    before = len(values(metrics))
    for number in range(100):
        metrics.on_ended(ended(f"state-{number}", route=f"route-{number}", ending=f"ending-{number}"))
        metrics.refused(1_000 + number)
    said = values(metrics)
    assert said['wiretape_streams_total{route="other",ending="other"}'] == "100"
    assert said['wiretape_tool_calls_total{status="other"}'] == "100"
    assert said['wiretape_refused_total{status="other"}'] == "100"
    assert len(said) == before + 3


@pytest.mark.parametrize(("status", "label"), [(400, "400"), (399, "other"), (599, "599"), (600, "other")])
def test_a_refusal_counts_under_its_status(status: int, label: str) -> None:
    metrics = Metrics()
    metrics.refused(status)
    assert values(metrics)[f'wiretape_refused_total{{status="{label}"}}'] == "1"


def test_a_label_of_any_text_is_one_line() -> None:
    counter = Counter("c", "about", ("x",))
    counter.add('a"b\\c\nd')
    assert list(counter.lines())[2:] == ['c{x="a\\"b\\\\c\\nd"} 1']
    with pytest.raises(AssertionError):
        counter.add("a", "b")
    with pytest.raises(AssertionError):
        counter.add("a", by=-1)


def test_a_histogram_counts_a_value_on_its_bound_below_it() -> None:
    histogram = Histogram("h", "about", (0.1, 1))
    for value in (0.05, 0.1, 0.11, 1, 7.5):
        histogram.observe(value)
    assert list(histogram.lines())[2:] == [
        'h_bucket{le="0.1"} 2',
        'h_bucket{le="1"} 4',
        'h_bucket{le="+Inf"} 5',
        "h_sum 8.76",
        "h_count 5",
    ]
    assert histogram.count == 5
    with pytest.raises(AssertionError):
        Histogram("h", "about", (1, 1))


def test_numbers_are_exact() -> None:
    numbers = (0, 3, 2.5, 1e-06, 1e300, 2**53)
    read = iter(numbers)
    gauge = Gauge("g", "about", lambda: next(read))
    said = [list(gauge.lines())[2].split()[1] for _ in numbers]
    assert said == ["0", "3", "2.5", "1e-06", "1e+300", str(2**53)]
    assert [float(word) for word in said] == list(numbers)


# -- gaps -------------------------------------------------------------------------------------------------------------


def records_at(*times: int) -> list[Record]:
    recorder = Recorder()
    return [record for t in times for record in recorder.read(t, text("a") + text("b"))]


def test_a_gap_is_from_one_read_to_the_next_that_completed_frames() -> None:
    recorder = Recorder()
    records = [recorder.record("open", 0, {})]
    records += recorder.read(10, text("a") * 3)
    records += recorder.read(15, text("a")[:5])
    records += recorder.read(30, text("a")[5:])
    records += recorder.attempt(1_000, {})
    records += recorder.read(2_000, text("a"))
    records += recorder.read(2_007, text("a"))
    assert list(gaps_of(records)) == [20, 7]
    assert list(gaps_of([])) == []


async def test_the_streams_that_ended_last_are_sampled_once() -> None:
    store, metrics = MemoryStore(), Metrics(["default"])
    await put(store, "s1", stream_of("s1", reads=10))
    metrics.on_ended(ended(stream="s1"))
    metrics.on_ended(ended(stream="expired"))
    metrics.on_ended(ended(stream="untaped", flags=("untaped",)))
    await metrics.sample(store)
    await metrics.sample(store)
    said = values(metrics)
    assert said["wiretape_inter_chunk_seconds_count"] == "11"
    assert said['wiretape_inter_chunk_seconds_bucket{le="0.001"}'] == "11"
    assert float(said["wiretape_inter_chunk_seconds_sum"]) == pytest.approx(0.011)


@pytest.mark.parametrize(("ended_streams", "sampled"), [(SAMPLED_STREAMS_MAX, 0), (SAMPLED_STREAMS_MAX + 1, 1)])
async def test_no_more_streams_are_kept_than_the_limit(ended_streams: int, sampled: int) -> None:
    store, sampler = MemoryStore(), Sampler()
    for number in range(ended_streams):
        stream = f"s{number}"
        await put(store, stream, [records_at(*range(1, 3 if number else 5))])
        sampler.keep(stream)
    assert len(await sampler.gaps(store)) == (3 if not sampled else 1) + SAMPLED_STREAMS_MAX - 1


async def test_no_more_of_a_tape_is_looked_at_than_the_limit() -> None:
    store, sampler = MemoryStore(), Sampler()
    await put(store, "s1", [records_at(*range(1, SAMPLED_RECORDS_MAX))])
    sampler.keep("s1")
    assert len(await sampler.gaps(store)) == SAMPLED_RECORDS_MAX // 2 - 1
