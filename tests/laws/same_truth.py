"""Compare this tree with an older one: what every captured chat stream accumulates to, and every emitted frame.

    python -m tests.laws.same_truth /path/to/older/worktree [--cuts 200] [--one-in 1]

Each tree runs in its own interpreter (`.venv/bin/python` of its worktree), over each stream whole and cut at seeded
places, in every `on_partial` and `tools` mode. Exit 1 if anything differs beyond the place of members and white space.
"""

import argparse
import json
import pickle
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

MODES = tuple(product(("error", "warn", "both"), ("live", "held")))


class Case(NamedTuple):
    """One stream, as far as it came, in one mode."""

    name: str
    body: bytes
    cause: str
    settings: dict[str, Any]
    request: dict[str, Any]


class Result(NamedTuple):
    """What a client and a reader of the tape get from it."""

    meaning: dict[str, Any]
    frames: list[bytes]
    repairs: dict[str, int]


# -- in either tree ---------------------------------------------------------------------------------------------------


def child(cases: Path, out: BinaryIO) -> None:
    """Run every case with the wiretape of this interpreter."""
    emit = import_module("wiretape.events.emit")
    try:
        tape = import_module("wiretape.events.tape.tape")
    except ImportError:  # before the packages were divided
        tape = import_module("wiretape.events.tape")
    with cases.open("rb") as file:
        while True:
            try:
                case: Case = Case(*pickle.load(file))  # noqa: S301 - written by the parent
            except EOFError:
                return
            seen: list[Any] = []
            emitter: Any = emit.Emitter(sink=seen.append)
            recorder: Any = tape.Recorder()
            opening = {"format": 1, "stream": "s1", "dialect": "chat", "created": 7, "settings": case.settings}
            records = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": case.request})]
            records += recorder.read(1, case.body) if case.body else []
            cause = "limit" if recorder.decoder.overflow else case.cause
            records += recorder.rest(9)
            records.append(recorder.end(9, {"cause": cause}))
            frames = [frame for record in records for frame in emitter.feed(record)]
            result = (_meaning(seen, emitter), frames, dict(emitter.ledger.counts))
            pickle.dump(result, out)
            out.flush()


def _meaning(events: Iterable[Any], emitter: Any) -> dict[str, Any]:
    said: dict[Any, str] = {}
    other: list[Any] = []
    usage = None
    for event in events:
        kind = type(event).__name__
        if kind in ("TextDelta", "ReasoningDelta", "RefusalDelta"):
            said[kind, event.choice] = said.get((kind, event.choice), "") + event.text
        elif kind == "Usage":
            usage = event.counts
        elif kind in ("UpstreamError", "ForeignFrame", "Ended", "Finish", "ResponseStarted", "ToolProgress"):
            other.append((kind, [getattr(event, name) for name in event.__slots__ if name != "n"]))
    calls = [
        (call.choice, call.number, call.id, call.name, call.arguments, call.custom, call.state.value, call.reason)
        for call in emitter.wire.all_calls()
    ]
    return {"said": said, "usage": usage, "calls": calls, "other": other}


# -- in this tree -----------------------------------------------------------------------------------------------------


#: A name, the bytes, and settings and request facts beyond those of the mode.
Body = tuple[str, bytes, dict[str, Any], dict[str, Any]]


def compare(bodies: Iterable[Body], base: Path, cuts: int, seed: int = 12) -> Counter[str]:
    """Return the counts of the table; print each difference that is not allowed."""
    here = Path(__file__).parents[2]
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        cases = Path(folder) / "cases"
        with cases.open("wb") as file:
            for case in _cases(bodies, cuts, random.Random(seed)):  # noqa: S311 - a seeded sample
                pickle.dump(tuple(case), file)
        trees = [
            subprocess.Popen(
                [tree / ".venv/bin/python", Path(__file__), "--child", cases], stdout=subprocess.PIPE, cwd=folder
            )
            for tree in (base, here)
        ]
        with cases.open("rb") as file:
            while True:
                try:
                    case = Case(*pickle.load(file))  # noqa: S301 - written above
                except EOFError:
                    break
                old, new = (Result(*pickle.load(_stdout(tree))) for tree in trees)  # noqa: S301
                _judge(case, old, new, counts)
    return counts


