"""The hooks and the `tape` fixture.

Every run of pytest in this environment loads this module, also runs without tapes and runs that measure the coverage of
Wiretape itself. So it imports nothing of Wiretape until a test asks for a tape.
"""

import inspect
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, count
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from _pytest.nodes import Node

    from ..faults.cutting import Prefix
    from ..sealed.files import Recording
    from .plan import Mode
    from .tape import Tape
    from .thread import Thread

__all__ = [
    "pytest_addhooks",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_fixture_setup",
    "pytest_generate_tests",
    "pytest_pycollect_makeitem",
    "pytest_runtest_call",
    "pytest_runtest_makereport",
    "pytest_unconfigure",
    "tape",
]

_MODES: Final = ("replay", "once", "rewrite", "verify", "off")
#: By setting: what the value of its option is, empty for a switch, and what it is for.
_SETTINGS: Final = {
    "tape": ("MODE", f"{', '.join(_MODES)}. Default: once, but replay where CI is set."),
    "tape_upstream": ("URL", "The provider's base URL for recording and verifying."),
    "tape_speed": ("SPEED", "instant (default), original, or a factor."),
    "tape_max_age": ("DAYS", "Fail tests whose tape is older."),
    "tape_check_unused": ("", "Fail if a tape file belongs to no test."),
    "tape_env": ("", "Set OPENAI_BASE_URL and such for tests with a tape, and block other networks."),
}
_MARKER: Final = (
    "tape(*files, speed='instant', max_gap_ms=None, match='key', repeat=False, partly=False, "
    "fault=None, prefixes=None, end='cut'): replay a tape instead of asking a provider; without a file "
    "tapes/<module>/<test>.tape"
)
_NO_FIXTURE: Final = (
    "the tape marker is on a test that does not use the `tape` fixture: "
    "add `tape` to its arguments, or remove the marker"
)
_IDLE: Final = "no test here uses the `tape` fixture, so its marker does nothing: add `tape`, or run with --tape-env"
#: Tests that share a tape mostly follow each other. Every tape kept in memory slows the garbage collector down.
_LOADED_MAX: Final = 16
#: Each prefix is a test that pytest collects, reports and remembers.
_PREFIXES_MAX: Final = 20_000

_TAPE: "pytest.StashKey[Tape]" = pytest.StashKey()
#: A test has passed; the reason of an xfail marker if it was expected to fail.
_PASSED: "pytest.StashKey[str | None]" = pytest.StashKey()
_STATE: "pytest.StashKey[_State]" = pytest.StashKey()


