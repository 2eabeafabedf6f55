"""Record every fixture below fixtures/ again from real upstreams: `python -m tests.real.record_fixtures`."""

import argparse
import getpass
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import trio

from .clients import versions
from .fixtures.cases import CASES, Case
from .fixtures.recording import FOLDER, recorded
from .fixtures.upstreams import STARTS
from .places import ROOT, RUN
from .servers import Up

__all__ = ["main", "traces"]

_BYTES_MAX: Final = 100_000
_BEGIN: Final = "<!-- recorded: begin -->"
_END: Final = "<!-- recorded: end -->"
#: A shorter one is found in any id.
_NAME_CHARS_MIN: Final = 5
#: After these the upstream is no longer what it was.
_SPENT: Final = ("kill_upstream", "stop_upstream")


async def _record(cases: Sequence[Case]) -> list[str]:
    """What went wrong."""
    wrong: list[str] = []
    for (upstream, _), group in groupby(cases, key=lambda case: (case.upstream, case.stem * (case.fault in _SPENT))):
        async with STARTS[upstream]() as up:
            for case in group:
                for number in range(1, case.times + 1):
                    ending = await _tried(case, up, number)
                    sys.stdout.write(f"{case.stem}.{number}: {ending}\n")
                    sys.stdout.flush()
                    if ending != case.ending:
                        wrong.append(f"{case.stem}.{number}: {ending} instead of {case.ending}")
            if up.process is not None and any(case.fault == "stop_upstream" for case in cases):
                up.process.kill()
    return wrong


async def _tried(case: Case, up: Up, number: int) -> str:
    """Its ending, or what went wrong."""
    try:
        return await recorded(case, up, number)
    except (RuntimeError, trio.TooSlowError, OSError) as error:
        return repr(error)


def traces(data: bytes) -> list[str]:
    """What a tape tells of this machine."""
    names = {name for name in (getpass.getuser(), socket.gethostname()) if len(name) >= _NAME_CHARS_MIN}
    words = {str(ROOT), str(Path.home()), "/tmp/", "/home/", "/Users/", *names}  # noqa: S108 - looked for
    return sorted(word for word in words if word.encode() in data)


def _looked_over(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        data = path.read_bytes()
        if len(data) > _BYTES_MAX:
            yield f"{path.name}: {len(data)} bytes"
        if told := traces(data):
            yield f"{path.name}: tells {told}"


def _origin(cases: Sequence[Case]) -> str:
    """The table."""
    known = _versions()
    day = time.strftime("%Y-%m-%d", time.gmtime())
    rows = [
        f"| `{case.stem}.{number}.tape` | {case.says} | {case.ending} | {known[case.upstream]} | {day} |"
        for case in cases
        for number in range(1, case.times + 1)
    ]
    head = "| file | what | ending of the last stream | upstream | recorded |"
    return "\n".join([_BEGIN, head, "|---|---|---|---|---|", *rows, _END])


def _versions() -> dict[str, str]:
    there = versions()
    names = {
        "aimock": "@copilotkit/aimock (npm)",
        "litellm": "litellm",
        "llama": "llama-cpp-python",
        "hermes": "hermes-agent",
    }
    return {name: f"{package} {there.get(package, '')}".strip() for name, package in names.items()} | {"nobody": "none"}


def main() -> int:
    """The exit status. The table is written by a whole run only."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.record_fixtures", description=__doc__)
    parser.add_argument("--case", action="append", default=[], help="only those whose name holds this")
    asked = parser.parse_args()
    cases = [case for case in CASES if not asked.case or any(each in case.stem for each in asked.case)]
    RUN.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    wrong = trio.run(_record, cases)
    wrong += _looked_over(sorted(path for case in cases for path in FOLDER.glob(f"{case.stem}.*.tape")))
    if len(cases) == len(CASES):
        place = FOLDER / "ORIGIN.md"
        text = place.read_text(encoding="utf-8")
        before, _, rest = text.partition(_BEGIN)
        place.write_text(before + _origin(cases) + rest.partition(_END)[2], encoding="utf-8")
    sys.stdout.write("".join(f"WRONG {each}\n" for each in wrong))
    sys.stdout.write(f"{len(cases)} cases, {len(wrong)} wrong, {time.monotonic() - began:.0f} s\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
