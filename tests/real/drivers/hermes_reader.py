"""Our own client for `hermes.tool.progress` over plain HTTP: it keeps the progress frames and the response."""

import json
from functools import partial
from typing import Any

import httpx

from ..frames import progress
from .lines import add_to_call, converse, serve, tool_of, turn


def _once(client: httpx.Client, asked: dict[str, Any], turns: list[Any], messages: list[Any]) -> None:
    body = {"model": asked["model"], "messages": messages, "tools": [tool_of(asked)], "stream": True}
    headers = {"Authorization": f"Bearer {asked['key']}"}
    with client.stream("POST", f"{asked['base_url']}/chat/completions", json=body, headers=headers) as answered:
        got = answered.read()
        answered.raise_for_status()
    now: dict[str, Any] = {**turn("", [], "", None), "progress": progress(got)}
    turns.append(now)
    for block in got.split(b"\n\n"):
        data = b"".join(line[6:] for line in block.split(b"\n") if line.startswith(b"data: "))
        if data in (b"", b"[DONE]"):
            continue
        said: dict[str, Any] = json.loads(data)
        if "error" in said:
            raise RuntimeError(said["error"]["message"])
        for choice in said["choices"]:
            now["text"] += choice["delta"].get("content") or ""
            now["finish"] += choice["finish_reason"] or ""
            deltas: list[Any] = choice["delta"].get("tool_calls") or []
            for delta in deltas:
                function = delta["function"]
                add_to_call(
                    now["calls"], delta["index"], delta.get("id"), function.get("name"), function.get("arguments")
                )


def answer(asked: dict[str, Any], turns: list[Any], ran: list[str]) -> None:
    """Hold one conversation."""
    with httpx.Client(timeout=asked["timeout"]) as client:
        converse(asked, turns, ran, partial(_once, client, asked, turns))


if __name__ == "__main__":
    serve(answer)
