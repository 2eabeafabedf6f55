"""Runs before a real hermes-agent with a scripted model: `python -m tests.real.hermes_runs`.

With `--record` the event streams below fixtures/runs are recorded again from the agent itself.
"""

import json
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import httpx
import trio

from tests.support.hermes import RUNS, UPSTREAM_ID
from tests.support.markdown import table
from wiretape.events.core.model import Event
from wiretape.replay.playback.script import Request, Script, event_stream, json_answer
from wiretape.replay.playback.server import listening

from .clients import version_table
from .frames import DONE, USAGE, call, completion, finish, frames, text
from .hermes import HERMES
from .processes import PYTHONS, ROOT, RUN, environment, wiretape
from .record_fixtures import wire
from .report import say
from .servers import Up, hermes

_SAID: Final = re.compile(r"\[([\w-]+)\]")
_ANSWER: Final = "It is 18 degrees, café 😀."
_BROKE: Final = "the model broke"
_SLOW: Final = "word "
_FOLDER: Final = RUN / "hermes-runs"
#: One run on a busy machine.
_RUN_S: Final = 60.0
#: How long the second viewer is away.
_AWAY_S: Final = 5.0
_CLOSING: Final = ("run.completed", "run.failed", "run.cancelled")

#: The commands that the model asks for in one answer.
_COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "tool": ["echo 18"],
    "breaks": ["echo 18"],
    "commands": ["sleep 1; echo one", "sleep 0.3; echo two"],
    "long": ["sleep 4; echo one", "sleep 4; echo two"],
    "approve": ["rm -rf old"],
    "deny": ["rm -rf old"],
    "stop-tool": ["sleep 20"],
    "stop-approval": ["rm -rf old"],
}
#: What is done once an event has come: the event, the endpoint and the body.
_ACTS: Final[Mapping[str, tuple[str, str, Any]]] = {
    "approve": ("approval.request", "approval", {"choice": "approve"}),
    "deny": ("approval.request", "approval", {"choice": "deny"}),
    "stop": ("message.delta", "stop", {}),
    "stop-tool": ("tool.started", "stop", {}),
    "stop-approval": ("approval.request", "stop", {}),
}
RECORDED: Final = ("text", "tool", "commands", "files", "approve", "deny", "stop", "stop-tool", "stop-approval")
RECORDED_FAILURES: Final = ("refuses", "breaks")


def model(request: Request) -> Script:
    """Answer as the model: what the last message of the user names."""
    if not request.target.endswith(b"/chat/completions"):
        return json_answer(b'{"object":"list","data":[{"id":"scripted","object":"model"}]}')
    body: dict[str, Any] = json.loads(request.body)
    messages: list[dict[str, Any]] = body["messages"]
    last = max(at for at, each in enumerate(messages) if each["role"] == "user")
    found = _SAID.search(json.dumps(messages[last]))
    if found is None or not body.get("stream"):
        return json_answer(json.dumps(completion("scripted", "A title")).encode())
    return _answer(found[1], messages, results=any(each["role"] == "tool" for each in messages[last:]))


def _answer(scenario: str, messages: Sequence[Mapping[str, Any]], *, results: bool) -> Script:
    if scenario == "refuses" or (scenario == "breaks" and results):
        return json_answer(json.dumps({"error": {"message": _BROKE, "type": "invalid_request_error"}}).encode(), 400)
    if scenario == "history":
        heard = "|".join(f"{each['role']}:{each['content']}" for each in messages if each["role"] != "system")
        return _stream([*text(heard, 40), finish("stop")])
    if scenario in ("stop", "slow"):
        return _stream([*text(_SLOW * 60, len(_SLOW)), finish("stop")], 0.1)
    if scenario == "text" or results:
        return _stream([*text(_ANSWER, 9), finish("stop")])
    calls = [("terminal", {"command": command}) for command in _COMMANDS.get(scenario, ())]
    calls = calls or [("read_file", {"path": path}) for path in ("a.txt", "b.txt")]
    said = [
        event for at, (name, given) in enumerate(calls) for event in call(at, f"c{at}", name, json.dumps(given), 12)
    ]
    return _stream([*text("Let me look. ", 9), *said, finish("tool_calls")])


