"""The export to a collector: what is sent when, what outlives an outage and a restart, and which settings count."""

import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import CONTEXT, Upstream, listening, request_of
from tests.proxy.test_spans import ASK, HEAD, TEXT, tape
from tests.support import chat
from tests.support.cli import Run
from wiretape.proxy import limits
from wiretape.proxy.config.model import Config, ConfigError
from wiretape.proxy.config.otel import Collector, collector_of
from wiretape.proxy.relay.recording import Ended
from wiretape.proxy.store.catalogue_row import CatalogueRow, StreamRow
from wiretape.proxy.store.files import open_files
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Store
from wiretape.proxy.telemetry.export import Exporter, Sender, part_of
from wiretape.proxy.upstream.transport import UpstreamTransport

COLLECTOR = Collector(httpx.URL("http://127.0.0.1:4318/v1/traces"), is_json=True)
NOW = 1_700_000_000.0
TAKEN = (200, "", b"{}")


def row(stream: str) -> Ended:
    made = StreamRow(stream=stream, created=0, caller="", route="", dialect="chat", model="m", ending="completed")
    return Ended(CatalogueRow(made, ()), 1, 0, "eof")


async def record(store: Store, stream: str) -> Ended:
    await store.create(stream)
    await store.append(stream, tape(ASK, HEAD, TEXT, chat.finish(), chat.DONE, ("end", "eof"), stream=stream))
    return row(stream)


def aged(root: Path, *times: float) -> None:
    """Set when the tapes of a folder were last written, in the order of their names."""
    for path, at in zip(sorted(root.glob("*/*.tape")), times, strict=True):
        os.utime(path, (at, at))


class Receiver:
    """A collector that answers in this order, the last answer again and again, and notes which streams came when.

    It refuses each request that contains one of the `unwanted` streams.
    """

    def __init__(self, *answers: tuple[int, str, bytes], unwanted: Collection[str] = ()) -> None:
        self.answers, self._unwanted = list(answers) or [TAKEN], frozenset(unwanted)
        self.bodies: list[bytes] = []
        self.came: list[tuple[float, list[str]]] = []

    async def __call__(self, stream: trio.abc.Stream) -> None:
        while asked := await request_of(stream):
            assert asked.startswith(b"POST /v1/traces HTTP/1.1\r\n")
            self.bodies.append(asked.partition(b"\r\n\r\n")[2])
            spans = [each["scopeSpans"][0]["spans"][0] for each in json.loads(self.bodies[-1])["resourceSpans"]]
            ids = [one["value"]["stringValue"] for span in spans for one in span["attributes"] if "id" in one["key"]]
            self.came.append((trio.current_time(), ids))
            status, header, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if status == 200 and not self._unwanted.isdisjoint(ids):
                status = 413
            head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{header}\r\n"
            await stream.send_all(head.encode() + body)


class Said:
    """The log."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []
        self.dropped = 0

    def warn(self, event: str, /, **fields: object) -> None:
        self.lines.append((event, fields))

    def info(self, event: str, /, **fields: object) -> None:
        self.warn(event, **fields)

    def error(self, event: str, /, **fields: object) -> None:
        self.warn(event, **fields)

    def ended(self, ended: Ended) -> None:
        raise AssertionError(ended)


@asynccontextmanager
async def exporting(
    receiver: Receiver,
    store: Store,
    *,
    root: Path | None = None,
    wall: Callable[[], float] | None = None,
    away_s: float = 0,
) -> AsyncGenerator[tuple[Exporter, Said]]:
    """An exporter and its log; nothing listens at the collector's address for the first `away_s`."""
    said = Said()
    async with trio.open_nursery() as nursery:
        upstream = Upstream(nursery, [receiver])
        began = trio.current_time()

        async def open_tcp(host: str, port: int) -> trio.abc.Stream:
            if trio.current_time() < began + away_s:
                raise ConnectionRefusedError(111, "Connection refused")
            return await upstream.open_tcp(host, port)

        transport: Any = UpstreamTransport(open_tcp=open_tcp, context=CONTEXT)
        sender = Sender(COLLECTOR, transport, said)
        exporter = Exporter(COLLECTOR, sender, store, said, wall or (lambda: NOW + trio.current_time()), root)
        nursery.start_soon(exporter.run)
        yield exporter, said
        nursery.cancel_scope.cancel()
    await transport.aclose()


async def test_stream_is_exported_once_it_has_ended_and_always_alike(autojump_clock: MockClock) -> None:
    store, receiver = MemoryStore(), Receiver()
    ended = await record(store, "s1")
    async with exporting(receiver, store) as (exporter, said):
        for _ in range(2):
            exporter.ended(ended)
            await trio.sleep(10)
        exporter.ended(row("never-taped"))
        await trio.sleep(10)
    assert [ids for _, ids in receiver.came] == [["s1"], ["s1"]]
    assert receiver.bodies[0] == receiver.bodies[1]
    assert not said.lines


