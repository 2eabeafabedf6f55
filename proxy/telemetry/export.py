"""The export of ended streams to a collector: the tapes are the queue, and a cursor on disk says how far it got."""

import time
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from math import inf
from pathlib import Path
from typing import Final

import trio

from wiretape.events.tape.record import Record

from .. import limits
from ..config.otel import Collector
from ..http1 import Headers
from ..relay.attempts import retry_after_s
from ..relay.recording import Ended
from ..relay.relay import Log
from ..security.access import write_whole
from ..security.trace import Trace
from ..store.folder import ended_since
from ..store.store import Store, StoreError, StreamMissingError
from ..upstream.connection import WireError
from ..upstream.transport import UpstreamTransport
from .otlp import encoded, joined, rejected
from .spans import SpanFold

__all__ = ["Exporter", "Sender", "part_of"]

#: Answers that blame the spans: sent again, they would be refused again.
_REFUSED: Final = frozenset({400, 413, 422})


async def part_of(stream: str, read: Callable[[str], AsyncIterable[Sequence[Record]]], collector: Collector) -> bytes:
    """Return the spans of an ended stream, encoded, if it has any; `read` reads tapes. Other tasks run meanwhile."""
    fold, traces = SpanFold(stream, vocabulary=collector.vocabulary, content=collector.content), dict[str, Trace]()
    async for batch in read(stream):
        for at, record in enumerate(batch, 1):
            fold.take(record)
            if at % limits.OTEL_SLICE_RECORDS == 0:
                await trio.lowlevel.checkpoint()
    for maker in dict.fromkeys(result["stream"] for result in fold.results):
        with suppress(StoreError):
            async for batch in read(maker):
                traces[maker] = Trace.on_tape(maker, batch[0].keys.get("trace"))
                break
    spans = fold.spans(traces) if fold.summary.end is not None else []
    return encoded(spans, collector.resource, is_json=collector.is_json) if spans else b""


class Sender:
    """Sends spans to a collector, and counts streams that it `refused`. The log has each loss, but not each try."""

    def __init__(self, collector: Collector, transport: UpstreamTransport, log: Log) -> None:
        self._collector, self._transport, self._log = collector, transport, log
        self._next_line, self.refused = -inf, 0

    async def deliver(self, parts: Mapping[str, bytes]) -> None:
        """Send the spans of these streams until the collector has taken or refused those of each.

        Halve a refused request, since one stream may be the reason.
        """
        streams = [stream for stream, part in parts.items() if part]
        waiting, wait_s = [streams] if streams else [], 1.0
        while waiting:
            status, why, asked_s = await self._send(streams := waiting.pop(), parts)
            if status in _REFUSED and len(streams) > 1:
                half = len(streams) // 2
                waiting += [streams[half:], streams[:half]]
            elif status in _REFUSED:
                self.refused += 1
                self._log.warn("otel_refused", status=status, stream=streams[0])
            elif status // 100 != 2:
                waiting.append(streams)
                if (now := trio.current_time()) >= self._next_line:
                    self._next_line = now + limits.LIMITED_LOG_S
                    self._log.warn("otel_waits", why=why, streams=len(streams))
                await trio.sleep(max(wait_s, min(asked_s, limits.OTEL_RETRY_AFTER_MAX_S)))
                wait_s = min(2 * wait_s, limits.OTEL_RETRY_MAX_S)

    async def _send(self, streams: list[str], parts: Mapping[str, bytes]) -> tuple[int, str, float]:
        """Return the status, 0 without an answer, a sentence about it, and the seconds that the collector asks for."""
        url, headers, is_json, *_ = self._collector
        kind, answer = b"application/json" if is_json else b"application/x-protobuf", b""
        headers = ((b"content-type", kind), (b"accept-encoding", b"identity"), *headers)
        body = joined(map(parts.__getitem__, streams), is_json=is_json)
        outgoing = self._transport.addressed(url, b"POST", url.raw_path, headers, body)
        try:
            with trio.fail_after(limits.OTEL_TIMEOUT_S):
                head, exchange = await self._transport.exchange(outgoing)
                async with aclosing(exchange):
                    while len(answer) < limits.OTEL_ANSWER_BYTES_MAX and (read := await exchange.receive()):
                        answer += read.data
        except (WireError, trio.TooSlowError) as error:
            return 0, str(error) or "The collector did not answer in time.", 0.0
        if head.status // 100 == 2:
            count, why = rejected(answer, is_json=is_json)
            if count or why:
                self._log.warn("otel_rejected", spans=count, why=why, streams=",".join(streams))
        asked = Headers(head.headers).get(b"retry-after").decode("latin-1")
        return head.status, f"The collector answered {head.status}.", retry_after_s(asked, time.time()) or 0.0