def _stream(said: Sequence[Event], gap_s: float = 0.02) -> Script:
    return event_stream(frames("scripted", [*said, USAGE, DONE]), gap_s=gap_s)


@dataclass(frozen=True, slots=True)
class Viewer:
    """One reading of a run's events."""

    ids: list[str] = field(default_factory=list[str])
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def named(self, *names: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] in names]

    @property
    def text(self) -> str:
        return "".join(event["delta"] for event in self.named("message.delta"))


@dataclass(frozen=True, slots=True)
class Client:
    """A client of runs at one place."""

    http: httpx.AsyncClient

    async def start(self, scenario: str, **more: Any) -> str:
        answer = await self.http.post("/runs", json={"input": f"[{scenario}] How is the weather?", **more})
        assert answer.status_code == 202, answer.text
        assert answer.json()["status"] == "started"
        return str(answer.json()["run_id"])

    async def follow(self, run: str, after: str = "", until: str = "", act: Any = None) -> Viewer:
        """Read the events after an id, to their end or to the first event of this name."""
        seen, done = Viewer(), False
        headers = {"Last-Event-ID": after} if after else {}
        async with self.http.stream("GET", f"/runs/{run}/events", headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    seen.ids.append(value)
                if name != "data":
                    continue
                seen.events.append(json.loads(value))
                event = seen.events[-1]["event"]
                if act is not None and event == act[0] and not done:
                    done = True
                    acted = await self.http.post(f"/runs/{run}/{act[1]}", json=act[2])
                    assert acted.status_code == 200, acted.text
                    assert acted.json()["run_id"] == run
                if event == until:
                    break
        return seen

    async def status(self, run: str) -> dict[str, Any]:
        answer = await self.http.get(f"/runs/{run}")
        assert answer.status_code == 200, answer.text
        value: dict[str, Any] = answer.json()
        return value


@asynccontextmanager
async def client(url: str, key: str) -> AsyncGenerator[Client]:
    """Connect a client."""
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=_RUN_S) as http:
        yield Client(http)


def sound(seen: Viewer, first: int = 1) -> None:
    """Check what every reading to the end must hold: gapless ids, and one closing event, which is the last."""
    assert seen.ids == [str(at) for at in range(first, first + len(seen.events))], seen.ids
    assert [event["sequence"] for event in seen.events] == [int(each) for each in seen.ids]
    assert len({event["run_id"] for event in seen.events}) == 1
    assert len(seen.named(*_CLOSING)) == 1
    assert seen.events[-1]["event"] in _CLOSING, seen.events[-1]


def paired(seen: Viewer, calls: int) -> None:
    """Check that each call has an id of its own, begins once and ends once after that."""
    started = [event["call_id"] for event in seen.named("tool.started")]
    ended = [event["call_id"] for event in seen.named("tool.completed")]
    assert len(set(started)) == len(started) == calls, started
    assert sorted(ended) == sorted(started), (started, ended)


# -- what must hold ---------------------------------------------------------------------------------------------------


async def _two_viewers(relay: Client) -> None:
    run = await relay.start("long")
    viewers: dict[str, Viewer] = {}

    async def stays() -> None:
        viewers["stays"] = await relay.follow(run)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stays)
        before = await relay.follow(run, until="tool.started")
        await trio.sleep(_AWAY_S)
        after = await relay.follow(run, after=before.ids[-1])
    whole = viewers["stays"]
    sound(whole)
    sound(after, first=len(before.events) + 1)
    assert before.events + after.events == whole.events
    paired(whole, 2)
    assert whole.events[-1]["output"] == _ANSWER
    assert (await relay.follow(run)).events == whole.events  # also for a viewer that comes late


async def _calls(relay: Client, scenario: str) -> None:
    seen = await relay.follow(await relay.start(scenario))
    sound(seen)
    paired(seen, 2)
    assert seen.events[-1]["usage"] == {"input_tokens": 18, "output_tokens": 42, "total_tokens": 60}
    assert not any(event["error"] for event in seen.named("tool.completed"))