async def test_collector_that_is_away_for_an_hour_loses_nothing(autojump_clock: MockClock) -> None:
    store, receiver = MemoryStore(), Receiver()
    async with exporting(receiver, store, away_s=3_600) as (exporter, said):
        for number in range(120):
            exporter.ended(await record(store, f"s{number}"))
            await trio.sleep(30)
        await trio.sleep(120)
    assert [stream for _, ids in receiver.came for stream in ids] == [f"s{number}" for number in range(120)]
    assert 3_600 <= receiver.came[0][0] <= 3_600 + limits.OTEL_RETRY_MAX_S
    assert {event for event, _ in said.lines} == {"otel_waits"}
    assert len(said.lines) <= 3_600 / limits.LIMITED_LOG_S + 1


@pytest.mark.parametrize(
    ("answer", "again_s", "event"),
    [
        ((429, "Retry-After: 30\r\n", b""), 30, "otel_waits"),
        ((429, "Retry-After: 99999\r\n", b""), limits.OTEL_RETRY_AFTER_MAX_S, "otel_waits"),
        ((503, "", b""), 1, "otel_waits"),
        ((401, "", b"who?"), 1, "otel_waits"),
        ((415, "", b""), 1, "otel_waits"),
        ((400, "", b""), None, "otel_refused"),
        ((200, "", b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"bad"}}'), None, "otel_rejected"),
    ],
)
async def test_answers_of_collectors(
    autojump_clock: MockClock, answer: tuple[int, str, bytes], again_s: float | None, event: str
) -> None:
    store, receiver = MemoryStore(), Receiver(answer, TAKEN)
    async with exporting(receiver, store) as (exporter, said):
        exporter.ended(await record(store, "s1"))
        await trio.sleep(limits.OTEL_RETRY_AFTER_MAX_S + 10)
    assert [name for name, _ in said.lines] == [event]
    times = [at for at, _ in receiver.came]
    assert len(times) == (1 if again_s is None else 2)
    assert again_s is None or times[1] - times[0] == pytest.approx(again_s)


async def test_refused_request_loses_only_the_streams_that_are_refused(autojump_clock: MockClock) -> None:
    store, receiver = MemoryStore(), Receiver((503, "", b""), TAKEN, unwanted=("s2", "s5"))
    async with exporting(receiver, store) as (exporter, said):
        for number in range(7):
            exporter.ended(await record(store, f"s{number}"))
        await trio.sleep(10)
    taken = [ids for _, ids in receiver.came[1:] if not {"s2", "s5"} & set(ids)]
    assert [stream for ids in taken for stream in ids] == ["s0", "s1", "s3", "s4", "s6"]
    assert said.lines[1:] == [("otel_refused", {"status": 413, "stream": stream}) for stream in ("s2", "s5")]
    assert said.lines[0][0] == "otel_waits"


async def test_every_partial_success_is_logged_with_its_streams(autojump_clock: MockClock) -> None:
    partial = (200, "", b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"bad"}}')
    store, receiver = MemoryStore(), Receiver((503, "", b""), partial)
    async with exporting(receiver, store) as (exporter, said):
        for streams in ("ab", "c"):
            for stream in streams:
                exporter.ended(await record(store, stream))
            await trio.sleep(5)
    lost = [("otel_rejected", {"spans": 2, "why": "bad", "streams": streams}) for streams in ("a,b", "c")]
    assert said.lines[1:] == lost


async def test_start_exports_what_ended_after_the_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OTEL_QUEUE_MAX", 2)
    streams = [f"s{number}" for number in range(6)]
    async with open_files(tmp_path, warn=lambda _: None) as store:
        for stream in streams:
            await record(store, stream)
    aged(tmp_path, *(NOW + 10 * number for number in range(6)))
    cursor, receiver = trio.Path(tmp_path) / "otel.cursor", Receiver()
    await cursor.write_text(f"{NOW + 16}")
    async with (
        open_files(tmp_path, warn=lambda _: None) as store,
        exporting(receiver, store, root=tmp_path, wall=lambda: NOW + 60) as (_, said),
    ):
        with trio.fail_after(10):
            while float(await cursor.read_text()) < NOW + 50:  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert list(dict.fromkeys(stream for _, ids in receiver.came for stream in ids)) == streams[2:]
    assert not said.lines


