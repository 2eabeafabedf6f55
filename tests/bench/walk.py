"""`make walk`: how many calls of Wiretape's own functions one streamed request takes, in how many files.

`--client responses` or `messages` asks in that dialect, so that the stream is crossed. Starts `wiretape serve` with a
profile hook in front of a scripted upstream that sends eight frames, one at a time, and counts calls between two
frames. The figures compare commits; they do not measure time.
"""

import argparse
import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

#: Runs in the server's process: counts calls, marks a step at SIGUSR1, writes everything at SIGUSR2.
_SERVER: Final = """
import json, os, signal, sys, threading
from importlib.metadata import entry_points

calls, marks, own = [], [], {}

def hook(frame, event, arg):
    if event != "call":
        return
    path = frame.f_code.co_filename
    if path not in own:
        parts = path.split(os.sep)
        at = max((n for n, part in enumerate(parts) if part in ("events", "proxy", "replay")), default=0)
        ours = at and "wiretape" in path and ("trio" not in parts[:at] or "site-packages" not in parts[:at])
        own[path] = "/".join(parts[at:]) if ours else ""
    if own[path]:
        calls.append((own[path], frame.f_code.co_qualname))

def write(*_):
    with open(out, "w") as file:
        json.dump({"calls": calls, "marks": marks}, file)

out, sys.argv[1:] = sys.argv[1], sys.argv[2:]
signal.signal(signal.SIGUSR1, lambda *_: marks.append(len(calls)))
signal.signal(signal.SIGUSR2, write)
main = next(each for each in entry_points(group="console_scripts") if each.name == "wiretape").load()
sys.setprofile(hook)
threading.setprofile(hook)
main()
"""
_CHUNK: Final = (
    '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    '"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}'
)
_FRAMES: Final = {
    "head and role frame": ('{"role":"assistant","content":""}', "null"),
    "first text frame": ('{"content":"one"}', "null"),
    "text frame 2": ('{"content":" two"}', "null"),
    "text frame 3": ('{"content":" three"}', "null"),
    "text frame 4": ('{"content":" four"}', "null"),
    "finish frame": ("{}", '"stop"'),
}
_STEPS: Final = ("request until the upstream has it", *_FRAMES, "[DONE] and the end")
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_SAID: Final = [{"role": "user", "content": "hi"}]
_REQUESTS: Final = {
    "chat": ("/v1/chat/completions", {"model": "m", "stream": True, "messages": _SAID}),
    "responses": ("/v1/responses", {"model": "m", "stream": True, "input": _SAID}),
    "messages": ("/v1/messages", {"model": "m", "stream": True, "max_tokens": 100, "messages": _SAID}),
}
#: Longer than any step takes under the hook.
_SETTLE_S: Final = 0.35


def main() -> None:
    """Print a row for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=_REQUESTS, default="chat")
    calls, marks = _walk(parser.parse_args().client)
    print(f"{'step':34} {'calls':>6} {'functions':>9} {'files':>6} {'file changes':>13}")
    for name, (start, end) in zip(_STEPS, pairwise(marks), strict=True):
        print(_row(name, calls[start:end]))
    print(_row("the whole request", calls[marks[0] : marks[-1]]))


def _row(name: str, calls: list[tuple[str, str]]) -> str:
    files = [file for file, _ in calls]
    changes = sum(one != other for one, other in pairwise(files))
    return f"{name:34} {len(calls):6} {len(set(calls)):9} {len(set(files)):6} {changes:13}"


def _walk(dialect: str) -> tuple[list[tuple[str, str]], list[int]]:
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as listener:
        folder = Path(name)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (folder / "server.py").write_text(_SERVER, encoding="utf-8")
        upstream = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        serve = ["serve", "--upstream", upstream, "--port", str(port), "--data", str(folder / "data")]
        serve += [] if dialect == "chat" else ["--speaks", "chat"]
        command = [sys.executable, str(folder / "server.py"), str(folder / "walk.json"), *serve]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _await(port)
            _ask(server, listener, port, dialect)
            server.send_signal(signal.SIGUSR2)
            time.sleep(1)
        finally:
            server.terminate()
            server.wait(40)
        seen = json.loads((folder / "walk.json").read_text(encoding="utf-8"))
    return [(file, function) for file, function in seen["calls"]], seen["marks"]


def _await(port: int) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                time.sleep(1)  # the probe's own connection ends
                return
        time.sleep(0.1)
    sys.exit("the server did not start")


def _ask(server: "subprocess.Popen[bytes]", listener: socket.socket, port: int, dialect: str) -> None:
    """Send one request, with a mark before it and after each step."""

    def mark() -> None:
        time.sleep(_SETTLE_S)
        server.send_signal(signal.SIGUSR1)
        time.sleep(0.1)

    def answer() -> None:
        connection, _ = listener.accept()
        request = b""
        while b"\r\n\r\n" not in request:
            request += connection.recv(65_536)
        mark()
        head = _HEAD
        for delta, finish in _FRAMES.values():
            frame = f"data: {_CHUNK % (delta, finish)}\n\n".encode()
            connection.sendall(head + b"%x\r\n%b\r\n" % (len(frame), frame))
            head = b""
            mark()
        connection.sendall(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        mark()

    upstream = threading.Thread(target=answer, daemon=True)
    upstream.start()
    mark()
    client = http.client.HTTPConnection("127.0.0.1", port)
    path, request = _REQUESTS[dialect]
    client.request("POST", path, json.dumps(request), {"content-type": "application/json"})
    body = client.getresponse().read()
    assert b"four" in body, body
    upstream.join(20)


if __name__ == "__main__":
    main()
