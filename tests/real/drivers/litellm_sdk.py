"""The LiteLLM SDK: `litellm.completion(stream=True)`, its chunks added up by `litellm.stream_chunk_builder`."""

import importlib
import os
from typing import Any

from .lines import error, retries, run, serve, tool_of, turn

__all__: list[str] = []

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it is fetched at import


def _once(litellm: Any, options: dict[str, Any], turns: list[Any]) -> Any:
    whole = litellm.stream_chunk_builder(list(litellm.completion(stream=True, **options)))
    [choice] = whole.choices
    found: list[Any] = choice.message.tool_calls or []
    calls = [[call.id, call.function.name, call.function.arguments] for call in found]
    turns.append(turn(choice.message.content or "", calls, choice.finish_reason or "", None))
    return choice.message


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Turns, until one calls nothing more."""
    litellm: Any = importlib.import_module("litellm")
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    turns: list[dict[str, Any]] = []
    ran: list[str] = []
    messages: list[Any] = [{"role": "user", "content": asked["prompt"]}]
    options: dict[str, Any] = {
        "model": f"openai/{asked['model']}",
        "api_base": asked["base_url"],
        "api_key": asked["key"],
        "timeout": asked["timeout"],
        "messages": messages,
        "tools": [tool_of(asked)],
    }
    try:
        said = _once(litellm, options | retries(asked), turns)
        while said.tool_calls and len(turns) < asked["turns"]:
            messages.append(said.model_dump())
            for call in said.tool_calls:
                result = run(asked, call.function.arguments)
                if result is not None:
                    ran.append(call.function.arguments)
                content = result or "arguments are not JSON"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
            said = _once(litellm, options | retries(asked), turns)
    except Exception as failure:  # noqa: BLE001 - the exception is the result
        return {"turns": turns, "ran": ran, "error": error(failure)}
    return {"turns": turns, "ran": ran, "error": None}


if __name__ == "__main__":
    serve(answer)
