"""The words of a request in every dialect: gone with --redact-prompts, while a replay still finds the stream."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pytest

from tests.replay.test_redact import clean, every_string, tape
from wiretape.events.core.json_text import dumps, is_list, is_object
from wiretape.events.tape.tape import Recorder
from wiretape.replay.redaction.redact import redact
from wiretape.replay.redaction.user_rules import Redaction

#: In all words of the requests below, and nowhere else.
WORD: Final = "Ulm"
PROMPTS: Final = Redaction(prompts=True)
_SCHEMA: Final = {
    "type": "object",
    "required": ["city", "type"],
    "properties": {
        "city": {"type": "string", "description": "of Ulm", "enum": ["Ulm", "Rome"], "default": "Ulm"},
        "type": {"type": ["string", "null"], "title": "Ulm", "$ref": "#/$defs/three"},
        "when": {"type": "string", "format": "date-time"},
    },
    "$defs": {"three": {"type": "integer", "const": 3}},
}

#: A request of each dialect.
ASKED: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "chat": {
            "model": "m",
            "reasoning_effort": "low",
            "user": "Ulm",
            "metadata": {"title": "Ulm", "type": "Ulm"},
            "stop": ["Ulm"],
            "response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": _SCHEMA}},
            "tools": [{"type": "function", "function": {"name": "f", "description": "of Ulm", "parameters": _SCHEMA}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "messages": [
                {"role": "user", "name": "Ulm", "content": "Ulm"},
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:Ulm", "detail": "low"}}]},
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "Ulm",
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"city":"Ulm"}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "Ulm is sunny"},
            ],
        },
        "responses": {
            "model": "m",
            "instructions": "be Ulm",
            "previous_response_id": "resp_1",
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "weather", "schema": _SCHEMA}, "verbosity": "low"},
            "tools": [{"type": "function", "name": "f", "description": "Ulm", "parameters": _SCHEMA}],
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Ulm"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Ulm"}]},
                {"type": "function_call", "id": "fc_1", "call_id": "c_1", "name": "f", "arguments": '{"a":"Ulm"}'},
                {"type": "function_call_output", "call_id": "c_1", "output": "Ulm"},
                {"type": "function_call_output", "call_id": "c_1", "output": [{"type": "Ulm", "text": "Ulm"}]},
                {"type": "custom_tool_call", "call_id": "c_2", "name": "g", "input": "Ulm"},
            ],
        },
        "messages": {
            "model": "m",
            "system": [{"type": "text", "text": "Ulm", "cache_control": {"type": "ephemeral", "ttl": "5m"}}],
            "metadata": {"user_id": "Ulm"},
            "thinking": {"type": "enabled", "budget_tokens": 9},
            "tools": [
                {"name": "f", "description": "Ulm", "input_schema": _SCHEMA, "input_examples": [{"city": "Ulm"}]}
            ],
            "messages": [
                {"role": "user", "content": "Ulm"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {
                    "city": "Ulm", "type": "Ulm", "id": "Ulm", "deep": [{"name": "Ulm"}]}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Ulm"}]},
                {"role": "user", "content": [{"type": "image", "source": {
                    "type": "base64", "media_type": "image/png", "data": "Ulm="}}]},
            ],
        },
        "unheard of": {
            "model": "m",
            "what_to_do": {"say": "Ulm", "type": "I live in Ulm", "to": ["Ulm", {"a": "Ulm"}]},
        },
        "an array": [{"role": "user", "content": "Ulm"}, "Ulm"],
        "a string": "Ulm",
    }
)  # fmt: skip
#: Their strings that are no words.
_SHORT: Final = frozenset(
    {"m", "f", "g", "low", "5m", "weather", "object", "city", "type", "string", "null", "integer", "date-time",
     "#/$defs/three", "json_schema", "function", "user", "assistant", "tool", "model", "image_url", "image",
     "call_1", "resp_1", "rs_1", "fc_1", "c_1", "c_2", "toolu_1", "message", "input_text", "reasoning",
     "summary_text", "function_call", "function_call_output", "custom_tool_call", "text", "ephemeral", "enabled",
     "tool_use", "tool_result", "base64", "image/png"}
)  # fmt: skip


def _sealed(body: bytes) -> bytes:
    [done] = redact([tape(request=body)], PROMPTS)
    return done[1].raw or b""


@pytest.mark.parametrize("dialect", sorted(ASKED))
def test_words_are_replaced_and_everything_else_stays(dialect: str) -> None:
    body = dumps(ASKED[dialect])
    clean(tape(request=body), WORD, redaction=PROMPTS)
    left = json.loads(_sealed(body))
    kept = [said for said in every_string(left) if "[prompt sha256:" not in said]
    assert kept == [said for said in every_string(ASKED[dialect]) if said in _SHORT], "what is no word stays"
    assert _shape(left) == _shape(ASKED[dialect])


def _shape(value: Any) -> Any:
    if is_object(value):
        return {name: _shape(each) for name, each in value.items()}
    return [_shape(each) for each in value] if is_list(value) else value.__class__.__name__


@pytest.mark.parametrize(
    "body",
    [
        b'--b1\r\nContent-Disposition: form-data; name="prompt"\r\n\r\nin Ulm\r\n--b1--\r\n',
        b'{"custom_id":"a","body":{"input":"Ulm"}}\n{"custom_id":"b","body":{"input":"Ulm"}}\n',
        b"model=m&prompt=I+live+in+Ulm",
        b"I live in Ulm",
        b"\xff\x00Ulm",
        b'{"prompt": "I live in Ulm',
    ],
    ids=["parts", "lines", "a form", "plain", "bytes", "JSON that was cut"],
)
@pytest.mark.parametrize("kind", ["request", "upload"])
def test_a_body_that_is_not_json_is_replaced_whole(body: bytes, kind: str) -> None:
    recorder = Recorder()
    if kind == "request":
        records = tape(request=body)
    else:
        records = [
            recorder.record("open", 0, {"format": 1}),
            *(recorder.record("upload", at, body=body[at : at + 30], verbatim=False) for at in range(0, len(body), 30)),
        ]
    [done] = redact([records], PROMPTS)
    left = b"".join(record.raw or b"" for record in done if record.kind == kind)
    assert b"Ulm" not in left
    assert left.startswith(b"[prompt sha256:")
    assert redact([done], PROMPTS) == [done]


def test_text_around_a_placeholder_is_words() -> None:
    placeholder = "[prompt sha256:0123456789abcdef 42 chars]"
    body = dumps({"messages": [{"content": f"{placeholder} and Ulm"}, {"content": placeholder}]})
    left = json.loads(_sealed(body))
    assert "Ulm" not in left["messages"][0]["content"]
    assert left["messages"][1]["content"] == placeholder
