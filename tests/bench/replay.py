"""`python -m tests.bench.replay`: tapes of 10 and 100 MB, read, folded and emitted: events a second, peak of memory

Writes its part of docs/internals/benchmarks.md.
Each figure is of a process of its own, which reads the tape as a replay does, 64
KiB at a time: its memory is what the operating system says. With a number of megabytes it only holds the bar, on one
tape of that size.
"""

import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from os import cpu_count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import as_object, dumps, parse
from wiretape.events.core.model import Event
from wiretape.events.core.settings import Facts
from wiretape.events.emit import Emitter
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.tape.record import encode
from wiretape.events.tape.tape import Reader, Recorder

from .core import TAPE_READ_BYTES
from .document import put
from .frames import ROLE, ROUND, payloads

__all__ = ["BARS", "STEPS", "main", "write_tape"]

#: Events a second of a tape that is read, folded and emitted. A fifth of the mixed one are arguments and comments.
BARS: Final = MappingProxyType({"plain": 100_000, "repaired": 100_000, "mixed": 100_000})
#: The memory that 90 MB more of a tape may take, apart from the accumulated text.
_GROWTH_BYTES_MAX: Final = 8 * 1024 * 1024

STEPS: Final = ("read", "read, emitted", "read, folded, emitted")
_SIZES_MB: Final = (10, 100)
_TURNS: Final = 3


_ENVELOPE: Final = {name: value for name, value in as_object(parse(payloads()[0])).items() if name != "choices"}


# -- a tape -----------------------------------------------------------------------------------------------------------


def write_tape(path: Path, kind: str, size: int) -> None:
    """A live tape of about so many bytes, each frame in a read of its own, as most upstreams send them."""
    recorder = Recorder()
    facts = {"facts": Facts(usage=True).to_keys()}
    with path.open("wb") as file:
        opened = {"format": 1, "stream": "s1", "dialect": "chat", "created": 1}
        for record in (recorder.record("open", 0, opened), recorder.record("request", 0, facts)):
            file.write(encode(record))
        t = 0
        for t, frame in enumerate(_frames(kind), 1):
            lines = b"".join(map(encode, recorder.read(t, frame)))
            size -= file.write(lines)
            if size <= 0:
                break
        for frame in (_chunk({}, "stop"), b"data: [DONE]\n\n"):
            t += 1
            file.write(b"".join(map(encode, recorder.read(t, frame))))
        file.write(encode(recorder.end(t, {"cause": "closed", "ending": "completed", "flags": []})))


def _frames(kind: str) -> Iterator[bytes]:
    yield b"data: %b\n\n" % payloads(ROLE)[0]
    if kind != "mixed":
        yield from (b"data: %b\n\n" % each for each in cycle(payloads(ROLE if kind == "repaired" else b"")))
    texts = payloads()
    for number in range(1_000_000):
        yield from (b"data: %b\n\n" % each for each in islice(texts, number * 40 % ROUND, number * 40 % ROUND + 40))
        yield _call(number, '{"path":', "write_file")
        yield from (_call(number, f'\\"{piece:05}') for piece in range(9))
        yield b": keepalive\n\n"