class Exporter:
    """Exports each stream once it has ended. Call `ended` for each, and `run` in a task of its own."""

    def __init__(
        self, collector: Collector, sender: Sender, store: Store, log: Log, wall: Callable[[], float], root: Path | None
    ) -> None:
        """`root` is the folder of the tapes, and None if they are in memory: then nothing outlives the process."""
        self._collector, self._sender, self._store = collector, sender, store
        self._log, self._wall, self._root = log, wall, root
        self._path = (root or Path()) / "otel.cursor"
        #: Streams that have ended, with the time, oldest first. While it is `late`, others are on disk only.
        self._queue, self._late, self._wake = dict[str, float](), root is not None, trio.Event()

    def ended(self, ended: Ended) -> None:
        """Note that a stream has ended."""
        self._late = self._late or (self._root is not None and len(self._queue) >= limits.OTEL_QUEUE_MAX)
        if not self._late:
            self._queue[ended.catalogue_row.stream.stream] = self._wall()
        self._wake.set()

    async def run(self) -> None:
        """Export until cancelled."""
        while True:
            try:
                await self._export()
            except Exception as error:  # noqa: BLE001 - P20: streams run without spans, too
                self._log.error("otel_failed", why=repr(error))
                if self._root is not None:
                    self._queue, self._late = {}, True
                await trio.sleep(limits.OTEL_RETRY_MAX_S)

    async def _export(self) -> None:
        most, slack_s, cursor = limits.OTEL_QUEUE_MAX, limits.OTEL_SLACK_S, self._wall()
        if self._root is not None:
            cursor = await trio.to_thread.run_sync(_cursor_in, self._path, cursor)
        while True:
            if self._late and not self._queue and self._root is not None:
                self._late = False  # what ends from now on is queued again
                found = await trio.to_thread.run_sync(ended_since, self._root, cursor - slack_s, most)
                self._late = len(found) == most
                self._queue = found if self._late else found | self._queue
                slack_s = 0.0 if self._late else limits.OTEL_SLACK_S
            if not self._queue:
                await self._wake.wait()
                await trio.sleep(limits.OTEL_GATHER_S)
            self._wake, parts = trio.Event(), dict[str, bytes]()
            while self._queue and sum(map(len, parts.values())) < limits.OTEL_BATCH_BYTES:
                stream = next(iter(self._queue))
                cursor = self._queue.pop(stream)  # less than before if the clock was set back
                try:
                    parts[stream] = await part_of(stream, self._store.read, self._collector)
                except StreamMissingError:  # it has expired, or never had a tape
                    pass
                except Exception as error:  # noqa: BLE001 - P20: one stream without spans, and nothing else
                    self._log.error("otel_failed", stream=stream, why=repr(error))
            await self._sender.deliver(parts)
            if self._root is not None:
                await trio.to_thread.run_sync(write_whole, self._path, b"%r" % cursor)


def _cursor_in(path: Path, now: float) -> float:
    """Return the time up to which all was exported: `now` in a folder without one, long ago if it cannot be right."""
    if not path.exists():
        write_whole(path, b"%r" % now)
    with suppress(ValueError):
        if (at := float(path.read_text("ascii"))) <= now:
            return at
    return now - limits.OTEL_LOOK_BACK_S
