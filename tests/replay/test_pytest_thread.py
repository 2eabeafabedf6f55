"""The thread that all tests of a run share: paths, connections, and recording proxies."""

# ruff: noqa: S501 - nothing here is encrypted, and reading the trust store takes 30 ms a client
import threading
from collections.abc import Iterator

import httpx
import pytest

from wiretape.replay.playback.script import json_answer
from wiretape.replay.pytest_plugin import thread as pytest_thread
from wiretape.replay.pytest_plugin.thread import Thread

pytestmark = pytest.mark.slow


@pytest.fixture
def thread() -> Iterator[Thread]:
    made = Thread()
    yield made
    made.close()
    assert not any(each.name == "wiretape-tape" and each.is_alive() for each in threading.enumerate())


def test_tests_share_a_port_with_their_own_responses(thread: Thread) -> None:
    one = thread.serve("1", lambda request: json_answer(b'{"one":"%b"}' % request.target))
    two = thread.serve("2", lambda _: json_answer(b'{"two":2}'))
    with httpx.Client(verify=False) as client:
        assert client.get(one + "/v1/models").json() == {"one": "/v1/models"}
        assert client.get(two + "/v1/models").json() == {"two": 2}
        thread.forget("1")
        assert client.get(one + "/v1/models").status_code == 404
        assert client.get(two + "/v1/models").json() == {"two": 2}


def test_proxy_records_streams_in_order_of_requests(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest_thread, "PAGE_MAX", 2)  # the store returns 1,000 streams at a time, the latest first
    origin = thread.serve("up", lambda request: json_answer(b'{"said":%b}' % request.body))
    proxy = thread.record(origin + "/v1")
    for number in range(5):
        answer = httpx.post(proxy.url + "/v1/things", content=b"%d" % number, verify=False)
        assert answer.json() == {"said": number}
    assert len(proxy.streams()) == 5
    streams = proxy.stop()
    bodies = [record.raw for records in streams for record in records if record.kind == "request"]
    assert bodies == [b"%d" % number for number in range(5)]
    assert proxy.stop() == streams == proxy.streams()
    with pytest.raises(httpx.ConnectError):
        httpx.get(proxy.url, verify=False)
