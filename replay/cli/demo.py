"""Three streams through the real proxy before a scripted upstream, and what the client saw beside what is on the tape

Nothing but loopback is used. The client takes the frames as they come, like any SDK.
"""

import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import trio
from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table
from rich.text import Text

from wiretape.events.chat.write import Envelope, payloads
from wiretape.events.core.json_text import as_object, dumps, parse
from wiretape.events.core.model import Event, Finish, Terminator, TextDelta, ToolArgumentsDelta, ToolCallStarted, Usage
from wiretape.events.emission.emit import Emitter
from wiretape.events.emission.summarise import Summariser
from wiretape.events.folds.message import Message
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.tape import Recorder
from wiretape.events.wire.sse import encode
from wiretape.proxy.api.summary import summary_json
from wiretape.proxy.cli.common import print_json
from wiretape.proxy.cli.show import ID_CHARS, Saying, console
from wiretape.proxy.cli.tapes import find, read_tape
from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.log import Log, stderr_fd
from wiretape.proxy.serve import running
from wiretape.proxy.upstream.transport import UpstreamTransport, body_of

from ..playback.script import Fault, Request, Script, event_stream, json_answer
from ..playback.server import listening

__all__ = ["SCENES", "Played", "Saw", "Scene", "played", "run_demo"]

#: Between two pieces, so that a person sees them come; each stream then takes about a second.
_GAP_S: Final = 0.04
#: Two columns that are read beside each other.
_WIDTH_MAX: Final = 100
_SENTENCE: Final = "A tape keeps every byte that came, when it came, and how it ended."
_INTRODUCTION: Final = """\
A scripted upstream, the real proxy before it and a plain client, all on this machine."""


def _nothing(_: object) -> None:
    return


def _frames(*said: Event) -> list[bytes]:
    """As an upstream writes them."""
    return [encode(payload) for payload in payloads(said, Envelope("chatcmpl-demo", "demo", 1_700_000_000))]


def _call(number: int, name: str, id: str, arguments: str) -> list[Event]:  # noqa: A002 - the field's name
    pieces = [arguments[at : at + 9] for at in range(0, len(arguments), 9)]
    deltas = [ToolArgumentsDelta(n=0, choice=0, call=number, text=piece) for piece in pieces]
    return [ToolCallStarted(n=0, choice=0, call=number, id=id, name=name), *deltas]


def _text() -> list[bytes]:
    words = [TextDelta(n=0, choice=0, text=f"{word} ") for word in _SENTENCE.split(" ")]
    usage = Usage(n=0, counts={"prompt_tokens": 12, "completion_tokens": len(words), "total_tokens": 12 + len(words)})
    return _frames(*words, Finish(n=0, choice=0, reason="stop"), usage, Terminator(n=0))


def _tools() -> list[bytes]:
    """Two wrongs of real providers: both calls have the number 0, and the finish does not tell that there are any."""
    calls = _call(0, "read_file", "call_read", '{"path":"notes.md"}')
    calls += _call(1, "list_files", "call_list", '{"folder":"."}')
    frames = _frames(*calls, Finish(n=0, choice=0, reason="stop"), Terminator(n=0))
    return [frame.replace(b'"index":1', b'"index":0') for frame in frames]


def _cut() -> list[bytes]:
    arguments = '{"path":"notes.md","content":"# Things to remember\\n- the upstream may'
    return _frames(TextDelta(n=0, choice=0, text="I write it down. "), *_call(0, "write_file", "call_write", arguments))


class Scene(NamedTuple):
    """One stream: what is shown, which script answers it, and how it has to end on the tape."""

    model: str
    title: str
    script: Script
    ending: str


SCENES: Final = (
    Scene("demo-text", "A text", event_stream(_text(), gap_s=_GAP_S), "completed"),
    Scene(
        "demo-tools",
        "Two tool calls, both numbered 0, and a finish that says stop",
        event_stream(_tools(), gap_s=_GAP_S),
        "completed",
    ),
    Scene(
        "demo-cut",
        "The upstream closes the connection in the middle of a tool call",
        event_stream(_cut(), gap_s=_GAP_S, end=Fault.CUT),
        "truncated",
    ),
)


