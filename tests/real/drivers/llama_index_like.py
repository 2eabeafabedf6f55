"""llama-index: `OpenAILike.stream_chat_with_tools()`, and its own reading of the calls, as its documentation has it."""

import importlib
import json
from typing import Any

from .lines import serve, turn, weather


def _once(llm: Any, tool: Any, messages: list[Any], turns: list[Any]) -> tuple[Any, list[Any]]:
    said: Any = None
    finish = ""
    for said in llm.stream_chat_with_tools([tool], chat_history=messages):
        choices: list[Any] = getattr(said.raw, "choices", None) or []
        finish = (choices[0].finish_reason if choices else None) or finish
    if said is None:
        return None, []
    calls = llm.get_tool_calls_from_response(said, error_on_no_tool_call=False)
    told = [[call.tool_id, call.tool_name, json.dumps(call.tool_kwargs)] for call in calls]
    turns.append(turn(said.message.content or "", told, finish, None))
    return said.message, calls


def answer(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> None:
    """Ask until a turn calls no tool."""
    like = importlib.import_module("llama_index.llms.openai_like")
    core = importlib.import_module("llama_index.core.llms")
    tools = importlib.import_module("llama_index.core.tools")
    messages = [core.ChatMessage(role="user", content=asked["prompt"])]
    tool = tools.FunctionTool.from_defaults(fn=weather(asked, ran), name="get_weather")
    llm = like.OpenAILike(
        model=asked["model"],
        api_base=asked["base_url"],
        api_key=asked["key"],
        timeout=asked["timeout"],
        is_chat_model=True,
        is_function_calling_model=True,
    )
    said, calls = _once(llm, tool, messages, turns)
    while calls and len(turns) < asked["turns"]:
        messages.append(said)
        for call in calls:
            result = tool(**call.tool_kwargs)
            more = {"tool_call_id": call.tool_id}
            messages.append(core.ChatMessage(role="tool", content=str(result), additional_kwargs=more))
        said, calls = _once(llm, tool, messages, turns)


if __name__ == "__main__":
    serve(answer)
