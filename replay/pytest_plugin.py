"""The pytest plugin: the `tape` fixture and marker, and the options; nothing of ours is imported until a test asks

Every run of pytest in this environment loads this file, also one that knows no tape, and one that measures what covers
our own files: so no import of ours stands at its top.
"""

import hashlib
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from .load import Recording
    from .prefixes import Prefix
    from .pytest_tape import Mode, Plan, Tape
    from .pytest_thread import Thread
    from .pytest_unused import Claims

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_generate_tests",
    "pytest_runtest_call",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
    "pytest_testnodedown",
    "pytest_unconfigure",
    "tape",
]

#: What the marker may say by name.
_WORDS: Final = {"speed", "max_gap_ms", "match", "ids", "repeat", "partly", "fault", "rechunk", "prefixes", "end"}
_NAME_CHARS_MAX: Final = 120
#: Each is a test that pytest collects, reports and remembers.
_PREFIXES_MAX: Final = 20_000

_MODES: Final = ("replay", "once", "rewrite", "verify", "off")
_FOLDER: Final = "tapes"
_MARKER: Final = (
    "tape(*files, speed='instant', max_gap_ms=None, match='key', ids='recorded', repeat=False, partly=False, "
    "fault=None, rechunk=None, prefixes=None, end='cut'): this test asks a tape instead of a provider; without a file "
    "tapes/<module>/<test>.tape"
)

_TAPE: "pytest.StashKey[Tape]" = pytest.StashKey()
_STATE: "pytest.StashKey[_State]" = pytest.StashKey()


