"""The openai SDK for Python: mode `loop` adds up what the iterator gives, `helper` is `.chat.completions.stream()`."""

from typing import Any

import openai

from .lines import add_to_call, converse, retries, serve, tool_of, turn


def _options(asked: dict[str, Any], messages: list[Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"model": asked["model"], "messages": messages}
    if asked["tool"]:
        tool = tool_of(asked)
        options["tools"] = [tool]
        if len(messages) == 1:
            options["tool_choice"] = {"type": "function", "function": {"name": tool["function"]["name"]}}
    if asked["usage"]:
        options["stream_options"] = {"include_usage": True}
    return options


def _usage(usage: Any) -> list[int] | None:
    return None if usage is None else [usage.prompt_tokens, usage.completion_tokens]


def _loop(client: openai.OpenAI, options: dict[str, Any], turns: list[Any]) -> None:
    turns.append(turn("", [], "", None))
    now = turns[-1]
    for chunk in client.chat.completions.create(stream=True, **options):
        now["usage"] = _usage(chunk.usage) or now["usage"]
        for choice in chunk.choices:
            now["text"] += choice.delta.content or ""
            now["finish"] += choice.finish_reason or ""
            for delta in choice.delta.tool_calls or []:
                function = delta.function
                pieces = (function.name, function.arguments) if function is not None else (None, None)
                add_to_call(now["calls"], delta.index, delta.id, *pieces)


def _helper(client: openai.OpenAI, options: dict[str, Any], turns: list[Any]) -> None:
    with client.chat.completions.stream(**options) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    [choice] = final.choices
    finish: Any = getattr(choice, "finish_reason", None)  # its types know of no answer without one
    calls = [[call.id, call.function.name, call.function.arguments] for call in choice.message.tool_calls or []]
    turns.append(turn(choice.message.content or "", calls, finish or "", _usage(final.usage)))


def answer(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> None:
    """Hold one conversation."""
    once = _loop if asked["mode"] == "loop" else _helper
    with openai.OpenAI(
        api_key=asked["key"], base_url=asked["base_url"], timeout=asked["timeout"], **retries(asked)
    ) as client:
        converse(asked, turns, ran, lambda messages: once(client, _options(asked, messages), turns))


if __name__ == "__main__":
    serve(answer)
