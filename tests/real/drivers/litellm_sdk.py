"""The LiteLLM SDK: `litellm.completion(stream=True)`, its chunks added up by `litellm.stream_chunk_builder`."""

import importlib
import os
from typing import Any

from .lines import converse, retries, serve, tool_of, turn

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it is fetched at import


def answer(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> None:
    """Hold one conversation."""
    litellm: Any = importlib.import_module("litellm")
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    options: dict[str, Any] = {
        "model": f"openai/{asked['model']}",
        "api_base": asked["base_url"],
        "api_key": asked["key"],
        "timeout": asked["timeout"],
        "tools": [tool_of(asked)],
        **retries(asked),
    }

    def once(messages: list[Any]) -> None:
        chunks = list(litellm.completion(stream=True, messages=messages, **options))
        [choice] = litellm.stream_chunk_builder(chunks).choices
        found: list[Any] = choice.message.tool_calls or []
        calls = [[call.id, call.function.name, call.function.arguments] for call in found]
        turns.append(turn(choice.message.content or "", calls, choice.finish_reason or "", None))

    converse(asked, turns, ran, once)


if __name__ == "__main__":
    serve(answer)