class _State:
    """What the tests of one process share. Hooks that are called without a configuration are methods here."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.thread: Thread | None = None
        self.numbers = count(1)
        #: The classes and modules whose marker does nothing, until a test has warned of them.
        self.idle: set[Node] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect notes, also from the workers of xdist, whose reports arrive as JSON."""
        self.notes += getattr(report, "tape_notes", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.notes:
            terminalreporter.section("tapes")
        for note in self.notes:
            terminalreporter.line(note)


class _Hooks:
    """Hooks of this plugin for a project's conftest.py."""

    def pytest_wiretape_before_seal(self, text: str) -> "Iterable[str] | None":
        """Return the secrets in a text of a recording, as written in it, to redact more than Wiretape does by itself.

        Called for each string before a recording is sealed. Pieces of a streamed text are joined.
        """


# -- options ----------------------------------------------------------------------------------------------------------


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(_Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each with a setting of the same name."""
    group = parser.getgroup("tape", "tapes of LLM providers (Wiretape)")
    for name, (metavar, what) in _SETTINGS.items():
        flag = f"--{name.replace('_', '-')}"
        if metavar:
            group.addoption(flag, metavar=metavar, help=what)
            parser.addini(name, f"Same as {flag}.")
        else:
            group.addoption(flag, action="store_true", default=None, help=what)
            parser.addini(name, f"Same as {flag}.", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and refuse wrong settings."""
    config.addinivalue_line("markers", _MARKER)
    state = config.stash[_STATE] = _State()
    config.pluginmanager.register(state, "wiretape_state")
    if _mode(config) not in _MODES:
        raise pytest.UsageError(f"the setting tape is one of {', '.join(_MODES)}")
    speed, days = _option(config, "tape_speed"), _option(config, "tape_max_age")
    if speed not in ("", "instant", "original") and not 0 < _number(speed) < inf:
        raise pytest.UsageError(f"the setting tape_speed is instant, original or a factor such as 10, not {speed!r}")
    if days and not _number(days) >= 0:
        raise pytest.UsageError(f"the setting tape_max_age is a number of days, not {days!r}")


def pytest_unconfigure(config: pytest.Config) -> None:
    state = config.stash.get(_STATE, None)
    if state is not None and state.thread is not None:
        state.thread.close()


def _option(config: pytest.Config, name: str) -> str:
    return str(config.getoption(name) or config.getini(name) or "")


def _mode(config: pytest.Config) -> "Mode":
    """Return the mode. Where `CI` is set `once` only replays, and `rewrite` must be on the command line."""
    mode: Mode = _option(config, "tape") or "once"  # type: ignore[assignment] # checked when the run starts
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    if in_ci and (mode == "once" or (mode == "rewrite" and not config.getoption("tape"))):
        return "replay"
    return mode


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1


# -- collection -------------------------------------------------------------------------------------------------------


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> None:
    """With `--tape-env` give each test with the marker its tape, without an argument for it."""
    uses, given = pytest.mark.usefixtures("tape"), [mark.args for mark in collector.iter_markers("usefixtures")]
    if _option(collector.config, "tape_env"):
        if inspect.isfunction(obj) and any(mark.name == "tape" for mark in getattr(obj, "pytestmark", ())):
            uses(obj)
        if collector.get_closest_marker("tape") is not None and ("tape",) not in given:
            collector.add_marker(uses)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with `prefixes` once for each place where its tape can be cut, and once with the whole tape."""
    item = metafunc.definition
    if "tape" not in metafunc.fixturenames or not any("prefixes" in each.kwargs for each in item.iter_markers("tape")):
        return
    from ..faults.cutting import prefixes_of
    from .plan import files_of, is_live, marked

    unit, files = marked(item).get("prefixes"), files_of(item)
    if unit not in ("frames", "bytes"):
        return  # the fixture reports the mistake
    prefixes: list[Prefix | None] = [None]
    if not is_live(_mode(metafunc.config), files) and all(file.exists() for file in files):
        streams = [records for file in files for records in _load(file).streams]
        prefixes = [*prefixes_of(streams, unit), None]
    if len(prefixes) > _PREFIXES_MAX:
        raise pytest.UsageError(f"{item.nodeid}: {len(prefixes)} prefixes are too many; loop over tape.prefixes()")
    metafunc.parametrize(
        "tape", prefixes, indirect=True, ids=["whole" if one is None else str(one) for one in prefixes]
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Add a failing test if a run of whole folders has unused tapes; last, because plugins expect functions."""
    collected = [*items]  # also tests that are deselected
    marked = [(node, _asks(item)) for item in items for node, _ in item.iter_markers_with_node("tape") if node != item]
    if not any("::" in argument for argument in config.args):
        config.stash[_STATE].idle = {node for node, _ in marked} - {node for node, used in marked if used}
    yield
    whole = all((config.invocation_params.dir / argument).is_dir() for argument in config.args)
    if whole and _option(config, "tape_check_unused"):
        from .plan import files_of, unused

        if files := unused([(item.path, files_of(item) if _asks(item) else ()) for item in collected]):
            check: _Unused = _Unused.from_parent(session, name="unused tapes")  # pyright: ignore[reportUnknownMemberType] - untyped
            check.files = files
            items.append(check)


class _Unused(pytest.Item):
    """A test that fails because no other test uses some tapes."""

    files: Sequence[Path]

    def runtest(self) -> None:
        pytest.fail("\n".join(f"belongs to no test: {file}" for file in self.files), pytrace=False)


def _asks(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "tape" in item.fixturenames


# -- the fixture ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tape(request: pytest.FixtureRequest) -> "Iterator[Tape]":
    """The tape of this test: `tape.url` is the base URL, `tape.transport` a transport for httpx under trio."""
    from wiretape.events.core.errors import TapeError

    from .plan import plan_of, recorders
    from .tape import Tape
    from .thread import Thread

    config, item = request.config, request.node
    state = config.stash[_STATE]
    state.thread = state.thread or Thread()
    options = {name: _option(config, name) for name in _SETTINGS}
    plan = plan_of(item, _mode(config), options, getattr(request, "param", None))
    may_record = recorders(item, filter(_asks, request.session.items)) if plan.keeps and not plan.mistake else [item]
    if item not in may_record:
        plan = replace(plan, mode="replay", live=False)
    obstacle = plan.obstacle()
    if item in may_record and len(may_record) > 1:
        other = next(each.nodeid for each in may_record if each is not item)
        why = f"{plan.files[0]} is the tape of {other} too, so neither can record it"
        obstacle = f"{why}: run one of them alone, or `wiretape record` it"
    recordings: list[Recording] = []
    try:
        recordings = [] if obstacle else [_load(file) for file in plan.files if file.exists()]
    except (TapeError, OSError) as error:
        obstacle = str(error)
    detector = partial(_secrets_in, config) if config.hook.pytest_wiretape_before_seal.get_hookimpls() else None
    tape = item.stash[_TAPE] = Tape(plan, str(next(state.numbers)), state.thread, recordings, obstacle, detector)
    with ExitStack() as stack:
        if _option(config, "tape_env") and not tape.obstacle:
            stack.enter_context(tape.isolated())
        yield tape
    try:
        if _PASSED in item.stash:
            tape.late_problem = tape.problem(more=not tape.asked_later)
    finally:
        tape.close()


def _secrets_in(config: pytest.Config, text: str) -> "Iterator[str]":
    return chain.from_iterable(config.hook.pytest_wiretape_before_seal(text=text))


def _load(file: Path) -> "Recording":
    facts = file.stat()
    return _loaded(file, facts.st_mtime_ns, facts.st_size)


@lru_cache(_LOADED_MAX)
def _loaded(file: Path, mtime_ns: int, size: int) -> "Recording":  # noqa: ARG001 - another time or size, another file
    from ..sealed.files import load

    return load(file)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Note fixtures that depend on the tape: requests in their teardown belong to the test.

    This comes before other plugins wrap fixtures that are async, and returns nothing, so that they are set up.
    """
    tape = request.node.stash.get(_TAPE, None)
    if tape is None or tape.dependents.isdisjoint(fixturedef.argnames):
        return
    tape.dependents.add(fixturedef.argname)
    tape.asked_later = tape.asked_later or _has_teardown(fixturedef, request.node)


def _has_teardown(fixturedef: pytest.FixtureDef[Any], item: pytest.Item) -> bool:
    """Return whether a fixture may act after the test, by code after its `yield` or by `request.addfinalizer`."""
    if inspect.isasyncgenfunction(fixturedef.func):
        return item.get_closest_marker("trio") is None  # pytest-trio tears these down inside the test
    return inspect.isgeneratorfunction(fixturedef.func) or "request" in fixturedef.argnames


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail the test if something is wrong with its tape that no teardown can mend."""
    tape = item.stash.get(_TAPE, None)
    if tape is not None and tape.obstacle:
        pytest.fail(tape.obstacle, pytrace=False)
    result = yield
    tape = item.stash.get(_TAPE, None)  # now also one that the test got with `request.getfixturevalue`
    idle = item.config.stash[_STATE].idle
    for node in idle.intersection(item.listchain()):
        idle.discard(node)
        node.warn(pytest.PytestWarning(f"{node.nodeid}: {_IDLE}"))
    if tape is None and any(marker.name == "tape" for marker in item.own_markers):
        pytest.fail(_NO_FIXTURE, pytrace=False)
    if tape is not None and (problem := tape.obstacle or tape.problem(more=tape.asked_later)):
        pytest.fail(problem, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the requests of a failed test, and keep the recording of a test that passed with its teardown."""
    report = yield
    tape = item.stash.get(_TAPE, None)
    if tape is None:
        return report
    if call.when == "call" and report.passed:
        item.stash[_PASSED] = getattr(report, "wasxfail", None)
    late = call.when == "teardown" and tape.late_problem
    if late or (call.when == "call" and report.failed):
        report.sections.append(("tape", tape.report()))
    if call.when == "teardown":
        del item.stash[_TAPE]  # items live until the end of the run
        if report.passed and _PASSED in item.stash and (problem := late or tape.keep()):
            report.outcome, report.longrepr = "failed", problem
            if (reason := item.stash[_PASSED]) is not None:  # a test that is expected to fail does so, if late
                report.outcome, report.wasxfail = "skipped", reason
    report.tape_notes, tape.notes = tape.notes, []  # type: ignore[attr-defined] # a report may have any attribute of JSON
    return report
