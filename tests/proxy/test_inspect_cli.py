"""`wiretape ui`, `wiretape view` and `export --format html`."""

import base64
import hashlib
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.support.cli import Run
from wiretape.events.core.json_text import parse
from wiretape.proxy.store.folder import Folder

FIXTURES = Path(__file__).parents[2] / "fixtures"
CUT = next(iter(sorted((FIXTURES / "endings").glob("*truncated*.tape"))))


def test_ui_prints_the_address_of_the_server_that_holds_the_data_folder(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "data"
    with closing(Folder(root)):
        assert run("ui", "--data", root).code == 3  # it is not ready yet
        (root / "address").write_text("http://127.0.0.1:8787")
        said = run("ui", "--no-open", "--data", root)
    token = (root / "operator.token").read_text()
    assert (said.code, said.out) == (0, f"http://127.0.0.1:8787/wiretape/ui/#token={token}\n")
    said = run("ui", "--data", root)
    assert (said.code, "start `wiretape serve`" in said.err) == (3, True)


def test_view_refuses_a_file_that_is_not_a_tape(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes\n")
    said = run("view", tmp_path / "notes.txt")
    assert (said.code, "not a tape" in said.err) == (3, True)


@pytest.mark.slow
def test_view_serves_tapes_from_disk_until_it_is_interrupted(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "wiretape", "view", "--no-open", CUT, FIXTURES / "format-1"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url, _, token = server.stdout.readline().strip().partition("/wiretape/ui/#token=")

        def get(path: str) -> bytes:
            request = Request(url + path, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - our own server
            with urlopen(request, timeout=10) as answer:  # noqa: S310
                return bytes(answer.read())

        rows = parse(get("/wiretape/streams"))["streams"]
        assert {row["id"] for row in rows} >= {CUT.stem.replace(".", "-"), "text", "cut"}
        assert all(row["spark"] and not row["live"] for row in rows)
        feed = [parse(line) for line in get("/wiretape/streams/cut/inspect").splitlines()]
        assert "damage" in feed[-1] or feed[-1]["k"] == "end"
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0
    assert list(tmp_path.iterdir()) == []


def test_exported_page_holds_everything_and_allows_only_its_own_script(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    said = run("export", CUT, "--format", "html", "-o", page)
    assert (said.code, "lost" in said.out) == (0, False)
    text = page.read_text(encoding="utf-8")
    (style,), (script,) = (
        re.findall("<style>(.*?)</style>", text, re.DOTALL),
        re.findall('<script type="module">(.*?)</script>', text, re.DOTALL),
    )
    for name, content in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in text
    (embedded,) = re.findall('<script type="application/json" id="tape">(.*?)</script>', text, re.DOTALL)
    data = parse(embedded.encode())
    assert (data["row"]["ending"], data["feed"][-1]["k"]) == ("truncated", "end")
    assert data["summary"]["records"] == len(data["feed"])
    assert not re.search(r"^import \{|^export (?:const|class|function)", script, re.MULTILINE)
    assert not re.search(r"(?:src|href)=", text.replace(script, "").replace(embedded, ""))


@pytest.mark.parametrize("format_", ["html", "otlp"])
def test_damaged_tape_is_exported_and_its_damage_reported(format_: str, run: Run, tmp_path: Path) -> None:
    *lines, _ = (FIXTURES / "format-1" / "text.tape").read_bytes().splitlines(keepends=True)
    (tmp_path / "damaged.tape").write_bytes(b"".join([*lines[:3], b"garbage\n", *lines[3:]]))
    said = run("export", tmp_path / "damaged.tape", "--format", format_, "-o", tmp_path / "out")
    assert said.code == 0
    assert re.findall(r"byte \d+: (not a record|the tape has)", said.err) == ["not a record", "the tape has"]
    assert (b"not a record" in (tmp_path / "out").read_bytes()) == (format_ == "html")
