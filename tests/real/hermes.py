"""A real hermes-agent with a scripted model as the upstream of real clients, directly and through Wiretape."""

import json
import re
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import trio

from tests.support.markdown import table
from wiretape.events.core.model import Event
from wiretape.replay.playback.script import Fault, Request, Script, event_stream, json_answer

from .clients import CLIENTS, question, version_table
from .frames import DONE, USAGE, call, completion, finish, frames, progress, text
from .judge import Taped, Tapes
from .processes import PYTHONS, RUN, WIRETAPE, driving, environment, wiretape
from .report import say
from .servers import hermes

_BEFORE: Final = "Let me look. "
_AFTER: Final = "It is 18 degrees, say the people of a small café 😀."
#: Its own words, between two streams of its model.
_AGAIN: Final = "\n\n⚠ Connection dropped mid tool-call; reconnecting…\n\n"
_COMMAND: Final = json.dumps({"command": "echo 18 degrees"})
_BROKE: Final = "the model broke"

#: So that what was written has been read before the cut.
_GAP_S: Final = 0.02
_SAID: Final = re.compile(r"\[(\w+) (\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One way in which an answer of the agent goes."""

    name: str
    says: str
    #: What a client must end up with.
    text: str
    #: The upstream's finish reason; if it is empty, the client must see an error with these words.
    finish: str = "stop"
    error: str = ""
    #: What else the tape must contain.
    flags: frozenset[str] = frozenset()
    #: What a reader of lifecycle frames must see.
    shown: tuple[str, ...] = ()


SCENARIOS: Final = (
    Scenario(name="text", says="an answer in text", text=_AFTER),
    Scenario(
        name="tool",
        says="a text, a tool that the agent runs, and the answer to that",
        text=f"{_BEFORE}\n\n{_AFTER}",
        shown=("running", "completed"),
    ),
    Scenario(
        name="again",
        says="the same, and the first stream of its model breaks inside the call: it asks again",
        text=f"{_BEFORE}{_AGAIN}{_BEFORE}\n\n{_AFTER}",
        flags=frozenset({"text_repeated"}),
        shown=("running", "completed"),
    ),
    Scenario(
        name="length",
        says="its model ends by length, also when asked to go on",
        text=_BEFORE * 4,
        finish="length",
        flags=frozenset({"text_repeated", "output_truncated"}),
    ),
    Scenario(
        name="breaks",
        says="a text, a tool, and then its model refuses",
        text=_BEFORE,
        finish="",
        error=_BROKE,
        shown=("running", "completed"),
    ),
    Scenario(name="refuses", says="its model refuses at once", text="", finish="", error=_BROKE),
)


class Model:
    """The model: it answers every request of the agent, and breaks the first stream of `again`."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()

    def __call__(self, request: Request) -> Script:
        """Return a stream, or a title if the agent asks for one."""
        if not request.target.endswith(b"/chat/completions"):
            return json_answer(b'{"object":"list","data":[{"id":"scripted","object":"model"}]}')
        body: dict[str, Any] = json.loads(request.body)
        found = _SAID.search(json.dumps([one for one in body["messages"] if one["role"] == "user"]))
        if found is None or not body.get("tools") or not body.get("stream"):
            return json_answer(json.dumps(completion("scripted", "A title")).encode())
        self._asked[found[0]] += 1
        results = any(one["role"] == "tool" for one in body["messages"])
        return _answer(found[1], first=self._asked[found[0]] == 1, results=results)


def _answer(scenario: str, *, first: bool, results: bool) -> Script:
    if scenario == "refuses" or (scenario == "breaks" and results):
        return json_answer(json.dumps({"error": {"message": _BROKE, "type": "invalid_request_error"}}).encode(), 400)
    if scenario == "text" or results:
        return _stream([*text(_AFTER, 9), finish("stop")])
    if scenario == "length":
        return _stream([*text(_BEFORE, 9), finish("length")])
    turn = [*text(_BEFORE, 9), *call(0, "call_0", "terminal", _COMMAND, 12)]  # one id in every turn, as from some
    return _stream(turn[:-1], Fault.CUT) if scenario == "again" and first else _stream([*turn, finish("tool_calls")])


def _stream(said: Sequence[Event], fault: Fault | None = None) -> Script:
    whole = said if fault else [*said, USAGE, DONE]
    return event_stream(frames("scripted", whole), gap_s=_GAP_S, end=fault)


HERMES: Final = PYTHONS["hermes"].with_name("hermes")
_FOLDER: Final = RUN / "hermes"


@dataclass(frozen=True, slots=True)
class Stage:
    """What the clients play on."""

    #: The agent's own base URL, and Wiretape's.
    direct: str
    through: str
    key: str
    tapes: Path
    #: What `wiretape doctor` reports about the agent while it is not declared.
    doctor: str


@asynccontextmanager
async def stage() -> AsyncGenerator[Stage]:
    """Run agent and Wiretape until the block ends."""
    async with hermes("hermes", Model()) as agent:
        settings = _FOLDER / "wiretape.toml"
        settings.write_text(f'upstream = "{agent.url}"\nhermes = true\n', encoding="utf-8")
        async with wiretape("hermes-wiretape", _FOLDER / "tapes", "--config", settings) as through:
            doctor = await _doctor(agent.url, agent.key)
            yield Stage(agent.url, f"{through}/v1", agent.key, _FOLDER / "tapes", doctor)


async def _doctor(url: str, key: str) -> str:
    command = [str(WIRETAPE), "doctor", "--upstream", url, "--upstream-key-env", "AGENT_KEY"]
    env = environment(AGENT_KEY=key)
    done = await trio.run_process(command, env=env, capture_stdout=True, capture_stderr=True, check=False)
    said = done.stdout.decode()
    return "is a hermes-agent" if "is a hermes-agent: set `hermes = true`" in said else said[-500:]


#: openai-python's helper raises on every `length`, also on a plain one of a model's.
_ON_LENGTH: Final = "LengthFinishReasonError"


@dataclass(frozen=True, slots=True)
class Found:
    """One scenario of one client."""

    client: str
    scenario: Scenario
    direct: dict[str, Any]
    through: dict[str, Any]
    tapes: Sequence[Taped]


def faults(scenario: Scenario, result: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the result of a client."""
    turns, error = result["turns"], result["error"]
    text = "".join(turn["text"] or "" for turn in turns)
    finish = turns[-1]["finish"] if turns else None
    if scenario.error:
        if error is None:
            yield "gets no error"
        elif scenario.error not in json.dumps(error, ensure_ascii=False):
            yield f"gets no reason: {error['class']}: {_short(error['message'])}"
        if not scenario.text.startswith(text):
            yield f"has another text: {_short(text)}"
        return
    if error is not None and not (scenario.finish == "length" and error["class"] == _ON_LENGTH):
        yield f"fails: {error['class']}: {_short(error['message'])}"
        return
    if error is None and text.strip() != scenario.text.strip():
        yield f"has another text: {_short(text)}"
    if error is None and finish and finish != scenario.finish:
        yield f"has the finish {finish}"


def taped_faults(scenario: Scenario, tapes: Sequence[Taped]) -> Iterator[str]:
    """Yield what is wrong with the tapes."""
    if not tapes:
        yield "nothing was taped"
    for tape in tapes:
        if not scenario.flags <= set(tape.flags):
            yield f"the tape has the flags {tape.flags}"
        if (tape.ending == "completed") is bool(scenario.error):
            yield f"the tape ends as {tape.ending}"


def said(found: Found) -> tuple[str, str]:
    """Return two cells: directly, and through Wiretape."""
    through = [*faults(found.scenario, found.through), *taped_faults(found.scenario, found.tapes)]
    return "; ".join(faults(found.scenario, found.direct)) or "ok", "; ".join(through) or "ok"


def _short(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= 60 else words[:60] + "…"


PLACE: Final = Path(__file__).parents[2] / "docs/internals/hermes.md"

_TEXT: Final = """\
# hermes-agent as an upstream of Wiretape

Written by `make test-real`. Real clients use a real hermes-agent with a scripted model, directly and through
`wiretape serve` on a route with `hermes = true`
([what that means](../decisions/2026-11-18-hermes-upstream.md)). It runs its tool on its own side. **ok**: the client
has the whole text and the finish, or, where the agent failed, the text before and an error that says why.
(openai-python's helper raises on every `length`, a plain model's too; that is ok.)

Through Wiretape {right} of {all} are ok, directly {direct}. Also, a reader of lifecycle frames gets exactly
one `running` and one `completed` with one id for the tool, the session headers pass both ways, and `wiretape
doctor` knows the agent by its capabilities: {wrong}.

| scenario | the agent |
| --- | --- |
{scenarios}
{results}
## Versions

{versions}"""


def document(found: Sequence[Found], wrong: Sequence[str]) -> str:
    """Return the whole document."""
    return _TEXT.format(
        right=sum(said(each)[1] == "ok" for each in found),
        all=len(found),
        direct=sum(said(each)[0] == "ok" for each in found),
        wrong="; ".join(wrong) or "all as it should be",
        scenarios="".join(f"| `{each.name}` | {each.says} |\n" for each in SCENARIOS),
        results="\n".join(_results(name, found) for name in ("directly", "through Wiretape")),
        versions=version_table(["hermes-agent", *(client.package for client in CLIENTS)]),
    )


def _results(way: str, found: Sequence[Found]) -> str:
    cells = {(each.client, each.scenario.name): said(each)[way != "directly"] for each in found}
    rows = [
        [client.name, *(cells[client.name, scenario.name].replace("|", "\\|") for scenario in SCENARIOS)]
        for client in CLIENTS
    ]
    head = ["client", *(f"`{scenario.name}`" for scenario in SCENARIOS)]
    return f"## {way[0].upper()}{way[1:]}\n\n{table(head, rows)}"


#: An answer of the agent takes 3 to 9 s on a busy machine, a program's start as much again.
_ANSWER_S: Final = 120.0
_PROGRAM_S: Final = 60


async def _run() -> tuple[list[Found], list[str]]:
    found: list[Found] = []
    number = 0
    async with stage() as ready:
        tapes = Tapes(ready.tapes)
        wrong = [] if ready.doctor == "is a hermes-agent" else [f"doctor says: {ready.doctor}"]
        for scenario in SCENARIOS:
            number += 1
            wrong += [f"{scenario.name}: {each}" for each in await _read(ready, scenario, number)]
            await tapes.new()
        for client in CLIENTS:
            async with driving(f"hermes-{client.name}", client.command) as driver:
                for scenario in SCENARIOS:
                    number += 2
                    with trio.fail_after(2 * _ANSWER_S):
                        results: list[dict[str, Any]] = []
                        for each, url in enumerate((ready.direct, ready.through), number):
                            words = f"[{scenario.name} {each}] How is the weather?"
                            more = {"mode": client.mode, "timeout": _PROGRAM_S}
                            results.append(await driver.ask(question(url, ready.key, "hermes-agent", words, **more)))
                    found.append(Found(client.name, scenario, results[0], results[1], await tapes.new()))
                    one, other = said(found[-1])
                    say(f"{client.name} | {scenario.name} | direct: {one} | through: {other}")
    return found, wrong


async def _read(ready: Stage, scenario: Scenario, number: int) -> list[str]:
    """Check that a reader of lifecycle frames sees one start and one end of each call, and its session."""
    messages = [{"role": "user", "content": f"[{scenario.name} {number}] How is the weather?"}]
    asked = {"model": "m", "stream": True, "messages": messages}
    headers = {"Authorization": f"Bearer {ready.key}", "X-Hermes-Session-Key": "of-this-run"}
    answer = await trio.to_thread.run_sync(
        lambda: httpx.post(f"{ready.through}/chat/completions", json=asked, headers=headers, timeout=_ANSWER_S)
    )
    wrong: list[str] = []
    shown: dict[str, list[str]] = {}
    for each in progress(answer.content):
        shown.setdefault(each.id, []).append(each.status)
    if [*shown.values()] != ([list(scenario.shown)] if scenario.shown else []):
        wrong.append(f"a reader was shown {shown}")
    if answer.status_code == 200 and answer.headers.get("x-hermes-session-key") != "of-this-run":
        wrong.append("the session key did not come back")
    if "x-hermes-session-id" not in answer.headers:
        wrong.append("no session was named")
    return wrong


def main() -> int:
    """Run all clients and write the document; return the exit status."""
    if not HERMES.exists():
        sys.exit("hermes-agent is not installed; `make real-peers` installs it")
    RUN.mkdir(parents=True, exist_ok=True)
    found, wrong = trio.run(_run)
    bad = [each for each in found if said(each)[1] != "ok"]
    say("\n".join(wrong))
    say(
        f"hermes: {len(found) - len(bad)} of {len(found)} through Wiretape as they should be; directly "
        f"{sum(said(each)[0] == 'ok' for each in found)}"
    )
    PLACE.write_text(document(found, wrong), encoding="utf-8")
    return 1 if bad or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
