"""The Prometheus metrics of one server, in a registry of its own.

No label comes from a request: routes come from the configuration, endings and states from closed sets. Anything else is
counted as `other`, so that the configuration alone bounds the number of series.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, product
from operator import add, attrgetter
from pathlib import Path
from shutil import disk_usage
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, get_args

import trio
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

import wiretape
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Ending
from wiretape.events.dialects import DIALECTS

from ..limits import LIMITED_LOG_S, METRICS_MODELS_MAX
from ..store.store import WRITE_S, WriteTimes

if TYPE_CHECKING:
    from ..relay.recording import Ended
    from ..store.postgres.ship import Shipper

__all__ = ["Families", "Metrics", "counters_of", "families_of", "summed"]

_ENDINGS: Final = frozenset(get_args(Ending))
_STATES: Final = frozenset(state.value for state in State)
_TOKENS: Final = ("input", "output", "cache_read", "cache_write", "reasoning")
_DURATION_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0)
_SILENCE_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
#: From a cached first token to a model that thinks for ten minutes.
_TTFT_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

#: Name, help text, type and samples of each family, as JSON.
Families = list[list[Any]]
#: What is the same for all processes of a machine, or for which a sum means nothing.
_NOT_SUMMED: Final[Mapping[str, Callable[[float, float], float]]] = {
    "wiretape_build_info": max,
    "wiretape_disk_free_bytes": min,
    "process_start_time_seconds": min,
    "wiretape_ship_lag_seconds": max,
    "wiretape_ship_connected": min,
    "wiretape_ship_fenced": max,
}

#: The help text and the labels of each counter.
_COUNTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "wiretape_streams_total": ("Streams that have ended.", "route", "ending"),
    "wiretape_streams_crossed_total": ("Streams whose upstream spoke another dialect.", "client", "upstream"),
    "wiretape_streams_untaped_total": ("Streams that continued without a tape.",),
    "wiretape_tool_calls_total": ("Tool calls by state at the stream's end.", "status"),
    "wiretape_streams_dropped_mid_tool_total": ("Streams that ended inside a tool call.",),
    "wiretape_histories_marked_total": ("Requests whose history contained our tool markers or warnings.",),
    "wiretape_runs_started_total": ("Runs that were started.",),
    "wiretape_runs_ended_total": ("Runs that have ended.", "status"),
    "wiretape_retries_total": ("Attempts after the first one.",),
    "wiretape_attempt_failures_total": ("Attempts that delivered nothing.", "route", "ending"),
    "wiretape_repairs_total": ("Repairs of streams that have ended.", "repair"),
    "wiretape_log_bytes_total": ("Bytes on tapes that have ended.",),
    "wiretape_refused_total": ("Requests refused, by status.", "status"),
    "wiretape_limited_total": ("Connections and requests that a limit closed or refused.", "limit"),
}


class Metrics(Collector):
    """What is counted: `on_ended` for each stream, `refused` for each request that did not become one."""

    def __init__(self, routes: Iterable[str] = (), models: Sequence[str] = ()) -> None:
        """`models` are those that get a label of their own; without any there is no such label."""
        self._routes = frozenset(routes)
        self._models = frozenset(models[:METRICS_MODELS_MAX])
        #: Read at each scrape; `serve` connects them to the registry of streams, the log and the store.
        self.live: Callable[[], float] = float
        self.readers: Callable[[], float] = float
        self.folder: Path | None = None
        self.log_lines_dropped: Callable[[], float] = float
        self.write_times = WriteTimes()
        self.warn: Callable[..., None] = lambda *_, **_fields: None
        #: Returns what all processes count that serve together; None if this is the only one.
        self.together: Callable[[], Awaitable[Iterable[Families]]] | None = None
        #: What ships tapes to a shared store, if there is one.
        self.shipping: Shipper | None = None
        self._next_line: dict[str, float] = {}
        self._registry = registry = CollectorRegistry()
        self._counters = {
            name: Counter(name, what, labels, registry=registry) for name, (what, *labels) in _COUNTERS.items()
        }
        # From the start, since Prometheus does not see the first increase of a series that was not there before.
        for state in sorted(_STATES):
            self._counters["wiretape_tool_calls_total"].labels(state)
        for route, ending in product(sorted(self._routes), sorted(_ENDINGS)):
            self._counters["wiretape_streams_total"].labels(route, ending)
        labels = ("model",) if self._models else ()
        self._tokens = Counter("wiretape_tokens_total", "Tokens.", ("route", "type", *labels), registry=registry)
        self._ttft, self._duration, self._silence = (
            Histogram(f"wiretape_stream_{name}_seconds", what, labels, buckets=buckets, registry=registry)
            for name, what, buckets in (
                ("ttft", "Request to first content.", _TTFT_S),
                ("duration", "Request to the end of the stream.", _DURATION_S),
                ("silence", "The longest silence of the upstream in a stream.", _SILENCE_S),
            )
        )
        self._process = ProcessCollector(registry=None)

    def on_ended(self, ended: "Ended") -> None:
        """Count one stream."""
        (row, calls, _), count = ended.catalogue_row, self._counters
        if ended.crossed:
            count["wiretape_streams_crossed_total"].labels(row.dialect, ended.crossed).inc()
        route = row.route if row.route in self._routes else "other"
        ending = row.ending if row.ending in _ENDINGS else "other"
        count["wiretape_streams_total"].labels(route, ending).inc()
        for call in calls:
            count["wiretape_tool_calls_total"].labels(call.state if call.state in _STATES else "other").inc()
        if "untaped" in row.flags:
            count["wiretape_streams_untaped_total"].inc()
        if "history_marked" in row.flags:
            count["wiretape_histories_marked_total"].inc()
        if State.DROPPED.value in map(attrgetter("state"), calls):
            count["wiretape_streams_dropped_mid_tool_total"].inc()
        count["wiretape_retries_total"].inc(max(0, ended.attempts - 1))
        count["wiretape_log_bytes_total"].inc(ended.tape_bytes)
        for repair, times in ended.repairs.items():
            count["wiretape_repairs_total"].labels(repair).inc(times)
        self._observe(ended, route)

    def _observe(self, ended: "Ended", route: str) -> None:
        row, summary = ended.catalogue_row.stream, ended.summary
        model = row.model.lower() if row.model.lower() in self._models else "other"
        label = (model,) if self._models else ()
        exemplar = {"trace_id": ended.trace.id} if ended.trace is not None else None
        times_us = (row.first_content_us, row.duration_us, round(ended.silence_s * 1e6) if row.dialect else None)
        for histogram, value_us in zip((self._ttft, self._duration, self._silence), times_us, strict=True):
            if value_us is not None:
                (histogram.labels(*label) if label else histogram).observe(value_us / 1e6, exemplar)
        if summary is None:
            return
        for attempt in summary.attempts:
            if "failure" in attempt:
                ending = attempt["failure"].get("ending")
                ending = ending if ending in _ENDINGS else "other"
                self._counters["wiretape_attempt_failures_total"].labels(route, ending).inc()
        usage, spoken = summary.wire.usage, ended.crossed or row.dialect
        if usage and spoken in DIALECTS:
            for kind, tokens in zip(_TOKENS, DIALECTS[spoken].counts(usage), strict=True):
                self._tokens.labels(route, kind, *label).inc(max(0, tokens or 0))

    def run_started(self) -> None:
        """Count one run."""
        self._counters["wiretape_runs_started_total"].inc()

    def run_ended(self, status: str) -> None:
        """Count how one run ended."""
        self._counters["wiretape_runs_ended_total"].labels(status).inc()

    def refused(self, status: int) -> None:
        """Count one request that did not become a stream."""
        self._counters["wiretape_refused_total"].labels(str(status) if 400 <= status <= 599 else "other").inc()

    def limited(self, limit: str, what: str) -> None:
        """Count what a limit closed or refused; log each limit once in a while, however often that happens."""
        self._counters["wiretape_limited_total"].labels(limit).inc()
        now = trio.current_time()
        if now >= self._next_line.get(limit, now):
            self._next_line[limit] = now + LIMITED_LOG_S
            self.warn("limit", limit=limit, what=what)

    @property
    def refusals(self) -> Mapping[str, int]:
        """Refused requests by status."""
        samples = [sample for metric in self._counters["wiretape_refused_total"].collect() for sample in metric.samples]
        return {sample.labels["status"]: int(sample.value) for sample in samples if sample.name.endswith("_total")}

    def text(self, *, exemplars: bool = False, of: Iterable[Families] | None = None) -> bytes:
        """Return all metrics, or the sums `of` several processes, in Prometheus's text format, or in OpenMetrics, which
        alone has exemplars.
        """
        shown: Any = self if of is None else SimpleNamespace(collect=lambda: _metrics_of(summed(of)))
        return openmetrics.generate_latest(shown) if exemplars else generate_latest(shown)  # type: ignore[no-untyped-call]

    def collect(self) -> Iterator[Metric]:
        """Yield our counters, without the `_created` series, and what others count."""
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        yield GaugeMetricFamily("wiretape_streams_live", "Streams running now.", value=self.live())
        yield GaugeMetricFamily("wiretape_readers", "Clients that read a running stream.", value=self.readers())
        build = GaugeMetricFamily("wiretape_build_info", "The version that runs.", labels=("version",))
        build.add_metric([wiretape.__version__], 1)
        yield build
        if self.folder is not None:
            free = disk_usage(self.folder).free
            yield GaugeMetricFamily("wiretape_disk_free_bytes", "Free space of the data folder's disk.", value=free)
        yield from self._process.collect()
        lost = self.log_lines_dropped()
        yield CounterMetricFamily("wiretape_log_lines_dropped_total", "Log lines lost.", value=lost)
        times = self.write_times
        buckets = list(zip((*map(str, WRITE_S), "+Inf"), accumulate(times.counts), strict=True))
        name, what = "wiretape_log_write_seconds", "Write of one batch of records."
        yield HistogramMetricFamily(name, what, buckets=buckets, sum_value=times.sum_s)
        if (ship := self.shipping) is not None:
            for gauge, what, value in (
                ("lag_seconds", "How long the oldest record that the store lacks has been on a tape.", ship.lag_s),
                ("connected", "Whether the store takes records now.", ship.connected),
                ("fenced", "Whether another proxy has the name of this one, which ships nothing.", ship.fenced),
            ):
                yield GaugeMetricFamily(f"wiretape_ship_{gauge}", what, value=value)
            for count, what, value in (
                ("records", "Records that the store has taken.", ship.records),
                ("refused_streams", "Streams that others had ended before all of them was shipped.", len(ship.refused)),
                ("expired_streams", "Streams that expired here before the store had them.", ship.expired_streams),
            ):
                yield CounterMetricFamily(f"wiretape_ship_{count}_total", what, value=value)


# -- metrics of several processes --------------------------------------------------------------------------------------


def families_of(metrics: Iterable[Metric]) -> Families:
    """Return what metrics say now as JSON."""
    return [
        [
            each.name,
            each.documentation,
            each.type,
            [[*one[:3], one.exemplar and [*one.exemplar]] for one in each.samples],
        ]
        for each in metrics
    ]


def counters_of(families: Families) -> Families:
    """Return the families that never fall."""
    return [family for family in families if family[2] in ("counter", "histogram")]


def summed(each: Iterable[Families]) -> Families:
    """Return the sums of several processes; of exemplars the last one."""
    found: dict[str, tuple[str, str, dict[Any, list[Any]]]] = {}
    for name, what, kind, samples in chain.from_iterable(each):
        known = found.setdefault(name, (what, kind, {}))[2]
        together: Callable[[float, float], float] = _NOT_SUMMED.get(name, add)
        for sample, labels, value, exemplar in samples:
            before = known.setdefault((sample, *sorted(labels.items())), [sample, labels, None, None])
            before[2:] = [value if before[2] is None else together(before[2], value), exemplar or before[3]]
    return [[name, what, kind, [*known.values()]] for name, (what, kind, known) in found.items()]


def _metrics_of(families: Families) -> Iterator[Metric]:
    for name, what, kind, samples in families:
        metric = Metric(name, what, kind)
        for sample, labels, value, exemplar in samples:
            metric.samples.append(Sample(sample, labels, value, None, exemplar and Exemplar(*exemplar)))
        yield metric
