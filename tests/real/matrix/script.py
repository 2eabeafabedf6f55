"""The cells of the matrix: clients, modes, and what the scripted provider sends, with every ending at every cut."""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio

from wiretape.events.core.model import Event
from wiretape.replay.playback.script import Fault, Request, Script, Step, json_answer

from ..clients import CLIENTS, KEY, Client, question
from ..frames import DONE, USAGE, call, completion, finish, frames, text
from ..processes import NODE, NODE_MODULES, OPENCODE, PYTHONS, ROOT

#: The text before the call, and after its result.
_BEFORE: Final = "Rain or sun? 😀 "
_AFTER: Final = "It is 18 degrees, say the people of a small café."

ENDINGS: Final[Mapping[str, str]] = {
    "clean": "an orderly end of the body, without a finish and without `[DONE]`",
    "done": "`[DONE]` without a finish",
    "reset": "a reset of the connection",
    "stall": "nothing more, on an open connection",
    "error": "an error frame",
    "server_error": "an error frame that calls itself a server error, after which clients are wont to ask again",
    "length": "the finish `length`, as a provider says it that has reached its limit",
}

CUTS: Final[Mapping[str, str]] = {
    "bare": "no text before the call, and not one byte of arguments",
    "half": "in the middle of a value",
    "member": "after a whole member: only a brace seems to lack",
}

#: What is said whole, for the lifecycle.
TURNS: Final[Mapping[str, str]] = {"one": "one call", "two": "two parallel calls of one tool"}

#: The tools that clients have, and with what they are called. The second member never arrives in a stream that is cut.
_CALLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "get_weather": {"city": "Paris", "days": 3},
    "bash": {"command": "./record Paris 3", "description": "Prints the weather"},
    "terminal": {"command": "./record Paris 3", "timeout": 60},
}

#: So that what was written has been read before a reset or an end takes it away.
_GAP_S: Final = 0.01
_LAST_GAP_S: Final = 0.06


@dataclass(frozen=True, slots=True)
class Model:
    """One script: how it ends, where it is cut, which tool it calls, how often at once; and a number of its own."""

    ending: str
    cut: str
    tool: str
    number: int

    @property
    def name(self) -> str:
        """The name that the client requests."""
        return f"{self.ending}-{self.cut}-{self.tool}-{self.number}"

    @classmethod
    def named(cls, name: str) -> "Model | None":
        """Return the model of a name, or None for another model."""
        parts = name.rpartition("/")[2].split("-")
        return cls(parts[0], parts[1], parts[2], int(parts[3])) if len(parts) == 4 else None


