"""LangChain for Python: `ChatOpenAI(...).bind_tools(...).stream()`, its chunks added up by LangChain itself."""

import importlib
import json
from typing import Any

from .lines import TOOL, error, result_of, serve, turn

__all__: list[str] = []


def _once(model: Any, messages: list[Any], turns: list[Any]) -> Any:
    whole: Any = None
    try:
        for chunk in model.stream(messages):
            whole = chunk if whole is None else whole + chunk
    finally:
        if whole is not None:
            usage = whole.usage_metadata
            turns.append(
                turn(
                    whole.content,
                    [[call["id"], call["name"], json.dumps(call["args"])] for call in whole.tool_calls],
                    whole.response_metadata.get("finish_reason", ""),
                    None if usage is None else [usage["input_tokens"], usage["output_tokens"]],
                )
            )
    return whole


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """At most two turns: the question, and what the tool said."""
    langchain = importlib.import_module("langchain_openai")
    core = importlib.import_module("langchain_core.messages")
    model = langchain.ChatOpenAI(
        model=asked["model"],
        base_url=asked["base_url"],
        api_key=asked["key"],
        max_retries=asked["retries"],
        timeout=30,
        stream_usage=asked["usage"],
    )
    turns: list[dict[str, Any]] = []
    ran: list[str] = []
    messages = [core.HumanMessage(asked["prompt"])]
    name = TOOL["function"]["name"]
    try:
        said = _once(model.bind_tools([TOOL], tool_choice=name) if asked["tool"] else model, messages, turns)
        if said is not None and said.tool_calls:
            messages.append(said)
            for call in said.tool_calls:
                ran.append(json.dumps(call["args"]))
                messages.append(core.ToolMessage(result_of(ran[-1]), tool_call_id=call["id"]))
            _once(model.bind_tools([TOOL]), messages, turns)
    except Exception as failure:  # noqa: BLE001 - what is raised is what is asked for
        return {"turns": turns, "ran": ran, "error": error(failure)}
    return {"turns": turns, "ran": ran, "error": None}


if __name__ == "__main__":
    serve(answer)
