"""Tests mutant after mutant in a copy of the tree: reads requests from stdin, answers on stdout, one JSON line each.

pytest and what it needs are loaded once; each mutant gets a fork of this process, which imports the rooms afresh. That
takes the start of a process (most of a second) off each mutant.
"""

import contextlib
import importlib
import io
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import hypothesis
import orjson
import pytest

_LOADED = (hypothesis, orjson, importlib.import_module("pytest_trio"))  # once, and forked often
_ARGUMENTS = ("-x", "-q", "--assert=plain", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist")
_MEMORY_BYTES_MAX = 2 << 30  # a loop that never ends may also fill the memory


class NoShrinking:
    """A plugin of pytest: a failure need not be small, and hypothesis takes most of its time to make it so."""

    @staticmethod
    def pytest_configure() -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", hypothesis.settings(phases=phases, max_examples=60))
        hypothesis.settings.load_profile("mutants")


def run_tests(files: list[str], seconds: float) -> str:
    """Run the tests on the tree as it is now; return `survived`, `killed` or `timeout`.

    Most mutants die in the first file or the second, so the others are not even collected before these have passed.
    """
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = next((code for file in files if (code := pytest.main([*_ARGUMENTS, file], [NoShrinking]))), 0)
        os._exit(int(code))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "survived" if status == 0 else "killed"
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def main() -> None:
    """Each request names a file, what it shall hold, the test files and a time."""
    answers = os.fdopen(os.dup(1), "w")
    sys.dont_write_bytecode = True
    assert not any(name.startswith("wiretape") for name in sys.modules), "a mutant would not be imported"
    for line in sys.stdin:
        request = json.loads(line)
        path = Path(request["path"])
        original = path.read_text(encoding="utf-8")
        path.write_text(request["code"], encoding="utf-8")
        try:
            outcome = run_tests(request["files"], request["seconds"])
        finally:
            path.write_text(original, encoding="utf-8")
        answers.write(json.dumps(outcome) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
