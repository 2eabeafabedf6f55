"""What a tape costs a test: `python -m tests.replay.plugin_cost [TESTS]`, in whole runs of pytest with and without

Each test has a tape of its own, from disk, and reads its whole answer from the server over a socket, frame by frame:
what that takes is in the figures. What the first one pays for all (imports, thread, server) is told apart. The least
of several runs counts, because whatever else this machine does only adds to it.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.tapes import conversation, text, write

__all__ = ["BAR_MS", "Cost", "measured"]

#: docs/pytest.md promises it; aimock's helper for pytest was measured at 240 to 290.
BAR_MS = 30.0
RUNS = 5
#: An answer of a sentence or two, and a long one.
WORDS = (20, 500)

PLAIN = """
def test_{number}():
    assert True
"""
TAPED = """
@pytest.mark.tape
def test_{number}(tape):
    url = urlsplit(tape.url)
    connection = http.client.HTTPConnection(url.hostname, url.port)
    connection.request("POST", url.path + "/chat/completions", BODY)
    answer = connection.getresponse().read()
    connection.close()
    assert answer.endswith(b"[DONE]\\n\\n")
"""
HEAD = """
import http.client, pytest
from urllib.parse import urlsplit
BODY = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
"""


class Cost(NamedTuple):
    """Milliseconds."""

    each: float
    first: float
    #: Of processors, which a busy machine does not change much.
    cpu_each: float


def measured(words: int, tests: int = 200, runs: int = RUNS) -> Cost:
    """Of tapes with so many words."""
    with tempfile.TemporaryDirectory() as folder:
        modules = [module for count in (1, tests) for module in _project(Path(folder), count, words)]
        spent = [[_run(module) for module in modules] for _ in range(runs)]
    first, each = _least(spent, 0, tests)
    return Cost(each, first, _least(spent, 1, tests)[1])


def _least(spent: Sequence[Sequence[tuple[float, float]]], which: int, tests: int) -> tuple[float, float]:
    """Of the first test and of each other one, in milliseconds."""
    plain, taped, all_plain, all_taped = (min(run[at][which] for run in spent) * 1_000 for at in range(4))
    return taped - plain, (all_taped - all_plain - (taped - plain)) / (tests - 1)


def _project(folder: Path, count: int, words: int) -> tuple[Path, Path]:
    sealed = conversation(text("hi", *[f"word{number} " for number in range(words)]))
    modules: list[Path] = []
    for name, source in (("plain", PLAIN), ("taped", TAPED)):
        module = folder / f"{name}_{count}" / "test_it.py"
        write(module, (HEAD + "".join(source.format(number=number) for number in range(count))).encode())
        modules.append(module)
    for number in range(count):
        write(modules[1].parent / "tapes/test_it" / f"test_{number}.tape", sealed)
    return modules[0], modules[1]


def _run(module: Path) -> tuple[float, float]:
    """Seconds of the clock, and of processors."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "wiretape", "--tape=replay"]
    # Of other people's plugins, which are many here, none is loaded: they take the most of a short run.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, str(module)], cwd=module.parent, check=True, capture_output=True, env=environment)
    spent, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    costs = {words: measured(words, asked) for words in WORDS}
    for words, cost in costs.items():
        print(f"a tape of {words} words: {cost.each:.1f} ms a test, {cost.cpu_each:.1f} ms of CPU")
        print(f"and once a run {cost.first:.0f} ms")
    print(f"{asked} tests, the least of {RUNS} runs; the bar is {BAR_MS:g} ms")
    sys.exit(any(cost.each > BAR_MS for cost in costs.values()))
