"""Normalising: a new recording of the same content changes only the clock, one changed token one line."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from tests.replay.captured import each_protocol, recorded
from tests.support.corpus import sampled
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.replay.normalize.normalize import normalise
from wiretape.replay.sealed.sealed import decode, encode

# -- one conversation, recorded with any seed -------------------------------------------------------------------------


def _chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - no secrets here


def _word(chance: random.Random, prefix: str) -> str:
    letters = "abcdefghijkmnpqrstuvwxyzABCDEFGH23456789"
    return prefix + "".join(chance.choice(letters) for _ in range(chance.choice([20, 24])))


def _chat(chance: random.Random, call: str, word: str) -> bytes:
    base = {
        "id": _word(chance, "chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": chance.randrange(10**9, 2 * 10**9),
    }
    base |= {"model": "m", "system_fingerprint": _word(chance, "fp_")}

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> Any:
        padding = "x" * chance.randrange(1, 20)
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return {**base, "choices": choices, "obfuscation": padding, "x_groq": {"id": _word(chance, "req_")}}

    function = {"name": "look", "arguments": ""}
    values = [
        chunk({"role": "assistant", "content": ""}),
        *[chunk({"content": piece}) for piece in ("It ", word, " ä so:")],
        chunk({"tool_calls": [{"index": 0, "id": call, "type": "function", "function": function}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"id":"kept"}'}}]}),
        chunk({}, "tool_calls"),
    ]
    return b"".join(b"data: %b\n\n" % dumps(value) for value in values) + b"data: [DONE]\n\n"


def conversation(seed: int, word: str = "rains") -> list[list[Record]]:
    """Return two turns that differ from another recording only by the seed."""
    chance = _chance(seed)
    call = _word(chance, "call_")
    function = {"name": "look", "arguments": '{"id":"kept"}'}
    question = {"role": "user", "content": "?"}
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call, "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": call, "content": '{"id":"kept"}'}
    turns: list[Any] = [[question], [question, called, result]]
    bodies = [dumps({"model": "m", "stream": True, "messages": messages}) for messages in turns]
    return [_recording(chance, body, _chat(chance, call, word), call) for body in bodies]


def _recording(chance: random.Random, body: bytes, answer: bytes, call: str) -> list[Record]:
    recorder = Recorder()
    opened = {
        "format": 1,
        "stream": _word(chance, "s"),
        "created": chance.randrange(10**9),
        "dialect": "chat",
    }
    headers = [
        ["content-type", "text/event-stream"],
        ["x-request-id", _word(chance, "req_")],
        ["x-ratelimit-limit-requests", "100"],
        ["x-ratelimit-remaining-requests", str(chance.randrange(100))],
        ["x-ratelimit-reset-requests", f"{chance.randrange(100)}ms"],
        ["openai-processing-ms", str(chance.randrange(1_000))],
    ]
    rows = [
        {"id": call, "name": "look", "output": "ok", "stream": _word(chance, "s"), "duration_ms": chance.randrange(99)}
    ]
    t = chance.randrange(1_000)
    records = [
        recorder.record("open", 0, opened),
        recorder.record("request", t, {"method": "POST", "path": "/v1/x"}, body),
        recorder.record("results", t, {"results": rows, "after": 1, "request": _word(chance, "")}),
        recorder.record("attempt", t, {"number": 1, "upstream": f"127.0.0.1:{chance.randrange(1, 65_536)}/v1"}),
        recorder.record("head", t, {"status": 200, "headers": headers}),
    ]
    places = sorted({chance.randrange(1, len(answer)) for _ in range(chance.randrange(90))})
    for start, end in zip([0, *places], [*places, len(answer)], strict=True):
        t += chance.randrange(99_999)
        records += recorder.read(t, answer[start:end])
        if chance.randrange(9) == 0:
            records.append(recorder.record("keepalive", t))
    return [*records, *recorder.rest(t), recorder.end(t, {"cause": "eof", "ending": "completed", "flags": []})]


def body_lines(data: bytes) -> list[bytes]:
    """Return all lines but the header and the clocks."""
    return [line for line in data.splitlines() if not line.startswith((b'{"wiretape"', b'{"k":"clock"'))]


def sealed(streams: Sequence[Sequence[Record]]) -> bytes:
    """Seal with nothing but normalising."""
    data = encode({}, normalise(streams))
    decode(data)
    return data


@pytest.mark.parametrize("seed", range(8))
def test_a_new_recording_of_the_same_content_changes_no_body_line(seed: int) -> None:
    first, second = (sealed(conversation(number)) for number in (1_000, seed))
    assert body_lines(first) == body_lines(second)
    assert first != second  # the clock


@pytest.mark.parametrize(
    "asked",
    [
        {"messages": [{"role": "tool", "tool_call_id": "ID", "content": "ok"}]},
        {"input": [{"type": "function_call_output", "call_id": "ID", "output": "ok"}]},
        {"previous_response_id": "ID"},
    ],
)
def test_ids_of_earlier_turns_are_renamed_in_a_request(asked: dict[str, Any]) -> None:
    chance = _chance(1)
    id_ = _word(chance, "call_")
    body = dumps(asked).replace(b"ID", id_.encode())
    [done] = normalise([_recording(chance, body, _chat(chance, id_, "rains"), id_)])
    assert done[1].raw == dumps(asked).replace(b"ID", b"call_1")


def test_one_changed_token_changes_one_body_line() -> None:
    first = body_lines(sealed(conversation(1)[:1]))
    second = body_lines(sealed(conversation(2, "pours")[:1]))
    changed = [json.loads(new)["k"] for old, new in zip(first, second, strict=True) if old != new]
    assert changed == ["frame", "end", "fold"]


ATTEMPTS = {
    "127.0.0.1:33279/v1": "127.0.0.1/v1",
    "http://localhost:11434/v1": "http://localhost/v1",
    "[::1]:8000": "[::1]",
    "127.0.1.1:80/a:1": "127.0.1.1/a:1",
    "api.example.com:8443/v1": "api.example.com:8443/v1",
    "10.127.0.0.1:8443": "10.127.0.0.1:8443",
    "openai": "openai",
}


def test_loopback_ports_are_removed() -> None:
    recorder = Recorder()
    message = "no connection to 127.0.0.1:44511: Error connecting to ('127.0.0.1', 44511): Connection refused"
    expected = "no connection to 127.0.0.1: Error connecting to ('127.0.0.1'): Connection refused"
    asked = [recorder.record("attempt", 0, {"upstream": upstream}) for upstream in ATTEMPTS]
    [once] = normalise(
        [[*asked, recorder.record("failed", 0, {"message": message}), recorder.record("attempt", 0, {})]]
    )
    assert [record.keys.get("upstream") for record in once] == [*ATTEMPTS.values(), None, None]
    assert once[-2].keys == {"message": expected}
    assert normalise([once]) == [once]


# -- the corpus -------------------------------------------------------------------------------------------------------

_ID: Final = re.compile(
    rb'("(?:id|call_id|item_id|tool_call_id)": ?")((?:chatcmpl-|call_|toolu_|msg_|resp_|fc_|rs_)[^"\\]+)"'
)
_CREATED: Final = re.compile(rb'("created(?:_at)?": ?)[1-9]\d{9}\b')
_FINGERPRINT: Final = re.compile(rb'("system_fingerprint": ?")[^"\\]+"')
_OBFUSCATION: Final = re.compile(rb'("obfuscation": ?")[^"\\]*"')


def again(body: bytes, seed: int) -> bytes:
    """Return the same content as in another recording."""
    chance = _chance(seed)
    for _, name in sorted(set(_ID.findall(body)), key=lambda found: -len(found[1])):
        prefix = re.match(rb"[a-z]+[-_]", name)
        assert prefix is not None
        body = re.sub(b'"%b"' % re.escape(name), b'"%b"' % _word(chance, prefix[0].decode()).encode(), body)
    body = _CREATED.sub(lambda match: match[1] + b"%d" % chance.randrange(10**9, 2 * 10**9), body)
    body = _FINGERPRINT.sub(b"\\g<1>" + _word(chance, "fp_").encode() + b'"', body)
    return _OBFUSCATION.sub(lambda match: match[1] + b"q" * chance.randrange(30) + b'"', body)


@each_protocol
def test_a_new_recording_of_a_capture_changes_no_body_line(protocol: str) -> None:
    other: list[bool] = []
    for seed, capture in sampled(protocol):
        body = again(capture.body, seed)
        first = body_lines(sealed([recorded(capture.body, protocol, seed)]))
        second = body_lines(sealed([recorded(body, protocol, seed + 1)]))
        assert first == second, capture.id
        other.append(body != capture.body)
    assert sum(other) > 0.9 * len(other)
