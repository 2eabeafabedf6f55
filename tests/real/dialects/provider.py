"""The scripted upstream. A prompt names its script and the number of its cell: `[script call 12]`.

Its base URL says what it speaks, as in `/only/chat/v1`; every other path is 404, as of a server that has never heard
of a dialect. The turn follows from the results in the request, so that a client that asks again gets the same again.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from wiretape.replay.playback.script import Fault, Request, Script, Step, json_answer

from .turns import SPEECHES, Call, Part, Speech, Text, Thought

_NAMED: Final = re.compile(rb"\[script ([a-z0-9_-]+) (\d+)\]")
_WHERE: Final = re.compile(rb"/only/([a-z]+)/")

#: So that what was written has been read before a reset takes it away.
_GAP_S: Final = 0.004
_LAST_GAP_S: Final = 0.08

#: What `count_tokens` says where Messages is spoken.
COUNTED: Final = 4242


@dataclass(frozen=True, slots=True)
class Want:
    """A call of a tool that the request has to offer, under its name in the client."""

    tool: str
    arguments: Mapping[str, Any] | str
    namespace: str = ""


Said = Text | Thought | Want


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """What the upstream says, one sequence for each turn, and what goes wrong in the first one."""

    turns: tuple[tuple[Said, ...], ...]
    #: `text`, `arguments` or `called`: where the first turn is cut; `head` is before the first byte.
    cut: str = ""
    #: `eof`, `reset` or `error`: how.
    ending: str = ""
    #: At that place it says nothing for so long, and then goes on.
    silence_s: float = 0

    @property
    def calls(self) -> bool:
        """Return whether a tool is called."""
        return any(isinstance(said, Want) for turn in self.turns for said in turn)


class Asked(NamedTuple):
    """One request as it came."""

    dialect: str
    streamed: bool
    body: dict[str, Any]
    headers: dict[str, str]


class Tool(NamedTuple):
    """A tool as a request offers it."""

    name: str
    namespace: str
    kind: str


def _items(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a Responses request, whose input may be one text."""
    items: list[dict[str, Any]] = [] if isinstance(body["input"], str) else body["input"]
    return items


def offered(dialect: str, body: Mapping[str, Any]) -> Iterator[Tool]:
    """Yield the tools that a request offers."""
    given: list[dict[str, Any]] = list(body.get("tools") or [])
    if dialect == "chat":
        yield from (Tool(each["function"]["name"], "", "function") for each in given)
        return
    if dialect == "messages":
        yield from (Tool(each["name"], "", "function") for each in given)
        return
    for item in _items(body):
        given += item.get("tools", [])
    for each in given:
        if each["type"] == "namespace":
            yield from (Tool(inner["name"], each["name"], inner["type"]) for inner in each["tools"])
        else:
            yield Tool(each.get("name", each["type"]), "", each["type"])


def results(dialect: str, body: Mapping[str, Any]) -> int:
    """Return how many results of calls a request holds."""
    if dialect == "responses":
        return sum(str(item.get("type", "")).endswith("_output") for item in _items(body))
    messages: list[dict[str, Any]] = body["messages"]
    if dialect == "chat":
        return sum(message["role"] == "tool" for message in messages)
    blocks: list[dict[str, Any]] = []
    for message in messages:
        blocks += message["content"] if isinstance(message["content"], list) else []
    return sum(block["type"] == "tool_result" for block in blocks)


class Provider:
    """Answers by the script that the prompt names, and keeps what it was asked."""

    def __init__(self, plots: Mapping[str, Plot]) -> None:
        self.asked: defaultdict[int, list[Asked]] = defaultdict(list)
        #: How often tokens were counted.
        self.counted = 0
        self._plots = plots

    def __call__(self, request: Request) -> Script:
        """Return the answer to one request."""
        where = _WHERE.search(request.target)
        speaks = where[1].decode() if where else "all"
        path = request.target.partition(b"?")[0]
        if path.endswith(b"/models"):
            return json_answer(b'{"object":"list","data":[]}')
        if path.endswith(b"/messages/count_tokens") and speaks in ("messages", "all"):
            self.counted += 1
            return json_answer(b'{"input_tokens":%d}' % COUNTED)
        for dialect, speech in SPEECHES.items():
            if path.endswith(speech.path) and speaks in (dialect, "all"):
                return self._answer(dialect, speech, request)
        return json_answer(b'{"detail":"Not Found"}', 404)

    def _answer(self, dialect: str, speech: Speech, request: Request) -> Script:
        body: dict[str, Any] = json.loads(request.body)
        named = _NAMED.findall(request.body)
        tools = list(offered(dialect, body))
        if not named:  # asked for a title
            return _whole_or_stream(speech, body, [Text("A title")])
        name, number = named[-1]
        headers = {key.decode().lower(): value.decode() for key, value in request.headers}
        self.asked[int(number)].append(Asked(dialect, bool(body.get("stream")), body, headers))
        plot = self._plots[name.decode()]
        turn = _turn(plot, results(dialect, body))
        parts = [_resolved(said, index, turn, tools, dialect) for index, said in enumerate(plot.turns[turn])]
        if turn == 0 and (plot.ending or plot.silence_s):
            return _broken(speech, body, parts, plot)
        return _whole_or_stream(speech, body, parts)