async def _approval(relay: Client, scenario: str, choice: str) -> None:
    run = await relay.start(scenario)
    waits = await relay.follow(run, until="approval.request")
    assert (await relay.status(run))["status"] == "waiting_for_approval"
    seen = await relay.follow(run, act=_ACTS[scenario])
    sound(seen)
    paired(seen, 1)
    assert waits.events[-1]["command"] == "rm -rf old"
    assert [event["choice"] for event in seen.named("approval.responded")] == [choice]
    assert seen.named("tool.completed")[0]["error"] is (choice == "deny")
    assert seen.events[-1]["event"] == "run.completed"
    late = await relay.http.post(f"/runs/{run}/approval", json={"choice": "once"})
    assert late.status_code == 409, late.text


async def _stop(relay: Client, scenario: str) -> None:
    run = await relay.start(scenario)
    seen = await relay.follow(run, act=_ACTS[scenario])
    sound(seen)
    assert (seen.events[-1]["event"], seen.events[-1]["reason"]) == ("run.cancelled", "asked")
    assert (await relay.status(run))["status"] == "cancelled"
    assert (await relay.http.post(f"/runs/{run}/stop")).status_code == 409


async def _fails(relay: Client, scenario: str) -> None:
    run = await relay.start(scenario)
    seen = await relay.follow(run)
    sound(seen)
    assert seen.events[-1]["event"] == "run.failed"
    assert _BROKE in seen.events[-1]["error"]
    assert (await relay.status(run))["status"] == "failed"


async def _conversation(relay: Client) -> None:
    first = await relay.start("text")
    await relay.follow(first)
    run = await relay.start("history", previous_response_id=first)
    seen = await relay.follow(run)
    sound(seen)
    assert f"user:[text] How is the weather?|assistant:{_ANSWER}|user:[history]" in seen.text, seen.text


async def _recovers(cut: Client) -> None:
    run = await cut.start("tool")
    seen = await cut.follow(run)
    sound(seen)
    closing = seen.events[-1]
    assert (closing["event"], closing.get("recovered"), closing.get("output")) == ("run.completed", True, _ANSWER)


