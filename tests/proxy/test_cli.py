"""The command line, run in this process: output, exit codes, and errors in one line."""

import os
import re
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.proxy.store_cases import CREATED, flat, opened_files, stream_of
from tests.support.chat import text
from tests.support.cli import Run, Said, put
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.proxy import cli as proxy_cli
from wiretape.proxy.cli.common import BAD_USAGE, CANNOT_START, FOUND_WRONG
from wiretape.proxy.limits import ABANDONED_AFTER_S
from wiretape.proxy.store.catalogue_row import digest
from wiretape.proxy.store.folder import Folder
from wiretape.replay import cli as replay_cli

DAY = "2026-11-18"
CUT, DONE, LIVE = "cutcutcutcutcutcutcutcutcu", "donedonedonedonedonedonedo", "livelivelivelivelivelivel1"


def cut(batches: list[list[Record]]) -> list[Record]:
    """Return the stream without its finish and terminator."""
    *records, _, _, end = flat(batches)
    keys = {"cause": "eof", "ending": "truncated"}
    return [*records, end._replace(n=records[-1].n + 1, keys=keys)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder with a cut stream, a complete one with a call, and a live one without a catalogue row."""
    root = tmp_path / "data"

    async def make() -> None:
        async with opened_files(root) as store:
            for stream, records in (
                (DONE, flat(stream_of(DONE, call_id="call_7", route="azure"))),
                (CUT, cut(stream_of(CUT, created=CREATED + 1, model="other"))),
            ):
                await store.create(stream)
                await store.append(stream, records)

    trio.run(make)
    put(root / "live", LIVE, flat(stream_of(LIVE, created=CREATED + 9, end=False)))
    return root


# -- what is refused --------------------------------------------------------------------------------------------------

REFUSED = {
    "a verb that does not exist": (["sho"], BAD_USAGE, "No such command 'sho'"),
    "an option that does not exist, and what was meant": (["serve", "--prot", "1"], BAD_USAGE, "did you mean --port?"),
    "an option without its value": (["serve", "--idle-s"], BAD_USAGE, "--idle-s needs a value"),
    "an argument that nothing takes": (["serve", "https://x.test/v1"], BAD_USAGE, "unexpected argument"),
    "a URL with an invalid host": (["serve", "--upstream", "https://xn--a/v1"], BAD_USAGE, "--upstream: must be a URL"),
    "a missing configuration file": (["ls", "--config", "no.toml"], BAD_USAGE, "no such file"),
    "an ending that does not exist": (["ls", "--ending", "done"], BAD_USAGE, "truncated"),
    "live streams with an ending": (["ls", "--ending", "reset", "--live"], BAD_USAGE, "exclude each other"),
    "two output formats": (["show", "x", "--raw", "--tape"], BAD_USAGE, "exclude each other"),
    "a limit below one": (["ls", "-n", "0"], BAD_USAGE, "-n"),
    "an empty name": (["show", ""], BAD_USAGE, "TAPE is empty"),
    "a missing tape": (["check", "no.tape"], CANNOT_START, "no.tape: No such file or directory"),
    "a file that is no tape": (["ls", os.devnull], CANNOT_START, "not a tape"),
    "a missing data folder": (["ls", "--data", "nowhere"], CANNOT_START, "No data folder nowhere"),
    "reindex of a missing data folder": (["reindex"], CANNOT_START, "No data folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors_are_one_line_and_an_exit_code(case: str, run: Run) -> None:
    arguments, code, words = REFUSED[case]
    said = run(*arguments)
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("wiretape: ")
    assert said.err.count("\n") == 1
    assert words in said.err


# -- reading ----------------------------------------------------------------------------------------------------------


def listed(said: Said) -> list[str]:
    assert said.code == 0
    return [row["id"] for row in said.value]


@pytest.mark.parametrize("catalogue", ["whole", "gone", "damaged", "a pipe", "with a pipe as its log"])
def test_ls_lists_streams_with_any_catalogue(catalogue: str, run: Run, data: Path) -> None:
    held = Folder(data)  # a server runs
    if catalogue == "gone":
        (data / "catalogue.db").unlink()
    elif catalogue == "damaged":
        (data / "catalogue.db").write_bytes(b"no database " * 100)
    elif catalogue == "a pipe":
        (data / "catalogue.db").unlink()
        os.mkfifo(data / "catalogue.db")
    elif catalogue != "whole":
        os.mkfifo(data / "catalogue.db-wal")
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*.*") if path.is_file()}
    chosen: list[tuple[list[str], list[str]]] = [
        ([], [LIVE, CUT, DONE]),
        (["-n", "1"], [LIVE]),
        (["--model", "other"], [CUT]),
        (["--route", "azure"], [DONE]),
        (["--ending", "completed"], [DONE]),
        (["--live"], [LIVE]),
        (["--model", "none"], []),
    ]
    for arguments, expected in chosen:
        assert listed(run("ls", "--data", data, "--json", *arguments)) == expected
    held.close()
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*.*") if path.is_file()} == before, (
        "nothing is written"
    )
    assert run("show", DONE, "--data", data).code == 0


def test_ls_prints_a_table(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    with closing(Folder(data)):
        lines = run("ls", "--data", data).out.splitlines()
    assert lines[0].split() == ["stream", "when", "(UTC)", "route", "model", "ending", "lost", *lines[0].split()[-3:]]
    assert [line.split()[0] for line in lines[1:]] == [LIVE[:12], CUT[:12], DONE[:12]]
    assert " live " in lines[1]
    assert " truncated " in lines[2]


def test_ls_filters_streams_and_counts_those_it_hides(run: Run, data: Path) -> None:
    put(data / DAY, "lost", cut(stream_of("lost", call_id="call_9", created=CREATED - 86_400)))
    said_by: list[tuple[list[str], list[str]]] = [
        (["--lost"], ["lost"]),
        (["--tool", "look_up"], [DONE, "lost"]),
        (["--tool", "look_up", "-q", "state:dropped"], ["lost"]),
        (["--path", "/chat/"], []),
        (["--grep", "WORD 1"], [LIVE, CUT, DONE, "lost"]),
        (["--grep", "word 7"], []),
        (["--since", f"{datetime.fromtimestamp(CREATED + 1, UTC).isoformat()}"], [LIVE, CUT]),
        (["--until", f"{datetime.fromtimestamp(CREATED, UTC).isoformat()}"], ["lost"]),
        (["-n", "1", "--all"], [LIVE, CUT, DONE, "lost"]),
    ]
    with closing(Folder(data)):
        for arguments, expected in said_by:
            assert listed(run("ls", "--data", data, "--json", *arguments)) == expected, arguments
        assert run("ls", "--data", data, "-n", "1").out.splitlines()[-1] == "3 more: --all"
        assert "more" not in run("ls", "--data", data).out
        assert " look_up " in run("ls", "--data", data, "--lost").out
    assert "1h, 2d, or a time" in run("ls", "--data", data, "--since", "soon").err


def test_every_verb_takes_an_id_a_file_or_a_folder(run: Run, data: Path) -> None:
    (data / "live" / f"{LIVE}.tape").unlink()
    folder, sealed, out = data.parent / "sealed", data.parent / "sealed" / "done.tape", data.parent / "out"
    folder.mkdir()
    assert run("seal", DONE[:6], "-o", sealed, "--data", data).code == 0
    verbs = ["ls", "show", "show --json", "show --events", "follow", "check", "recheck"]
    for verb in [*map(str.split, verbs), ["seal", "-o", str(out)], ["export", "--format", "har", "-o", str(out)]]:
        for name in (DONE[:6], DONE, sealed, folder, data / DAY / f"{DONE}.tape"):
            said = run(*verb, name, "--data", data)
            assert (said.code, said.err) == (int(verb == ["check"] and name not in (sealed, folder)), ""), (verb, name)
        said = run(*verb, "nothing", "--data", data)
        assert (said.code, said.err.count("\n")) == (3, 1), verb
    assert run("diff", DONE[:6], sealed, "--data", data).code == 1
    assert "no stream has a frame:1" in run("cut", DONE[:6], "--after", "frame:1", "-o", out, "--data", data).err
    assert run("cut", data, "--after", "frame:1", "-o", out).err.startswith(f"wiretape: {data} means 2 tapes")


def test_show_prints_ending_and_tools(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wiretape.replay.cli.reading.time.time", lambda: CREATED + 60)
    said = run("show", DONE[:6], "--data", data)
    assert said.code == 0
    for words in (DONE, "completed", "look_up", "call_7", "handed over; no result seen", "word 0 word 1 word 2"):
        assert words in said.out
    cut = run("show", CUT[:6], "--data", data)
    assert "⚠ truncated" in cut.out
    monkeypatch.setattr("wiretape.replay.cli.reading.time.time", lambda: CREATED + 2 * ABANDONED_AFTER_S)
    assert "abandoned" in run("show", DONE[:6], "--data", data).out


async def test_show_prints_the_result_of_a_call(run: Run, tmp_path: Path) -> None:
    result = {"id": "call_7", "name": "look_up", "arguments": digest("{}"), "failed": True}
    later: dict[str, Any] = {"created": CREATED + 2, "messages": 3, "results": [result]}
    async with opened_files(tmp_path / "data") as store:
        for stream, batches in ((DONE, stream_of(DONE, call_id="call_7")), (CUT, stream_of(CUT, **later))):
            await store.create(stream)
            for batch in batches:
                await store.append(stream, batch)
    said = run("show", DONE, "--data", tmp_path / "data").out
    for words in ("failed", "2.00s", CUT[:12]):
        assert words in said
    (tool,) = run("show", DONE, "--data", tmp_path / "data", "--json").value["tools"]
    assert (tool["state"], tool["answered_by"], tool["duration_ms"]) == ("failed", CUT, 1_995)
    assert tool["moves"][-1]["state"] == "running"
    for names in ([], [DONE]):
        rows = {row["id"]: row for row in run("ls", *names, "--data", tmp_path / "data", "--json").value}
        assert rows[DONE]["tools"] == [{"name": "look_up", "state": "failed"}], names


def test_show_json_raw_and_tape(run: Run, data: Path) -> None:
    said = run("show", DONE, "--data", data, "--json").value
    assert (said["id"], said["ending"], said["tools"][0]["arguments"]) == (DONE, "completed", "{}")
    assert said["message"]["answers"][0]["text"] == "word 0 word 1 word 2 "
    records = flat(stream_of(DONE, call_id="call_7", route="azure"))
    assert run("show", DONE, "--data", data, "--raw").out.encode() == emit(records)
    assert run("show", DONE, "--data", data, "--tape").out.encode() == (data / DAY / f"{DONE}.tape").read_bytes()


def test_show_events_prints_lines(run: Run, data: Path) -> None:
    assert [line["text"] for line in run("show", DONE, "--data", data, "--events", "--json").lines if "text" in line][
        :3
    ] == ["word 0 ", "word 1 ", "word 2 "]
    lines = run("show", DONE, "--data", data, "--events").out.splitlines()
    assert "text_delta" in "".join(lines)
    assert "ending='completed'" in lines[-1]


def half_an_emoji(stream: str) -> list[Record]:
    """Return a stream whose upstream cut an emoji in two."""
    recorder, told = Recorder(), flat(stream_of(stream))
    said = [record.raw and record.raw.replace(b"word 1", rb"\u2026 \ud83d") for record in told]
    return [recorder.record(record.kind, record.t, record.keys, raw) for record, raw in zip(told, said, strict=True)]


@pytest.mark.parametrize("verb", [["show", "--events"], ["follow"]], ids=" ".join)
def test_half_an_emoji_is_valid_json(verb: list[str], run: Run, data: Path) -> None:
    put(data / DAY, "half", half_an_emoji("half"))
    said = run(*verb, "half", "--data", data, "--json")
    assert (said.code, said.err) == (0, "")
    assert "\\u2026 \\ud83d" in said.out
    assert run(*verb, "half", "--data", data).code == run("show", "half", "--data", data).code == 0


def test_id_must_match_one_stream_of_the_folder(run: Run, data: Path) -> None:
    put(data.parent, "outside", flat(stream_of("outside")))
    put(data / DAY, DONE[:8], flat(stream_of(DONE[:8])))
    said = run("show", "zzz", "--data", data)
    assert (said.code, said.out) == (CANNOT_START, "")
    none = f"No stream in {data} has an id that begins with 'zzz' (`wiretape ls` lists them)"
    assert said.err == f"wiretape: zzz: No such file or directory. {none}\n"
    assert run("show", "../../outside", "--data", data).code == CANNOT_START
    assert "Ambiguous id 'done' matches 2 streams" in run("show", "done", "--data", data).err
    assert run("show", DONE[:8], "--data", data).code == 0, "a complete id is unambiguous"


@pytest.mark.parametrize("kept", [0, 1, -1], ids=["empty", "its first line", "all but its end"])
def test_ended_tape_without_an_end_is_damaged(kept: int, run: Run, data: Path) -> None:
    lines = (data / DAY / f"{CUT}.tape").read_bytes().splitlines(keepends=True)
    (data / DAY / "noend.tape").write_bytes(b"".join(lines[:kept]))
    shown = run("show", "noend", "--data", data)
    assert (shown.code, shown.err.count("\n")) == (FOUND_WRONG, 1)
    assert "the tape has no end, and nothing will be written to it any more" in shown.err
    assert re.search(r"^ending +no end *$", shown.out, re.MULTILINE)
    with closing(Folder(data)):  # a running server does not write to it either
        followed = run("follow", "noend", "--data", data)
    assert (followed.code, followed.err.count("\n")) == (FOUND_WRONG, 1)
    assert followed.err.startswith("wiretape: the tape has no end, and nothing will be written to it any more")
    (row,) = [row for row in run("ls", "--data", data, "--json").value if row["id"] == "noend"]
    assert (row["live"], row["ending"]) == (False, "no end")
    if kept:
        (row,) = run("ls", "noend", "--data", data, "--json").value
        assert (row["live"], row["ending"], row["flags"]) == (False, "no end", ["damaged"])
    assert run("show", LIVE, "--data", data).code == 0, "a live stream has no end yet"


@pytest.mark.parametrize("kept", [0, 1, -1], ids=["empty", "its first line", "all but its end"])
def test_ls_marks_a_tape_that_was_cut_off_after_its_end(kept: int, run: Run, data: Path) -> None:
    tape = data / DAY / f"{CUT}.tape"
    tape.write_bytes(b"".join(tape.read_bytes().splitlines(keepends=True)[:kept]))
    assert flags_in_ls(run, data) == {LIVE: ["not_recovered_yet"], CUT: ["damaged"], DONE: []}


def flags_in_ls(run: Run, data: Path) -> dict[str, list[str]]:
    return {row["id"]: row["flags"] for row in run("ls", "--data", data, "--json").value}


@pytest.mark.parametrize("instead", ["nothing", "a pipe", "a device", "a folder", "a link to itself", "a linked day"])
def test_a_tape_that_is_gone_or_not_a_file_is_marked_in_ls_and_found_by_doctor(
    instead: str, run: Run, data: Path
) -> None:
    tape = data / DAY / f"{CUT}.tape"
    if instead == "a linked day":
        (data / DAY).rename(data.parent / "elsewhere")
        (data / DAY).symlink_to(data.parent / "elsewhere")
    else:
        tape.unlink()
    if instead == "a pipe":
        os.mkfifo(tape)
    elif instead == "a folder":
        tape.mkdir()
    elif instead in ("a device", "a link to itself"):
        tape.symlink_to("/dev/zero" if instead == "a device" else tape.name)
    gone = [CUT, DONE] if instead == "a linked day" else [CUT]
    flags = flags_in_ls(run, data)
    assert {stream for stream in flags if "no_tape" in flags[stream]} == {*gone}
    said = f" {len(gone)} in the catalogue, but gone or not a file: {', '.join(gone)}\n"
    assert said in run("doctor", "--data", data, "--upstream", "http://127.0.0.1:9/v1").out


def test_text_cannot_control_the_terminal(run: Run, data: Path) -> None:
    path = data / DAY / "nasty.tape"
    records = flat(stream_of("nasty", model="\x1b[2J\u202emodel"))
    put(path.parent, "nasty", records)
    for said in (run("ls", "--data", data), run("show", "nasty", "--data", data), run("show", "nasty", "--events")):
        assert "\x1b" not in said.out
        assert "\u202e" not in said.out


def test_show_says_why_attempts_failed_and_what_ended_the_stream(run: Run, data: Path) -> None:
    recorder = Recorder()
    records = [recorder.record("open", 0, {"format": 1, "stream": "why", "dialect": "chat", "profile": "strict"})]
    records.append(recorder.record("request", 0, {"facts": {"stream": True}}))
    records += recorder.attempt(1, {"number": 1, "upstream": "first"})
    refused = "no connection to first:80: Connection refused"
    failed = {"attempt": 1, "ending": "refused", "message": refused, "next": "again", "after_ms": 250}
    records.append(recorder.record("failed", 2, failed))
    records += recorder.attempt(3, {"number": 2, "upstream": "first"})
    records.append(recorder.record("head", 4, {"status": 503}))
    records.append(recorder.body(5, b'{"error":{"message":"come '))
    records.append(recorder.body(6, b'back later"}}'))
    failed = {"attempt": 2, "ending": "upstream_error", "message": "The upstream answered 503.", "next": "give_up"}
    records.append(recorder.record("failed", 7, failed))
    records.append(recorder.end(8, {"cause": "status", "ending": "upstream_error", "flags": []}))
    put(data / DAY, "why", records)
    said = run("show", "why", "--data", data).out
    assert f"first: {refused}; tried again after 0.25 s" in said
    assert "first: The upstream answered 503; gave up" in said
    assert "The upstream reported an error. Your client received no response." in said
    assert '{"error":{"message":"come back later"}}' in said
    assert "cause      the upstream answered with an error status" in said
    put(data / DAY, "inband", in_band_error("inband"))
    said = run("show", "inband", "--data", data).out
    assert re.search(r"^error +server_error: boom *$", said, re.MULTILINE)


def in_band_error(stream: str) -> list[Record]:
    recorder = Recorder()
    records = [recorder.record("open", 0, {"format": 1, "stream": stream, "dialect": "chat", "profile": "strict"})]
    records += recorder.read(1, text("a"))
    records += recorder.read(2, b'data: {"error":{"message":"boom","code":"server_error"}}\n\n')
    return [*records, recorder.end(3, {"cause": "closed", "ending": "upstream_error", "flags": []})]


#: ESC, DEL, a C1 control, a bidi override, a zero width space, a tag character.
HOSTILE = "\x1b\x7f\x9b\u202e\u200b\U000e0041"


def test_json_and_errors_escape_what_controls_a_terminal(run: Run, data: Path) -> None:
    put(data / DAY, "nasty", flat(stream_of("nasty", model=HOSTILE)))
    for verb in (["ls", "--model", HOSTILE], ["show", "nasty"]):
        said = run(*verb, "--data", data, "--json")
        assert not set(HOSTILE) & set(said.out)
        model = said.value[0]["model"] if verb[0] == "ls" else said.value["model"]
        assert model == HOSTILE, "the value is the same"
    root = data.parent / f"a{HOSTILE}b"
    put(root / DAY, "noend", [])
    for arguments in (["ls", "--data", root / "no"], ["show", "x", "--data", root], ["show", "noend", "--data", root]):
        said = run(*arguments)
        assert (said.code in (FOUND_WRONG, CANNOT_START), said.err.count("\n")) == (True, 1)
        assert not set(HOSTILE) & set(said.out + said.err)
        assert "\\u202e\\u200b\\udb40\\udc41" in said.err


def test_every_verb_prints_through_the_function_that_escapes() -> None:
    modules = [path for room in (proxy_cli, replay_cli) for path in Path(str(room.__file__)).parent.glob("*.py")]
    assert [path.name for path in modules if "typer.echo(" in path.read_text("utf-8")] == ["common.py"]


def test_follow_prints_the_stream_and_reports_a_missing_server(run: Run, data: Path) -> None:
    said = run("follow", DONE, "--data", data)
    assert (said.code, said.out) == (0, "word 0 word 1 word 2 \n[tool] look_up {}\n[completed]\n")
    (data / "lock").write_text(f"{os.getpid()}\n", encoding="ascii")  # as a killed server leaves it
    orphan = run("follow", LIVE, "--data", data)
    assert (orphan.code, orphan.out) == (FOUND_WRONG, "word 0 word 1 word 2 \n[completed]\n")
    assert orphan.err.startswith("wiretape: not recovered yet: ")


def test_follow_fails_over_a_missing_frame_as_show_does(run: Run, data: Path) -> None:
    damage(data / DAY / f"{DONE}.tape", b"word 1")
    for verb in ("follow", "show"):
        said = run(verb, DONE, "--data", data)
        assert (said.code, "word 0 word 2" in said.out) == (FOUND_WRONG, True)


def test_a_stream_of_a_killed_server_is_crashed_and_not_recovered_yet(run: Run, data: Path) -> None:
    flags, killed = ["not_recovered_yet"], "killed"
    put(data / "live", killed, [*cut(stream_of(killed, call_id="call_7", created=CREATED + 20))][:-1])
    with closing(Folder(data)):  # a server holds the folder
        (row, _) = run("ls", "--live", "--json", "--data", data).value
        assert (row["id"], row["live"], row["ending"]) == (killed, True, None)
        shown = run("show", killed, "--json", "--data", data).value
        assert (shown["live"], shown["ending"], shown["damage"]) == (True, None, [])
        assert re.search(r"^ending +live *$", run("show", killed, "--data", data).out, re.MULTILINE)
    assert run("ls", "--live", "--json", "--data", data).value == []
    (row,) = run("ls", "--ending", "crashed", "--json", "--data", data).value
    assert (row["id"], row["live"], row["flags"]) == (killed, False, flags)
    assert " crashed, not recovered yet " in run("ls", "--data", data).out
    shown = run("show", killed, "--json", "--data", data).value
    assert (shown["live"], shown["ending"], shown["flags"], shown["damage"]) == (False, "crashed", flags, [])
    said = run("show", killed, "--data", data)
    assert re.search(r"^ending +crashed, not recovered yet *$", said.out, re.MULTILINE)
    assert "⚠ crashed: look_up (call_7)\n" in said.out
    assert "not completed (crashed); no result seen" in said.out
    followed = run("follow", killed, "--data", data)
    assert (followed.code, followed.out.splitlines()[-1]) == (FOUND_WRONG, "[crashed] (lost: look_up)")

    async def restart() -> None:
        async with opened_files(data):
            pass

    trio.run(restart)
    recovered = run("show", killed, "--json", "--data", data).value
    assert recovered == {**shown, "flags": []}, "exactly what was shown before"


def damage(path: Path, line: bytes) -> None:
    """Change a byte of the line that has this in it."""
    data = path.read_bytes()
    assert data.count(line) == 1
    path.write_bytes(data.replace(line, line[:-1] + b"~"))


def test_a_damaged_tape_is_marked_and_nothing_is_claimed_of_its_calls(run: Run, data: Path) -> None:
    path = data / DAY / f"{DONE}.tape"
    damage(path, b'"finish_reason":"tool_calls"')
    damage(path, b"[DONE]")
    (row,) = [row for row in run("ls", "--data", data, "--json").value if row["id"] == DONE]
    assert (row["ending"], row["flags"]) == ("completed", ["damaged"])
    assert " completed, damaged " in run("ls", "--data", data).out
    (data / "catalogue.db").unlink()  # it still knows that the call was handed over
    said = run("show", DONE, "--data", data)
    assert said.code == FOUND_WRONG
    assert "⚠ damaged: look_up (call_7)\n" in said.out
    assert "the tape is damaged here" in said.out
    assert "truncated" not in said.out
    value = run("show", DONE, "--data", data, "--json").value
    assert (value["ending"], value["tools"][0]["state"]) == ("completed", "unknown")
    assert value["warnings"] == [{"code": "damaged", "calls": [{"id": "call_7", "name": "look_up"}]}]


async def test_show_says_who_ran_a_call_that_was_not_completed(run: Run, tmp_path: Path) -> None:
    result = {"id": "call_7", "name": "look_up", "arguments": digest("{}")}
    later: dict[str, Any] = {"created": CREATED + 2, "messages": 3, "results": [result]}
    async with opened_files(tmp_path / "data") as store:
        for stream, records in (
            (DONE, cut(stream_of(DONE, call_id="call_7"))),
            (CUT, flat(stream_of(CUT, **later))),
            (LIVE, cut(stream_of(LIVE, call_id="call_8"))),
        ):
            await store.create(stream)
            await store.append(stream, records)
    said = run("show", DONE, "--data", tmp_path / "data").out
    known = f"not completed (truncated); executed by the client (result in stream {CUT[:12]})"
    assert known in said
    said = run("show", LIVE, "--data", tmp_path / "data").out
    assert "not completed (truncated); no result seen" in said
    (tool,) = run("show", DONE, "--data", tmp_path / "data", "--json").value["tools"]
    assert (tool["state"], tool["reason"], tool["answered_by"]) == ("dropped", "truncated", CUT)


def test_reindex_rebuilds_the_catalogue(run: Run, data: Path) -> None:
    (data / "catalogue.db").unlink()
    assert run("reindex", "--data", data).out == f"2 streams in {data / 'catalogue.db'}\n"
    assert run("reindex", "--data", data, "--json").value == {"data": str(data), "streams": 2}


def test_config_show_prints_values_and_sources(run: Run) -> None:
    Path("wiretape.toml").write_text('upstream = "https://x.test/v1"\nidle_s = 9\n', encoding="utf-8")
    said = {row["name"]: (row["value"], row["origin"]) for row in run("config", "show", "--port", "1", "--json").value}
    assert said["port"] == ("1", "--port")
    assert said["idle_s"] == ("9", "wiretape.toml")
    assert said["host"] == ("127.0.0.1", "default")
    assert "--port" in run("config", "show", "--port=1").out


def test_unknown_variables_are_reported(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WIRETAPE_TIMEOUT_S", "WIRETAPE_STRICT\n\x1b[2J", "WIRETAPE_SERVICE_HOST"):
        monkeypatch.setenv(name, "5")
    said = run("config", "show", "--json")
    assert (said.code, said.err) == (
        0,
        "wiretape: ignored unknown variables: WIRETAPE_STRICT??[2J, WIRETAPE_TIMEOUT_S\n",
    )
    assert said.value
    monkeypatch.setenv("WIRETAPE_DATA", str(data))
    assert run("ls").err == ""


def test_no_verb_prints_the_help(run: Run) -> None:
    assert run().out == run("--help").out
    assert run("--version").out.startswith("wiretape")
