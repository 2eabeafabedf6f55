"""`make mutants`: run cosmic-ray's mutants of events/ against the fast tests of each module.

    python tests/mutants/run.py [--jobs 2] [--sample N] [--seconds S] [--report] [MODULE ...]

cosmic-ray's own runner starts a process for each mutant, ours forks (worker.py). Each worker mutates a copy of the
commit, never the working tree. Before anything is counted, the tests must pass in the copy and fail when the module
raises: so the mutated file is the imported one.

The result of each module is kept in build/mutants, so that a run can be split by module. `--report` writes
docs/internals/mutants.md from all of them; a survivor without a reason in survivors.toml is marked as not reviewed.
"""

import argparse
import ast
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # this file is started by its place

from tests.mutants.report import Result, Tested, document, rate, stored  # noqa: E402

WORK: Final = ROOT / "build/mutants"

#: The tests that feed whole streams through the emitter.
STREAMS: Final = [
    *("chat/test_repair.py", "chat/test_choices.py", "chat/test_stream.py", "chat/test_damaged_calls.py"),
    *("chat/test_calls.py", "chat/test_custom_calls.py", "chat/test_broken_streams.py", "chat/test_write.py"),
    *("chat/test_hermes.py", "chat/test_results.py", "emission/test_engine.py", "emission/test_shapes.py"),
    "emission/test_edits.py",
    *("test_emit.py", "test_fuzz_regressions.py", "fold/test_summary.py", "chat/test_repair_properties.py"),
]
#: Module of events/ -> the tests that address it. The nearest come first, since the first failure ends a run.
TESTS: Final = {
    "wire/sse": ["test_sse.py", "test_tape.py", "test_fuzz_regressions.py"],
    "tape/record": ["test_record.py", "test_tape.py", "fold/test_summary.py", "test_fuzz_regressions.py"],
    "tape/tape": ["test_tape.py", "test_formats.py", "chat/test_stream.py", "test_fuzz_regressions.py"],
    "core/json_text": ["test_json_text.py", "test_splice.py", "chat/test_history.py", *STREAMS],
    "core/lifecycle": ["test_lifecycle.py", "fold/test_folds.py", *STREAMS],
    "core/settings": ["test_settings.py", *STREAMS],
    "folds/wire": ["fold/test_folds.py", "fold/test_summary.py", *STREAMS],
    "folds/summary": ["fold/test_summary.py", "fold/test_folds.py", "chat/test_hermes.py", "test_lifecycle.py"],
    "emission/cards": ["chat/test_results.py", *STREAMS],
    "emission/engine": ["emission/test_engine.py", "emission/test_shapes.py", "test_emit.py", *STREAMS],
    "emission/frames": ["emission/test_edits.py", "emission/test_shapes.py", *STREAMS],
    "chat/chunk": STREAMS,
    "chat/content": STREAMS,
    "chat/repair": STREAMS,
    "chat/request": ["chat/test_results.py", "chat/test_history.py", *STREAMS],
    "chat/tool_calls": ["chat/test_calls.py", *STREAMS],
    "chat/write": ["chat/test_write.py", *STREAMS],
    "emit": ["test_emit.py", *STREAMS],
}
#: Of all mutants of all modules together that have a verdict.
KILLED_MIN: Final = 0.85


class Mutant(NamedTuple):
    """One change of one line."""

    operator: str
    occurrence: int
    line: int
    text: str
    changed: str
    code: str


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file that is valid Python and changes more than annotations of local variables."""
    # Heavy, and without types.
    init, mutating, plugins = (import_module(f"cosmic_ray.{name}") for name in ("commands.init", "mutating", "plugins"))
    source = path.read_text(encoding="utf-8")
    before, lines = meaning(source), source.splitlines()
    for item in init._all_work_items([path], {}):
        mutation = item.mutations[0]
        operator = plugins.get_operator(mutation.operator_name)()
        code: str | None = mutating.mutate_code(source, operator, mutation.occurrence)
        if code is None or meaning(code) in ("", before):
            continue
        line: int = mutation.start_pos[0]
        changed = next((new for old, new in zip(lines, code.splitlines(), strict=False) if old != new), "")
        name: str = mutation.operator_name.removeprefix("core/")
        yield Mutant(name, mutation.occurrence, line, lines[line - 1].strip(), changed.strip(), code)


def meaning(source: str) -> str:
    """Return the syntax without annotations inside functions, or nothing for invalid syntax."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.AnnAssign):
                    node.annotation = ast.Constant(None)
    return ast.dump(tree)


