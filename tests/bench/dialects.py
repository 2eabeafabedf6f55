"""`make bench-dialects`: CPU time per frame of every dialect and of crossed streams, as multiples of plain chat.

The upstream floods: 50 frames of equal size in each write, each with a short text and padding, as OpenAI sends them.
All cases run in turns through processes of their own, and a
ratio compares two runs of the same turn.
"""

import argparse
import socket
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.markdown import table

from .proxy_parties import ROOT, Party, running
from .runs import cpu_s

#: Of the same dialect, as a multiple of chat; crossed, in microseconds more than chat.
SAME_RATIO: Final = 1.5
CROSSED_US: Final = 15.0

_UPSTREAM_PORT: Final = 9_108
_FIRST_PORT: Final = 9_310
_FRAMES: Final = 2_000
_PER_WRITE: Final = 50
_FRAME_BYTES: Final = 260
_STREAMS: Final = 30
_AT_ONCE: Final = 3
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

_CHUNK: Final = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n'
)
_RESPONSE: Final = (
    b'{"id":"resp_1","object":"response","created_at":1700000000,"status":"%b","model":"m","output":[%b],"usage":%b}'
)
_ITEM: Final = (
    b'{"id":"msg_1","type":"message","status":"%b","role":"assistant","content":[%b]}',
    b'{"type":"output_text","text":"%b","annotations":[],"logprobs":[]}',
)
_USAGE: Final = b'{"input_tokens":1,"output_tokens":1,"total_tokens":2}'
_MESSAGE: Final = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,'
    b'"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}'
)


#: A placeholder for the padding of a frame with a text.
_PADDING: Final = b',"obfuscation":""}\n\n'


def _event(name: bytes, members: bytes) -> bytes:
    return b'event: %b\ndata: {"type":"%b",%b}\n\n' % (name, name, members)


def _chat(texts: list[bytes]) -> Iterator[bytes]:
    yield _CHUNK % (b'{"role":"assistant","content":""}', b"null")
    yield from ((_CHUNK % (b'{"content":"%b"}' % text, b"null"))[:-3] + _PADDING for text in texts)
    yield _CHUNK % (b"{}", b'"stop"') + b"data: [DONE]\n\n"


def _responses(texts: list[bytes]) -> Iterator[bytes]:
    item, part = _ITEM
    place, text = b'"item_id":"msg_1","output_index":0,"content_index":0', b"".join(texts)
    events = [
        (b"created", b'"response":' + _RESPONSE % (b"in_progress", b"", b"null")),
        (b"in_progress", b'"response":' + _RESPONSE % (b"in_progress", b"", b"null")),
        (b"output_item.added", b'"output_index":0,"item":' + item % (b"in_progress", b"")),
        (b"content_part.added", place + b',"part":' + part % b""),
        *((b"output_text.delta", b'%b,"delta":"%b","logprobs":[]' % (place, one) + _PADDING[:-3]) for one in texts),
        (b"output_text.done", b'%b,"text":"%b","logprobs":[]' % (place, text)),
        (b"content_part.done", place + b',"part":' + part % text),
        (b"output_item.done", b'"output_index":0,"item":' + item % (b"completed", part % text)),
        (b"completed", b'"response":' + _RESPONSE % (b"completed", item % (b"completed", part % text), _USAGE)),
    ]
    for number, (name, members) in enumerate(events):
        yield _event(b"response." + name, b'"sequence_number":%d,%b' % (number, members))


def _messages(texts: list[bytes]) -> Iterator[bytes]:
    yield _event(b"message_start", b'"message":' + _MESSAGE)
    yield _event(b"content_block_start", b'"index":0,"content_block":{"type":"text","text":""}')
    for text in texts:
        yield _event(
            b"content_block_delta", b'"index":0,"delta":{"type":"text_delta","text":"%b"}' % text + _PADDING[:-3]
        )
    yield _event(b"content_block_stop", b'"index":0')
    stop = b'"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":1,"output_tokens":9}'
    yield _event(b"message_delta", stop)
    yield b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


class Spoken(NamedTuple):
    """One dialect: its path, a request, and the writes of an answer."""

    path: bytes
    request: bytes
    writes: list[bytes]


def _spoken(path: bytes, request: bytes, answer: Callable[[list[bytes]], Iterator[bytes]]) -> Spoken:
    """Make the answer, with text frames of one size in all dialects."""
    frames = list(answer([b"%05d " % n for n in range(_FRAMES)]))
    size = max(len(frame) for frame in frames if b"00500 " in frame and len(frame) < _FRAME_BYTES)
    padding = b"x" * (_FRAME_BYTES - size)
    frames = [frame.replace(_PADDING, b',"obfuscation":"%b"}\n\n' % padding) for frame in frames]
    writes = [b"".join(frames[at : at + _PER_WRITE]) for at in range(0, len(frames), _PER_WRITE)]
    return Spoken(path, request, writes)