def _stdout(process: subprocess.Popen[bytes]) -> BinaryIO:
    assert process.stdout is not None
    return process.stdout  # type: ignore[return-value]


def _cases(bodies: Iterable[Body], cuts: int, chosen: random.Random) -> Iterator[Case]:
    for name, body, extra, facts in bodies:
        places = [chosen.randrange(len(body)) for _ in range(cuts)] if body else []
        for (on_partial, tools), place in product(MODES, [None, *places]):
            usage = chosen.random() < 0.5
            request: dict[str, Any] = {"stream": True, "usage": usage, "model": "m", "n": 1, "tools": [], **facts}
            settings = {"on_partial": on_partial, "tools": tools, **extra}
            cause = "eof" if place is None else ("reset", "stalled", "eof")[place % 3]
            yield Case(f"{name}[:{place}] {on_partial} {tools}", body[:place], cause, settings, request)


def _judge(case: Case, old: Result, new: Result, counts: Counter[str]) -> None:
    counts["cases"] += 1
    if old.meaning != new.meaning:
        counts["DIFFERENT MEANING"] += 1
        for key in old.meaning:
            if old.meaning[key] != new.meaning[key]:
                _print(case, key, old.meaning[key], new.meaning[key])
    if len(old.frames) != len(new.frames):
        counts["DIFFERENT NUMBER OF FRAMES"] += 1
        _print(case, "frames", old.frames[-4:], new.frames[-4:])
        return
    came = set(case.body.replace(b"\r\n", b"\n").split(b"\n\n"))
    for before, after in zip(old.frames, new.frames, strict=True):
        counts["frames"] += 1
        if before == after:
            counts["frames with the same bytes"] += 1
        elif _parsed(before) != _parsed(after):
            counts["DIFFERENT FRAMES"] += 1
            _print(case, "frame", before, after)
        elif before[:-2] in came:
            counts["FRAMES WITHOUT A REPAIR THAT CHANGED"] += 1
            _print(case, "frame", before, after)
        else:
            same = sorted(before.replace(b" ", b"")) == sorted(after.replace(b" ", b""))
            counts["frames that differ in " + ("the place of members or white space" if same else "spelling")] += 1
    for repair in {*old.repairs, *new.repairs}:
        if repair == "reserialised":
            counts["frames that were reserialised"] += new.repairs.get(repair, 0)
        elif old.repairs.get(repair) != new.repairs.get(repair):
            counts[f"repairs counted otherwise: {repair}"] += 1


def _parsed(frame: bytes) -> Any:
    event, _, payload = frame.rpartition(b"data: ")
    try:
        return event, json.loads(payload)
    except ValueError:
        return event, payload


def _print(case: Case, what: str, old: Any, new: Any) -> None:
    print(f"{case.name}: {what}\n  old {str(old)[:900]}\n  new {str(new)[:900]}")  # noqa: T201


def main() -> None:
    """Compare the corpus."""
    corpus = import_module("tests.support.corpus")  # the older tree has no such module
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--one-in", type=int, default=1)
    parser.add_argument("--rows", action="store_true", help="the synthetic quirk rows instead of the corpus")
    asked = parser.parse_args()
    if asked.rows:
        bodies: list[Body] = [
            (row.id, b"".join(row.came), row.settings, dict(row.tape()[1].keys["facts"]))
            for row in import_module("tests.events.chat.test_repair").ROWS
            if not row.body
        ]
    else:
        bodies = [(stream.id, stream.body, {}, {}) for stream in corpus.load()[:: asked.one_in]]
    counts = compare(bodies, asked.base, asked.cuts)
    for what, count in sorted(counts.items()):
        print(f"{count:>10,}  {what}")  # noqa: T201
    if any(what.isupper() for what in counts):
        sys.exit(1)


if __name__ == "__main__":
    child(Path(sys.argv[2]), sys.stdout.buffer) if sys.argv[1] == "--child" else main()
