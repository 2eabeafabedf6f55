"""Files that verbs write: whole or not at all, never over a folder, with links and permissions kept."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.replay.test_compare import TEXT, recorded
from wiretape.proxy.cli.common import BAD_USAGE, FailedError
from wiretape.proxy.cli.main import app
from wiretape.replay.sealed.files import write_whole
from wiretape.replay.sealed.sealed import encode


@pytest.mark.parametrize(
    "verb",
    [
        ["seal", "a.tape"],
        ["cut", "a.tape", "--after", "frame:1"],
        ["export", "a.tape", "--format", "har"],
        ["export", "a.tape", "--format", "sse"],
        ["import", "a.sse"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("out", "message"), [("folder", "folder: is a folder"), ("no/such", "no/such: its folder does not exist")]
)
def test_unwritable_output_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str], out: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.tape").write_bytes(encode({}, [recorded(TEXT)]))
    (tmp_path / "a.sse").write_bytes(b"".join(TEXT))
    done = CliRunner().invoke(app, [*verb, "-o", out])
    assert isinstance(done.exception, FailedError)
    assert (str(done.exception).startswith(message), done.exception.code) == (True, BAD_USAGE)
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a.sse", "a.tape", "folder"]


def test_links_and_permissions_are_kept(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_bytes(b"old")
    there.chmod(0o640)
    link.symlink_to(there)
    write_whole(link, b"new")
    assert (link.is_symlink(), there.read_bytes(), there.stat().st_mode & 0o777) == (True, b"new", 0o640)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "there"]
    (loop := tmp_path / "loop").symlink_to("loop")
    write_whole(loop, b"new")
    assert (loop.is_symlink(), loop.read_bytes()) == (False, b"new"), "it leads nowhere"


def test_devices_are_written_directly() -> None:
    write_whole(Path(os.devnull), b"gone")
    assert not Path(os.devnull).is_file()
