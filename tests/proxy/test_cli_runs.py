"""Runs on the command line: listed, shown, followed and sealed from the tapes of a data folder."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.cli import Run, put
from tests.support.run_tapes import RUN, cut, started, stopped, turn_of, two_turns
from tests.support.tapes import text
from wiretape.events.core.json_text import parse
from wiretape.events.emit import RunReader
from wiretape.events.tape.record import Record, encode
from wiretape.proxy.cli.common import BAD_USAGE, CANNOT_START, FOUND_WRONG
from wiretape.proxy.store.folder import Folder
from wiretape.replay.sealed.files import load

DAY = "2026-11-18"
CUT, WAITS = "run_" + "6b" * 16, "run_" + "7c" * 16


def put_run(root: Path, tapes: list[list[Record]], day: str = DAY) -> list[Path]:
    """Write the tapes of a run, whose streams all folders of a test name differently."""
    paths: list[Path] = []
    for opened, *rest in tapes:
        stream = opened.keys["run"][4:12] + opened.keys["stream"][-8:]
        paths.append(put(root / day, stream, [opened._replace(keys={**opened.keys, "stream": stream}), *rest]))
    return paths


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder with a run of two turns, one that was cut, one that waits, and a stream of no run."""
    root = tmp_path / "data"
    put_run(root, two_turns())
    put_run(root, cut(CUT))
    put_run(root, two_turns(WAITS)[:1])
    put(root / DAY, "plain", _plain())
    return root


def _plain() -> list[Record]:
    opened, _, *rest = turn_of(text("?", "Hi"), "start", started())
    keys = {name: value for name, value in opened.keys.items() if name != "run"}
    return [opened._replace(keys={**keys, "stream": "plain"}), *(each._replace(n=each.n - 1) for each in rest)]


def test_ls_lists_runs_with_their_states(run: Run, data: Path) -> None:
    rows = run("ls", "--runs", "--json", "--data", data).value
    assert {row["run_id"]: row["status"] for row in rows} == {
        RUN: "completed",
        CUT: "failed",
        WAITS: "waiting_for_tools",
    }
    lines = run("ls", "--runs", "--data", data).out.splitlines()
    assert len(lines) == 4
    assert [line.split()[-3] for line in lines if line.startswith(RUN[:16])] == ["2"]
    assert len(run("ls", "--data", data).out.splitlines()) == 1 + 5
    assert run("ls", "--runs", "--live", "--data", data).code == BAD_USAGE


def test_show_prints_a_run_its_calls_and_its_events(run: Run, data: Path) -> None:
    said = run("show", RUN[:10], "--data", data)
    assert (said.code, "Sunny in Oslo" in said.out) == (0, True)
    value = run("show", WAITS, "--json", "--data", data).value
    assert value["pending_calls"] == [{"call_id": "call_1", "tool": "get_weather", "arguments": '{"city": "Oslo"}'}]
    assert "get_weather" in run("show", WAITS, "--data", data).out
    events = run("show", RUN, "--events", "--data", data).lines
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["event"] == "run.completed"
    records = [load(path).streams[0] for path in sorted((data / DAY).glob(f"{RUN[4:12]}*"))]
    frames = RunReader().feed(*records[0], *records[1])
    assert run("show", RUN, "--raw", "--data", data).out.encode() == b"".join(frames)
    assert run("show", RUN, "--tape", "--data", data).out.encode() == b"".join(
        encode(record) for each in records for record in each
    )


def test_follow_prints_a_run_until_it_is_over(run: Run, data: Path) -> None:
    said = run("follow", RUN, "--data", data)
    assert said.code == 0
    assert "\nSunny in Oslo\n[run.completed]\n" in said.out
    assert "[tool.started] get_weather call_1" in said.out
    assert run("follow", RUN, "--json", "--data", data).lines[-1]["event"] == "run.completed"
    assert run("follow", CUT, "--data", data).out.splitlines()[-1].startswith("[run.failed] reset")
    waits = run("follow", WAITS, "--data", data)
    assert waits.code == FOUND_WRONG
    assert "the run is waiting_for_tools, and no server is left" in waits.err


def test_follow_goes_on_with_the_next_turn(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_the_next(_: float) -> None:
        put_run(data, [stopped(2, run=WAITS)])

    monkeypatch.setattr("time.sleep", write_the_next)
    with closing(Folder(data)):  # a server holds the folder
        assert run("follow", WAITS, "--json", "--data", data).lines[-1]["event"] == "run.cancelled"


def test_a_run_of_a_killed_server_has_failed(run: Run, data: Path) -> None:
    put_run(data, [turn_of(text("?", "Sun", "ny"), "start", started(), run="run_" + "8d" * 16)[:-3]], "live")
    (data / "lock").write_text(f"{os.getpid()}\n", encoding="ascii")
    value = run("show", "run_8d", "--json", "--data", data).value
    assert (value["status"], value["output"]) == ("failed", "Sunny")
    said = run("follow", "run_8d", "--data", data)
    assert (said.code, said.out.splitlines()[-1].split()[:2]) == (FOUND_WRONG, ["[run.failed]", "crashed"])


def test_the_id_of_a_run_must_match_one(run: Run, data: Path) -> None:
    assert "matches 3 runs" in run("show", "run_", "--data", data).err
    assert (said := run("follow", "run_0", "--data", data)).code == CANNOT_START
    assert "No run in " in said.err
    assert run("seal", "run_0", "-o", data / "x.tape", "--data", data).code == CANNOT_START


def test_a_run_is_sealed_with_all_its_tapes(run: Run, data: Path) -> None:
    out = data / "run.tape"
    assert run("seal", RUN[:12], "-o", out, "--data", data).code == 0
    streams = load(out).streams
    said = [parse(record.raw or b"") for records in streams for record in records if record.kind == "run"]
    assert [sorted(body) for body in said] == [["input", "model"], ["tool_outputs"]]


def test_a_run_with_a_damaged_tape_is_marked(run: Run, data: Path) -> None:
    path = min((data / DAY).glob(f"{RUN[4:12]}*"))
    path.write_bytes(path.read_bytes().replace(b"Oslo", b"Rome", 1))
    (line,) = [line for line in run("ls", "--runs", "--data", data).out.splitlines() if line.startswith(RUN[:16])]
    assert ", damaged" in line
    for verb in ("show", "follow"):
        said = run(verb, RUN, "--data", data)
        assert (said.code, str(path) in said.err) == (FOUND_WRONG, True)
