"""The official openai SDK for Python, reading bytes out of memory."""

from collections.abc import Iterable
from typing import Any

import httpx2  # comes with openai, which is built on it
import openai
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from wiretape.events.core.json_text import as_object, joined_surrogates

from .said import Answer, Reading

VERSION = openai.__version__


def read(body: bytes) -> Reading:
    """What it makes of these bytes: its iterator, its helper and the loop of every tutorial, none stopping another."""
    reading = Reading()
    state = ChatCompletionStreamState[None]()
    try:
        for chunk in _chunks(body):
            _loop(reading, chunk)
            _helper(reading, state, chunk)
            if chunk.usage is not None:
                reading.usage = chunk.usage.to_dict()
    except Exception as failure:  # noqa: BLE001 - that none but a due one is raised is what is measured
        reading.stream_error = type(failure).__name__
    try:
        state.get_final_completion()
    except Exception as failure:  # noqa: BLE001
        reading.final_error = type(failure).__name__
    try:
        snapshot: dict[str, Any] = state.current_completion_snapshot.model_dump(warnings=False)
    except AssertionError:  # not one chunk came
        return reading
    reading.answers = {choice["index"]: _answer(choice) for choice in snapshot["choices"]}
    return reading


def _chunks(body: bytes) -> Iterable[ChatCompletionChunk]:
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    with (
        httpx2.Client(transport=httpx2.MockTransport(lambda _: answer)) as http,
        openai.OpenAI(api_key="x", base_url="http://localhost/v1", http_client=http, max_retries=0) as client,
    ):
        yield from client.chat.completions.create(model="m", messages=[], stream=True)


def _loop(reading: Reading, chunk: ChatCompletionChunk) -> None:
    try:
        _ = chunk.choices[0].delta.content
    except Exception as failure:  # noqa: BLE001
        reading.loop_error = reading.loop_error or type(failure).__name__


def _helper(reading: Reading, state: ChatCompletionStreamState[None], chunk: ChatCompletionChunk) -> None:
    if reading.helper_error:  # a person's program has stopped here
        return
    try:
        state.handle_chunk(chunk)
    except Exception as failure:  # noqa: BLE001
        reading.helper_error = type(failure).__name__


def _answer(choice: dict[str, Any]) -> Answer:
    message: dict[str, Any] = choice["message"]
    legacy = as_object(message.get("function_call"))
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    functions = [as_object(call.get("function")) for call in calls]
    return Answer(
        role=message.get("role"),
        text=_joined(message.get("content") or ""),
        reasoning=_joined(message.get("reasoning_content") or ""),
        refusal=message.get("refusal") or "",
        calls=[
            (call.get("id") or "", function.get("name") or "", _joined(function.get("arguments") or ""))
            for call, function in zip(calls, functions, strict=True)
        ],
        legacy=(legacy.get("name", ""), legacy.get("arguments", "")) if legacy else None,
        types={call.get("type") for call in calls},
        finish=choice["finish_reason"] or "",
    )


def _joined(text: Any) -> Any:
    """Python keeps the halves of a character that came in two deltas apart; it is the same text in UTF-16."""
    return joined_surrogates(text) if isinstance(text, str) else text
