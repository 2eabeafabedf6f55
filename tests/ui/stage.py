"""A real `wiretape serve` in front of a scripted upstream, and the streams that the tests and pictures look at."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import httpx
import trio

from wiretape.replay.playback.script import Fault, Request, Script, Step, json_answer
from wiretape.replay.playback.server import listening

WIRETAPE: Final = Path(sys.executable).with_name("wiretape")
_READY_S: Final = 30.0
_ANSWER_S: Final = 60.0
_GAP_S: Final = 0.03
_TASK: Final = "Write down what the meeting decided, and put it into notes/decisions.md."
_DRAFT: Final = """{"path":"notes/decisions.md","content":"# Decisions\\n\\n- Ship the inspector with 1.0.\\n\
- Keep the tape format at version 1.\\n- Retry only before the first by"""
_TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {each: {"type": "string"} for each in parameters}},
        },
    }
    for name, parameters in {"write_file": ("path", "content"), "read_file": ("path",)}.items()
]


def chunk(delta: Mapping[str, Any], finish: str | None = None, *, model: str = "gpt-4o", **more: Any) -> bytes:
    """Return one frame of a chat stream."""
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "chatcmpl-9hQ2", "object": "chat.completion.chunk", "created": 1_795_000_000, "model": model}
    return b"data: %b\n\n" % json.dumps({**head, "choices": choices, **more}, separators=(",", ":")).encode()


def words(text: str, member: str = "content", **more: Any) -> list[bytes]:
    """Return a text in frames of a word each."""
    return [chunk({member: each}, **more) for each in re.findall(r"\S+\s*", text)]


def call(name: str, identity: str, arguments: str, size: int = 7, index: int = 0) -> list[bytes]:
    """Return the frames of a tool call."""
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    first = {"index": index, "id": identity, "type": "function", "function": {"name": name, "arguments": ""}}
    return [
        chunk({"role": "assistant", "tool_calls": [first]}),
        *(chunk({"tool_calls": [{"index": index, "function": {"arguments": each}}]}) for each in pieces),
    ]


def done(reason: str = "stop", prompt: int = 412, completion: int = 58) -> list[bytes]:
    """Return the frames that end a stream."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return [chunk({}, reason), chunk({}, usage=usage), b"data: [DONE]\n\n"]


def paced(frames: Sequence[bytes], *, pauses: Mapping[int, float] | None = None, end: Fault | None = None) -> Script:
    """Return a script with a small gap before each frame, and longer ones before some."""
    steps = [Step((pauses or {}).get(at, _GAP_S), frame) for at, frame in enumerate(frames)]
    return Script(steps=[*steps, *([Step(_GAP_S, end)] if end else [])], head_delay_s=0.18)


def _cut() -> Script:
    """A truncated call: thinking, a sentence, a silence of 1.4 s, and the connection closes inside the arguments."""
    thought = words("The user wants a file. I have the decisions. I will use write_file.", "reasoning_content")
    said = words("I will put the three decisions into notes/decisions.md now. ")
    frames = [*thought, *said, *call("write_file", "call_w8", _DRAFT)]
    return paced(frames, pauses={len(thought): 0.3, len(thought) + len(said) + 6: 1.4}, end=Fault.CUT)


#: What the upstream plays for a model.
SCENES: Final[Mapping[str, Callable[[], Script]]] = {
    "gpt-4o": _cut,
    "gpt-4o-mini": lambda: paced(
        [*words("Three decisions: ship the inspector, keep format 1, and retry early."), *done()]
    ),
    "o4-read": lambda: paced([*call("read_file", "call_r1", '{"path":"notes/decisions.md"}'), *done("stop")]),
    "o4-answer": lambda: paced([*words("The notes list three decisions."), *done(prompt=530, completion=9)]),
    "reset": lambda: paced(words("This answer is going to be reset before it"), end=Fault.RESET),
    "busy": lambda: json_answer(b'{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}', 429),
}


class Upstream:
    """A scripted upstream in a thread. `scripts` may be changed while it runs."""

    def __init__(self) -> None:
        self.scripts: dict[str, Callable[[], Script]] = dict(SCENES)
        #: By model: how many requests fail with a 503 first.
        self.failing: dict[str, int] = {}
        self.url = ""
        self._ready = threading.Event()
        self._scope: trio.CancelScope | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=trio.run, args=(self._serve,))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_READY_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        assert self._scope is not None
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join()

    async def _serve(self) -> None:
        with trio.CancelScope() as self._scope:
            async with listening(self._choose) as (self.url, _):
                self._token = trio.lowlevel.current_trio_token()
                self._ready.set()
                await trio.sleep_forever()

    def _choose(self, request: Request) -> Script:
        model = str(json.loads(request.body or b"{}").get("model"))
        if self.failing.get(model):
            self.failing[model] -= 1
            return json_answer(b'{"error":{"message":"The server is overloaded","code":"overloaded"}}', 503)
        script = self.scripts.get(model)
        return script() if script else json_answer(b'{"error":{"message":"no such model"}}', 404)


class Stage:
    """A proxy that listens, and its upstream."""

    def __init__(self, upstream: Upstream, base: str, data: Path) -> None:
        self.upstream = upstream
        self.base = base
        self.data = data
        self.token = (data / "operator.token").read_text().strip()

    @property
    def ui(self) -> str:
        return f"{self.base}/wiretape/ui/"

    def ask(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]] = (),
        *,
        headers: Mapping[str, str] | None = None,
        seen: Callable[[str], object] = str,
        **more: Any,
    ) -> str:
        """Send a chat request, read its whole answer, and return the id of the stream; `seen` gets it at the head."""
        asked = messages or [{"role": "system", "content": "You keep the notes."}, {"role": "user", "content": _TASK}]
        body = {"model": model, "stream": True, "messages": asked, "tools": _TOOLS, **more}
        url = f"{self.base}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, headers=headers, timeout=_ANSWER_S, trust_env=False) as answer:
            stream = answer.headers["x-wiretape-stream"]
            seen(stream)
            with suppress(httpx.HTTPError):
                for _ in answer.iter_raw():
                    pass
            return stream

    def read(self, path: str) -> Any:
        """Return JSON of the API, as the operator sees it."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.get(f"{self.base}/wiretape/{path}", headers=headers, trust_env=False).raise_for_status().json()

    def show(self, stream: str) -> dict[str, Any]:
        """Return what `wiretape show --json` prints."""
        command: list[str | Path] = [WIRETAPE, "show", stream, "--json", "--data", self.data]
        shown: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return shown