class _State:
    """What all tests of one process share; hooks that are told no configuration are its methods."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.notes: list[str] = []
        self.claims: Claims | None = None
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
        """The server ends with the run."""
        if self._thread is not None:
            self._thread.close()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Also of a worker of xdist, whose reports come as JSON."""
        self.notes += getattr(report, "tape_notes", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What was recorded, and what belongs to no test."""
        unused = self.claims.unused() if self.claims is not None else []
        if self.notes or unused:
            terminalreporter.section("tapes")
        for note in self.notes:
            terminalreporter.line(note)
        for file in unused:
            terminalreporter.line(f"belongs to no test: {file}", red=True)


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
    state = config.stash[_STATE] = _State(config)
    config.pluginmanager.register(state, "wiretape_state")
    if _mode(config) not in _MODES:
        raise pytest.UsageError(f"the setting tape is one of {', '.join(_MODES)}")
    if config.getoption("tape_check_unused") or config.getini("tape_check_unused"):
        from .pytest_unused import Claims

        state.claims = Claims()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The server ends with the run."""
    if _STATE in config.stash:
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
    from wiretape.events.errors import TapeError

    from .load import Recording
    from .pytest_tape import Tape

    state = request.config.stash[_STATE]
    plan = _plan(request.node, getattr(request, "param", None))
    obstacle, recordings = plan.obstacle(), list[Recording]()
    try:
        recordings = [] if obstacle else [state.load(file) for file in plan.files if file.exists()]
    except (TapeError, OSError) as error:
        obstacle = str(error)
    tape = Tape(plan, state.next_test(), state.thread, recordings, obstacle)
    request.node.stash[_TAPE] = tape
    yield tape
    tape.close()


def _plan(item: pytest.Item, prefix: "Prefix | None") -> "Plan":
    from .player import Speed
    from .pytest_tape import Plan

    config, marked = item.config, _marked(item)
    files, gap_s_max = _files(item), marked.get("max_gap_ms", inf) / 1_000
    return Plan(
        nodeid=item.nodeid,
        files=files,
        mode=cast("Mode", _mode(config)),
        live=_live(config, files),
        upstream=_option(config, "tape_upstream"),
        speed=Speed.of(str(marked.get("speed") or _option(config, "tape_speed") or "instant"), gap_s_max),
        how=marked.get("match", "key"),
        repeat=marked.get("repeat", False),
        ids=marked.get("ids", "recorded"),
        partly=marked.get("partly", False),
        age_days_max=float(_option(config, "tape_max_age") or "inf"),
        prefix=prefix,
        end=marked.get("end", "cut"),
        faults=_faults(marked),
    )


def _faults(marked: Mapping[str, Any]) -> tuple[str, ...]:
    """`fault` is one, or several, as docs/replay.md has them."""
    from .pytest_tape import named_faults

    said = marked.get("fault", ())
    rechunk = {"rechunk": marked["rechunk"]} if "rechunk" in marked else {}
    return (*([said] if isinstance(said, str) else said), *named_faults(rechunk))


def _live(config: pytest.Config, files: Sequence[Path]) -> bool:
    mode = _mode(config)
    return mode in ("rewrite", "verify", "off") or (mode == "once" and not files[0].exists())


def _marked(item: pytest.Item | pytest.Function) -> dict[str, Any]:
    """What its markers say; the nearest has the last word."""
    said: dict[str, Any] = {}
    for marker in item.iter_markers("tape"):
        said = {**marker.kwargs, **said}
    if unknown := said.keys() - _WORDS:
        raise pytest.UsageError(f"{item.nodeid}: the tape marker knows no {', '.join(sorted(unknown))}")
    return said


def _files(item: pytest.Item) -> tuple[Path, ...]:
    """Beside its module: those that a marker names, or the one that has the test's name."""
    folder = item.path.parent / _FOLDER
    marker = next((marker for marker in item.iter_markers("tape") if marker.args), None)
    if marker is not None:
        return tuple(folder / file for file in marker.args)
    # All prefixes of a tape, but each set of parameters has its own.
    name = getattr(item, "originalname", None) if "prefixes" in _marked(item) else None
    owner = f"{item.cls.__name__}." if isinstance(item, pytest.Function) and item.cls is not None else ""
    return (folder / item.path.stem / f"{owner}{_plain(name or item.name)}.tape",)


def _plain(name: str) -> str:
    """A file name everywhere. What says as much as another one does, but is written otherwise, ends otherwise."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:_NAME_CHARS_MAX]
    if re.fullmatch(r"[\w.-]+(\[[\w.-]*\])?", name) and len(name) <= _NAME_CHARS_MAX:
        return plain
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`prefixes`: one run for each place where the tape can be cut, and one with all of it."""
    item = metafunc.definition
    unit = _marked(item).get("prefixes")
    if unit is None or "tape" not in metafunc.fixturenames:
        return
    files = _files(item)
    prefixes: list[Prefix | None] = [None]
    if not _live(metafunc.config, files) and all(file.exists() for file in files):
        from .prefixes import prefixes_of

        load = metafunc.config.stash[_STATE].load
        prefixes = [*prefixes_of([records for file in files for records in load(file).streams], unit), None]
    if len(prefixes) > _PREFIXES_MAX:
        raise pytest.UsageError(f"{item.nodeid}: {len(prefixes)} prefixes are no tests; loop over tape.prefixes()")
    metafunc.parametrize(
        "tape", prefixes, indirect=True, ids=["whole" if one is None else str(one) for one in prefixes]
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """What is wrong with the tape fails the test itself, not what comes after it."""
    tape = item.stash.get(_TAPE, None)
    if tape is None:
        return (yield)
    if tape.obstacle:
        pytest.fail(tape.obstacle, pytrace=False)
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
    if tape is not None and call.when == "call":
        if report.failed:
            report.sections.append(("tape", tape.report()))
        report.tape_notes = tape.notes  # type: ignore[attr-defined] # a report takes whatever JSON can say
    return report


# -- tapes that belong to no test -------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Before any of them is deselected."""
    claims = config.stash[_STATE].claims
    if claims is not None:
        whole = not any("::" in argument for argument in config.args)
        claims.collect(((item.path, _files(item) if _asks(item) else ()) for item in items), whole=whole)


def _asks(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "tape" in item.fixturenames


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist tells what it has collected; whoever has the last word fails the run."""
    claims = session.config.stash[_STATE].claims
    if claims is None:
        return
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tape_claims"] = claims.to_json()
    elif claims.unused() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of xdist has ended."""
    claims = node.config.stash[_STATE].claims
    said = getattr(node, "workeroutput", {}).get("tape_claims")
    if claims is not None and said is not None:
        claims.add(said)
