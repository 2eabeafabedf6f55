"""Verify recordings against live upstreams: the same shape, drift, and requests that cannot be sent."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.replay.test_compare import CALL, TEXT, USAGE, recorded
from tests.support.chat import DONE, finish, text
from tests.support.tapes import Turn, records_of
from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Recorder
from wiretape.proxy.cli.main import app
from wiretape.proxy.config.model import Secret
from wiretape.replay.compare.compare import verdict
from wiretape.replay.compare.verify import verify
from wiretape.replay.playback.script import Fault, Request, Script, event_stream, json_answer
from wiretape.replay.playback.server import Upstream, listening
from wiretape.replay.seal import seal
from wiretape.replay.sealed.files import Age, Recording, age_of, parse
from wiretape.replay.sealed.sealed import encode as sealed_file

pytestmark = pytest.mark.slow

#: Another response of the same shape.
AGAIN = [text("Good", role=True), text(" day"), text("."), finish(), DONE]


async def asked(recording: Recording, script: Script, key: Secret | None = None) -> tuple[int, list[str], Upstream]:
    async with listening(lambda _: script) as (url, upstream):
        found = await verify(recording, url, key)
    return verdict(found), [difference.path for difference in found], upstream


@pytest.mark.parametrize(
    ("script", "code", "paths"),
    [
        (event_stream(AGAIN), 0, []),
        (event_stream([b"".join(AGAIN)]), 0, []),
        (event_stream([*AGAIN[:4], USAGE, DONE]), 1, ["usage", "order of kinds"]),
        (event_stream([each.replace(b'"created":7', b'"created":"7"') for each in AGAIN]), 2, ["created"]),
        (event_stream(AGAIN[:3]), 2, None),
        (event_stream(AGAIN[:2], end=Fault.RESET), 2, None),
        (json_answer(b'{"error":{"message":"no such model"}}', 404), 2, None),
    ],
)
async def test_shapes_are_compared(script: Script, code: int, paths: list[str] | None) -> None:
    found, said, _ = await asked(Recording({}, [recorded(TEXT)]), script)
    assert found == code
    assert paths is None or said == paths


async def test_the_recorded_request_is_sent_with_the_given_key() -> None:
    records = recorded(CALL, content="save it")
    _, _, upstream = await asked(Recording({}, [records]), event_stream(CALL), Secret("sk-live-key-of-this-test"))
    (request,) = [outcome.request for outcome in upstream.seen]
    assert (request.method, request.target, request.body) == (b"POST", b"/v1/chat/completions", records[1].raw)
    assert (b"authorization", b"Bearer sk-live-key-of-this-test") in [(n.lower(), v) for n, v in request.headers]


def responses(id_: str, *asked: dict[str, Any]) -> list[list[Record]]:
    """Return a Responses stream for each request, each with its own response id."""
    turns = [
        Turn(body, [(0.0, frame) for frame in said(f"{id_}{number}")], path="/v1/responses", dialect="")
        for number, body in enumerate(asked, 1)
    ]
    return [records_of(turn) for turn in turns]


def said(id_: str) -> list[bytes]:
    return [
        b'data: {"type":"response.created","response":{"id":"%b"}}\n\n' % id_.encode(),
        b'data: {"type":"response.completed","response":{"id":"%b"}}\n\n' % id_.encode(),
    ]


def strict(seen: list[str]) -> Callable[[Request], Script]:
    """Return an upstream that knows only its own responses."""

    def choose(request: Request) -> Script:
        before = json.loads(request.body).get("previous_response_id")
        if before is not None and before not in seen:
            return json_answer(b'{"error":{"message":"no such answer"}}', 400)
        seen.append(f"resp_live{len(seen)}")
        return event_stream(said(seen[-1]))

    return choose


@pytest.mark.parametrize("sealed", [False, True])
async def test_ids_of_live_responses_replace_recorded_ones(sealed: bool) -> None:
    streams = responses(
        "resp_0123456789abcdef",
        {"stream": True, "input": "a"},
        {"stream": True, "input": "b", "previous_response_id": "resp_0123456789abcdef1"},
        {"stream": True, "input": "c", "previous_response_id": "resp_0123456789abcdef1"},
    )
    recording = parse(seal(streams)) if sealed else Recording({}, streams)
    async with listening(strict([])) as (url, upstream):
        assert await verify(recording, url) == []
    bodies = [json.loads(outcome.request.body) for outcome in upstream.seen]
    assert [body.get("previous_response_id") for body in bodies] == [None, "resp_live0", "resp_live0"]


async def test_the_name_that_the_upstream_has_for_a_model_is_sent() -> None:
    records = recorded(TEXT)
    at = next(at for at, record in enumerate(records) if record.kind == "attempt")
    records[at] = records[at]._replace(keys={**records[at].keys, "model": "theirs"})
    _, _, upstream = await asked(Recording({}, [records]), event_stream(AGAIN))
    assert [json.loads(outcome.request.body)["model"] for outcome in upstream.seen] == ["theirs"]


async def test_an_unknown_id_is_an_error() -> None:
    streams = responses("resp_", {"stream": True, "input": "b", "previous_response_id": "resp_7"})
    async with listening(strict([])) as (url, upstream):
        with pytest.raises(TapeError, match="stream 1 cannot be sent again: it names resp_7, which no response"):
            await verify(Recording({}, streams), url)
    assert not upstream.seen


async def test_a_drifted_response_is_reported_instead_of_its_lost_id() -> None:
    streams = responses("resp_", {"input": "a"}, {"input": "b", "previous_response_id": "resp_1"})
    found, paths, upstream = await asked(Recording({}, streams), json_answer(b'{"error":{"message":"gone"}}', 404))
    assert (found, paths[0], len(upstream.seen)) == (2, "status", 1)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/v1/chat/completions", b"/v1/chat/completions"),
        ("/groq/v1/chat/completions?a=b", b"/v1/chat/completions?a=b"),
        ("/openai/deployments/x/chat/completions", b"/v1/chat/completions"),
    ],
)
async def test_the_live_base_path_replaces_the_recorded_prefix(path: str, target: bytes) -> None:
    records = [
        each._replace(keys={**each.keys, "path": path}) if each.kind == "request" else each for each in recorded(TEXT)
    ]
    _, _, upstream = await asked(Recording({}, [records]), event_stream(TEXT))
    assert [outcome.request.target for outcome in upstream.seen] == [target]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"sha256": "00", "bytes": 2}, "is not on the tape"),
        ({"streamed": True}, "is not on the tape"),
        (None, "no request"),
    ],
)
async def test_a_request_that_cannot_be_sent_fails_first(keys: dict[str, Any] | None, said: str) -> None:
    recorder = Recorder()
    records = [recorder.record("open", 0, {"format": 1, "stream": "s", "dialect": "chat"})]
    if keys is not None:
        records.append(recorder.record("request", 0, {"method": "POST", "path": "/v1/chat/completions", **keys}))
    with pytest.raises(TapeError, match=said):
        await verify(Recording({}, [records]), "http://127.0.0.1:9/v1")


async def test_without_an_upstream_there_is_an_error() -> None:
    with pytest.raises(TapeError, match="stream 1: no connection"):
        await verify(Recording({}, [recorded(TEXT)]), "http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("header", "age", "due"),
    [
        ({"recorded": "2026-11-08", "max_age_days": 7}, Age(10, 7), True),
        ({"recorded": "2026-11-11", "max_age_days": 7}, Age(7, 7), False),
        ({"recorded": "2026-11-11"}, Age(7, None), True),
        ({"recorded": "soon", "max_age_days": "7"}, Age(None, None), True),
        ({}, Age(None, None), True),
    ],
)
def test_age_limit(header: dict[str, Any], age: Age, due: bool) -> None:
    found = age_of(header, date(2026, 11, 18))
    assert (found, found.due) == (age, due)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--live", "http://example.com/v1"], "https://"),
        (["--live", "http://127.0.0.1:9/v1", "--key-env", "NOT_THERE_AT_ALL"], "NOT_THERE_AT_ALL is not set"),
    ],
)
def test_bad_usage(tmp_path: Path, arguments: list[str], said: str) -> None:
    tape = tmp_path / "a.tape"
    tape.write_bytes(b"".join(map(encode, recorded(TEXT))))
    done = CliRunner().invoke(app, ["verify", str(tape), *arguments])
    assert done.exception is not None
    assert said in str(done.exception)


def test_a_tape_that_is_not_due_is_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = tmp_path / "a.tape"
    tape.write_bytes(
        sealed_file({"recorded": datetime.now(UTC).date().isoformat(), "max_age_days": 7}, [recorded(TEXT)])
    )
    arguments = ["verify", str(tape), "--live", "http://127.0.0.1:9/v1", "--due", "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["asked"] is False
