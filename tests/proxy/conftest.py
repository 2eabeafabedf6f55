"""The fixture that runs commands."""

import os
from pathlib import Path

import pytest

from tests.support.cli import Run, Said
from wiretape.proxy.cli.main import main


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command in an empty working folder and a clean environment."""
    working = tmp_path / "working"
    working.mkdir()
    monkeypatch.chdir(working)
    for name in [name for name in os.environ if name.startswith("WIRETAPE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)

    def run(*arguments: str | Path) -> Said:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        code = exit_.value.code
        assert isinstance(code, int)
        out, err = capfd.readouterr()
        return Said(code, str(out), str(err))

    return run