@contextmanager
def stage(data: Path, **settings: str) -> Iterator[Stage]:
    """Run a proxy in front of a scripted upstream until the block ends."""
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        command: list[str | Path] = [
            WIRETAPE,
            "serve",
            "--port",
            "0",
            "--upstream",
            upstream.url,
            "--data",
            data,
            *options,
        ]
        with (data.parent / f"{data.name}.log").open("wb") as log:
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=data.parent)
            )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(rb"http://127\.0\.0\.1:\d+(?=/v1)", line):
                    yield Stage(upstream, found[0].decode(), data)
                    return
            raise AssertionError((data.parent / f"{data.name}.log").read_text())
        finally:
            process.terminate()
            process.communicate()


def recorded(on: Stage) -> dict[str, str]:
    """Play the scenes of the pictures; return the ids of their streams by name."""
    on.upstream.failing["gpt-4o"] = 1
    ids = {"reset": on.ask("reset"), "busy": on.ask("busy"), "text": on.ask("gpt-4o-mini"), "read": on.ask("o4-read")}
    made: dict[str, Any] = {"id": "call_r1", "type": "function"}
    made |= {"function": {"name": "read_file", "arguments": '{"path":"notes/decisions.md"}'}}
    asked = [{"role": "user", "content": "What did we decide?"}]
    history = [{"role": "assistant", "content": None, "tool_calls": [made]}]
    result = [{"role": "tool", "tool_call_id": "call_r1", "content": "Ship it. Keep format 1. Retry early."}]
    ids["read"] = on.ask("o4-read", asked)
    ids["answer"] = on.ask("o4-answer", [*asked, *history, *result])
    on.upstream.scripts["gpt-4o-mini"] = lambda: paced(
        [*words("Three decisions: ship the inspector, keep format 2, and retry early."), *done()], pauses={6: 0.12}
    )
    ids["again"] = on.ask("gpt-4o-mini")
    on.upstream.scripts["gpt-4o-mini"] = SCENES["gpt-4o-mini"]
    ids["cut"] = on.ask("gpt-4o")
    return ids