def _turn(plot: Plot, had: int) -> int:
    """Return the first turn whose calls have no results yet, or that calls nothing."""
    due = 0
    for number, turn in enumerate(plot.turns):
        calls = sum(isinstance(said, Want) for said in turn)
        due += calls
        if not calls or had < due:
            return number
    return len(plot.turns) - 1


def _resolved(said: Said, index: int, turn: int, tools: Sequence[Tool], dialect: str) -> Part:
    """Return a call under the name that the request gives the tool; a text where it is not offered."""
    if not isinstance(said, Want):
        return said
    flat = f"{said.namespace}__{said.tool}" if said.namespace else said.tool
    for tool in tools:
        if (tool.name, tool.namespace) in ((said.tool, said.namespace), (flat, "")):
            custom = isinstance(said.arguments, str)
            if custom and tool.kind != "custom":
                arguments = json.dumps({"input": said.arguments})
            else:
                arguments = said.arguments if isinstance(said.arguments, str) else json.dumps(said.arguments)
            prefix = "toolu" if dialect == "messages" else "call"
            return Call(f"{prefix}_{turn}_{index}", tool.name, arguments, tool.namespace, tool.kind)
    return Text(f"The tool {flat} is not offered. ")


def _whole_or_stream(speech: Speech, body: Mapping[str, Any], parts: Sequence[Part]) -> Script:
    if not body.get("stream"):
        return json_answer(json.dumps(speech.whole(body["model"], parts), ensure_ascii=False).encode())
    return Script(steps=[Step(_GAP_S, frame.data) for frame in speech.stream(body["model"], parts)])


def _broken(speech: Speech, body: Mapping[str, Any], parts: Sequence[Part], plot: Plot) -> Script:
    """Return the first turn of a script that breaks; an answer in one piece breaks in its middle."""
    if not body.get("stream"):
        if plot.silence_s:
            return _whole_or_stream(speech, body, parts)
        if plot.ending == "error":
            return json_answer(b'{"error":{"message":"The server had an error","type":"server_error"}}', 500)
        whole = json.dumps(speech.whole(body["model"], parts)).encode()
        headers = ((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(whole)))
        fault = Fault.RESET if plot.ending == "reset" else Fault.CUT
        return Script(headers=headers, steps=[Step(0, whole[: len(whole) // 2]), Step(_LAST_GAP_S, fault)])
    frames = list(speech.stream(body["model"], parts))
    if plot.cut == "head":
        return Script(head_delay_s=plot.silence_s, steps=[Step(_GAP_S, frame.data) for frame in frames])
    place = next((number for number, frame in enumerate(frames) if frame.place == plot.cut), 0)
    before, after = frames[: place + 1], frames[place + 1 :]
    steps = [Step(_GAP_S, frame.data) for frame in before]
    if plot.silence_s:
        waits = [plot.silence_s, *(_GAP_S for _ in after[1:])]
        return Script(steps=[*steps, *(Step(wait, frame.data) for wait, frame in zip(waits, after, strict=True))])
    return Script(steps=[*steps, *_ENDINGS[plot.ending](speech)])


_ENDINGS: Final[Mapping[str, Callable[[Speech], list[Step]]]] = {
    "eof": lambda _: [],
    "cut": lambda _: [Step(_LAST_GAP_S, Fault.CUT)],
    "reset": lambda _: [Step(_LAST_GAP_S, Fault.RESET)],
    "error": lambda speech: [Step(_GAP_S, speech.error)],
}
