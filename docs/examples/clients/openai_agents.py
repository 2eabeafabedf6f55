"""An agent of openai-agents in front of Wiretape: `python openai_agents.py responses`, or `chat`."""

import asyncio
import os
import sys

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)  # otherwise every run goes to api.openai.com, too
client = AsyncOpenAI(base_url="http://127.0.0.1:8787/v1", api_key=os.environ["API_KEY"])
kind = OpenAIResponsesModel if sys.argv[1] == "responses" else OpenAIChatCompletionsModel


@function_tool
def get_weather(city: str) -> str:
    """The weather of one town"""
    return f"18 degrees in {city}"


async def main() -> None:
    agent = Agent(name="weather", model=kind(model="some-model", openai_client=client), tools=[get_weather])
    result = Runner.run_streamed(agent, "How is the weather in Paris?")
    async for _ in result.stream_events():
        pass
    print(result.final_output)


asyncio.run(main())
