"""Writes fixtures/sealed-1: `python -m tests.support.make_sealed`. The same bytes at every run; a test compares.

A sealed tape of every format stays for ever and is read by every later version. When the sealed format grows, this file
is frozen with its tapes: they are never written again in another format.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.support.make_fixtures import TAPES
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader, Recorder
from wiretape.replay.seal import EXACT, Rules, seal

FOLDER: Final = Path(__file__).parents[2] / "fixtures/sealed-1"


def _exchange() -> list[Record]:
    """An upload in pieces, an attempt that failed, and a JSON answer on several lines in several reads."""
    recorder = Recorder()
    opened = {"format": 1, "stream": "exchange", "dialect": "", "created": 1800000000, "profile": "strict"}
    asked = {"method": "POST", "path": "/v1/files", "headers": [["content-type", "application/json"]], "streamed": True}
    headers = [["content-type", "application/json"], ["x-request-id", "req_synthetic"]]
    answer = b'{\n  "id": "file-1",\n  "name": "Gr\xc3\xbc\xc3\x9fe"\n}\n'
    return [
        recorder.record("open", 0, opened),
        recorder.record("request", 10, asked),
        *recorder.attempt(20, {"number": 1, "upstream": "synthetic"}),
        recorder.record("failed", 30, {"attempt": 1, "ending": "refused", "message": "refused", "next": "again"}),
        *recorder.attempt(40, {"number": 2, "upstream": "synthetic"}),
        recorder.record("upload", 50, body=b'{"name": "Gr', verbatim=False),
        recorder.record("upload", 60, body=b'\xc3\xbc\xc3\x9fe"}', verbatim=False),
        recorder.record("head", 100, {"status": 200, "headers": headers}),
        recorder.body(200, answer[:30]),
        recorder.record("commit", 200, {"status": 200}),
        recorder.body(300, answer[30:31]),
        recorder.body(400, answer[31:]),
        recorder.end(500, {"cause": "length", "ending": "completed", "flags": []}),
    ]


#: The streams of the sealed tapes.
STREAMS: Final[Mapping[str, Sequence[Sequence[Record]]]] = MappingProxyType(
    {
        **{name: [Reader().feed(tape)] for name, tape in TAPES.items()},
        "exchange": [_exchange()],
        "conversation": [Reader().feed(TAPES[name]) for name in ("tool_call", "text")],
    }
)

#: Every tape, by the name of its file: `conversation` is normalised and redacted, all others are exact.
SEALED: Final[Mapping[str, bytes]] = MappingProxyType(
    {name: seal(streams, Rules() if name == "conversation" else EXACT) for name, streams in STREAMS.items()}
)


def write(folder: Path = FOLDER) -> None:
    """All of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tape in SEALED.items():
        (folder / f"{name}.tape").write_bytes(tape)


if __name__ == "__main__":
    write()
