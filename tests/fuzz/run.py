"""`make fuzz`: run every target under atheris for ten minutes, two at a time, and write docs/internals/fuzz.md.

    python tests/fuzz/run.py [--seconds 600] [--jobs 2] [--report] [TARGET ...]

New inputs of interest are kept in build/fuzz/<target>, and the next run goes on from there; the seeds in corpus/ are
ours and stay small. An input that breaks a law is written to regressions/<target>/, where the fast suite replays it.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
WORK: Final = ROOT / "build/fuzz"
TARGETS: Final = ("stream", "tape", "lines")
BEGIN: Final = "<!-- made by `make fuzz` -->"

#: An input longer than this teaches little and makes every run slow.
INPUT_BYTES_MAX: Final = 4096
#: An honest run takes below 200 MB; instrumented code about twice as much.
MEMORY_MB_MAX: Final = 1024
#: For one input, under instrumentation.
INPUT_SECONDS_MAX: Final = 20


class Result(NamedTuple):
    """What one target came to."""

    target: str
    when: str
    seconds: int
    executions: int
    edges: int
    features: int
    inputs: int
    memory_mb: int
    findings: int


def fuzz(target: str, seconds: int) -> Result:
    """One target in a process of its own; its whole output stays in build/fuzz/<target>.log."""
    work, regressions = WORK / target, HERE / "regressions" / target
    work.mkdir(parents=True, exist_ok=True)
    regressions.mkdir(parents=True, exist_ok=True)
    before = len(list(regressions.iterdir()))
    flags = [
        f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", f"-rss_limit_mb={MEMORY_MB_MAX}",
        f"-timeout={INPUT_SECONDS_MAX}", "-print_final_stats=1", f"-dict={HERE / 'words.dict'}",
        f"-artifact_prefix={regressions}/",
    ]  # fmt: skip
    command: list[str | Path] = [sys.executable, "-m", "tests.fuzz.one", target, *flags, work, HERE / "corpus" / target]
    started = time.monotonic()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    log = WORK / f"{target}.log"
    with log.open("wb") as output:
        subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False)
    text = log.read_text(errors="replace")
    result = Result(
        target,
        f"{datetime.now(UTC):%Y-%m-%d} {commit.stdout.strip()}",
        round(time.monotonic() - started),
        _last(r"number_of_executed_units: (\d+)", text) or _last(r"#(\d+)\t", text),
        _last(r"cov: (\d+)", text),
        _last(r"ft: (\d+)", text),
        _last(r"corp: (\d+)", text),
        _last(r"(?:peak_rss_mb: |rss: )(\d+)", text),
        len(list(regressions.iterdir())) - before,
    )
    (WORK / f"{target}.json").write_text(json.dumps(result), encoding="utf-8")
    return result


def _last(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def table(results: list[Result]) -> str:
    """As docs/internals/fuzz.md shows them."""
    rows = [
        f"| `{r.target}` | {r.when} | {r.seconds} s | {r.executions:,} | {r.edges:,} | {r.features:,} | {r.inputs:,} "
        f"| {r.memory_mb} MB | {r.findings} |"
        for r in results
    ]
    head = "| target | day, commit | time | inputs run | edges | features | inputs kept | memory | findings |"
    return "\n".join([BEGIN, "", head, "|---|---|---|---|---|---|---|---|---|", *rows])


def report() -> None:
    """Write the last run of each target to docs/internals/fuzz.md, from the mark to the next heading."""
    last = [WORK / f"{target}.json" for target in TARGETS]
    results = [Result(*json.loads(path.read_text(encoding="utf-8"))) for path in last if path.exists()]
    path = ROOT / "docs/internals/fuzz.md"
    head, _, tail = path.read_text(encoding="utf-8").partition(BEGIN)
    _, heading, tail = tail.partition("\n## ")
    path.write_text(f"{head}{table(results)}\n{heading and chr(10) + '## '}{tail}", encoding="utf-8")


def main() -> int:
    """The exit code is 1 if anything was found."""
    parser = argparse.ArgumentParser(description="coverage-guided fuzzing of the core")
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--report", action="store_true", help="write docs/internals/fuzz.md from the last run of each")
    parser.add_argument("targets", nargs="*", help=", ".join(TARGETS))
    given = parser.parse_args()
    with ThreadPoolExecutor(given.jobs) as pool:
        running = [pool.submit(fuzz, target, given.seconds) for target in given.targets or TARGETS]
    results = [one.result() for one in running]
    print(table(results))
    if given.report:
        report()
    return int(any(result.findings for result in results))


if __name__ == "__main__":
    sys.exit(main())
