"""The seeds of the fuzzers and everything that they ever found, without atheris."""

from pathlib import Path
from typing import Final

import pytest

from tests.fuzz.targets import TARGETS

FOLDER: Final = Path(__file__).parents[1] / "fuzz"


INPUTS: Final = [path for kind in ("corpus", "regressions") for path in sorted((FOLDER / kind).glob("*/*"))]


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_holds(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_and_little_hold(target: str) -> None:
    TARGETS[target](b"")
    for byte in range(256):
        TARGETS[target](bytes([byte]) * 13)


def test_there_are_seeds_and_they_are_small() -> None:
    for target in TARGETS:
        sizes = [path.stat().st_size for path in (FOLDER / "corpus" / target).iterdir()]
        assert len(sizes) >= 5
        assert max(sizes) < 4096