@pytest.mark.parametrize("content", [f"{NOW + 3_600}", "", "nan"])
async def test_cursor_that_cannot_be_right_sends_the_last_day_again(tmp_path: Path, content: str) -> None:
    async with open_files(tmp_path, warn=lambda _: None) as store:
        for stream in ("s0", "s1", "s2"):
            await record(store, stream)
    aged(tmp_path, NOW - limits.OTEL_LOOK_BACK_S - 60, NOW - 60, NOW + 60)
    cursor, receiver = trio.Path(tmp_path) / "otel.cursor", Receiver()
    await cursor.write_text(content)
    async with (
        open_files(tmp_path, warn=lambda _: None) as store,
        exporting(receiver, store, root=tmp_path, wall=lambda: NOW) as (exporter, _),
    ):
        with trio.fail_after(10):
            while not receiver.came:  # noqa: ASYNC110
                await trio.sleep(0.01)
            exporter.ended(await record(store, "new"))
            while await cursor.read_text() != f"{NOW}":  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert [ids for _, ids in receiver.came] == [["s1", "s2"], ["new"]]


async def test_first_start_exports_nothing_old(tmp_path: Path) -> None:
    receiver = Receiver()
    async with open_files(tmp_path, warn=lambda _: None) as store:
        await record(store, "old")
    aged(tmp_path, NOW)
    async with (
        open_files(tmp_path, warn=lambda _: None) as store,
        exporting(receiver, store, root=tmp_path, wall=lambda: NOW + 60) as (exporter, _),
    ):
        with trio.fail_after(10):
            while not await (trio.Path(tmp_path) / "otel.cursor").exists():  # noqa: ASYNC110
                await trio.sleep(0.01)
            exporter.ended(await record(store, "new"))
            while not receiver.came:  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert [ids for _, ids in receiver.came] == [["new"]]


async def test_other_tasks_run_while_a_long_stream_is_folded(autojump_clock: MockClock) -> None:
    store, turns = MemoryStore(), 0
    frames = [chat.text(f"{number}") for number in range(1_000)]
    await store.create("s1")
    await store.append("s1", tape(ASK, HEAD, *frames, chat.finish(), chat.DONE, ("end", "eof")))

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await part_of("s1", store.read, COLLECTOR)
        nursery.cancel_scope.cancel()
    assert turns >= 1_000 / limits.OTEL_SLICE_RECORDS


BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (BASE, {"url": "http://c:4318/v1/traces", "is_json": False, "vocabulary": "1.41"}),
        (BASE | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://d/x"}, {"url": "http://d/x"}),
        (BASE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, {"is_json": True}),
        (BASE | {"OTEL_EXPORTER_OTLP_HEADERS": "a=b%20c, d=e"}, {"headers": ((b"a", b"b c"), (b"d", b"e"))}),
        (BASE | {"OTEL_SERVICE_NAME": "me"}, {"resource": {"service.name": "me"}}),
        (
            BASE | {"OTEL_RESOURCE_ATTRIBUTES": "service.name=me,env=test"},
            {"resource": {"service.name": "me", "env": "test"}},
        ),
        (BASE | {"OTEL_SEMCONV_STABILITY_OPT_IN": "http,gen_ai_latest_experimental"}, {"vocabulary": "latest"}),
    ],
)
def test_variables_of_opentelemetry(environ: Mapping[str, str], expected: Mapping[str, Any]) -> None:
    collector = collector_of(Config(data=Path()), environ)
    assert collector is not None
    assert {name: getattr(collector, name) for name in expected} == expected


def test_settings_come_before_variables() -> None:
    config = Config(data=Path(), otel_endpoint="https://mine", otel_genai="1.41")
    environ = {**BASE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://d/x"}
    newest = {**environ, "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}
    for collector in (collector_of(config, newest), collector_of(config, newest, "https://mine/")):
        assert collector is not None
        assert (str(collector.url), collector.vocabulary) == ("https://mine/v1/traces", "1.41")
    assert collector_of(config, {"OTEL_SDK_DISABLED": "true"}) is None
    assert collector_of(Config(data=Path()), {}) is None


@pytest.mark.parametrize(
    "environ",
    [
        BASE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::1"},
    ],
)
def test_collector_that_cannot_be_used(environ: Mapping[str, str]) -> None:
    with pytest.raises(ConfigError):
        collector_of(Config(data=Path()), environ)


async def test_backfill_sends_recent_streams(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_files(tmp_path, warn=lambda _: None) as store:
        for stream in ("large", "new", "old"):
            await record(store, stream)
    aged(tmp_path, time.time() - 3_600, time.time() - 3_000, time.time() - 3 * 86_400)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    arguments, receiver = ["otel", "backfill", "--data", str(tmp_path), "--since"], Receiver(unwanted=["large"])
    async with listening(receiver) as (port, _):
        url = f"http://127.0.0.1:{port}"
        said = await trio.to_thread.run_sync(lambda: run(*arguments, "2d", "--endpoint", url))
    assert (said.code, said.out) == (1, f"1 streams sent to {url}/v1/traces, 1 refused\n")
    assert [ids for _, ids in receiver.came] == [["large", "new"], ["large"], ["new"]]


def test_backfill_needs_a_time_and_a_collector(run: Run, tmp_path: Path) -> None:
    for since in ("2", "2d"):
        assert run("otel", "backfill", "--data", tmp_path, "--since", since).code == 2
