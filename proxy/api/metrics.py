"""What is counted, and how Prometheus reads it: counters, gauges and histograms in its text format.

No label comes from a request: routes come from the configuration, endings and states from our own closed sets, and
what is in none of them is counted as `other`, so the number of series is bounded by the configuration alone.

`wiretape_inter_chunk_seconds` is a sample, and says so in its help. Nothing is counted per frame: when the metrics are
read, the tapes of the streams that ended last are looked at (`Sampler`), and each gap between two reads of the upstream
on the first part of each is counted. A machine that nobody scrapes thus pays nothing, and one that ends more streams
between two scrapes than are kept sees the latest of them only. All other figures are exact.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, get_args

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Ending
from wiretape.events.tape.record import Record

from ..limits import SAMPLED_RECORDS_MAX, SAMPLED_STREAMS_MAX
from ..store.store import Store

if TYPE_CHECKING:
    from ..relay.registry import Ended

__all__ = ["Counter", "Gauge", "Histogram", "Metrics", "Sampler", "gaps_of"]

_MICROSECOND: Final = 1e-6
_ENDINGS: Final = frozenset(get_args(Ending))
_STATES: Final = frozenset(state.value for state in State)
#: From a cached first token to a model that thinks for ten minutes.
_TTFT_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
#: Fast upstreams send a thousand chunks a second; the idle limit is 300 s.
_GAP_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
#: A write takes 2 us inline (design.md 3); 10 ms is what the loop may stall.
_WRITE_S: Final = (2e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.25, 1.0)
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Counter:
    """Grows. With label names, one series for each set of label values; what is to be 0 from the start is named."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.about = about
        self.labels = tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, *values: str, by: float = 1) -> None:
        """So much more, for these label values."""
        assert len(values) == len(self.labels)
        assert by >= 0
        self._values[values] = self._values.get(values, 0) + by

    def value(self, *values: str) -> float:
        """So far."""
        return self._values.get(values, 0)

    def values(self) -> list[tuple[tuple[str, ...], float]]:
        """So far, of each set of label values."""
        return sorted(self._values.items())

    def lines(self) -> Iterator[str]:
        """In Prometheus's text format."""
        yield from _head(self.name, "counter", self.about)
        for values, value in sorted(self._values.items()):
            yield f"{self.name}{_labels(self.labels, values)} {_number(value)}"


class Gauge:
    """Asked when it is read."""

    def __init__(self, name: str, about: str, read: Callable[[], float]) -> None:
        self.name = name
        self.about = about
        self.read = read

    def lines(self, kind: str = "gauge") -> Iterator[str]:
        """In Prometheus's text format."""
        yield from _head(self.name, kind, self.about)
        yield f"{self.name} {_number(self.read())}"