def _call(number: int, arguments: str, name: str = "") -> bytes:
    """Few calls, whose arguments are long: each has a state of its own as long as the stream."""
    function = {"name": name, "arguments": arguments} if name and not number else {"arguments": arguments}
    first = {"id": "call_0", "type": "function"} if not number and name else {}
    return _chunk({"tool_calls": [{"index": 0, **first, "function": function}]})


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """Return a frame like the others, so that it needs no repair."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return b"data: %b\n\n" % dumps({**_ENVELOPE, "choices": [choice]})


# -- one process ------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """What one process says of itself."""

    records: int
    events: int
    cpu_s: float
    #: Before the first byte was read, and at the peak.
    began_bytes: int
    peak_bytes: int
    #: The size of the accumulated result.
    text_bytes: int


def _run(path: Path, step: str) -> Run:
    summary, found = StreamSummary(), list[Event]()
    events = records = 0
    reader, emitter = Reader(), Emitter(sink=found.append if step == STEPS[2] else None, repairs=False)
    began = _memory()
    start = time.process_time()
    with path.open("rb") as file:
        while data := file.read(TAPE_READ_BYTES):
            for record in reader.feed(data):
                records += 1
                if step != STEPS[0]:
                    emitter.feed(record)
                if step == STEPS[2]:
                    events += len(found)
                    summary.take(record, emitter.wire, found)
                    found.clear()
    cpu_s = time.process_time() - start
    peak = _memory()
    assert not reader.damage, reader.damage
    message = summary.message
    text = len(message.text()) + sum(len(arguments) for _, _, arguments in message.calls())
    return Run(records, events or records, cpu_s, began, peak, text)


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _asked(path: Path, step: str) -> Run:
    """In a process of its own, the fastest of some."""
    command = [sys.executable, "-m", "tests.bench.replay", "--run", str(path), step]
    runs = [Run(*json.loads(subprocess.check_output(command))) for _ in range(_TURNS)]
    return min(runs, key=lambda run: run.cpu_s)


# -- the document -----------------------------------------------------------------------------------------------------

_TEXT: Final = """
Written by `python -m tests.bench.replay`: live tapes with each frame in a read of its own, read 64 KiB at a time, on
one core of a shared machine ({machine}). The fold keeps message, calls, usage and warnings. Plain frames add a
piece of text, repaired ones repeat their role, and a fifth of the mixed ones are arguments and comments.
The bars are {bars} events a second, and memory that does not grow with the tape, apart from the accumulated text.

| tape | lines | steps | us an event | events a second | MB/s | peak, MB above the start | text, MB |
| --- | --- | --- | --- | --- | --- | --- | --- |
{rows}
"""


def _row(kind: str, size: int, step: str, run: Run) -> str:
    rate, mb = run.events / run.cpu_s, 1_000_000
    return (
        f"| {kind}, {size // mb} MB | {run.records:,} | {step} | {1e6 / rate:.2f} | {rate:,.0f} | "
        f"{size / mb / run.cpu_s:.0f} | {(run.peak_bytes - run.began_bytes) / mb:.1f} | {run.text_bytes / mb:.1f} |"
    )


def _broken(kind: str, small: Run, large: Run) -> Iterator[str]:
    rate = large.events / large.cpu_s
    if rate < BARS[kind]:
        yield f"{kind}: {rate:,.0f} events a second; the bar is {BARS[kind]:,}"
    grown = (large.peak_bytes - large.began_bytes - large.text_bytes) - (small.peak_bytes - small.began_bytes)
    if grown > _GROWTH_BYTES_MAX:
        yield f"{kind}: {grown / 1e6:.1f} MB more for the longer tape; the bar is {_GROWTH_BYTES_MAX / 1e6:.1f}"


def main(arguments: list[str]) -> None:
    """The exit status says whether the bars hold."""
    if arguments[:1] == ["--run"]:
        print(json.dumps(_run(Path(arguments[1]), arguments[2])))
        return
    sizes = [int(arguments[0]) // 10 or 1, int(arguments[0])] if arguments else list(_SIZES_MB)
    rows: list[str] = []
    broken: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in BARS:
            folded: list[Run] = []
            for megabytes in sizes:
                path = Path(folder) / "a.tape"
                write_tape(path, kind, megabytes * 1_000_000)
                for step in STEPS if megabytes == sizes[-1] else STEPS[2:]:
                    run = _asked(path, step)
                    rows.append(_row(kind, path.stat().st_size, step, run))
                    print(rows[-1], flush=True)
                    folded += [run] if step == STEPS[2] else []
            broken += _broken(kind, *folded)
    if not arguments:
        machine = f"{platform.python_implementation()} {platform.python_version()}, {cpu_count()} CPUs"
        bars = ", ".join(f"{bar:,} ({kind})" for kind, bar in BARS.items())
        put("replay", _TEXT.format(machine=machine, bars=bars, rows="\n".join(rows)))
    if broken:
        sys.exit("BAR BROKEN: " + "; ".join(broken))


if __name__ == "__main__":
    main(sys.argv[1:])