async def _example(url: str, key: str) -> None:
    """Run the client that the description of hermes-agent's runs shows, in our own words."""
    command = [str(PYTHONS["clients"]), "-m", "tests.real.drivers.hermes_example", url, "[text] How is it?"]
    done = await trio.run_process(
        command, cwd=ROOT, env=environment(API_KEY=key), capture_stdout=True, capture_stderr=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert "".join(event["delta"] for event in lines if event["event"] == "message.delta") == _ANSWER
    assert (lines[-1]["event"], lines[-1]["output"]) == ("run.completed", _ANSWER)


Check = tuple[str, Callable[[], Awaitable[None]]]


def checks(relay: Client, cut: Client, urls: Mapping[str, str], key: str) -> list[Check]:
    """Return what is checked."""
    return [
        ("two viewers, one away for 5 s: it resumes, both have the whole run", partial(_two_viewers, relay)),
        ("two calls of `terminal` in one answer, in turn: ids, rightly paired", partial(_calls, relay, "commands")),
        ("two calls of `read_file` in one answer, at once: ids, rightly paired", partial(_calls, relay, "files")),
        ("an approval, granted once", partial(_approval, relay, "approve", "once")),
        ("an approval, denied", partial(_approval, relay, "deny", "deny")),
        ("a stop while the model writes", partial(_stop, relay, "stop")),
        ("a stop while a tool runs", partial(_stop, relay, "stop-tool")),
        ("a stop while a tool waits for approval", partial(_stop, relay, "stop-approval")),
        ("a model that refuses at once", partial(_fails, relay, "refuses")),
        ("a model that refuses after a tool", partial(_fails, relay, "breaks")),
        ("`previous_response_id` continues the conversation", partial(_conversation, relay)),
        ("the connection to the agent is reset: the output comes, marked `recovered`", partial(_recovers, cut)),
        ("the client that hermes-agent's description of runs shows", partial(_example, urls["relay"], key)),
        ("the same client, `runs = own`", partial(_example, urls["own"], key)),
    ]


PLACE: Final = ROOT / "docs/internals/hermes-runs.md"
_TEXT: Final = """\
# Runs before hermes-agent

Written by `make test-real`. A real hermes-agent with a scripted model is the upstream of a route with `runs = relay`
([what that means](../decisions/2026-11-20-relayed-runs.md)). {right} of {all} are as they should be. In every reading
the ids are gapless from 1, and exactly one closing event comes last.

{results}
## Versions

{versions}"""


async def _check(found: Sequence[Check]) -> list[tuple[str, str]]:
    results: list[tuple[str, str]] = []
    for name, check in found:
        result = "ok"
        try:
            with trio.fail_after(_RUN_S):
                await check()
        except (Exception, ExceptionGroup) as error:  # noqa: BLE001 - the other checks go on
            result = f"wrong: {error!r}"[:300]
        results.append((name, result))
        say(f"hermes runs | {name} | {result}")
    return results


def _files(agent: str) -> None:
    for name in ("a.txt", "b.txt"):
        (RUN / agent / name).write_text(f"{name}\n", encoding="utf-8")


async def _run() -> list[tuple[str, str]]:
    _FOLDER.mkdir(parents=True, exist_ok=True)
    async with (
        hermes("hermes-agent-runs", model) as agent,
        wire(agent.port, "reset", 5) as cut,
        listening(model) as own,
    ):
        _files("hermes-agent-runs")
        settings = _FOLDER / "wiretape.toml"
        relay = 'hermes = true\nruns = "relay"\n'
        settings.write_text(
            f'upstream = "{agent.url}"\n{relay}'
            f'[routes.cut]\nupstream = "http://127.0.0.1:{cut}/v1"\n{relay}'
            f'[routes.own]\nupstream = "{own[0]}"\n',
            encoding="utf-8",
        )
        async with wiretape("hermes-runs-wiretape", _FOLDER / "tapes", "--config", settings) as through:
            urls = {"relay": f"{through}/v1", "cut": f"{through}/cut/v1", "own": f"{through}/own/v1"}
            async with client(urls["relay"], agent.key) as whole, client(urls["cut"], agent.key) as broken:
                return await _check(checks(whole, broken, urls, agent.key))


# -- recording --------------------------------------------------------------------------------------------------------


async def _record(agent: Up, scenario: str) -> None:
    """Record one event stream of the agent itself, as the tests in memory play it, with the id taken out."""
    async with client(agent.url, agent.key) as direct:
        run, act, got = await direct.start(scenario), _ACTS.get(scenario), b""
        async with direct.http.stream("GET", f"/runs/{run}/events") as answer:
            async for data in answer.aiter_raw():
                got += data
                if act is not None and f'"event": "{act[0]}"'.encode() in got:
                    await direct.http.post(f"/runs/{run}/{act[1]}", json=act[2])
                    act = None
    (RUNS / f"hermes-{scenario}.sse").write_bytes(got.replace(run.encode(), UPSTREAM_ID.encode()))
    say(f"recorded {scenario}: {len(got)} bytes")


async def _record_all() -> None:
    async with hermes("hermes-agent-runs", model) as agent:
        _files("hermes-agent-runs")
        for scenario in (*RECORDED, *RECORDED_FAILURES):
            with trio.fail_after(_RUN_S):
                await _record(agent, scenario)


def main() -> int:
    """Check everything and write the document, or record; return the exit status."""
    if not HERMES.exists():
        sys.exit("hermes-agent is not installed; `make real-peers` installs it")
    RUN.mkdir(parents=True, exist_ok=True)
    if "--record" in sys.argv:
        trio.run(_record_all)
        return 0
    results = trio.run(_run)
    right = sum(result == "ok" for _, result in results)
    say(f"hermes runs: {right} of {len(results)} as they should be")
    rows = [[name, result.replace("|", "\\|")] for name, result in results]
    versions = version_table(["hermes-agent", "httpx"])
    PLACE.write_text(
        _TEXT.format(right=right, all=len(results), results=table(["what", "result"], rows), versions=versions),
        encoding="utf-8",
    )
    return 0 if right == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
