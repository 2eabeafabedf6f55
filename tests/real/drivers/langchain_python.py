"""LangChain for Python: `ChatOpenAI(...).bind_tools(...).stream()`, its chunks added up by LangChain itself."""

import importlib
import json
from typing import Any

from .lines import retries, run, serve, tool_of, turn


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


def answer(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> None:
    """Ask until a turn calls no tool."""
    langchain = importlib.import_module("langchain_openai")
    core = importlib.import_module("langchain_core.messages")
    model = langchain.ChatOpenAI(
        model=asked["model"],
        base_url=asked["base_url"],
        api_key=asked["key"],
        timeout=asked["timeout"],
        stream_usage=asked["usage"],
        **retries(asked),
    )
    messages = [core.HumanMessage(asked["prompt"])]
    first = model
    if asked["tool"]:
        tool = tool_of(asked)
        first, model = model.bind_tools([tool], tool_choice=tool["function"]["name"]), model.bind_tools([tool])
    said = _once(first, messages, turns)
    while said is not None and said.tool_calls and len(turns) < asked["turns"]:
        messages.append(said)
        for call in said.tool_calls:
            ran.append(json.dumps(call["args"]))
            messages.append(core.ToolMessage(run(asked, ran[-1]), tool_call_id=call["id"]))
        said = _once(model, messages, turns)


if __name__ == "__main__":
    serve(answer)
