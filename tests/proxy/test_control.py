"""The control app: paths, methods, keys and headers, also over the real connection class."""

import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from trio.testing import MockClock

from tests.house.tree import ROOT
from tests.proxy.control_cases import KEY, ME, Answered, House, house
from tests.proxy.store_cases import put, stream_of
from tests.support.http import connected, request
from wiretape.proxy.api.control import readiness
from wiretape.proxy.security.access import Keys
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Health

PATHS = [
    "/wiretape/healthz",
    "/wiretape/readyz",
    "/wiretape/metrics",
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
    async with connected(home.app) as connect:
        client = await connect()
        for path in PATHS * 2:
            await client.send(request("GET", path, MINE))
            answer = await client.response()
            assert (answer.status, answer.ended) == (200, "chunked" if path in PATHS[5:] else "length"), path
        for path in PATHS:
            await client.send(request("HEAD", path, MINE))
            assert (await client.response(method="HEAD")).ended == "none"
    assert autojump_clock.current_time() < 5


async def test_examples_in_the_document_work(home: House) -> None:
    written = (ROOT / "docs/streams-api.md").read_text(encoding="utf-8")
    examples = re.findall(r"^    curl (.*?)\"?\$W(/[^\s\"]*)", written, re.MULTILINE)
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
    written = (ROOT / "docs/streams-api.md").read_text(encoding="utf-8")
    home.metrics.refused(503)
    answered = await home.get("/wiretape/metrics")
    assert answered.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    said = answered.body.decode()
    assert 'wiretape_refused_total{status="503"} 1.0\n' in said
    names = set(re.findall(r"^# TYPE (\w+)", said, re.MULTILINE))
    assert set(re.findall(r"`(wiretape_\w+)", written)) == names
