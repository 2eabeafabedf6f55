"""Asks a real hermes-agent with real clients, directly and through Wiretape: `python -m tests.real.hermes`."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

import httpx
import trio

from ..clients import CLIENTS, Client, named
from ..judge import Tapes
from ..places import RUN, environment
from ..processes import LineProcess
from ..report import say
from ..scenarios import question
from .judge import Found, said
from .model import SCENARIOS, Scenario
from .paper import PLACE, document
from .stage import HERMES, Stage, stage

__all__ = ["main"]

#: An answer of the agent takes 3 to 9 s on a busy machine, a program's start as much again.
_ANSWER_S: Final = 120.0
_PROGRAM_S: Final = 60


async def _run(clients: Sequence[Client], scenarios: Sequence[Scenario]) -> tuple[list[Found], list[str]]:
    found: list[Found] = []
    number = 0
    async with stage() as ready:
        tapes = Tapes(ready.tapes)
        wrong = [] if ready.doctor == "is a hermes-agent" else [f"doctor says: {ready.doctor}"]
        for scenario in scenarios:
            number += 1
            wrong += [f"{scenario.name}: {each}" for each in await _read(ready, scenario, number)]
            await tapes.new()
        for client in clients:
            async with LineProcess(f"hermes-{client.name.replace(' ', '-')}", client.command, environment()) as driver:
                for scenario in scenarios:
                    number += 2
                    with trio.fail_after(2 * _ANSWER_S):
                        direct, through = [
                            await driver.ask(
                                question(
                                    url,
                                    ready.key,
                                    "hermes-agent",
                                    f"[{scenario.name} {each}] How is the weather?",
                                    mode=client.mode,
                                    timeout=_PROGRAM_S,
                                )
                            )
                            for each, url in enumerate((ready.direct, ready.through), number)
                        ]
                    found.append(Found(client.name, scenario, direct, through, await tapes.new()))
                    one, other = said(found[-1])
                    say(f"{client.name} | {scenario.name} | direct: {one} | through: {other}")
    return found, wrong


async def _read(ready: Stage, scenario: Scenario, number: int) -> list[str]:
    """Check that a reader of lifecycle frames sees one start and one end of each call, and its session."""
    asked = {"model": "m", "stream": True, "messages": []} | {
        "messages": [{"role": "user", "content": f"[{scenario.name} {number}] How is the weather?"}]
    }
    headers = {"Authorization": f"Bearer {ready.key}", "X-Hermes-Session-Key": "of-this-run"}
    answer = await trio.to_thread.run_sync(
        lambda: httpx.post(f"{ready.through}/chat/completions", json=asked, headers=headers, timeout=_ANSWER_S)
    )
    wrong: list[str] = []
    shown: dict[str, list[str]] = {}
    for block in answer.text.split("\n\n"):
        if block.startswith("event: hermes.tool.progress\n"):
            value = json.loads(block.partition("data: ")[2])
            shown.setdefault(value["toolCallId"], []).append(value["status"])
            if value["choices"] != [{"index": 0, "delta": {}, "finish_reason": None}]:
                wrong.append(f"a frame has the choices {value['choices']}")
    if [*shown.values()] != ([list(scenario.shown)] if scenario.shown else []):
        wrong.append(f"a reader was shown {shown}")
    if answer.status_code == 200 and answer.headers.get("x-hermes-session-key") != "of-this-run":
        wrong.append("the session key did not come back")
    if "x-hermes-session-id" not in answer.headers:
        wrong.append("no session was named")
    return wrong


def main() -> int:
    """The exit status. The document is written by a whole run only."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.hermes", description=__doc__)
    parser.add_argument("--client", action="append", default=[], help="only those whose name holds this")
    parser.add_argument("--scenario", action="append", default=[], help="only these")
    asked = parser.parse_args()
    clients = [each for each in CLIENTS if named(each.name, asked.client)]
    scenarios = [each for each in SCENARIOS if named(each.name, asked.scenario)]
    if not HERMES.exists():
        sys.exit("hermes-agent is not installed; `make real-peers` installs it")
    RUN.mkdir(parents=True, exist_ok=True)
    found, wrong = trio.run(_run, clients, scenarios)
    bad = [each for each in found if said(each)[1] != "ok"]
    say("\n".join(wrong))
    say(
        f"hermes: {len(found) - len(bad)} of {len(found)} through Wiretape as they should be; directly "
        f"{sum(said(each)[0] == 'ok' for each in found)}"
    )
    if len(clients) == len(CLIENTS) and len(scenarios) == len(SCENARIOS):
        PLACE.write_text(document(found, wrong), encoding="utf-8")
    return 1 if bad or wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