class Provider:
    """The provider: responds by the model's name and counts the requests."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._first: defaultdict[str, trio.Event] = defaultdict(trio.Event)

    def first(self, name: str) -> trio.Event:
        """Return the event that the first request for this model sets."""
        return self._first[name]

    def __call__(self, request: Request) -> Script:
        """Return a stream, or the same text in one body."""
        if not request.target.endswith(b"/chat/completions"):
            return json_answer(b'{"object":"list","data":[]}', 200 if request.target.endswith(b"/models") else 404)
        body: dict[str, Any] = json.loads(request.body)
        model = Model.named(body["model"])
        if model is None or not body.get("tools"):
            return _stream(body, [*text("A title", 4), finish("stop")])  # requested for the title
        self.asked[model.name] += 1
        self._first[model.name].set()
        if body["messages"][-1]["role"] == "tool":
            return _stream(body, [*text(_AFTER, len(_AFTER) // 2), finish("stop")])
        return _stream(body, _turn(model), model)


_ERRORS: Final = {
    "error": {"message": "The model has stopped in the middle of its answer", "type": "api_error"},
    "server_error": {"message": "The server had an error while processing your request", "type": "server_error"},
}
_FAULTS: Final = {"reset": Fault.RESET, "stall": Fault.STALL}


def _turn(model: Model) -> Iterator[Event]:
    """Yield the turn with the call."""
    if model.cut != "bare":
        yield from text(_BEFORE, len(_BEFORE) // 2)
    for index in range(2 if model.cut == "two" else 1):
        yield from call(index, f"call_of_{index}", model.tool, _arguments(model.tool, index, model.cut), 11)
    if model.ending in ("whole", "length"):
        yield finish("tool_calls" if model.ending == "whole" else "length")


def arguments_of(tool: str, index: int) -> dict[str, Any]:
    """Return the arguments of one of the parallel calls; some clients merge equal ones."""
    said = json.dumps(_CALLS[tool])
    whole: dict[str, Any] = json.loads(said.replace("Paris", "Lyon") if index else said)
    return whole


def _arguments(tool: str, index: int, cut: str) -> str:
    arguments = arguments_of(tool, index)
    whole, first = json.dumps(arguments), json.dumps(next(iter(arguments.values())))
    ends = {"bare": 0, "half": whole.index(first) + len(first) - 3, "member": whole.index(first) + len(first)}
    return whole[: ends.get(cut, len(whole))]


def _stream(body: Mapping[str, Any], events: Iterable[Event], model: Model | None = None) -> Script:
    """Return a stream with the ending of this model, by default a proper one."""
    ending = model.ending if model is not None else "whole"
    said = list(events)
    if ending in ("whole", "length"):
        options: dict[str, Any] = body.get("stream_options") or {}
        said += [USAGE] * bool(options.get("include_usage"))
    if ending in ("whole", "length", "done"):
        said.append(DONE)
    sent = frames(body["model"], said)
    if ending in _ERRORS:
        error = {"error": _ERRORS[ending] | {"param": None, "code": None}}
        sent.append(b"data: %b\n\n" % json.dumps(error).encode())
    if not body.get("stream"):
        return json_answer(_whole(body, sent))
    fault = _FAULTS.get(ending)
    return Script(steps=[*(Step(_GAP_S, frame) for frame in sent), *([Step(_LAST_GAP_S, fault)] if fault else [])])


def _whole(body: Mapping[str, Any], frames: Sequence[bytes]) -> bytes:
    """Return the same text without a stream; nothing is called there, because a complete call proves nothing."""
    chunks = [json.loads(frame[6:]) for frame in frames if frame.startswith(b'data: {"id"')]
    words = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    return json.dumps(completion(body["model"], words), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A client, and how to run it many times."""

    client: Client
    #: The tool that its model calls; some have only their own.
    tool: str = "get_weather"
    #: The number of parallel processes.
    lanes: int = 1
    cuts: tuple[str, ...] = tuple(CUTS)
    #: Whether it restarts for each question.
    program: bool = False
    #: The timeout that it is given, if it can be given one.
    timeout_s: float = 8
    #: Directly, it is ended so long after its first request.
    patience_s: float = 12
    #: Installed and started in seconds.
    quick: bool = True

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.client.name

    @property
    def lacks(self) -> list[str]:
        """Return the parts that are not installed."""
        needed = [each for each in self.client.command[:1] if isinstance(each, Path)]
        needed += [OPENCODE] * (self.tool == "bash") + [PYTHONS["hermes"]] * (self.tool == "terminal") + [NODE_MODULES]
        return [str(each.relative_to(ROOT)) for each in needed if not each.exists()]


def _python(environment: str, driver: str) -> tuple[str | Path, ...]:
    return (PYTHONS[environment], "-m", f"tests.real.drivers.{driver}")


_KNOWN: Final = {client.name: client for client in CLIENTS}
_NODE_VERCEL: Final = ("node", NODE / "vercel.mjs")

#: Programs restart for each question, so they run fewer cells.
_PROGRAM_CUTS: Final = ("bare", "member")
#: With their start, on a busy machine.
_PROGRAM_S: Final = 150.0


def _own(name: str, package: str, command: tuple[str | Path, ...], *, quick: bool = False, **more: Any) -> Peer:
    """Return a client of the matrices alone; `more` are its mode and timeout."""
    client = Client(name=name, package=package, command=command, mode=more.pop("mode", ""))
    return Peer(client=client, quick=quick, **more)


def _program(client: Client, tool: str = "get_weather") -> Peer:
    """Return a program, which restarts for each question."""
    return Peer(client=client, tool=tool, lanes=2, cuts=_PROGRAM_CUTS, program=True, timeout_s=_PROGRAM_S, quick=False)


_SDKS: Final = ("openai Python, loop", "openai Python, helper", "openai Node, loop", "openai Node, helper")
_HERMES: Final = (sys.executable, "-m", "tests.real.drivers.hermes_cli")

