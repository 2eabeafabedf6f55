"""An agent of three turns: its ids are random, its tools tell the time, and its tape is of another day."""

import json
import random
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import openai
import pytest

from wiretape.replay.pytest_plugin.tape import Tape

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
    for name, description in [("get_time", "The local time."), ("get_weather", "The weather now.")]
]


def run_agent(base_url: str, tools: dict[str, Callable[..., dict[str, Any]]]) -> str:
    """Asks until no tool is called any more. It gives every call an id of its own, as many frameworks do."""
    # Close it: open connections would raise a warning in a later test.
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        return turns(client, tools)


def turns(client: openai.OpenAI, tools: dict[str, Callable[..., dict[str, Any]]]) -> str:
    messages: list[Any] = [{"role": "user", "content": "May I go for a walk in Oslo, and when?"}]
    while True:
        calls: dict[int, dict[str, str]] = {}
        text = finish = ""
        stream = client.chat.completions.create(model="scripted-1", messages=messages, tools=TOOLS, stream=True)
        for choice in (choice for chunk in stream for choice in chunk.choices):
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for delta in choice.delta.tool_calls or ():
                said = calls.setdefault(delta.index, {"id": f"call_{uuid.uuid4().hex}", "name": "", "arguments": ""})
                if delta.function is not None:
                    said["name"] += delta.function.name or ""
                    said["arguments"] += delta.function.arguments or ""
        if finish != "tool_calls":
            return text
        asked = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in calls.values()
        ]
        messages.append({"role": "assistant", "content": text or None, "tool_calls": asked})
        for call in calls.values():
            result = tools[call["name"]](**json.loads(call["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})


@pytest.mark.tape("agent_loop.tape")
@pytest.mark.parametrize("day", ["2026-11-18", "2027-02-28", "2031-07-01"])
def test_loop_of_three_turns_replays_on_any_day(tape: Tape, day: str) -> None:
    hour = random.Random(day).randrange(24)  # noqa: S311 - no secret
    now = datetime.fromisoformat(f"{day}T{hour:02}:41:07.123456+00:00")
    ran: list[str] = []

    def get_time(city: str) -> dict[str, Any]:
        ran.append(f"time in {city}")
        return {"city": city, "now": now.isoformat(), "epoch": now.timestamp(), "request_id": str(uuid.uuid4())}

    def get_weather(city: str) -> dict[str, Any]:
        ran.append(f"weather in {city}")
        return {"city": city, "sky": "clear", "celsius": 4, "measured_at": now.strftime("%Y-%m-%d %H:%M:%S")}

    answer = run_agent(tape.url, {"get_time": get_time, "get_weather": get_weather})

    assert answer == "Yes, go now: it is clear and 4 degrees."
    assert ran == ["time in Oslo", "weather in Oslo"]
    assert len(tape.sent) == 3
    # `sent` holds the requests of this run, not those of the file.
    assert day in tape.sent[1].json["messages"][-1]["content"]
    assert [told.fold.finish for told in tape.answers] == ["tool_calls", "tool_calls", "stop"]