class Saw:
    """What a client makes of the bytes that it gets."""

    def __init__(self) -> None:
        self.status = 0
        self.stream = ""
        self.message = Message()
        self.wire = Wire()
        self._recorder = Recorder()
        self._seen: list[Event] = []
        self._emitter = Emitter("transparent", self._seen.append)
        self._emitter.feed(self._recorder.record("open", 0, {"format": 1, "stream": "seen", "dialect": "chat"}))

    @property
    def tools(self) -> list[tuple[str, str, str]]:
        """Id, name and arguments of each call."""
        return self.message.calls()

    @property
    def finish(self) -> str:
        """The word that it ended with, if any."""
        return "".join(said.finish for said in self.message.choices.values())

    @property
    def error(self) -> str:
        """What an SDK would raise."""
        return self.wire.error.message if self.wire.error is not None else ""

    def take(self, t: int, data: bytes) -> Iterator[Event]:
        """One read, and what is new in it."""
        for record in self._recorder.read(t, data):
            self._emitter.feed(record)
        for event in self._seen:
            self.message.apply(event)
            self.wire.apply(event)
            yield event
        self._seen.clear()

    def to_json(self) -> dict[str, Any]:
        """One side of `--json`."""
        calls = [dict(zip(("id", "name", "arguments"), call, strict=True)) for call in self.tools]
        said = {"status": self.status, "text": self.message.text(), "tools": calls, "finish": self.finish or None}
        return {**said, "error": self.error or None, "done": self.wire.terminated}


class Played(NamedTuple):
    """One scene as it went: both sides of it."""

    scene: Scene
    saw: Saw
    #: The summary of its tape.
    tape: dict[str, Any]

    @property
    def as_due(self) -> bool:
        """Whether it ended as it has to."""
        return bool(self.tape["ending"] == self.scene.ending)

    def to_json(self) -> dict[str, Any]:
        """One element of `--json`."""
        return {"title": self.scene.title, "client": self.saw.to_json(), "tape": self.tape}

    def __rich__(self) -> Table:
        """Both sides, beside each other."""
        table = Table(box=SIMPLE, expand=False, header_style="bold")
        table.add_column("what the client got", overflow="fold", ratio=1)
        table.add_column("what is on the tape", overflow="fold", ratio=1)
        table.add_row(Group(*_client_side(self.saw)), Group(*_tape_side(self.tape)))
        return table


def _client_side(saw: Saw) -> Iterator[Text]:
    yield Text(f"status {saw.status}")
    if saw.message.text():
        yield Text(f"text: {saw.message.text().strip()}")
    for id_, name, arguments in saw.tools:
        yield Text(f"tool call {id_}: {name} {arguments}")
    yield Text(f"finish_reason: {saw.finish or 'none'}, [DONE]: {'yes' if saw.wire.terminated else 'no'}")
    if saw.error:
        yield Text(f"error: {saw.error}", style="bold red")


def _tape_side(tape: Mapping[str, Any]) -> Iterator[Text]:
    yield Text(f"stream {tape['id']}", style="dim")
    good = tape["ending"] == "completed"
    yield Text(f"ending: {tape['ending']}", style="green" if good else "bold red")
    for call in tape["tools"]:
        reason = f" ({call['reason']})" if call["reason"] else ""
        yield Text(
            f"tool call {call['id']}: {call['name']} {call['state']}{reason}, {call['arguments_chars']} characters"
        )
    for warning in tape["warnings"]:
        names = ", ".join(call["name"] for call in warning["calls"])
        yield Text(f"⚠ {warning['code']}{': ' if names else ''}{names}", style="bold red")
    if tape["repairs"]:
        yield Text("repairs: " + ", ".join(f"{name} {count}x" for name, count in tape["repairs"].items()))
    first, whole = (tape["timing"][name] or 0 for name in ("first_content_us", "duration_us"))
    yield Text(f"{tape['received']['frames']} frames, first content {first / 1e6:.2f} s, whole {whole / 1e6:.2f} s")


