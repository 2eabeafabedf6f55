"""openai-agents: `Runner.run_streamed` over chat completions, or Responses in that mode, without its tracing."""

import asyncio
import importlib
from typing import Any

from .lines import serve, turn, weather


def _turns(responses: list[Any]) -> list[dict[str, Any]]:
    """Return its turns; it keeps no finish."""
    turns: list[dict[str, Any]] = []
    for said in responses:
        calls = [[part.call_id, part.name, part.arguments] for part in said.output if part.type == "function_call"]
        texts = [each.text for part in said.output if part.type == "message" for each in part.content]
        turns.append(turn("".join(texts), calls, None, None))
    return turns


async def _run(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> None:
    agents = importlib.import_module("agents")
    openai = importlib.import_module("openai")
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=asked["base_url"], api_key=asked["key"], timeout=asked["timeout"])
    kind = agents.OpenAIResponsesModel if asked["mode"] == "responses" else agents.OpenAIChatCompletionsModel
    agent = agents.Agent(
        name="weather",
        model=kind(model=asked["model"], openai_client=client),
        tools=[agents.function_tool(weather(asked, ran), strict_mode=False)],
    )
    result = agents.Runner.run_streamed(agent, asked["prompt"], max_turns=asked["turns"])
    try:
        async for _ in result.stream_events():
            pass
    finally:
        turns += _turns(result.raw_responses)
    if turns:
        turns[-1]["text"] = str(result.final_output)


def answer(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> None:
    """Run an agent once."""
    asyncio.run(_run(asked, turns, ran))


if __name__ == "__main__":
    serve(answer)
