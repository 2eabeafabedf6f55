"""Compare this tree with an older one: what every captured chat stream accumulates to, and every emitted frame.

    python -m tests.laws.same_truth /path/to/older/worktree [--cuts 200] [--one-in 1]

Each tree runs in its own interpreter (`.venv/bin/python` of its worktree), over each stream whole and cut at seeded
places, in every `on_partial` and `tools` mode. Exit 1 if anything differs beyond the place of members and white space.
"""

import argparse
import json
import os
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
_FORKED = 40_000


class Case(NamedTuple):
    """One stream in one mode, and the places where it is cut, in order."""

    name: str
    body: bytes
    cuts: list[int]
    settings: dict[str, Any]
    request: dict[str, Any]


class Result(NamedTuple):
    """What a client and a reader of the tape get from it, whole or as far as it came."""

    meaning: dict[str, Any]
    sent: int  # frames before the cut
    frames: list[bytes]  # from there on
    repairs: dict[str, int]


# -- in either tree ---------------------------------------------------------------------------------------------------


def child(cases: Path, out: BinaryIO) -> None:
    """Run every case with the wiretape of this interpreter: whole, and for each cut again, or in a fork there."""
    with cases.open("rb") as file:
        while True:
            try:
                case: Case = Case(*pickle.load(file))  # noqa: S301 - written by the parent
            except EOFError:
                return
            run, at = _Run(case), 0
            for cut in case.cuts:
                cause = ("reset", "stalled", "eof")[cut % 3]
                if len(case.body) < _FORKED:
                    alone = _Run(case)
                    alone.read(case.body[:cut])
                    pickle.dump(tuple(alone.ended(0, cause)), out)
                    continue
                run.read(case.body[at:cut])
                at = cut
                out.flush()
                if pid := os.fork():
                    assert os.waitpid(pid, 0)[1] == 0
                    continue
                pickle.dump(tuple(run.ended(len(run.frames), cause)), out)
                out.flush()
                os._exit(0)
            run.read(case.body[at:])
            pickle.dump(tuple(run.ended(0, "eof")), out)


class _Run:
    """One stream on its way through recorder and emitter."""

    def __init__(self, case: Case) -> None:
        emit = import_module("wiretape.events.emit")
        try:
            tape = import_module("wiretape.events.tape.tape")
        except ImportError:  # before the packages were divided
            tape = import_module("wiretape.events.tape")
        self.seen: list[Any] = []
        self.frames: list[bytes] = []
        self.emitter: Any = emit.Emitter(sink=self.seen.append)
        self.recorder: Any = tape.Recorder()
        opening = {"format": 1, "stream": "s1", "dialect": "chat", "created": 7, "settings": case.settings}
        self._take(self.recorder.record("open", 0, opening))
        self._take(self.recorder.record("request", 0, {"facts": case.request}))

    def _take(self, *records: Any) -> None:
        self.frames += [frame for record in records for frame in self.emitter.feed(record)]

    def read(self, data: bytes) -> None:
        if data:
            self._take(*self.recorder.read(1, data))

    def ended(self, sent: int, cause: str) -> Result:
        cause = "limit" if self.recorder.decoder.overflow else cause
        self._take(*self.recorder.rest(9))
        self._take(self.recorder.end(9, {"cause": cause}))
        return Result(_meaning(self.seen, self.emitter), sent, self.frames[sent:], dict(self.emitter.ledger.counts))


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
                places = [*case.cuts, None]
                results = [(_result(trees[0]), _result(trees[1])) for _ in places]
                for place, (before, after) in zip(places, results, strict=True):
                    same = before.sent == after.sent
                    pair = [
                        cut if same else cut._replace(frames=whole[: cut.sent] + cut.frames)
                        for cut, whole in ((before, results[-1][0].frames), (after, results[-1][1].frames))
                    ]
                    _judge(f"{case.name}[:{place}]", case.body, pair[0], pair[1], counts)
    return counts


def _result(tree: subprocess.Popen[bytes]) -> Result:
    assert tree.stdout is not None
    return Result(*pickle.load(tree.stdout))  # noqa: S301 - written by our own child


def _cases(bodies: Iterable[Body], cuts: int, chosen: random.Random) -> Iterator[Case]:
    for name, body, extra, facts in bodies:
        places = sorted(chosen.randrange(len(body)) for _ in range(cuts if body else 0))
        for on_partial, tools in MODES:
            usage = chosen.random() < 0.5
            request: dict[str, Any] = {"stream": True, "usage": usage, "model": "m", "n": 1, "tools": [], **facts}
            settings = {"on_partial": on_partial, "tools": tools, **extra}
            yield Case(f"{name} {on_partial} {tools}", body, places, settings, request)


def _judge(name: str, body: bytes, old: Result, new: Result, counts: Counter[str]) -> None:
    counts["cases"] += 1
    if old.meaning != new.meaning:
        counts["DIFFERENT MEANING"] += 1
        for key in old.meaning:
            if old.meaning[key] != new.meaning[key]:
                _print(name, key, old.meaning[key], new.meaning[key])
    if len(old.frames) != len(new.frames):
        counts["DIFFERENT NUMBER OF FRAMES"] += 1
        _print(name, "frames", old.frames[-4:], new.frames[-4:])
        return
    for before, after in zip(old.frames, new.frames, strict=True):
        counts["frames"] += 1
        if before == after:
            counts["frames with the same bytes"] += 1
        elif _parsed(before) != _parsed(after):
            counts["DIFFERENT FRAMES"] += 1
            _print(name, "frame", before, after)
        elif b"\n\n" + before in b"\n\n" + body.replace(b"\r\n", b"\n"):
            counts["FRAMES WITHOUT A REPAIR THAT CHANGED"] += 1
            _print(name, "frame", before, after)
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


def _print(name: str, what: str, old: Any, new: Any) -> None:
    print(f"{name}: {what}\n  old {str(old)[:900]}\n  new {str(new)[:900]}")  # noqa: T201


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
