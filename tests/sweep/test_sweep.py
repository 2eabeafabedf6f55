"""A seeded sample of `make sweep`: one call of the operating system fails, in one process after another."""

import random
import shutil
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.sweep.sweep import ERRORS, KINDS, THREAD_ERRORS, Bench, Fault, compiled, listening, upstream

#: About how many calls of each kind the scenario makes; a few are not reached in each run.
CALLS: Final = {"open": 16, "write": 50, "rename": 6, "socket": 6, "accept": 6, "thread": 5}


def sample() -> list[Fault]:
    """Return a fault of each kind, a moment without descriptors, and last a failed sync, which is the lasting one."""
    chance = random.Random(13)  # noqa: S311 - a seed, so that a failure can be repeated
    faults: list[Fault] = []
    for kind, calls in CALLS.items():
        error = chance.choice(THREAD_ERRORS if kind == "thread" else ERRORS[:4])
        faults.append(Fault(kind, error, chance.randint(1, calls)))
    return [*faults, Fault("open", "EMFILE", 1, on=True), Fault("sync", "EIO", 1)]


@pytest.mark.slow
@pytest.mark.case("P22")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
async def test_the_proxy_recovers_from_any_failing_call_of_the_system(tmp_path: Path) -> None:
    library = compiled(tmp_path)
    assert library is not None
    assert {fault.kind for fault in sample()} == set(KINDS)
    hits = 0
    with trio.fail_after(60):
        async with listening(upstream) as port:
            bench = Bench(tmp_path, library, port)
            for fault in sample():
                result = await bench.run(fault)
                hits += result.hits > 0
                assert result.wrong == [], (fault, result)
                assert result.lasting == (fault.kind == "sync" and result.hits > 0), result
            assert await bench.stop() == 0
    assert hits >= 6, "the scenario makes fewer calls than this sample expects"
