"""The demo: three scripted streams through the real proxy, and what the client and the tape show of each.

It uses loopback only, and its client reads frames as they arrive, like any SDK.
"""

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import trio
from rich.console import Group, RenderableType
from rich.text import Text

from wiretape.events.chat.chunk import envelope, payloads
from wiretape.events.core.json_text import as_object, dumps, parse
from wiretape.events.core.model import Event, Finish, Terminator, TextDelta, ToolArgumentsDelta, ToolCallStarted, Usage
from wiretape.events.dialects import PLACES
from wiretape.events.emit import Summariser, events, summarise
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.tape.tape import Recorder
from wiretape.events.wire.sse import encode
from wiretape.proxy.api.streams import summary_json
from wiretape.proxy.cli.show import ID_CHARS, TextView, console, summary_view
from wiretape.proxy.cli.tapes import read_tape, tapes_of
from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.log import Log, stderr_fd
from wiretape.proxy.serve import running

from ..playback.script import Fault, Request, Script, event_stream, json_answer
from ..playback.server import listening

__all__ = ["SCENES", "Played", "Scene", "played", "run_demo"]

#: Both sides of the demo speak chat.
_CHAT: Final = PLACES["chat"].words
#: The pause between two frames. A person sees them arrive, and each stream takes about a second.
_GAP_S: Final = 0.04
_SENTENCE: Final = "A tape keeps every byte of a stream, its timing, and how it ended."
_INTRODUCTION: Final = "A scripted upstream, the real proxy and a plain client, all on this machine."


def _frames(*written: Event) -> list[bytes]:
    """Write events as an upstream does."""
    return [
        encode(payload) for payload in payloads(written, envelope(f"{_CHAT.id_prefixes[0]}demo", "demo", 1_700_000_000))
    ]


def _call(number: int, name: str, id: str, arguments: str) -> list[Event]:  # noqa: A002 - the field's name
    pieces = [arguments[at : at + 9] for at in range(0, len(arguments), 9)]
    deltas = [ToolArgumentsDelta(n=0, choice=0, call=number, text=piece) for piece in pieces]
    return [ToolCallStarted(n=0, choice=0, call=number, id=id, name=name), *deltas]


def _text() -> list[bytes]:
    words = [TextDelta(n=0, choice=0, text=f"{word} ") for word in _SENTENCE.split(" ")]
    usage = Usage(n=0, counts={"prompt_tokens": 12, "completion_tokens": len(words), "total_tokens": 12 + len(words)})
    return _frames(*words, Finish(n=0, choice=0, reason="stop"), usage, Terminator(n=0))


def _tools() -> list[bytes]:
    """Make two faults of real providers: both calls have index 0, and the finish reason is not `tool_calls`."""
    calls = _call(0, "read_file", "call_read", '{"path":"notes.md"}')
    calls += _call(1, "list_files", "call_list", '{"folder":"."}')
    frames = _frames(*calls, Finish(n=0, choice=0, reason="stop"), Terminator(n=0))
    return [frame.replace(b'"index":1', b'"index":0') for frame in frames]


def _cut() -> list[bytes]:
    arguments = '{"path":"notes.md","content":"# Things to remember\\n- the upstream may'
    return _frames(
        TextDelta(n=0, choice=0, text="I will write it down. "), *_call(0, "write_file", "call_write", arguments)
    )


class Scene(NamedTuple):
    """One stream: its model, title and question, the upstream's frames, and its ending on the tape."""

    model: str
    title: str
    question: str
    frames: list[bytes]
    ending: str

    @property
    def script(self) -> Script:
        return event_stream(self.frames, gap_s=_GAP_S, end=None if self.ending == "completed" else Fault.CUT)


SCENES: Final = (
    Scene("demo-text", "A text", "What does a tape keep?", _text(), "completed"),
    Scene(
        "demo-tools",
        "Two tool calls, both with index 0, and a finish reason of stop",
        "Read my notes, and list the files.",
        _tools(),
        "completed",
    ),
    Scene(
        "demo-cut",
        "The upstream closes the connection in the middle of a tool call",
        "Write that down.",
        _cut(),
        "truncated",
    ),
)


