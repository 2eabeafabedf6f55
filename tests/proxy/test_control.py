"""The control app and its metrics: paths, methods, keys and headers, also over the real connection class."""

import re
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.house.tree import ROOT
from tests.proxy.control_cases import KEY, ME, Answered, House, house
from tests.proxy.store_cases import CREATED, put, stream_of
from tests.support.http import connected, request
from wiretape.proxy.api.control import readiness
from wiretape.proxy.api.metrics import Metrics
from wiretape.proxy.relay.recording import Ended
from wiretape.proxy.security.access import Keys
from wiretape.proxy.store.catalogue_row import CallRow, CatalogueRow, StreamRow
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Health

PATHS = [
    "/wiretape/healthz",
    "/wiretape/readyz",
    "/wiretape/metrics",
    "/wiretape/openapi.json",
    "/wiretape/streams",
    "/wiretape/streams/s1",
    "/wiretape/streams/s1/events",
    "/wiretape/streams/s1/tape",
]
OPEN = PATHS[:2]


@pytest.fixture
async def home() -> AsyncGenerator[House]:
    async with house() as home:
        await put(home.store, "s1", stream_of("s1", caller=ME))
        yield home


def check(answered: Answered) -> None:
    """Check what holds for every response."""
    headers = answered.headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert not [name for name in headers if name.startswith("access-control") or name in ("location", "set-cookie")]
    assert "html" not in headers["content-type"]


@pytest.mark.parametrize("path", PATHS)
async def test_every_path_takes_get_and_head_only(home: House, path: str) -> None:
    whole, head = await home.get(path), await home.get(path, method="HEAD")
    assert (whole.status, head.status, head.body) == (200, 200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    check(whole)
    check(head)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answered = await home.get(path, method=method)
        assert (answered.status, answered.headers["allow"]) == (405, "GET, HEAD")
        assert answered.json["error"]["code"] == "http_405"
        check(answered)


# -- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_own_key_is_required_except_for_health(path: str) -> None:
    async with house(keyed=True) as home:
        caller = Keys((), b"salt").caller([(b"authorization", b"Bearer " + KEY.encode())])
        await put(home.store, "s1", stream_of("s1", caller=caller or ""))
        for key in ("", "wrong", KEY[:-1], KEY + "x", "x" * 60_000):
            answered = await home.get(path, key=key)
            assert answered.status == (200 if path in OPEN else 401)
            if path not in OPEN:
                assert answered.json["error"]["code"] == "invalid_api_key"
                assert answered.headers["www-authenticate"] == "Bearer"
            check(answered)
        assert (await home.get(path, key=KEY)).status == 200


async def test_without_keys_the_credential_identifies_the_caller(home: House) -> None:
    assert (await home.get("/wiretape/streams/s1", key="mine")).status == 200
    assert (await home.get("/wiretape/streams/s1", key="", x_api_key="mine")).status == 200
    for key in ("", "theirs"):
        assert (await home.get("/wiretape/streams/s1", key=key)).status == 404
        assert (await home.get("/wiretape/streams", key=key)).json["streams"] == []


# -- health and metrics -----------------------------------------------------------------------------------------------


FULL = Health("/data/x: full", full=True)
READY: list[tuple[Health, bool, list[str]]] = [
    (Health(), False, []),
    (Health(), True, ["draining"]),
    (FULL, False, ["tape_not_writable"]),
    (Health("/data is gone", gone=True), False, ["data_folder_gone"]),
    (FULL, True, ["draining", "tape_not_writable"]),
]


@pytest.mark.parametrize(("health", "draining", "reasons"), READY)
async def test_readyz_gives_reasons_without_paths(health: Health, draining: bool, reasons: list[str]) -> None:
    store = MemoryStore()
    store.health = health
    home = House(store)
    home.running.draining = draining
    assert readiness(home.store, home.running) == reasons
    answered = await home.get("/wiretape/readyz", key="")
    assert answered.status == (503 if reasons else 200)
    assert answered.json == {"ready": not reasons, "reasons": reasons}
    assert (await home.get("/wiretape/healthz", key="")).json == {"alive": True}


# -- internal errors --------------------------------------------------------------------------------------------------


class Broken(MemoryStore):
    """A store with a bug."""

    async def list(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("sk-secret in a message")


async def test_internal_error_is_a_500_and_a_log_line_only() -> None:
    home = House(Broken())
    answered = await home.get("/wiretape/streams")
    assert (answered.status, answered.json["error"]["code"]) == (500, "internal")
    assert b"sk-secret" not in answered.body
    check(answered)
    ((event, fields),) = home.said.lines
    assert (event, fields["error"], fields["path"]) == ("control_failed", "ZeroDivisionError", "/wiretape/streams")
    assert (await home.get("/wiretape/healthz")).status == 200


# -- over the real connection -----------------------------------------------------------------------------------------

MINE = "Authorization: Bearer mine"


async def test_connection_is_reused_after_each_response(autojump_clock: MockClock, home: House) -> None:
    await put(home.store, "live", stream_of("live", caller=ME, end=False))
    async with connected(home.app) as connect:
        client = await connect()
        for path in PATHS * 2:
            await client.send(request("GET", path, MINE))
            answer = await client.response()
            assert (answer.status, answer.ended) == (200, "chunked" if path in PATHS[-2:] else "length"), path
        with trio.fail_after(5):
            for path in ("/wiretape/streams/live/events", *PATHS):
                await client.send(request("HEAD", path, MINE))
                assert (await client.response(method="HEAD")).ended == "none"
    assert autojump_clock.current_time() < 5


async def test_examples_in_the_document_work(home: House) -> None:
    written = (ROOT / "docs/reference/http-api.md").read_text(encoding="utf-8")
    examples = re.findall(r"^\$ curl (.*?)\"?\$W(/[^\s\"]*)", written, re.MULTILINE)
    assert {path.partition("?")[0].replace("$ID", "s1") for _, path in examples} == set(PATHS)
    for options, path in examples:
        headers = dict(re.findall(r'-H "([A-Za-z-]+): ([^"]*)"', options))
        answered = await home.get(
            path.replace("$ID", "s1"),
            key="mine" if "$AUTH" in options else "",
            **{k.replace("-", "_"): v for k, v in headers.items()},
        )
        assert answered.status == 200, path


async def test_document_lists_every_metric(home: House) -> None:
    written = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    home.metrics.folder = ROOT
    home.metrics.refused(503)
    nothing: Any = SimpleNamespace(lag_s=0, connected=True, fenced=False, records=0, refused=(), expired_streams=0)
    home.metrics.shipping = nothing
    answered = await home.get("/wiretape/metrics")
    assert answered.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    said = answered.body.decode()
    assert 'wiretape_refused_total{status="503"} 1.0\n' in said
    names = set(re.findall(r"^# TYPE (\w+)", said, re.MULTILINE))
    assert set(re.findall(r"`((?:wiretape|process)_\w+)", written)) == names


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
