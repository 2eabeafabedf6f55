"""What a streaming client of an agent must be able to rely on, one behaviour a test, through the whole proxy

Each of these was once wrong somewhere else: in a gateway, in an agent's own reading of streams, or in review.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.support.house import ASKED, DONE, call, finish, frame, house, role, streams, text
from tests.support.http import Answer
from wiretape.events.core.json_text import parse
from wiretape.events.wire.sse import Decoder


def payloads(answered: Answer) -> list[dict[str, Any]]:
    """Every JSON payload of the answer, in order."""
    given = [frame.payload for frame in Decoder().feed(answered.body)]
    return [parse(payload) for payload in given if payload is not None and payload != b"[DONE]"]


def deltas(answered: Answer) -> list[dict[str, Any]]:
    """Every delta that is not empty, in order."""
    each = [choice["delta"] for payload in payloads(answered) for choice in payload.get("choices", [])]
    return [delta for delta in each if delta]


def content(answered: Answer) -> str:
    return "".join(delta.get("content") or "" for delta in deltas(answered))


def lifecycle(answered: Answer) -> list[tuple[str, str, str]]:
    """Status, id and tool of each lifecycle frame."""
    return [(one["status"], one["toolCallId"], one["tool"]) for one in payloads(answered) if "toolCallId" in one]


# -- what the answer says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "piece",
    [text("x"), frame({"reasoning_content": "x"}), call("x"), frame({}), frame({"refusal": "x"})],
    ids=["text", "reasoning", "arguments", "an empty delta", "a refusal"],
)
async def test_every_chunk_resets_the_stall_timer(piece: bytes, autojump_clock: MockClock) -> None:
    script = streams(call("", "read"), *[piece] * 5, finish("tool_calls"), DONE, every_s=50)
    async with house(script, route={"idle_s": 60.0}) as home:
        began = trio.current_time()
        await home.ask()
        assert trio.current_time() - began >= 300
        assert (await home.ending())[0] == "completed"


# -- the life of a call -----------------------------------------------------------------------------------------------


def turn(*results: tuple[str, str], made: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
    """A request that brings results of the calls (id and name) that were made in the turn before."""
    entries = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}} for call_id, name in made
    ]
    return {
        **ASKED,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": entries},
            *({"role": "tool", "tool_call_id": call_id, "content": content} for call_id, content in results),
        ],
    }


async def test_lifecycle_frames_never_change_the_content(autojump_clock: MockClock) -> None:
    both = [role(), text("I read."), call("{}", "read_file"), finish("tool_calls"), DONE]
    async with house(streams(*both)) as home:
        answered = await home.ask(turn(("call_7", "secret"), made=[("call_7", "grep")]))
    assert len(lifecycle(answered)) == 2
    assert content(answered) == "I read."
    assert all(choice["delta"] == {} for one in payloads(answered) if "toolCallId" in one for choice in one["choices"])