def _title(scene: Scene) -> Text:
    return Text(f"\n{scene.title}\n", style="bold cyan")


def _further(folder: Path, stream: str) -> str:
    data, run = shlex.quote(str(folder)), _command()
    return f"""\
The tapes stay. To look further:

  {run} ls --data {data}
  {run} show {stream[:ID_CHARS]} --data {data}
  {run} show {stream[:ID_CHARS]} --raw --data {data}

And before your own provider:

  {run} serve --upstream https://api.example.com/v1
"""


def _command() -> str:
    """How to start it again from here: by its name where that is found, else as we were started."""
    started = Path(sys.argv[0])
    return shlex.quote(str(started)) if started.name == "wiretape" and not shutil.which("wiretape") else "wiretape"


def run_demo(data: Path | None, *, as_json: bool = False) -> bool:
    """Plays and prints; whether every stream ended as it has to."""
    folder = data or Path(tempfile.mkdtemp(prefix="wiretape-demo-"))
    if as_json:
        found = trio.run(played, folder)
        print_json([one.to_json() for one in found])
    else:
        out = console()

        def say(said: str) -> None:
            out.print(said, end="")

        def before(scene: Scene) -> None:
            out.print(_title(scene))

        def after(one: Played) -> None:
            out.print("\n", one, width=min(out.width, _WIDTH_MAX))

        out.print(_INTRODUCTION)
        found = trio.run(played, folder, say, before, after)
        out.print(_further(folder, found[-1].saw.stream))
    return all(one.as_due for one in found)


async def played(
    data: Path,
    say: Callable[[str], None] = _nothing,
    before: Callable[[Scene], None] = _nothing,
    after: Callable[["Played"], None] = _nothing,
) -> list[Played]:
    """Each scene in turn; `say` gets what comes while it comes."""
    found: list[Played] = []
    async with listening(_choose) as (upstream, _):
        route = Route(name="", targets=(Target(name="scripted", url=upstream),))
        config = Config(data=data, port=0, routes={"": route})
        log = Log(stderr_fd(), level="error")
        try:
            async with running(config, log=log) as server:
                for scene in SCENES:
                    before(scene)
                    saw = await _asked(server.url, scene, say)
                    records, _ = read_tape(find(data, saw.stream))
                    found.append(Played(scene, saw, summary_json(saw.stream, Summariser().feed(*records), whole=True)))
                    after(found[-1])
        finally:
            log.close()
    return found


def _choose(request: Request) -> Script:
    asked: dict[str, Any] = as_object(parse(request.body))
    scripts = {scene.model: scene.script for scene in SCENES}
    return scripts.get(str(asked.get("model"))) or json_answer(b'{"error":{"message":"no such model"}}', 404)


async def _asked(url: str, scene: Scene, say: Callable[[str], None]) -> Saw:
    """The request of a client, and the answer as it reads it."""
    messages = [{"role": "user", "content": scene.title}]
    body = dumps({"model": scene.model, "stream": True, "messages": messages})
    headers = {"Content-Type": "application/json", "Authorization": "Bearer demo"}
    request = httpx.Request("POST", f"{url}/v1/chat/completions", content=body, headers=headers)
    saw, saying = Saw(), Saying()
    async with UpstreamTransport() as transport:
        response = await transport.handle_async_request(request)
        saw.status, saw.stream = response.status_code, response.headers.get("x-wiretape-stream", "")
        async with body_of(response) as answer:
            while (read := await answer.receive()) is not None:
                for event in saw.take(int(read.t * 1_000_000), read.data):
                    said = saying.say(event)
                    if said:
                        say(said)
    return saw