PEERS: Final = (
    *(Peer(client=_KNOWN[name]) for name in (*_SDKS, "LangChain Python", "LangChain JavaScript")),
    *(
        _own(f"Vercel ai, {package}", f"{package} (npm)", _NODE_VERCEL, quick=True, mode=mode, timeout_s=30)
        for package, mode in (("@ai-sdk/openai", "openai"), ("@ai-sdk/openai-compatible", ""))
    ),
    _own("LiteLLM SDK", "litellm", _python("litellm", "litellm_sdk")),
    _own("pydantic-ai", "pydantic-ai-slim", _python("agents", "pydantic_ai_agent")),
    _own("openai-agents", "openai-agents", _python("agents", "openai_agents")),
    _own("llama-index", "llama-index-llms-openai-like", _python("llama_index", "llama_index_like")),
    _program(_KNOWN["llm"]),
    _program(_KNOWN["opencode"], "bash"),
    _program(Client(name="hermes-agent", package="hermes-agent", command=_HERMES), "terminal"),
)

#: No SDK: what it sees of the lifecycle is what is on the wire.
READER: Final = _own(
    "the hermes-aware reader", "", (sys.executable, "-m", "tests.real.drivers.hermes_reader"), quick=True
)


DIRECT: Final = "direct"

#: Each is a route of one Wiretape, with its table in wiretape.toml.
WAYS: Final[Mapping[str, Mapping[str, str]]] = {
    "error": {"on_partial": "error"},
    "warn": {"on_partial": "warn"},
    "both": {"on_partial": "both"},
    "held": {"on_partial": "error", "tools": "held"},
    "both-held": {"on_partial": "both", "tools": "held"},
}

#: What a tool offers of whose arguments none is required: so that nothing but ours keeps `{}` from being run.
_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of one town",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}

#: In which the lifecycle is looked at: the defaults, and calls that are shown only when they are whole.
LIFECYCLE_WAYS: Final = ("error", "held")

_SLOW: Final = ("stall", "server_error")
_NUMBERS: Final = count(1)


@dataclass(frozen=True, slots=True)
class Cell:
    """One user turn of one client."""

    peer: Peer
    way: str
    model: Model

    @property
    def patience_s(self) -> float:
        """How long after its first request an end is waited for. Through Wiretape everything ends by itself."""
        if self.model.ending == "server_error":
            return 90
        return self.peer.patience_s if self.way == DIRECT else 45

    def question(self, base_url: str, folder: Path) -> dict[str, Any]:
        """Return the driver's instructions. They say nothing about retries, so that each client uses its default."""
        return question(
            base_url,
            KEY,
            self.model.name,
            "How is the weather in Paris for the next three days?",
            tool=_TOOL,
            mode=self.peer.client.mode,
            timeout=self.peer.timeout_s,
            record=str(folder / "ran"),
            stop=str(folder / "stop"),
        )


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a cell."""

    cell: Cell
    #: As the driver says it: turns and error.
    result: dict[str, Any]
    #: With what the tool was run, as the tool itself wrote it down.
    ran: list[str]
    #: At the provider.
    asked: int
    #: What the client got, a stream a request, where it went through Wiretape and the tapes have been read.
    streams: list[bytes] | None = None

    @property
    def requests(self) -> int:
        """The client's own."""
        return self.asked if self.streams is None else len(self.streams)


def cells(peer: Peer) -> Iterator[Cell]:
    """Yield all cells of one client, the slow ones first."""
    for ending in sorted(ENDINGS, key=lambda name: name not in _SLOW):
        for cut in (cut for cut in CUTS if cut in peer.cuts):
            for way in (DIRECT, *WAYS):
                if ending != "server_error" or (cut == "member" and way in (DIRECT, "error")):
                    yield Cell(peer, way, Model(ending, cut, peer.tool, next(_NUMBERS)))


def conversations(peer: Peer) -> Iterator[Cell]:
    """Yield the complete conversations of two turns."""
    for turns in TURNS:
        for way in (DIRECT, *LIFECYCLE_WAYS):
            yield Cell(peer, way, Model("whole", turns, peer.tool, next(_NUMBERS)))


def configuration(upstream: str) -> str:
    """Return a wiretape.toml."""
    lines = [f'upstream = "{upstream}"', "idle_s = 2"]
    for name, settings in WAYS.items():
        lines += ["", f"[routes.{name}]", f'upstream = "{upstream}"']
        lines += [f'{key} = "{value}"' for key, value in settings.items()]
    return "\n".join(lines) + "\n"