_SAID: Final = b'[{"role":"user","content":"hi"}]'
DIALECTS: Final = {
    "chat": _spoken(b"/chat/completions", b'{"model":"m","stream":true,"messages":%b}' % _SAID, _chat),
    "responses": _spoken(b"/responses", b'{"model":"m","stream":true,"input":%b}' % _SAID, _responses),
    "messages": _spoken(b"/messages", b'{"model":"m","stream":true,"max_tokens":9,"messages":%b}' % _SAID, _messages),
}


def serve(port: int) -> None:
    """Answer every request in the dialect of its path."""
    with socket.create_server(("127.0.0.1", port), backlog=64) as listener:
        while True:
            threading.Thread(target=_answer, args=(listener.accept()[0],), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection:
        request = b""
        while b"\r\n\r\n" not in request:
            data = connection.recv(65_536)
            if not data:
                return
            request += data
        spoken = next(each for each in DIALECTS.values() if each.path + b" " in request.partition(b"\r\n")[0])
        connection.sendall(_HEAD)
        for write in spoken.writes:
            connection.sendall(write)


class Case(NamedTuple):
    """What the client and the upstream speak."""

    client: str
    upstream: str

    @property
    def name(self) -> str:
        return self.client if self.client == self.upstream else f"{self.client} client, {self.upstream} upstream"


CASES: Final = [Case(client, upstream) for client in DIALECTS for upstream in DIALECTS]


def measure(party: Party, case: Case) -> float:
    """Return the microseconds of CPU per frame of one round of streams."""
    before = cpu_s(party.pid)
    rounds = [threading.Thread(target=_ask, args=(party, case)) for _ in range(_AT_ONCE)]
    for each in rounds:
        each.start()
    for each in rounds:
        each.join()
    return (cpu_s(party.pid) - before) / (_STREAMS * _FRAMES) * 1e6


def _ask(party: Party, case: Case) -> None:
    spoken = DIALECTS[case.client]
    lines = [b"POST /v1%b HTTP/1.1" % spoken.path, b"Host: 127.0.0.1", b"Connection: close"]
    lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(spoken.request), b"", spoken.request]
    for _ in range(_STREAMS // _AT_ONCE):
        with socket.create_connection(("127.0.0.1", party.port)) as client:
            client.sendall(b"\r\n".join(lines))
            frames = 0
            while data := client.recv(1 << 18):
                frames += data.count(b"data: {")
        if frames < _FRAMES:
            sys.exit(f"{case.name}: {frames} frames of {_FRAMES}")


def main() -> None:
    """Measure every case in turns, print a table, and fail if a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--serve", type=int, help="run the upstream on this port")
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
    with ExitStack() as stack:
        command = [sys.executable, "-m", "tests.bench.dialects", "--serve", str(_UPSTREAM_PORT)]
        stack.enter_context(running("dialects", _UPSTREAM_PORT, command, {"PYTHONPATH": str(ROOT)}))
        wiretape = str(Path(sys.executable).parent / "wiretape")
        parties: dict[Case, Party] = {}
        for port, case in enumerate(CASES, _FIRST_PORT):
            data = stack.enter_context(tempfile.TemporaryDirectory())
            upstream = f"http://127.0.0.1:{_UPSTREAM_PORT}/v1"
            serves = [wiretape, "serve", "--port", str(port), "--data", data, "--upstream", upstream]
            parties[case] = stack.enter_context(running(f"case-{port}", port, [*serves, "--speaks", case.upstream]))
        turns = [{case: measure(party, case) for case, party in parties.items()} for _ in range(given.turns + 1)][1:]
    rows, missed = list[list[str]](), list[str]()
    plain = [turn[CASES[0]] for turn in turns]
    for case in CASES:
        us = statistics.median(turn[case] for turn in turns)
        ratio = statistics.median(turn[case] / chat for turn, chat in zip(turns, plain, strict=True))
        more = statistics.median(turn[case] - chat for turn, chat in zip(turns, plain, strict=True))
        same = case.client == case.upstream
        holds = ratio <= SAME_RATIO if same else more <= CROSSED_US
        bar = f"{SAME_RATIO:g} times chat" if same else f"{CROSSED_US:g} us more"
        rows.append([case.name, f"{us:.1f}", f"{ratio:.2f}", f"{more:+.1f}", bar, "" if holds else "missed"])
        missed += [] if holds else [case.name]
    print(table(["case", "us a frame", "times chat", "us more", "bar", ""], rows))
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
