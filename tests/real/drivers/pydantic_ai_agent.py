"""pydantic-ai: `Agent.iter()`, each of its model requests streamed by `node.stream()`."""

import asyncio
import importlib
import json
from typing import Any, Final

from .lines import serve, turn, weather

_FINISHES: Final = {"tool_call": "tool_calls"}


def _turns(messages: list[Any]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for said in messages:
        if said.kind == "response":
            calls = [
                [part.tool_call_id, part.tool_name, part.args if isinstance(part.args, str) else json.dumps(part.args)]
                for part in said.parts
                if part.part_kind == "tool-call"
            ]
            text = "".join(part.content for part in said.parts if part.part_kind == "text")
            finish = said.finish_reason or ""
            turns.append(turn(text, calls, _FINISHES.get(finish, finish), None))
    return turns


async def _run(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> None:
    pydantic_ai = importlib.import_module("pydantic_ai")
    models = importlib.import_module("pydantic_ai.models.openai")
    providers = importlib.import_module("pydantic_ai.providers.openai")
    provider = providers.OpenAIProvider(base_url=asked["base_url"], api_key=asked["key"])
    model = models.OpenAIChatModel(asked["model"], provider=provider)
    agent = pydantic_ai.Agent(model, model_settings={"timeout": asked["timeout"]})
    agent.tool_plain(weather(asked, ran))
    with pydantic_ai.capture_run_messages() as messages:
        try:
            async with agent.iter(asked["prompt"]) as steps:
                async for node in steps:
                    if agent.is_model_request_node(node):
                        async with node.stream(steps.ctx) as stream:
                            async for _ in stream:
                                pass
        finally:
            turns += _turns(messages)


def answer(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> None:
    """Run an agent once."""
    asyncio.run(_run(asked, turns, ran))


if __name__ == "__main__":
    serve(answer)
