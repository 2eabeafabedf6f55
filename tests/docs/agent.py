"""The program that the documents talk about: it asks for the weather, with a tool or without. Tests copy it."""

import json
import os
from typing import Any

import httpx

WEATHER: dict[str, Any] = {
    "model": "gpt-4o",
    "stream": True,
    "messages": [{"role": "user", "content": "How is the weather in Oslo?"}],
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
ATTEMPTS = 3


def ask_weather(base_url: str) -> str:
    """Return the answer of a model without tools."""
    return _answer(base_url, WEATHER)[0]


def run_agent(base_url: str) -> list[str]:
    """Ask with a tool until the model needs it no more; return the names of the calls that ran."""
    ran: list[str] = []
    messages = [*WEATHER["messages"]]
    while True:
        _, calls, finish = _answer(base_url, {**WEATHER, "tools": TOOLS, "messages": messages})
        if finish != "tool_calls":
            return ran
        messages.append({"role": "assistant", "content": None, "tool_calls": list(calls.values())})
        for call in calls.values():
            city = json.loads(call["function"]["arguments"])["city"]
            ran.append(call["function"]["name"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"4 degrees in {city}"})


def _answer(base_url: str, body: dict[str, Any]) -> tuple[str, dict[int, Any], str]:
    """Return text, calls and finish reason; ask again while there is no answer at all."""
    headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
    text, calls, finish = "", dict[int, Any](), ""
    for _ in range(ATTEMPTS):
        try:
            with httpx.stream("POST", f"{base_url}/chat/completions", json=body, headers=headers) as response:
                if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                    continue
                for line in response.iter_lines():
                    for choice in json.loads(line[6:]).get("choices", ()) if line.startswith("data: {") else ():
                        text += choice["delta"].get("content") or ""
                        finish = choice.get("finish_reason") or finish
                        for delta in choice["delta"].get("tool_calls", ()):
                            call = calls.setdefault(delta["index"], {**delta, "function": {**delta["function"]}})
                            if call["id"] != delta.get("id"):
                                call["function"]["arguments"] += delta["function"]["arguments"]
        except httpx.TransportError:
            if not text and not calls:
                continue
        return text, calls, finish
    return text, calls, finish


if __name__ == "__main__":
    run_agent(os.environ["OPENAI_BASE_URL"])
