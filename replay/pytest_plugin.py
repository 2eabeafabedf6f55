"""The pytest plugin: the `tape` fixture and marker, and the options; nothing of ours is imported until a test asks

Every run of pytest in this environment loads this file, also one that knows no tape, and one that measures what covers
our own files: so no import of ours stands at its top.
"""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from .load import Recording
    from .prefixes import Prefix
    from .pytest_tape import Mode, Plan, Tape
    from .pytest_thread import Thread

__all__ = [
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_call",
    "pytest_runtest_makereport",
    "pytest_unconfigure",
    "tape",
]

_MODES: Final = ("replay", "once", "rewrite", "verify", "off")
_FOLDER: Final = "tapes"
_MARKER: Final = (
    "tape(*files, speed='instant', match='key', repeat=False, partly=False, fault=None, rechunk=None, "
    "prefixes=None, end='cut'): this test asks a tape instead of a provider; without a file tapes/<module>/<test>.tape"
)

_TAPE: "pytest.StashKey[Tape]" = pytest.StashKey()
_STATE: "pytest.StashKey[_State]" = pytest.StashKey()


class _State:
    """What all tests of one process share."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._tests = 0
        self._thread: Thread | None = None
        self._loaded: dict[Path, tuple[tuple[int, int], Recording]] = {}

    def next_test(self) -> str:
        """Its name in a path."""
        self._tests += 1
        return str(self._tests)

    @property
    def thread(self) -> "Thread":
        """It starts when the first test needs it."""
        if self._thread is None:
            from .pytest_thread import Thread

            self._thread = Thread()
        return self._thread

    def load(self, file: Path) -> "Recording":
        """Read and checked once, unless the file changes."""
        from .load import load

        facts = file.stat()
        stamp = (facts.st_mtime_ns, facts.st_size)
        if file not in self._loaded or self._loaded[file][0] != stamp:
            self._loaded[file] = (stamp, load(file))
        return self._loaded[file][1]

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close()


# -- options and settings ---------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Each option has a setting of the same name, for pyproject.toml."""
    group = parser.getgroup("tape", "tapes of LLM providers (Wiretape)")
    group.addoption("--tape", choices=_MODES, help="replay (default where CI is set), once (default elsewhere), ...")
    group.addoption("--tape-upstream", metavar="URL", help="The provider's base URL, for what is recorded or verified.")
    group.addoption("--tape-speed", metavar="SPEED", help="instant (default), original, or a factor.")
    group.addoption("--tape-max-age", metavar="DAYS", help="A tape that is older fails its test.")
    group.addoption(
        "--tape-check-unused", action="store_true", default=None, help="Fail where a tape file belongs to no test."
    )
    for name in ("tape", "tape_upstream", "tape_speed", "tape_max_age"):
        parser.addini(name, f"As --{name.replace('_', '-')}.")
    parser.addini("tape_check_unused", "As --tape-check-unused.", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """The marker is known, and so is a setting that is wrong."""
    config.addinivalue_line("markers", _MARKER)
    config.stash[_STATE] = _State()
    if _mode(config) not in _MODES:
        raise pytest.UsageError(f"the setting tape is one of {', '.join(_MODES)}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """The server ends with the run."""
    config.stash[_STATE].close()


def _option(config: pytest.Config, name: str) -> str:
    return str(config.getoption(name) or config.getini(name) or "")


def _mode(config: pytest.Config) -> str:
    default = "replay" if os.environ.get("CI", "").lower() not in ("", "0", "false") else "once"
    return _option(config, "tape") or default


# -- the fixture ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tape(request: pytest.FixtureRequest) -> "Iterator[Tape]":
    """The tape of this test: `tape.url` is the base URL, `tape.transport` the same for httpx under trio."""
    from .pytest_tape import Tape

    state = request.config.stash[_STATE]
    plan = _plan(request.node, getattr(request, "param", None))
    recordings = [] if plan.obstacle() else [state.load(file) for file in plan.files if file.exists()]
    tape = Tape(plan, state.next_test(), state.thread, recordings)
    request.node.stash[_TAPE] = tape
    yield tape
    tape.close()


def _plan(item: pytest.Item, prefix: "Prefix | None") -> "Plan":
    from .pytest_tape import Plan, speed_of

    config, marked = item.config, _marked(item)
    return Plan(
        nodeid=item.nodeid,
        files=_files(item),
        mode=cast("Mode", _mode(config)),
        upstream=_option(config, "tape_upstream"),
        speed=speed_of(marked.pop("speed", None) or _option(config, "tape_speed")),
        how=marked.pop("match", "key"),
        repeat=marked.pop("repeat", False),
        partly=marked.pop("partly", False),
        prefix=prefix,
    )


def _marked(item: pytest.Item) -> dict[str, Any]:
    """What its markers say, the nearest last."""
    said: dict[str, Any] = {}
    for marker in item.iter_markers("tape"):
        said = {**marker.kwargs, **said}
    return said


def _files(item: pytest.Item) -> tuple[Path, ...]:
    folder = item.path.parent / _FOLDER
    marker = next((marker for marker in item.iter_markers("tape") if marker.args), None)
    if marker is not None:
        return tuple(folder / file for file in marker.args)
    return (folder / item.path.stem / f"{item.name}.tape",)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """What is wrong with the tape fails the test itself, not what comes after it."""
    tape = item.stash.get(_TAPE, None)
    if tape is None:
        return (yield)
    if obstacle := tape.plan.obstacle():
        pytest.fail(obstacle, pytrace=False)
    result = yield
    if problem := tape.problem():
        pytest.fail(problem, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what was asked of the tape."""
    report = yield
    tape = item.stash.get(_TAPE, None)
    if tape is not None and call.when == "call" and report.failed:
        report.sections.append(("tape", tape.report()))
    return report
