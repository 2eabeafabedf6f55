"""LangChain for Python: `ChatOpenAI(...).bind_tools(...).stream()`, its chunks added up by LangChain itself."""

import importlib
import json
from typing import Any

from .lines import error, retries, run, serve, tool_of, turn

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
    """Turns, until one calls nothing more."""
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
    turns: list[dict[str, Any]] = []
    ran: list[str] = []
    messages = [core.HumanMessage(asked["prompt"])]
    try:
        if asked["tool"]:
            tool = tool_of(asked)
            said = _once(model.bind_tools([tool], tool_choice=tool["function"]["name"]), messages, turns)
            model = model.bind_tools([tool])
        else:
            said = _once(model, messages, turns)
        while said is not None and said.tool_calls and len(turns) < asked["turns"]:
            messages.append(said)
            for call in said.tool_calls:
                ran.append(json.dumps(call["args"]))
                messages.append(core.ToolMessage(run(asked, ran[-1]), tool_call_id=call["id"]))
            said = _once(model, messages, turns)
    except Exception as failure:  # noqa: BLE001 - the exception is the result
        return {"turns": turns, "ran": ran, "error": error(failure)}
    return {"turns": turns, "ran": ran, "error": None}


if __name__ == "__main__":
    serve(answer)
