"""A tool stream that is cut everywhere: no call is run from a part of its arguments."""

import json
from typing import Any

import httpx2
import openai
import pytest

from wiretape.replay.pytest_plugin.tape import Tape


class Disk:
    """What the agent's one tool writes to."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def write_file(self, path: str, content: str) -> None:
        self.files[path] = content


def run_agent(base_url: str, disk: Disk) -> str:
    """One turn: the calls of a choice are run when it says that it is finished, and not before."""
    # Close it: open connections would raise a warning in a later test.
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        return turns(client, disk)


def turns(client: openai.OpenAI, disk: Disk) -> str:
    calls: dict[int, list[str]] = {}
    finish = ""
    messages: Any = [{"role": "user", "content": "Write a note to notes/oslo.md and one to notes/bergen.md"}]
    try:
        for chunk in client.chat.completions.create(model="scripted-1", messages=messages, stream=True):
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                for call in choice.delta.tool_calls or ():
                    if call.function is not None:
                        calls.setdefault(call.index, []).append(call.function.arguments or "")
    except (openai.APIError, httpx2.TransportError) as error:
        if finish != "tool_calls":
            return f"cut: {type(error).__name__}"
    if finish != "tool_calls":
        return "cut in silence"
    for pieces in calls.values():
        disk.write_file(**json.loads("".join(pieces)))
    return "done"


@pytest.mark.parametrize("how", ["cut", "eof", "reset"])
@pytest.mark.tape("two_calls.tape", partly=True)
def test_no_call_runs_with_partial_arguments(tape: Tape, how: str) -> None:
    endings: list[str] = []
    for prefix in tape.prefixes("frames", end=how):
        disk = Disk()
        said = run_agent(tape.url, disk)
        whole = [call for call in tape.fold.calls if call.whole]
        assert len(disk.files) == len(whole), f"at {prefix}: {said}"
        assert all(disk.files[json.loads(call.arguments)["path"]] for call in whole)
        endings.append(said)
    assert endings[-1] == "done"
    assert endings[0].startswith("cut") or len(endings) == 1, "one turn, while it is recorded"


@pytest.mark.tape("two_calls.tape", prefixes="frames", end="eof")
def test_each_prefix_can_be_a_test(tape: Tape) -> None:
    disk = Disk()
    run_agent(tape.url, disk)
    assert len(disk.files) == sum(call.whole for call in tape.fold.calls)
    if not disk.files:
        assert tape.prefix is not None
        # The fold names the lost tools.
        lost = {name for _, names in tape.fold.warnings for name in names}
        assert lost == {call.name for call in tape.fold.calls}
