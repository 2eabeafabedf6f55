"""The pytest plugin: the `tape` fixture and marker, and the options; nothing of ours is imported until a test asks

Every run of pytest in this environment loads this file, also one that knows no tape, and one that measures what covers
our own files: so no import of ours stands at its top.
"""

import hashlib
import inspect
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from ..faults.prefixes import Prefix
    from ..sealed.load import Recording
    from .tape import Mode, Plan, Tape
    from .thread import Thread
    from .unused import Claims

__all__ = [
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_fixture_setup",
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
#: Of those that are one of a few words.
_ALLOWED: Final[Mapping[str, Sequence[str]]] = {
    "match": ("key", "position", "strict"),
    "ids": ("recorded", "fresh"),
    "prefixes": ("frames", "bytes"),
    "end": ("cut", "eof", "reset", "stall", "garbage"),
}
_NAME_CHARS_MAX: Final = 120
#: Files that stay read. Tests that share one mostly follow each other, and what is kept makes all others slower: ten
#: thousand objects a file for the garbage collector to walk over.
_LOADED_MAX: Final = 16
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
#: Why a test was expected to fail, of one that did not.
_XPASSED: "pytest.StashKey[str | None]" = pytest.StashKey()
_STATE: "pytest.StashKey[_State]" = pytest.StashKey()


class _State:
    """What all tests of one process share; hooks that are told no configuration are its methods."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.notes: list[str] = []
        self.claims: Claims | None = None
        #: Of tests that would have one file in common: which, and with whom.
        self.shared: dict[str, str] = {}
        #: Of those whose file another test of this run has too: why none of them can record it.
        self.unrecorded: dict[str, str] = {}
        #: Those that name the file of another test of this run, which records it: they replay it.
        self.followers: frozenset[str] = frozenset()
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
            from .thread import Thread

            self._thread = Thread()
        return self._thread

    def load(self, file: Path) -> "Recording":
        """Read and checked once, unless the file changes."""
        from ..sealed.load import load

        facts = file.stat()
        stamp = (facts.st_mtime_ns, facts.st_size)
        known = self._loaded.pop(file, None)
        if known is None or known[0] != stamp:
            known = (stamp, load(file))
        self._loaded[file] = known  # the last one in the row
        if len(self._loaded) > _LOADED_MAX:
            del self._loaded[next(iter(self._loaded))]
        return known[1]

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
    group.addoption("--tape", choices=_MODES, help="once (default; where CI is set it only replays), rewrite, ...")
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
    speed, days = _option(config, "tape_speed"), _option(config, "tape_max_age")
    if speed and not _is_speed(speed):
        raise pytest.UsageError(f"the setting tape_speed is instant, original or a factor such as 10, not {speed!r}")
    if days and _number(days) is None:
        raise pytest.UsageError(f"the setting tape_max_age is a number of days, not {days!r}")
    if config.getoption("tape_check_unused") or config.getini("tape_check_unused"):
        from .unused import Claims

        state.claims = Claims()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The server ends with the run."""
    if _STATE in config.stash:
        config.stash[_STATE].close()


def _option(config: pytest.Config, name: str) -> str:
    return str(config.getoption(name) or config.getini(name) or "")


def _mode(config: pytest.Config) -> str:
    """Where `CI` is set nothing is recorded by the way: `once` never, and `rewrite` only from the command line."""
    said = _option(config, "tape") or "once"
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    if in_ci and (said == "once" or (said == "rewrite" and not config.getoption("tape"))):
        return "replay"
    return said


def _number(said: object) -> float | None:
    """None where it is none, or less than nothing."""
    try:
        number = float(str(said))
    except ValueError:
        return None
    return number if number >= 0 else None


def _is_speed(said: object) -> bool:
    return said in ("instant", "original") or 0 < (_number(said) or 0) < inf


# -- the fixture ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tape(request: pytest.FixtureRequest) -> "Iterator[Tape]":
    """The tape of this test: `tape.url` is the base URL, `tape.transport` the same for httpx under trio."""
    from wiretape.events.core.errors import TapeError

    from ..sealed.load import Recording
    from .tape import Tape

    state = request.config.stash[_STATE]
    marked, wrong = _marked(request.node), _wrong(request.node)
    plan = _plan(request.node, getattr(request, "param", None), {} if wrong else marked)
    if plan.keeps and plan.nodeid in state.followers:
        plan = replace(plan, mode="replay", live=False)
    shared = state.shared.get(plan.nodeid) or (state.unrecorded.get(plan.nodeid) if plan.keeps else "")
    obstacle, recordings = wrong or shared or plan.obstacle(), list[Recording]()
    try:
        recordings = [] if obstacle else [state.load(file) for file in plan.files if file.exists()]
    except (TapeError, OSError) as error:
        obstacle = str(error)
    tape = Tape(plan, state.next_test(), state.thread, recordings, obstacle)
    request.node.stash[_TAPE] = tape
    yield tape
    tape.close()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Those that stand on the tape are torn down before it, and what they ask then is a part of the test. Another
    plugin is about to wrap those that are async, so this comes first; and it answers nothing, so they are set up.
    """
    tape = request.node.stash.get(_TAPE, None)
    if tape is None or tape.standing.isdisjoint(fixturedef.argnames):
        return
    tape.standing.add(fixturedef.argname)
    tape.asked_later = tape.asked_later or _has_teardown(fixturedef, request.node)


def _has_teardown(fixturedef: pytest.FixtureDef[Any], item: pytest.Item) -> bool:
    """Whether it may do something when the test is over: behind its `yield`, or by `request.addfinalizer`."""
    if inspect.isasyncgenfunction(fixturedef.func):
        return item.get_closest_marker("trio") is None  # pytest-trio tears them down inside of the test
    return inspect.isgeneratorfunction(fixturedef.func) or "request" in fixturedef.argnames


def _plan(item: pytest.Item, prefix: "Prefix | None", marked: Mapping[str, Any]) -> "Plan":
    from ..playback.player import Speed
    from .tape import Plan

    config = item.config
    files, gap_s_max = _files(item), float(marked.get("max_gap_ms", inf)) / 1_000
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
    from .tape import named_faults

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
    return {word: value for word, value in said.items() if value is not None}


def _wrong(item: pytest.Item | pytest.Function) -> str:
    """What its markers say and may not, in words for a person; empty where nothing is wrong."""
    said = _marked(item)
    if unknown := said.keys() - _WORDS:
        return f"the tape marker knows no {', '.join(sorted(unknown))}; it knows {', '.join(sorted(_WORDS))}"
    for word, allowed in _ALLOWED.items():
        if word in said and said[word] not in allowed:
            return f"the tape marker's {word} is {' or '.join(allowed)}, not {said[word]!r}"
    if not _is_speed(said.get("speed", "instant")):
        return f"the tape marker's speed is instant, original or a factor such as 10, not {said['speed']!r}"
    if _number(said.get("max_gap_ms", 0)) is None:
        return f"the tape marker's max_gap_ms is a number of milliseconds, not {said['max_gap_ms']!r}"
    return _wrong_faults(said)


def _wrong_faults(said: Mapping[str, Any]) -> str:
    if "fault" not in said and "rechunk" not in said:
        return ""
    from ..faults.faults import FaultError, Faults

    try:
        Faults.of(_faults(said))
    except (FaultError, TypeError) as error:
        return f"the tape marker: {error}"
    return ""


def _files(item: pytest.Item) -> tuple[Path, ...]:
    """Beside its module: those that a marker names, or the one that has the test's name."""
    folder = item.path.parent / _FOLDER
    marker = next((marker for marker in item.iter_markers("tape") if marker.args), None)
    if marker is not None:
        return tuple(folder / file for file in marker.args)
    # All prefixes of a tape; sets of parameters are not known yet when they are counted, so a marker names their file.
    name = getattr(item, "originalname", None) if "prefixes" in _marked(item) else None
    owners = "".join(f"{_plain(node.name)}." for node in item.listchain() if isinstance(node, pytest.Class))
    return (folder / item.path.stem / f"{owners}{_plain(name or item.name)}.tape",)


def _plain(name: str) -> str:
    """A file name everywhere. What says as much as another one does, but is written otherwise, ends otherwise: so do
    parameters with capitals, which many file systems take for small letters.
    """
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:_NAME_CHARS_MAX]
    given = name.partition("[")[2]
    if plain in (name, re.sub(r"\[(.*)\]", r"-\1", name)) and given == given.lower():
        return plain
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`prefixes`: one run for each place where the tape can be cut, and one with all of it."""
    item = metafunc.definition
    unit = _marked(item).get("prefixes")
    if unit is None or "tape" not in metafunc.fixturenames or _wrong(item):
        return  # what is wrong is said once
    files = _files(item)
    prefixes: list[Prefix | None] = [None]
    if not _live(metafunc.config, files) and all(file.exists() for file in files):
        from ..faults.prefixes import prefixes_of

        load = metafunc.config.stash[_STATE].load
        prefixes = [*prefixes_of([records for file in files for records in load(file).streams], unit), None]
    if len(prefixes) > _PREFIXES_MAX:
        raise pytest.UsageError(f"{item.nodeid}: {len(prefixes)} prefixes are no tests; loop over tape.prefixes()")
    metafunc.parametrize(
        "tape", prefixes, indirect=True, ids=["whole" if one is None else str(one) for one in prefixes]
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """What is wrong with the tape fails the test itself, unless a teardown that is still to come may mend it."""
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
    """A failure shows what was asked of the tape; what was recorded is kept when the test has ended wholly."""
    report = yield
    tape = item.stash.get(_TAPE, None)
    if tape is None:
        return report
    if call.when == "call":
        if report.failed:
            report.sections.append(("tape", tape.report()))
        if report.passed:
            tape.passed()
            item.stash[_XPASSED] = getattr(report, "wasxfail", None)
    if call.when == "teardown":
        del item.stash[_TAPE]  # the node stays to the end of the run
        _end(report, tape, item.stash.get(_XPASSED, None))
    report.tape_notes = tape.taken_notes()  # type: ignore[attr-defined] # a report takes whatever JSON can say
    return report


def _end(report: pytest.TestReport, tape: "Tape", xpassed: str | None) -> None:
    """What a teardown did wrong itself comes before what is wrong with the tape. Whose failure was expected fails as
    expected, though it is only here.
    """
    if tape.late:
        report.sections.append(("tape", tape.report()))
    if report.passed and (problem := tape.keep()):
        report.outcome, report.longrepr = "failed", problem
        if xpassed is not None:
            report.outcome, report.wasxfail = "skipped", xpassed


# -- tapes that belong to no test -------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Before any of them is deselected."""
    state = config.stash[_STATE]
    state.shared = _shared(items)
    claims = state.claims
    if claims is not None:
        whole = not any("::" in argument for argument in config.args)
        claims.collect(((item.path, _files(item) if _asks(item) else ()) for item in items), whole=whole)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Of the tests that are left to run, those that would record one file: the last of them would have it."""
    why = "{file} is the tape of {other} too, so neither can record it: run one of them alone, or `wiretape record` it"
    state, asking = session.config.stash[_STATE], [item for item in session.items if _asks(item)]
    own = {_key(item) for item in asking if not _names(item)}
    state.followers = frozenset(item.nodeid for item in asking if _names(item) and _key(item) in own)
    state.unrecorded = _in_common([item for item in asking if item.nodeid not in state.followers], why)


def _shared(items: Sequence[pytest.Item]) -> dict[str, str]:
    """Of each test whose file, by its name, is another's too, what is to be done: each would replay the other's."""
    unnamed = [item for item in items if _asks(item) and not _names(item)]
    return _in_common(unnamed, "{file} is the tape of {other} too: name a file in the marker of each")


def _in_common(items: Sequence[pytest.Item], why: str) -> dict[str, str]:
    """Of each test whose file is another's too, why that cannot be. Many file systems know no capitals."""
    owners: dict[str, dict[str, tuple[str, Path]]] = {}
    for item in items:
        owners.setdefault(_key(item), {})[item.nodeid] = _run_of(item), _files(item)[0]
    return {
        nodeid: why.format(file=file, other=other)
        for tests in owners.values()
        if len({run for run, _ in tests.values()}) > 1
        for nodeid, (run, file) in tests.items()
        for other in [next(name for name, (its, _) in tests.items() if its != run)]
    }


def _names(item: pytest.Item) -> bool:
    """Whether its marker names a file, and not its own name does."""
    return any(each.args for each in item.iter_markers("tape"))


def _key(item: pytest.Item) -> str:
    return os.path.normpath(_files(item)[0]).casefold()


def _run_of(item: pytest.Item) -> str:
    """All prefixes of a tape are one test, in each set of parameters."""
    callspec: Any = getattr(item, "callspec", None)
    if callspec is None or "prefixes" not in _marked(item):
        return item.nodeid
    return repr([each for each in sorted(callspec.indices.items()) if each[0] != "tape"])


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