class Played(NamedTuple):
    """One scene with both of its sides."""

    scene: Scene
    status: int
    stream: str
    #: What the client makes of the bytes that it received.
    client: StreamSummary
    #: The summary of its tape.
    tape: dict[str, Any]

    def sides(self) -> Group:
        """Return what the client received, and the tape as `wiretape show` prints it."""
        wire, text = self.client.wire, self.client.answer().text.strip()
        lines = [f"status {self.status}", *([f"text: {text}"] if text else [])]
        lines += [f"tool call {call.id}: {call.name} {call.arguments}" for call in wire.calls()]
        finish, done = wire.choices[0].finish, "yes" if wire.terminated else "no"
        lines.append(f"finish: {finish or 'none'}, terminator: {done}")
        error = [Text(f"error: {wire.error.message}", style="bold red")] if wire.error is not None else []
        heads = [Text(f"\n{words}\n", style="bold") for words in ("What the client received", "What the tape shows")]
        return Group(heads[0], *map(Text, lines), *error, heads[1], summary_view(self.tape), Text())


async def _ask(url: str, scene: Scene, show: Callable[[RenderableType], None]) -> tuple[int, str, StreamSummary]:
    """Request a scene, and show its text and calls as they arrive; return status, stream and summary."""
    messages = [{"role": "user", "content": scene.question}]
    body = dumps({"model": scene.model, "stream": True, "messages": messages})
    headers = {"Content-Type": "application/json", "Authorization": "Bearer demo"}
    view, recorder, shown = TextView(), Recorder(), 0
    records = [recorder.record("open", 0, {"format": 1, "stream": "seen", "dialect": "chat"})]
    async with (
        httpx.AsyncClient(verify=False, trust_env=False) as client,  # noqa: S501 - loopback needs neither TLS nor a proxy
        client.stream("POST", f"{url}/v1{_CHAT.path}", headers=headers, content=body) as response,
    ):
        async for data in response.aiter_raw():
            records += recorder.read(int(trio.current_time() * 1_000_000), data)
            seen = list(events(records, repairs=False))
            for text in filter(None, map(view.add, seen[shown:])):
                show(text)
            shown = len(seen)
    return response.status_code, response.headers["x-wiretape-stream"], summarise(records)


def run_demo(data: Path | None) -> bool:
    """Play and print all scenes; return whether every stream ended as it should."""
    folder = data or Path(tempfile.mkdtemp(prefix="wiretape-demo-"))
    out = console()

    def show(what: RenderableType) -> None:
        out.print(what, end="")

    show(_INTRODUCTION + "\n")
    found = trio.run(played, folder, show)
    show(_next_steps(folder, found[-1].stream))
    return all(one.tape["ending"] == one.scene.ending for one in found)


async def played(data: Path, show: Callable[[RenderableType], None] = lambda _: None) -> list[Played]:
    """Play each scene; `show` gets its title, its content as it arrives, and both of its sides."""
    found: list[Played] = []
    async with AsyncExitStack() as stack:
        upstream, _ = await stack.enter_async_context(listening(_choose))
        route = Route(name="", targets=(Target(name="scripted", url=upstream),))
        log = Log(stderr_fd(), level="error")
        stack.callback(log.close)
        server = await stack.enter_async_context(running(Config(data=data, port=0, routes={"": route}), log=log))
        for scene in SCENES:
            show(Text(f"\n{scene.title}\n\n", style="bold cyan"))
            status, stream, client = await _ask(server.url, scene, show)
            records, *_ = read_tape(tapes_of(data)[stream])
            summary = summary_json(stream, Summariser().feed(*records), whole=True)
            found.append(Played(scene, status, stream, client, summary))
            show(Text("\n"))
            show(found[-1].sides())
    return found


def _choose(request: Request) -> Script:
    scripts = {scene.model: scene.script for scene in SCENES}
    return scripts.get(str(as_object(parse(request.body)).get("model"))) or json_answer(
        b'{"error":{"message":"no such model"}}', 404
    )


def _next_steps(folder: Path, stream: str) -> str:
    started, data = Path(sys.argv[0]), shlex.quote(str(folder))
    run = "wiretape" if started.name != "wiretape" or shutil.which("wiretape") else shlex.quote(str(started))
    if "UV" in os.environ and "VIRTUAL_ENV" not in os.environ:  # set so by uvx, which installs no command
        run = "uvx wiretape"
    return f"""
The tapes stay. Look further with

  {run} ls --data {data}
  {run} show {stream[:ID_CHARS]} --data {data}
  {run} show {stream[:ID_CHARS]} --raw --data {data}

and record your own provider with

  {run} serve --upstream https://api.example.com/v1
"""