class Histogram:
    """How often a value fell under each bound."""

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(set(bounds))
        self.name = name
        self.about = about
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self._counts)

    def lines(self) -> Iterator[str]:
        """In Prometheus's text format, where each bound counts all below it."""
        yield from _head(self.name, "histogram", self.about)
        total = 0
        for bound, count in zip([*map(_number, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            yield f'{self.name}_bucket{{le="{bound}"}} {total}'
        yield f"{self.name}_sum {_number(self._sum)}"
        yield f"{self.name}_count {total}"


class Metrics:
    """`on_ended` for each stream, `refused` for each request that became none; `text` for Prometheus."""

    def __init__(self, routes: Iterable[str] = ()) -> None:
        self._routes = frozenset(routes)
        self._sampler = Sampler()
        #: How many streams run now, and log lines that were lost; whoever knows it sets them.
        self.live: Callable[[], float] = _nothing
        self.log_lines_dropped: Callable[[], float] = _nothing
        self._streams = Counter(_name("streams total"), "Streams that have ended.", ("route", "ending"))
        self._untaped = Counter(_name("streams untaped total"), "Of these, streams that went on without a tape.")
        self._tools = Counter(_name("tool calls total"), "Tool calls, by the state at their stream's end.", ("status",))
        self._mid_tool = Counter(
            _name("streams dropped mid tool total"), "Streams that ended with a tool call cut short."
        )
        self._marked = Counter(
            _name("histories marked total"), "Requests whose history carried tool markers or warnings of ours."
        )
        self._retries = Counter(_name("retries total"), "Attempts beyond the first of each stream.")
        self._log_bytes = Counter(_name("log bytes total"), "Bytes written to tapes that have ended.")
        self._refused = Counter(_name("refused total"), "Requests that were refused, by status.", ("status",))
        self._ttft = Histogram(_name("stream ttft seconds"), "From the request to the first content.", _TTFT_S)
        self._gaps = Histogram(
            _name("inter chunk seconds"),
            "Between two reads of the upstream. A sample: the streams that ended last before each scrape.",
            _GAP_S,
        )
        self._write = Histogram(_name("log write seconds"), "One batch of records, until it is written.", _WRITE_S)
        self.log_wrote = self._write.observe
        """Seconds that one batch took."""

    def on_ended(self, ended: "Ended") -> None:
        """One stream."""
        row, calls, _ = ended.catalogue_row
        self._streams.add(_known(row.route, self._routes), _known(row.ending, _ENDINGS))
        if "untaped" in row.flags:
            self._untaped.add()
        else:
            self._sampler.keep(row.stream)
        for call in calls:
            self._tools.add(_known(call.state, _STATES))
        if "history_marked" in row.flags:
            self._marked.add()
        if any(call.state == State.DROPPED.value for call in calls):
            self._mid_tool.add()
        self._retries.add(by=max(0, ended.attempts - 1))
        self._log_bytes.add(by=ended.tape_bytes)
        if row.first_content_us is not None:
            self._ttft.observe(row.first_content_us * _MICROSECOND)

    def refused(self, status: int) -> None:
        """One request that never became a stream."""
        self._refused.add(str(status) if 400 <= status <= 599 else "other")

    @property
    def refusals(self) -> Mapping[str, int]:
        """How many requests were refused, by status."""
        return {status: int(count) for (status,), count in self._refused.values()}

    async def sample(self, store: Store) -> None:
        """To be awaited before `text`."""
        for gap_us in await self._sampler.gaps(store):
            self._gaps.observe(gap_us * _MICROSECOND)

    def text(self) -> bytes:
        """The whole page."""
        live = Gauge(_name("streams live"), "Streams that run now.", self.live)
        lost = Gauge(_name("log lines dropped total"), "Lines of the log that nobody read.", self.log_lines_dropped)
        counters = (self._streams, self._untaped, self._tools, self._mid_tool, self._marked, self._retries)
        lines = [line for counter in (*counters, self._log_bytes, self._refused) for line in counter.lines()]
        lines += [line for histogram in (self._ttft, self._gaps, self._write) for line in histogram.lines()]
        return "\n".join([*lines, *live.lines(), *lost.lines("counter"), ""]).encode()


class Sampler:
    """The streams that ended last, until somebody wants to know their gaps."""

    def __init__(self) -> None:
        self._streams: deque[str] = deque(maxlen=SAMPLED_STREAMS_MAX)

    def keep(self, stream: str) -> None:
        """Ended just now."""
        self._streams.append(stream)

    async def gaps(self, store: Store) -> list[int]:
        """Microseconds between two reads, of what was kept since the last time."""
        streams, self._streams = self._streams, deque(maxlen=SAMPLED_STREAMS_MAX)
        found: list[int] = []
        for stream in streams:
            try:  # the first batch is enough, and one hop into a thread
                batch = await anext(store.read(stream))
            except (WiretapeError, OSError, StopAsyncIteration):  # expired meanwhile, or unreadable
                continue
            found += gaps_of(batch[:SAMPLED_RECORDS_MAX])
        return found


def gaps_of(records: Iterable[Record]) -> Iterator[int]:
    """Microseconds from each read of an attempt that completed frames to the next such read."""
    last: int | None = None
    for record in records:
        if record.kind == "attempt":
            last = None
        elif record.kind == "frame":
            if last is not None and record.t > last:
                yield record.t - last
            last = record.t


def _name(words: str) -> str:
    """Of a metric of ours; the words of one may be a vendor's word when they are joined, and are not meant so."""
    return "wiretape_" + words.replace(" ", "_")


def _nothing() -> float:
    return 0


def _known(word: str, words: frozenset[str]) -> str:
    return word if word in words else "other"


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)]
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    """As short as it can be, and exact."""
    return str(int(value)) if value == int(value) and abs(value) < 2**63 else repr(float(value))
