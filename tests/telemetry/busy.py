"""A busy proxy: `wiretape serve` between clients and an upstream that gives every kind of answer."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support import chat

USAGE: Final = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
_CALL: Final = chat.call(role=True, index=0, id="call_1", type="function", name="look", arguments='{"a":1}')
_CUT: Final = chat.call(role=True, index=0, id="call_1", type="function", name="look", arguments='{"a"')
_TEXT: Final = (chat.text("hello", role=True), chat.text(" world"), chat.finish())
_USAGE: Final = chat.sse({**chat.HEAD, "choices": [], "usage": USAGE})
#: By the model in the request.
ANSWERS: Final = {
    "text": (*_TEXT, _USAGE, chat.DONE),
    "call": (_CALL, chat.finish("tool_calls"), _USAGE, chat.DONE),
    "cut": (chat.text("well", role=True), _CUT),
}
CALLED: Final = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
TOLD: Final = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    failed: bool = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = body["model"]
        _Handler.failed = model == "later" and not _Handler.failed
        if _Handler.failed or not self.path.endswith("/chat/completions"):
            self.send_response(503 if _Handler.failed else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for frame in ANSWERS.get(model, ANSWERS["text"]):
            self.wfile.write(frame)
            time.sleep(0.02)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        pass


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def get(url: str) -> Any:
    """Return the JSON at a URL, or None while nothing answers."""
    with suppress(httpx.TransportError, json.JSONDecodeError):
        return httpx.get(url, timeout=10).json()


def wait_for(what: str, true: Callable[[], Any], seconds: float = 120) -> Any:
    """Return what becomes true, or fail."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := true():
            return found
        time.sleep(0.2)
    raise SystemExit(f"{what} did not happen within {seconds:g} s")


@contextmanager
def running(command: list[str], folder: Path, environ: Mapping[str, str] | None = None) -> Generator[None]:
    """Run a program with its output in a file of the folder, and end it."""
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environ)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def busy_proxy(folder: Path, **environ: str) -> Generator[tuple[str, threading.Event]]:
    """A proxy that gets requests of every kind until the event is set; yield its URL."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    port, stop = free_port(), threading.Event()
    url, command = f"http://127.0.0.1:{port}", Path(sys.executable).with_name("wiretape")
    serve = [str(command), "serve", "--port", str(port), "--data", str(folder / "data")]
    serve += ["--upstream", f"http://127.0.0.1:{upstream.server_port}/v1"]
    with running(serve, folder, {**os.environ, **environ}):
        wait_for("the start of the proxy", lambda: get(f"{url}/wiretape/healthz"))
        asking = threading.Thread(target=_ask_all, args=(url, stop))
        asking.start()
        try:
            yield url, stop
        finally:
            stop.set()
            asking.join()
            upstream.shutdown()


def _ask_all(url: str, stop: threading.Event) -> None:
    said, chats = [{"role": "user", "content": "hi"}], "/v1/chat/completions"
    usage: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    requests: list[tuple[str, Any]] = [
        (chats, {"model": each, "messages": said, **usage}) for each in (*ANSWERS, "later")
    ]
    requests += [(chats, {"model": "text", "messages": TOLD, **usage}), (chats, "not an object")]
    requests.append(("/v1/messages", {"model": "text", "messages": said, "max_tokens": 9, "stream": True}))
    with httpx.Client(base_url=url, timeout=30) as client:
        while not stop.is_set():
            for path, body in requests:
                with suppress(httpx.TransportError):
                    client.post(path, json=body)
