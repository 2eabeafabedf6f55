"""The test of each failure case and its result: `make failures` runs them and writes docs/internals/failures.md

A test says its cases with `@pytest.mark.case("U07")`, at the function or at one of its rows. As a plugin of pytest
(`-p tests.failures.report`) this file writes down how they came out; `collected` finds them without running them.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = _ROOT / "docs" / "internals" / "failures.md"
#: Where tests name cases, as `make failures` has them.
_ELSEWHERE: Final = ("cancel_sweep", "durability", "processes", "recovery")
_PLACES: Final = ("tests/failures", *[f"tests/proxy/test_{room}.py" for room in _ELSEWHERE])
_COLLECTED: Final = "-- cases --"
_CASE: Final = "wiretape-case"

#: Every case of the list, in a few words of ours.
CASES: Final[Mapping[str, str]] = {
    "U01": "no listener",
    "U02": "connecting never ends",
    "U03": "the name is unknown",
    "U04": "the resolver is slow",
    "U05": "the certificate or the version of TLS is bad",
    "U06": "the handshake hangs",
    "U07": "our key is refused, and perhaps echoed",
    "U08": "the request is refused",
    "U09": "too many requests, with every kind of Retry-After",
    "U10": "errors that may pass, and another upstream",
    "U11": "an error as a page of 2 MB",
    "U12": "a whole answer, or a refusal, where a stream was asked for",
    "U13": "a page where an answer was due",
    "U14": "a stream under another content type",
    "U15": "an empty success",
    "U16": "no content, redirects, another protocol",
    "U17": "the connection is lost before the head",
    "U18": "a reset in the middle of a frame",
    "U19": "a chunked body is cut",
    "U20": "a close that looks like an end",
    "U21": "a finish, and no terminator",
    "U22": "silence before the head",
    "U23": "silence before the first frame",
    "U24": "silence in the middle of a call",
    "U25": "silence after the finish",
    "U26": "signs of life for ever",
    "U27": "single bytes",
    "U28": "a cut at any byte",
    "U29": "a line without end",
    "U30": "an event without end",
    "U31": "a million empty events",
    "U32": "line ends of every kind",
    "U33": "letters that others take for line ends",
    "U34": "byte order marks",
    "U35": "bytes that are no UTF-8",
    "U36": "control characters",
    "U37": "half emoji",
    "U38": "frames that are no JSON",
    "U39": "odd JSON",
    "U40": "two terminators",
    "U41": "data after the terminator",
    "U42": "the terminator written otherwise",
    "U43": "an error in the stream",
    "U44": "a second finish",
    "U45": "calls with tangled indexes, ids and names",
    "U46": "calls whose arguments are no JSON",
    "U47": "internal tools and orphans",
    "U48": "usage chunks",
    "U49": "events that pretend to be ours",
    "U50": "members that we do not know",
    "U51": "compression that was not requested",
    "U52": "a decompression bomb",
    "U53": "lengths that are wrong",
    "U54": "chunks that are wrong, trailers",
    "U55": "heads that are too long, or smuggle a line",
    "U56": "a flood of 1xx",
    "U57": "HTTP/2 where HTTP/1.1 was offered",
    "U58": "a pooled connection that has died",
    "U59": "an answer before the request is out",
    "U60": "a stream of hours",
    "U61": "a clock that lies",
    "U62": "sequence numbers of the other dialects",
    "C01": "the client leaves, at any moment",
    "C02": "the client resets",
    "C03": "the client stops reading",
    "C04": "the client reads slowly",
    "C05": "the client closes its sending half",
    "C06": "several requests at once on one connection",
    "C07": "clients that close, or speak HTTP/1.0",
    "C08": "an idle connection",
    "C09": "a body beyond the limit",
    "C10": "a body that is no JSON object",
    "C11": "another content type, or none",
    "C12": "a header twice that may come once",
    "C13": "heads that two servers read in two ways",
    "C14": "a client that asks before it sends",
    "C15": "heads that are too long",
    "C16": "heads and bodies in drips",
    "C17": "a foreign Host or Origin",
    "C18": "headers of one hop, and headers that strip others",
    "C19": "a line end or a NUL in a value",
    "C20": "an address for the key in the body",
    "C21": "streams of other callers",
    "C22": "two readers, late ones, and those that come again",
    "C23": "a reader leaves a run",
    "C24": "no key, a wrong one, a very long one",
    "C25": "other methods, other paths",
    "C26": "offers of another protocol",
    "C27": "the same request again",
    "C28": "requests that are huge in one member",
    "P01": "stopped while streams run",
    "P02": "stopped while a client stalls",
    "P03": "stopped twice",
    "P04": "killed at random points",
    "P05": "the power fails",
    "P06": "the disk is full",
    "P07": "the disk fails",
    "P08": "the data folder is read-only",
    "P09": "the data folder goes away",
    "P10": "no descriptor is left",
    "P11": "a limit on the size of files",
    "P12": "the clock on the wall jumps",
    "P13": "little memory and many streams",
    "P14": "damaged tapes",
    "P15": "two processes, one folder",
    "P16": "tapes of another version",
    "P17": "stopped for a minute, and continued",
    "P18": "a bad configuration",
    "P19": "stderr is not read",
    "P20": "an exception in one stream",
    "P21": "a cancel at every checkpoint",
    "P22": "the N-th system call fails",
    "L01": "idle streams, as many as fit",
    "L02": "a thousand busy streams",
    "L03": "connections that come and go",
    "L04": "an hour of mixed faults",
    "L05": "stalled readers among others",
    "L06": "five times too much",
    "L07": "a thousand clients come back at once",
    "L08": "a gigabyte of tapes",
    "L09": "single bytes from ten upstreams",
    "L10": "a disk that takes its time",
}

#: Cases that no test here shows, and why.
WITHOUT: Final[Mapping[str, str]] = {
    "U62": "those dialects are not read yet: their streams pass as plain exchanges",
    "C23": "there are no runs yet",
    **{
        f"L{number:02}": "a figure, not a test: `make bench-proxy`, `make bench`, `make soak`"
        for number in range(1, 11)
    },
}


class Outcomes:
    """What pytest says of every test that names a case."""

    def __init__(self) -> None:
        #: Case to test (`file::function`) to the outcomes of its rows.
        self.tests: dict[str, dict[str, list[str]]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Also where nothing is run."""
        for item in items:
            cases = sorted({str(case) for mark in item.iter_markers("case") for case in mark.args})
            name = f"{item.path.name}::{item.nodeid.partition('::')[2].partition('[')[0]}"
            item.user_properties += [(_CASE, f"{case} {name}") for case in cases]  # which a worker passes on
            for case in cases:
                self.tests.setdefault(case, {}).setdefault(name, [])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One word a row: of its call, or of what kept it from being called."""
        if report.when == "call" or report.outcome != "passed":
            for key, value in report.user_properties:
                if key == _CASE:
                    case, _, name = str(value).partition(" ")
                    self.tests.setdefault(case, {}).setdefault(name, []).append(report.outcome)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The document, or for `--collect-only` the same tests on stdout."""
        if session.config.option.collectonly:
            lines = [f"{case} {name}" for case, tests in sorted(self.tests.items()) for name in sorted(tests)]
            sys.stdout.write("\n".join([_COLLECTED, *lines, ""]))
        elif not hasattr(session.config, "workerinput"):
            DOCUMENT.write_text(document(self.tests), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin."""
    config.pluginmanager.register(Outcomes(), "wiretape-failures")


def document(tests: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """The table."""
    shown = sum(case in tests for case in CASES)
    lines = [
        "# Failure cases",
        "",
        "Written by `make failures`, which runs the tests that are named here. Each asserts the one ending of its",
        f"stream, and what holds in every case (`tests/failures/judged.py`). {shown} of {len(CASES)} cases have tests.",
        "",
        "| case | what goes wrong | tests in `tests/failures` and `tests/proxy` | came out |",
        "|---|---|---|---|",
    ]
    for case, what in CASES.items():
        rows = tests.get(case, {})
        names = ", ".join(f"`{name}`" for name in sorted(rows)) or WITHOUT.get(case, "none yet")
        lines.append(f"| {case} | {what} | {names} | {_came_out(rows)} |")
    return "\n".join([*lines, ""])


def _came_out(rows: Mapping[str, Sequence[str]]) -> str:
    outcomes = Counter(outcome for each in rows.values() for outcome in each)
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "-"


def collected() -> dict[str, set[str]]:
    """The tests of each case, as pytest finds them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--quiet", "-p", "tests.failures.report"]
    found = subprocess.run(
        [*command, "-p", "no:cacheprovider", *_PLACES], cwd=_ROOT, check=True, capture_output=True, text=True
    ).stdout
    tests: dict[str, set[str]] = {}
    for line in found.partition(_COLLECTED)[2].splitlines():
        case, _, name = line.partition(" ")
        if re.fullmatch(r"[A-Z]\d\d", case):  # other rows may have a note after the case
            tests.setdefault(case, set()).add(name)
    return tests


def named(document: str) -> dict[str, set[str]]:
    """The tests of each case, as the document names them."""
    rows = re.findall(r"^\| ([A-Z]\d\d) \|[^|]*\|([^|]*)\|", document, re.MULTILINE)
    return {case: set(re.findall(r"`([^`]+::[^`]+)`", tests)) for case, tests in rows}
