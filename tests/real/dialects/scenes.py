"""The scenes: a question for each agent, what the upstream says, and what must hold at the end."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from .agents import PICTURE, TOWNS, Agent, Shown
from .provider import Asked, Plot, Said, Want, offered
from .turns import Text, Thought

#: The agent's answer at the end of a scene.
ANSWER: Final = "It is 18 degrees, say the people of a small café 😀, and it will not rain before nine."
_FIRST: Final = "Let me look at that for you. "

DIRECT: Final = "direct"
#: A route to a real server that speaks chat alone.
LLAMA: Final = "llama"
DIALECTS: Final = ("chat", "responses", "messages")

#: Each is a route of one Wiretape: what its upstream speaks, and its settings.
ROUTES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    **{dialect: (dialect, {}) for dialect in DIALECTS},
    # `auto` crosses to chat alone.
    **{f"to-{dialect}": (dialect, {"speaks": dialect}) for dialect in DIALECTS if dialect != "chat"},
    **{f"{dialect}-held": (dialect, {"tools": "held"}) for dialect in DIALECTS},
}

#: Where a stream is cut, and how it ends there.
PLACES: Final[Mapping[str, str]] = {
    "text": "in the middle of a text",
    "arguments": "in the middle of the arguments of a call, the first thing in the answer",
    "called": "after the last frame of the call, before the end of the answer",
    "second": "in the middle of the arguments of a call, after a whole text",
}
ENDINGS: Final[Mapping[str, str]] = {
    "eof": "an orderly end of the body",
    "reset": "a reset of the connection",
    "error": "an error of the upstream inside the stream",
}

_SILENCE_S: Final = 20.0
_NUMBERS: Final = count(1)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a cell."""

    cell: "Cell"
    shown: Shown
    #: What the tool wrote down.
    ran: Sequence[str]
    #: What the upstream was asked.
    asked: Sequence[Asked]
    #: The agent's own requests, where it went through Wiretape.
    requests: int
    #: The file that a scene edits, at the end.
    edited: str
    #: It was stopped, because it did not end by itself.
    endless: bool
    seconds: float

    @property
    def faults(self) -> Iterator[str]:
        """Yield what does not hold."""
        yield from self.cell.scene.holds(self)

    @property
    def handed(self) -> bool:
        """Whether the end of a call went to the agent before the cut, so that its tool may run."""
        return handed_over(self.cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One user turn."""

    name: str
    says: str
    plot: Callable[[Agent, Path], Plot]
    holds: Callable[[Found], Iterator[str]]
    prompt: str = "How is the weather?"
    model: str = "fake"
    more: Mapping[str, Any] | None = None
    #: Only where Wiretape makes the ids: before the upstream has said its own, no event can go out.
    crossed: bool = False
    #: Where the stream is cut.
    place: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One scene of one agent on one way."""

    agent: Agent
    way: str
    scene: Scene
    number: int

    @property
    def speaks(self) -> str:
        """Return what the upstream speaks."""
        return self.agent.dialect if self.way == DIRECT else ROUTES[self.way][0] if self.way in ROUTES else "chat"

    @property
    def plot_name(self) -> str:
        """Return the name that the prompt gives the script."""
        return f"cell-{self.number}"

    @property
    def prompt(self) -> str:
        """Return the user's words."""
        if self.scene.prompt.startswith("/"):
            return self.scene.prompt
        return f"{self.scene.prompt} [script {self.plot_name} {self.number}]"


def _answered(found: Found) -> Iterator[str]:
    if found.endless:
        yield "it did not end"
    if found.shown.error:
        yield f"it failed: {found.shown.error[:300]}"
    if ANSWER not in found.shown.text:
        yield f"it shows {found.shown.text[-200:]!r}"


def _towns(found: Found, *towns: str) -> Iterator[str]:
    yield from _answered(found)
    ran = sorted(town_of(line) for line in found.ran)
    if ran != sorted(towns):
        yield f"its tool ran with {ran}"


def town_of(line: str) -> str:
    """Return the town in a line that a tool wrote: the arguments of a command, or JSON."""
    return str(json.loads(line).get("city", line)) if line.startswith("{") else line.split(maxsplit=1)[0]


def _always(*turns: tuple[Said, ...]) -> Callable[[Agent, Path], Plot]:
    return lambda _agent, _folder: Plot(turns=turns)


def _call(agent: Agent, _: Path) -> Plot:
    return Plot(turns=((Thought("Weather."), Text(_FIRST), agent.record(TOWNS[0])), (Text(ANSWER),)))


def _two(agent: Agent, _: Path) -> Plot:
    return Plot(turns=(tuple(agent.record(town) for town in TOWNS), (Text(ANSWER),)))


SCENES: Final = (
    Scene(name="text", says="an answer in text", plot=_always((Text(ANSWER),)), holds=_answered),
    Scene(
        name="call", says="reasoning, text and a call; its result; an answer", plot=_call,
        holds=lambda found: _towns(found, TOWNS[0]),
    ),
    Scene(
        name="two calls", says="two parallel calls, their results, an answer", plot=_two,
        holds=lambda found: _towns(found, *TOWNS),
    ),
)  # fmt: skip


# --- of codex alone --------------------------------------------------------------------------------------------------

_PATCH: Final = "*** Begin Patch\n*** Update File: hello.txt\n@@\n-hello\n+hello world, 18 °C\n*** End Patch\n"
_SCRIPT: Final = 'const r = await tools.exec_command({cmd: "./record Paris 3"});\ntext(r.output ?? r);\n'


def _patched(found: Found) -> Iterator[str]:
    yield from _answered(found)
    if found.edited != "hello world, 18 °C\n":
        yield f"the file holds {found.edited!r}"


def _executed(found: Found) -> Iterator[str]:
    yield from _towns(found, "Paris")
    last = json.dumps(found.asked[-1].body) if found.asked else ""
    for refusal in ("unsupported call", "unsupported custom", "incompatible payload"):
        if refusal in last:
            yield f"codex refuses a call: {refusal}"


def _pictured(found: Found) -> Iterator[str]:
    yield from _answered(found)
    picture = base64.b64encode(PICTURE).decode()
    if not found.asked or picture not in json.dumps(found.asked[-1].body):
        yield "the upstream did not get the picture"


def _loaded(found: Found) -> Iterator[str]:
    yield from _answered(found)
    if not found.asked:
        return
    names = {tool.name for tool in offered(found.asked[-1].dialect, found.asked[-1].body)}
    if "WebFetch" not in names or "TaskStop" not in names:
        yield f"the tools that were found are not offered: {sorted(names)}"
    if "InputValidationError" in json.dumps(found.asked[-1].body)[-20_000:]:
        yield "the call of a tool that was found is refused"


def _counted(found: Found) -> Iterator[str]:
    if found.shown.error or "tokens" not in found.shown.text.lower():
        yield f"it shows {found.shown.text[:200]!r} {found.shown.error[:300]}"


def _after(*wants: Want) -> Callable[[Agent, Path], Plot]:
    return _always(*((want,) for want in wants), (Text(ANSWER),))


CODEX_SCENES: Final = (
    Scene(
        name="apply_patch", says="model `gpt-5.5`: the custom tool `apply_patch` edits a file", model="gpt-5.5",
        plot=_after(Want("apply_patch", _PATCH)), holds=_patched,
    ),
    Scene(
        name="exec", says="model `gpt-6-astra`: the custom tool `exec` of a namespace, then `clock.sleep`",
        model="gpt-6-astra", holds=_executed,
        plot=_after(Want("exec", _SCRIPT, "functions"), Want("sleep", {"duration_ms": 10}, "clock")),
    ),
    Scene(
        name="namespace", says="a call of `multi_agent_v1.close_agent`, whose result names an unknown agent",
        plot=_after(Want("close_agent", {"target": "01a1f7b4-4a7f-7391-96da-62c6c163a6e4"}, "multi_agent_v1")),
        holds=lambda found: (each for each in _executed(found) if "tool ran" not in each),
    ),
    Scene(
        name="picture", says="`view_image`: the picture reaches the upstream", holds=_pictured,
        plot=lambda _, folder: Plot(
            turns=((Want("view_image", {"path": str(folder / "picture.png")}),), (Text(ANSWER),))
        ),
    ),
    Scene(
        name="tool search", says="model `gpt-5.5`: `tool_search`, which the client runs", model="gpt-5.5",
        plot=_after(Want("tool_search", {"query": "calendar"})),
        holds=lambda found: (each for each in _executed(found) if "tool ran" not in each),
    ),
    Scene(
        name="silence", says="20 s of silence inside a text, `stream_idle_timeout_ms` is 8000",
        more={"stream_idle_timeout_ms": 8000}, holds=_answered,
        plot=lambda _agent, _folder: Plot(turns=((Text(ANSWER),),), cut="text", silence_s=_SILENCE_S),
    ),
    Scene(
        name="silence first", says="20 s of silence before the first text, `stream_idle_timeout_ms` is 8000",
        more={"stream_idle_timeout_ms": 8000}, holds=_answered,
        plot=lambda _agent, _folder: Plot(turns=((Text(ANSWER),),), silence_s=_SILENCE_S),
    ),
    Scene(
        name="no head", says="20 s before the status line, `stream_idle_timeout_ms` is 8000",
        more={"stream_idle_timeout_ms": 8000}, holds=_answered, crossed=True,
        plot=lambda _agent, _folder: Plot(turns=((Text(ANSWER),),), cut="head", silence_s=_SILENCE_S),
    ),
)  # fmt: skip

CLAUDE_SCENES: Final = (
    Scene(
        name="picture", says="`Read` of a picture: it reaches the upstream", model="", holds=_pictured,
        plot=lambda _, folder: Plot(
            turns=((Want("Read", {"file_path": str(folder / "picture.png")}),), (Text(ANSWER),))
        ),
    ),
    Scene(
        name="tool search", says="`ToolSearch`, then a call of a tool that it found", model="", holds=_loaded,
        plot=_after(
            Want("ToolSearch", {"query": "select:WebFetch,TaskStop", "max_results": 5}),
            Want("TaskStop", {"task_id": "none"}),
        ),
    ),
    Scene(
        name="/context", says="about 25 requests to `count_tokens`", model="", prompt="/context", holds=_counted,
        plot=_always((Text(ANSWER),)),
    ),
)  # fmt: skip

_OWN: Final[Mapping[str, tuple[Scene, ...]]] = {"codex": CODEX_SCENES, "Claude Code": CLAUDE_SCENES}


def _said(found: Found) -> Iterator[str]:
    if found.endless:
        yield "it did not end"
    if found.shown.error or _SENTENCE not in found.shown.text:
        yield f"it shows {found.shown.text[-200:]!r} {found.shown.error[:300]}"


#: The end of what the tiny model says to everything (tests/real/tiny_gguf.py).
_SENTENCE: Final = "say the people of a small town."
_TINY: Final = Scene(name="text", says="", plot=_always((Text(_SENTENCE),)), holds=_said)


def scenes(agent: Agent) -> Iterator[Cell]:
    """Yield the scenes of one agent: direct, in front of its own dialect and in front of chat."""
    crossed = (f"to-{dialect}" for dialect in ("responses", "messages") if dialect != agent.dialect)
    ways = list(dict.fromkeys((DIRECT, agent.dialect, "chat", *(() if agent.slow else crossed))))
    for scene in (*SCENES, *_OWN.get(agent.name, ())):
        for way in ways:
            if agent.slow and way != "chat" and (way == DIRECT or scene.name != "call"):
                continue
            if (scene.more is None or way != DIRECT) and not (scene.crossed and way in (DIRECT, agent.dialect)):
                yield Cell(agent, way, scene, next(_NUMBERS))
    yield Cell(agent, LLAMA, _TINY, next(_NUMBERS))


# --- cuts ------------------------------------------------------------------------------------------------------------


def _cut(place: str, ending: str) -> Callable[[Agent, Path], Plot]:
    def plot(agent: Agent, _: Path) -> Plot:
        call = agent.record(TOWNS[0])
        turns: dict[str, tuple[Said, ...]] = {"text": (Text(ANSWER),), "second": (Text(_FIRST), call)}
        where = "arguments" if place == "second" else place
        return Plot(turns=(turns.get(place, (call,)), (Text(ANSWER),)), cut=where, ending=ending)

    return plot


def handed_over(cell: Cell) -> bool:
    """Return whether the call's done event went to the client before the cut, so that it may run."""
    if cell.scene.place != "called" or not cell.agent.eager:
        return False
    return cell.way == DIRECT or (cell.speaks == cell.agent.dialect != "chat" and not cell.way.endswith("-held"))


def _ended(found: Found) -> Iterator[str]:
    if found.ran and not found.handed:
        yield f"a tool ran: {', '.join(found.ran)}"
    if found.endless:
        yield "it did not end"
    if not found.shown.error and not found.handed:
        yield f"it ended as a success and shows {found.shown.text[-120:]!r}"
    agent = found.cell.agent
    most = agent.requests_max + (agent.resumes if found.cell.scene.place == "second" else 0)
    if found.cell.way != DIRECT and found.requests > most:
        yield f"{found.requests} requests"


CUTS: Final = {
    (place, ending): Scene(
        name=f"{ending} {place}", says=f"{ENDINGS[ending]} {PLACES[place]}", plot=_cut(place, ending),
        holds=_ended, place=place,
    )
    for place in PLACES
    for ending in ENDINGS
    if place != "second" or ending == "eof"
}  # fmt: skip


def cuts(agent: Agent) -> Iterator[Cell]:
    """Yield the cuts of one agent: direct, in its own dialect, and in front of chat."""
    for (place, ending), scene in CUTS.items():
        for way in dict.fromkeys((DIRECT, agent.dialect, "chat")):
            few = agent.slow and not (ending == "eof" and (place == "text" or way != DIRECT))
            if (way != DIRECT or ending == "eof") and not (few or (agent.slow and place == "second")):
                yield Cell(agent, way, scene, next(_NUMBERS))
    if agent.eager:
        yield Cell(agent, f"{agent.dialect}-held", CUTS["called", "eof"], next(_NUMBERS))
