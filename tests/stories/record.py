"""Records the tapes of these stories with Wiretape, from an upstream that follows a script: `python record.py`

The script imitates a provider: new ids each time, and reads that end inside characters. The tests are
run with `--tape=rewrite`, so a tape is what a passing test received. With a provider of your own, leave the script
away and give its URL: `pytest --tape=rewrite --tape-upstream https://...`.
"""

import json
import sys
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import trio

from wiretape.replay.playback.script import Request, Script, event_stream, json_answer
from wiretape.replay.playback.server import listening

#: Of each tape one test that records it; the others only read it.
RECORDED_BY = (
    "test_agent_loop.py::test_loop_of_three_turns_replays_on_any_day[2026-11-18]",
    "test_prefixes.py::test_no_call_runs_with_partial_arguments[cut]",
    "test_clients.py::test_all_clients_replay_one_tape[openai Python]",
    "test_clients.py::test_anthropic_client_replays_an_exchange",
)


def chunks(*deltas: dict[str, Any], finish: str) -> Iterator[bytes]:
    """A chat stream as providers write it."""
    head = {"id": f"chatcmpl-{uuid.uuid4().hex[:24]}", "object": "chat.completion.chunk", "created": 1_794_000_000}
    said: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    said += [(delta, None) for delta in deltas] + [({}, finish)]
    for delta, reason in said:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        yield frame({**head, "model": "scripted-1", "choices": [choice]})
    yield b"data: [DONE]\n\n"


def frame(value: Any, event: str = "") -> bytes:
    """One frame, compact and in UTF-8."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def calls(*said: tuple[str, list[str]]) -> list[dict[str, Any]]:
    """Tool calls, their arguments in these pieces."""
    deltas: list[dict[str, Any]] = []
    for index, (name, pieces) in enumerate(said):
        function = {"name": name, "arguments": ""}
        first = {"index": index, "id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}
        deltas.append({"tool_calls": [first]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces]
    return deltas


def loop(results: int) -> Iterator[bytes]:
    """The agent's three turns."""
    city = ['{"city"', ': "Os', 'lo"}']
    if results < 2:
        return chunks(*calls((["get_time", "get_weather"][results], city)), finish="tool_calls")
    words = ["Yes, ", "go now: ", "it is clear ", "and 4 degrees."]
    return chunks(*({"content": word} for word in words), finish="stop")


def notes() -> Iterator[bytes]:
    """Two calls."""
    oslo = ['{"path": "notes/oslo', '.md", "cont', 'ent": "Blå', ' himmel"}']
    bergen = ['{"path": "notes/bergen.md",', ' "content": "Regn \\u2614"}']
    return chunks(*calls(("write_file", oslo), ("write_file", bergen)), finish="tool_calls")


def weather() -> list[bytes]:
    """A text, whose reads end inside its characters."""
    words = ["Sunny", " in", " Oslo", ", 4 °C", " — take", " a scarf 🧣."]
    whole = b"".join(chunks(*({"content": word} for word in words), finish="stop"))
    places = [0, *(whole.index(sign.encode()) + 1 for sign in "°—🧣"), len(whole)]
    return [whole[start:end] for start, end in pairwise(places)]


def messages() -> Iterator[bytes]:
    """An answer of the Messages API: a text and a call."""
    usage = {"input_tokens": 310, "output_tokens": 1}
    opened = {"id": f"msg_{uuid.uuid4().hex[:24]}", "type": "message", "role": "assistant", "model": "scripted-1"}
    call: Any = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:24]}", "name": "get_weather", "input": {}}
    stop = {"stop_reason": "tool_use", "stop_sequence": None}
    said: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**opened, "content": [], "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
          for word in ("I look", " it up.")),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": call},
        *({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": part}}
          for part in ("", '{"city', '": "Oslo"}')),
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 42}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return (frame(value, value["type"]) for value in said)


def choose(request: Request) -> Script:
    """What the provider says."""
    asked: Any = json.loads(request.body or b"{}")
    if request.target.partition(b"?")[0] == b"/v1/messages":
        return event_stream(messages(), gap_s=0.01)
    said: list[dict[str, Any]] = asked.get("messages", [])
    question = str(said[0]["content"]) if said else ""
    if "walk" in question:
        return event_stream(loop(sum(message["role"] == "tool" for message in said)), gap_s=0.01)
    if "note" in question:
        return event_stream(notes(), gap_s=0.01)
    if "weather" in question:
        return event_stream(weather(), gap_s=0.01)
    return json_answer(b'{"error":{"message":"nobody wrote a script for this"}}', 400)


async def main() -> int:
    """The exit code of pytest."""
    async with listening(choose) as (url, _):
        asked = [*RECORDED_BY, "--tape=rewrite", "--tape-upstream", url, "-p", "no:cacheprovider", "-q"]
        command = [sys.executable, "-m", "pytest", *asked, *sys.argv[1:]]
        done = await trio.run_process(command, cwd=Path(__file__).parent, check=False, stdout=None)
        return done.returncode


if __name__ == "__main__":
    sys.exit(trio.run(main))
