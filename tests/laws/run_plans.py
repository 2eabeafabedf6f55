"""One number is one story of `/v1/runs`, planned: agents, their tools, stops and viewers, upstream faults, restarts."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.laws.plans import Leave, Reply, reply

__all__ = ["Agent", "Restart", "Story", "Viewer", "Visit", "planned_story"]

#: What a client does with the calls of a run that waits, and how often.
ANSWERS: Final = {
    "all": 50,
    "missing first": 10,
    "unknown first": 10,
    "twice": 12,
    "never": 8,
    "two at once": 12,
    "stop at once": 8,
}
#: What a viewer names as its last event, and how often: the true one, an earlier, one to come, no id at all.
RESUMES: Final = {"last": 50, "past": 15, "future": 10, "junk": 15, "nothing": 10}
JUNK: Final = ("abc", "-1", "1.5", "0x3", "1,2", "%F0%9F%A6%8A", "+", "last")


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at the events of a run; without `stay_s` to the end."""

    stay_s: float | None
    leave: Leave
    resume: str
    #: The id goes into the query instead of the header.
    query: bool
    #: Chooses the id among those that `resume` allows.
    choice: float


@dataclass(frozen=True, slots=True)
class Viewer:
    """Joins so long after the run is known; it reads slowly if its socket holds little."""

    join_s: float
    visits: Sequence[Visit]
    capacity: int | None
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A client that starts one run, answers its tools, and may stop it."""

    at_s: float
    body: Mapping[str, Any]
    #: The run is started once more after so many seconds, with the same key.
    again_s: float | None
    #: So many requests start it at the same moment.
    at_once: int
    answer: str
    answer_s: float
    stop_s: float | None
    #: What the upstream does with each request, turn after turn.
    replies: Sequence[Reply]
    viewers: Sequence[Viewer]


@dataclass(frozen=True, slots=True)
class Restart:
    """After so many seconds the proxy goes, as by kill -9 or in order, and comes back."""

    after_s: float
    killed: bool
    down_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that happens, in one store."""

    seed: int
    route: Mapping[str, Any]
    config: Mapping[str, Any]
    agents: Sequence[Agent]
    restarts: Sequence[Restart]
    #: Of each write of a tape.
    write_s: float
    #: The write, by its number, from which on its tape takes no more.
    failing_write: int | None
    #: Bytes of the latest frames that are kept for viewers.
    window_bytes: int


def planned_story(seed: int) -> Story:
    """Return the story of this number, always the same."""
    chance = random.Random(seed)  # noqa: S311 - the seed is the point
    route = {
        "attempts": chance.choice([1, 2, 3]),
        "idle_s": chance.choice([5.0, 30.0, 300.0]),
        "first_byte_s": chance.choice([10.0, 60.0]),
        "finish_grace_s": chance.choice([0.5, 2.0]),
    }
    config = {
        "runs_unwatched_s": chance.choice([4.0, 60.0, 3_600.0, 3_600.0]),
        "runs_waiting_s": chance.choice([100.0, 400.0]),
    }
    restarts = [
        Restart(chance.uniform(0, 12), chance.random() < 0.6, chance.choice([0.0, 0.5, 20.0]))
        for _ in range(chance.choice([0, 0, 0, 1, 1, 2]))
    ]
    return Story(
        seed=seed,
        route=route,
        config=config,
        agents=[_agent(chance, number) for number in range(chance.choice([1, 1, 2, 3]))],
        restarts=restarts,
        write_s=chance.choice([0, 0, 0.001, 0.2]),
        failing_write=chance.randrange(2, 40) if chance.random() < 0.1 else None,
        window_bytes=chance.choice([300, 2_000, 128 * 1024]),
    )


def _agent(chance: random.Random, number: int) -> Agent:
    body: dict[str, Any] = {"model": "m", "user": f"a{number}", "input": chance.choice(["hi", [_user("hi")]])}
    if chance.random() < 0.9:
        body["tools"] = [{"type": "function", "name": name} for name in ("write_file", "get_weather", "read")]
    more = {
        "stream_tool_arguments": True,
        "instructions": "Be brief.",
        "session_id": f"s{chance.randrange(3)}",
        "conversation_history": [_user("before"), {"role": "assistant", "content": "yes"}],
        "metadata": {"a": "b"},
    }
    body |= {name: value for name, value in more.items() if chance.random() < 0.25}
    return Agent(
        at_s=chance.choice([0.0, 0.0, chance.uniform(0, 3)]),
        body=body,
        again_s=chance.uniform(0, 6) if chance.random() < 0.3 else None,
        at_once=chance.choice([1, 1, 1, 3]),
        answer=_one_of(chance, ANSWERS),
        answer_s=chance.choice([0.0, chance.uniform(0, 1), chance.uniform(0, 50)]),
        stop_s=chance.uniform(0, 20) if chance.random() < 0.25 else None,
        replies=[_reply(chance) for _ in range(chance.choice([1, 2, 4, 6]))],
        viewers=[_viewer(chance) for _ in range(chance.choice([0, 1, 2, 2, 3]))],
    )


def _reply(chance: random.Random) -> Reply:
    """Return a reply with any fault; often one without, so that runs have several turns."""
    drawn = reply(chance, 1)
    while chance.random() < 0.4 and drawn.fault != "none":
        drawn = reply(chance, 1)
    return drawn


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def _viewer(chance: random.Random) -> Viewer:
    stays = [chance.choice([0.0, 0.3, 2.0, 16.0, chance.uniform(0, 40)]) for _ in range(chance.choice([0, 1, 1, 3]))]
    slow = chance.random() < 0.3
    return Viewer(
        join_s=chance.choice([0.0, chance.uniform(0, 2), chance.uniform(0, 60)]),
        visits=[_visit(chance, stay) for stay in [*stays, None]],
        capacity=chance.choice([64, 900]) if slow else None,
        pause_s=chance.choice([0.05, 0.5, 35.0]) if slow else 0.0,
    )


def _visit(chance: random.Random, stay_s: float | None) -> Visit:
    leave: Leave = chance.choice(["fin", "rst", "half"])
    return Visit(stay_s, leave, _one_of(chance, RESUMES), chance.random() < 0.3, chance.random())


def _one_of(chance: random.Random, words: Mapping[str, int]) -> str:
    return chance.choices([*words], [*words.values()])[0]