class Worker:
    """A copy of the tree and a process that tests in it."""

    def __init__(self, commit: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="wiretape-mutants-")
        self.tree = Path(self._folder.name)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(self.tree, filter="data")
        links = self.tree / "build/types/wiretape"
        links.mkdir(parents=True)
        for place in ("events", "proxy", "replay", "proxy/wiretape/__init__.py"):
            (links / Path(place).name).symlink_to(self.tree / place)
        # Compiled once, and taken only where the source has that very hash: never for a mutant.
        compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "events", "tests"]
        subprocess.run(compiled, cwd=self.tree, check=True)
        environment = os.environ | {"PYTHONPATH": f"{links.parent}:{self.tree}", "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.worker"], cwd=self.tree, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def outcome(self, module: str, code: str, seconds: float) -> str:
        """Of the module's tests, with this code in its place."""
        files = [f"tests/events/{name}" for name in TESTS[module]]
        request = {"path": f"events/{module}.py", "code": code, "files": files, "seconds": seconds}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: str = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """Stop the process and remove the copy."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def prove(worker: Worker, module: str) -> float:
    """The tests pass as things stand, and fail where the module is broken; gives how long they took."""
    source = (worker.tree / f"events/{module}.py").read_text(encoding="utf-8")
    started = time.monotonic()
    if worker.outcome(module, source, 300) != "survived":
        raise SystemExit(f"{module}: its tests fail before anything is mutated")
    took = time.monotonic() - started
    broken = source + "\nraise ImportError('the mutated file is the imported one')\n"
    if worker.outcome(module, broken, 300) != "killed":
        raise SystemExit(f"{module}: its tests pass although it raises: another file is imported")
    print(f"{module}: {took:.1f} s where all pass", file=sys.stderr)
    return took


def run_module(workers: list[Worker], module: str, commit: str, sample: int, seconds: float) -> Result:
    """Every mutant (or a sample that is the same at every run) of one module."""
    found = list(mutants(workers[0].tree / f"events/{module}.py"))
    order = random.Random(module)  # noqa: S311 - if the time runs out, any part was tested, and always the same first
    chosen = order.sample(found, min(sample or len(found), len(found)))
    bound = max(5.0, 6 * prove(workers[0], module))
    deadline = time.monotonic() + seconds
    tested: list[Tested] = []
    left = iter(chosen)

    def work(worker: Worker) -> None:
        for mutant in left:
            if time.monotonic() > deadline:
                return
            outcome = worker.outcome(module, mutant.code, bound)
            tested.append(Tested(mutant.operator, mutant.line, mutant.text, mutant.changed, outcome))

    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(work, workers))
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return Result(module, len(found), f"{day} {commit}", sorted(tested, key=lambda one: one[1:]))


def main() -> int:
    """The exit code is 1 below the bar."""
    parser = argparse.ArgumentParser(description="mutation testing of the core")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants a module; 0 is all")
    parser.add_argument("--seconds", type=float, default=1e9, help="at most so long a module")
    parser.add_argument("--report", action="store_true", help="write docs/internals/mutants.md from all results so far")
    parser.add_argument("modules", nargs="*", help=", ".join(TESTS))
    given = parser.parse_args()
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    workers = [Worker(commit) for _ in range(given.jobs)]
    try:
        for module in given.modules or TESTS:
            result = run_module(workers, module, commit, given.sample, given.seconds)
            result.store(WORK)
            print(result.row(), flush=True)
    finally:
        for worker in workers:
            worker.close()
    results = [known for module in TESTS if (known := stored(WORK, module))]
    if given.report:
        (ROOT / "docs/internals/mutants.md").write_text(document(results), encoding="utf-8")
    return int(rate(results) < KILLED_MIN)


if __name__ == "__main__":
    sys.exit(main())
