"""A tape from a stranger plays as valid HTTP, or `check` and `replay` both refuse it."""

import hashlib
import http.client
import json
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final

import h11
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock
from typer.testing import CliRunner

from tests.laws.variants import FULL
from tests.replay.made import stream
from tests.replay.test_server import said_by
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_object, dumps, is_list, is_object, parse
from wiretape.events.tape.record import encode as line_of
from wiretape.proxy.cli.common import FailedError
from wiretape.proxy.cli.main import app, main
from wiretape.proxy.http1 import format_head
from wiretape.replay.check import check, check_files
from wiretape.replay.cli.seal import FORMAT_NAMES
from wiretape.replay.faults.faults import Faults
from wiretape.replay.matching.match import request_of
from wiretape.replay.playback.script import ORIGINAL, Fault, Script, event_stream, json_answer, script_of
from wiretape.replay.playback.server import Upstream, listening
from wiretape.replay.pytest_plugin.thread import Thread
from wiretape.replay.seal import EXACT, seal
from wiretape.replay.sealed import files
from wiretape.replay.sealed.files import folder_of, load
from wiretape.replay.sealed.sealed import decode, expected
from wiretape.replay.serving.serving import Serving, deck_of

FILE: Final = Path("a.tape")
TODAY: Final = date(2027, 1, 20)
SPLIT: Final = "x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nowned"
FRAMES: Final = [b"data: %b\n\n" % dumps({"choices": [{"index": 0, "delta": {"content": text}}]}) for text in "abc"]
#: An event stream, one that was cut, one with a length, one that the close ends, one without a body.
STREAMS: Final = [
    stream(event_stream([*FRAMES, b"data: [DONE]\n\n"], gap_s=0.5)),
    stream(event_stream(FRAMES, end=Fault.CUT), "b"),
    stream(json_answer(b'{"a":1}'), "c"),
    stream(Script(steps=event_stream([b"x"]).steps, closes=True), "d"),
    stream(Script(status=204, headers=[]), "e"),
]
BASES: Final = [seal([records], EXACT).split(b"\n")[:-1] for records in STREAMS]
#: Values that no recorder writes, or writes in another place.
NASTY: Final[Sequence[Any]] = (
    None, True, -1, 0, 1, 5, 100, 199, 204, 304, 999, 1_000, 10**9, 10**18, 10**30, 1.5, -1.5, 1e308, "", "x", SPLIT,
    "\r", "\n", "\0", "\x85", "\u2028", "é€", "\ud800", [], {}, [[]], [1], [["a", "b"]],
    [["transfer-encoding", "chunked"]],
        [["Content-Length", "1"]], [["x", SPLIT]], [[SPLIT, "x"]], [["set-cookie", "a=b"]], {"a": 1}, "close", "length",
    "chunked", "../../../etc/passwd", "/dev/zero",
)  # fmt: skip


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if is_object(value) else enumerate(value) if is_list(value) else ()
    for step, each in inner:
        yield from paths_in(each, (*path, step))


def with_value(line: bytes, chance: random.Random) -> bytes:
    """The line with another value, or another name, in one of its places."""
    value = json.loads(line)
    *above, last = chance.choice([path for path in paths_in(value) if path])
    inside = value
    for step in above:
        inside = inside[step]
    if isinstance(last, str) and chance.random() < 0.1:
        inside[chance.choice(["", SPLIT, "x", "status", "headers"])] = inside.pop(last)
    else:
        inside[last] = chance.choice(NASTY)
    return json.dumps(value, separators=(",", ":")).encode()


def mutated(chance: random.Random) -> bytes:
    """A sealed tape with one to three changes; mostly with the fold line that fits, as an attacker would write it."""
    lines = list(chance.choice(BASES))
    for _ in range(chance.choice([1, 1, 2, 3])):
        at = chance.randrange(len(lines))
        match chance.randrange(8):
            case 0:
                start = chance.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:start] + chance.randbytes(chance.randrange(4)) + lines[at][start + 1 :]
            case 1:
                lines[at:at] = [lines[at]]
            case 2 if len(lines) > 1:
                del lines[at]
            case _:
                with suppress(ValueError, IndexError):  # a line of an earlier change, or without a member
                    lines[at] = with_value(lines[at], chance)
    with suppress(TapeError):
        fold = {"k": "fold", **expected(decode(b"\n".join([*lines, b""]), verify=False).streams[0])}
        lines[-1] = dumps(fold) if chance.random() < 0.9 else lines[-1]
    return b"\n".join([*lines, b""])


def responses(said: bytes, method: bytes, count: int) -> list[tuple[int, list[tuple[bytes, bytes]], bytes]]:
    """The whole responses in these bytes by a strict reader, which has sent so many requests; nothing may follow."""
    client = h11.Connection(h11.CLIENT)
    found: list[tuple[int, list[tuple[bytes, bytes]], bytes]] = []
    client.receive_data(said)
    client.receive_data(b"")
    for _ in range(count):
        client.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
        client.send(h11.EndOfMessage())
        head, body = client.next_event(), b""
        if not isinstance(head, h11.Response):
            return found
        while isinstance(data := client.next_event(), h11.Data):
            body += data.data
        found.append((head.status_code, list(head.headers), body))
        if client.our_state is not h11.DONE or client.their_state is not h11.DONE:
            break
        client.start_next_cycle()
    assert client.trailing_data[0] == b"" or client.their_state is h11.MUST_CLOSE, "a response was split"
    return found


def played(data: bytes) -> None:
    """Play the only stream of a tape to a client that asks twice, and compare what it reads with the tape."""
    recording = files.parse(data)
    request, script = request_of(recording.streams[0]), script_of(recording.streams[0], all_headers=False)
    serving = Serving(deck_of([("", recording)], "key", repeat=True), Faults.of(()), speed=ORIGINAL)
    length = (b"Content-Length", b"%d" % len(request.body))
    asked = format_head(
        b"%b %b HTTP/1.1" % (request.method, request.target), [(b"Host", b"x"), *request.headers, length]
    )
    lines: list[str] = []

    async def main() -> bytes:
        return await said_by(Upstream(serving.choose, say=lines.append), (asked + request.body) * 2, seconds=1e9)

    said = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert serving.broken is None, serving.broken
    if lines:  # a request that HTTP cannot carry
        return
    _ = [answer.fold for answer in serving.answers]
    if script.fault is not None:
        return
    whole = responses(said, request.method, 2)
    assert whole
    for status, headers, body in whole:
        if status == script.status:  # otherwise the request is not the recorded one, and this is a miss
            assert body == (script.body if script.has_body and request.method != b"HEAD" else b"")
            assert {name for name, _ in headers} <= {
                *(name.lower() for name, _ in script.headers), b"transfer-encoding", b"connection", b"x-wiretape-match",
            }  # fmt: skip


@settings(max_examples=5_000 if FULL else 150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_mutated_tape_plays_as_valid_http_or_is_refused_by_check_and_replay(seed: int) -> None:
    data = mutated(random.Random(seed))  # noqa: S311 - not a secret
    refused = ""
    try:
        files.parse(data)
    except TapeError as error:
        refused = str(error)
    codes = {each.code for each in check(FILE, data, TODAY) if each.wrong}
    assert bool(refused) == bool(codes & {"fold", "streams", "unplayable", "unreadable", "unsealed", "version"}), (
        refused
    )
    assert "\n" not in refused
    if not refused:
        played(data)


def changed(kind: str, at: int = 0, **keys: Any) -> bytes:
    """A tape as an attacker would seal it: one record of this kind has these keys."""
    records = [each._replace(keys={**each.keys, **keys}) if each.kind == kind else each for each in STREAMS[at]]
    return seal([records], EXACT)


def at_time(kind: str, t: int) -> bytes:
    at = next(at for at, each in enumerate(STREAMS[0]) if each.kind == kind)
    records = [each._replace(t=t) if number == at else each for number, each in enumerate(STREAMS[0])]
    return seal([records], EXACT)


def renumbered(without: str) -> bytes:
    kept = [each for each in STREAMS[0] if each.kind != without]
    return seal([[each._replace(n=n) for n, each in enumerate(kept)]], EXACT)


WEEK_US: Final = 7 * 24 * 3_600 * 1_000_000
REFUSED: Final = {
    "a header that splits the response": (changed("head", headers=[["x", SPLIT]]), "forbidden character"),
    "a name that splits the response": (changed("head", headers=[[SPLIT, "x"]]), "forbidden character"),
    "a NUL": (changed("head", headers=[["x", "\0"]]), "forbidden character"),
    "a LF": (changed("head", headers=[["x", "a\nb: c"]]), "forbidden character"),
    "an empty name": (changed("head", headers=[["", "a"]]), "forbidden character"),
    "a header that is no pair": (changed("head", headers=[["x"]]), "not a name and a value"),
    "a length beside chunks": (changed("head", headers=[["Content-Length", "1"]]), "content-length belongs to"),
    "a second transfer encoding": (changed("head", headers=[["transfer-encoding", "x"]]), "transfer-encoding belongs"),
    "a negative length": (changed("head", 2, framing="length", length=-1), "its length"),
    "a huge length": (changed("head", 2, framing="length", length=10**18), "its length"),
    "a length that is no number": (changed("head", 2, framing="length", length="5\r\nx: y"), "its length"),
    "a status of four digits": (changed("head", status=1_000), "its status"),
    "an interim status": (changed("head", status=101), "its status"),
    "a status that is a word": (changed("head", status="200 OK\r\nx: y"), "its status"),
    "a request line that splits": (changed("request", path="/v1 HTTP/1.1\r\nx: y"), "its method and path"),
    "a method that is none": (changed("request", method=""), "its method and path"),
    "a request header that splits": (changed("request", headers=[["content-type", SPLIT]]), "forbidden character"),
    "a time before the last one": (at_time("end", 0), "before that of the record"),
    "a time beyond a week": (at_time("end", WEEK_US + 1), "later than any stream"),
    "no request": (renumbered("request"), "without its request"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_check_finds_what_replay_refuses(case: str, tmp_path: Path) -> None:
    data, why = REFUSED[case]
    (tape := tmp_path / "a.tape").write_bytes(data)
    found = [each for each in check_files([tape]) if each.wrong and each.code != "sums"]
    assert [each.code for each in found] == ["unplayable"], found
    assert why in found[0].message
    for arguments in (["replay", str(tape)], ["export", str(tape), "-o", str(tmp_path / "x"), "--format", "sse"]):
        done = CliRunner().invoke(app, arguments)
        assert isinstance(done.exception, FailedError)
        assert str(done.exception) == f"{tape}: line {found[0].line}: {found[0].message}"
        assert done.exception.code == 3
    assert CliRunner().invoke(app, ["check", str(tape)]).exit_code == 1


def test_times_up_to_a_week_are_played() -> None:
    files.parse(at_time("end", WEEK_US))


def test_check_finds_what_replay_refuses_of_a_live_tape(tmp_path: Path) -> None:
    bad = [each._replace(keys={**each.keys, "status": 7}) if each.kind == "head" else each for each in STREAMS[0]]
    for records, code in ((bad, "unplayable"), ([each for each in STREAMS[0] if each.kind != "attempt"], "unreadable")):
        (tape := tmp_path / "a.tape").write_bytes(b"".join(map(line_of, records)))
        assert code in [each.code for each in check_files([tape])]
        with pytest.raises(TapeError):
            load(tape)


# -- files ------------------------------------------------------------------------------------------------------------


def blob_tape(folder: Path, *names: str) -> Path:
    """A tape whose answer is in blobs of these names."""
    lines = list(BASES[2])
    at = next(at for at, line in enumerate(lines) if as_object(parse(line)).get("k") == "answer")
    lines[at : at + 1] = [b'{"blob":"%b","as":"raw","k":"answer"}' % name.encode() for name in names]
    (tape := folder / "a.tape").write_bytes(b"\n".join([*lines, b""]))
    folder_of(tape).mkdir()
    return tape


NAME: Final = "0" * 64


def refused_by_all(tape: Path) -> str:
    [found] = [each for each in check_files([tape]) if each.wrong]
    with pytest.raises(TapeError) as refused:
        load(tape)
    assert str(refused.value) == f"{tape}: {found.message}"
    return found.message


def test_a_blob_that_is_a_pipe_or_a_device_is_refused(tmp_path: Path) -> None:
    tape = blob_tape(tmp_path, NAME)
    blob = folder_of(tape) / NAME
    os.mkfifo(blob)
    assert refused_by_all(tape).endswith("is not a regular file")
    blob.unlink()
    blob.symlink_to("/dev/zero")
    assert refused_by_all(tape).endswith("is not a regular file")
    blob.unlink()
    blob.symlink_to("/etc/passwd")
    assert refused_by_all(tape).endswith("was changed"), "of another file nothing is shown"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", "x" * 64, NAME + "/../x"])
def test_a_blob_outside_its_folder_is_refused(name: str, tmp_path: Path) -> None:
    assert "unknown form of a blob" in refused_by_all(blob_tape(tmp_path, name))


def test_a_tape_that_is_a_pipe_or_a_device_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tape")
    (tmp_path / "device.tape").symlink_to("/dev/zero")
    for name in ("pipe.tape", "device.tape"):
        assert refused_by_all(tmp_path / name) == "not a regular file"
        for how in FORMAT_NAMES:
            arguments = ["import", str(tmp_path / name), "-o", str(tmp_path / "out"), "--format", how]
            refused = CliRunner().invoke(app, arguments).exception
            assert (type(refused), str(refused)) == (FailedError, f"{tmp_path / name}: not a regular file")


@pytest.mark.parametrize(
    "verb",
    [
        "replay LOOP",
        "seal LOOP -o out",
        "verify LOOP --live http://127.0.0.1:9/v1",
        "diff LOOP LOOP",
        "export LOOP -o out --format sse",
        "cut LOOP -o out --after frame:1",
        "recheck LOOP",
        "check LOOP",
        "import LOOP -o out",
    ],
)
def test_a_link_to_itself_is_refused_in_one_line(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (loop := tmp_path / "loop.tape").symlink_to("loop.tape")
    places = {"LOOP": str(loop), "out": str(tmp_path / "out")}
    with pytest.raises(SystemExit) as refused:
        main([places.get(word, word) for word in verb.split()])
    assert refused.value.code != 0
    said = "".join(capsys.readouterr())
    assert said.count("\n") == 1
    assert "Too many levels of symbolic links" in said


def test_huge_files_and_many_blobs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BYTES_MAX", 10_000)
    tape = blob_tape(tmp_path, *[NAME] * 9)
    blob = folder_of(tape) / NAME
    blob.write_bytes(b"x" * 10_001)
    assert refused_by_all(tape).endswith("is longer than 10000 bytes")
    content = b"x" * 2_000
    (folder_of(tape) / (name := hashlib.sha256(content).hexdigest())).write_bytes(content)
    tape.write_bytes(tape.read_bytes().replace(NAME.encode(), name.encode()))
    assert "with its blobs the tape is longer than 10000 bytes" in refused_by_all(tape)


def test_a_record_made_by_hand_is_never_sent_as_another_head() -> None:
    """The last line of defence, for scripts of any origin: a bug would end the connection, not split a response."""
    lines: list[str] = []
    upstream = Upstream(lambda _: Script(headers=[(b"x", SPLIT.encode())]), say=lines.append)

    async def main() -> bytes:
        return await said_by(upstream, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")

    assert trio.run(main, clock=MockClock(autojump_threshold=0)) == b""
    assert lines[0].startswith("internal error")


# -- browsers ---------------------------------------------------------------------------------------------------------

BODY: Final = b'{"model":"m"}'


def asking(*lines: bytes) -> bytes:
    length = b"Content-Length: %d" % len(BODY)
    return b"\r\n".join([b"POST /v1/chat/completions HTTP/1.1", *lines, length, b"", BODY])


OWN: Final = b"Host: 127.0.0.1:8788"
PAGES: Final = {
    "a program": ((OWN,), 200),
    "localhost": ((b"Host: localhost:8788",), 200),
    "a page of its own": ((OWN, b"Origin: http://127.0.0.1:8788"), 200),
    "a name that points here": ((b"Host: evil.example:8788",), 421),
    "no host": ((), 400),
    "a foreign page": ((OWN, b"Origin: https://evil.example"), 403),
    "a page of another port": ((OWN, b"Origin: http://127.0.0.1:3000"), 403),
    "a sandboxed page": ((OWN, b"Origin: null"), 403),
    "an image in a foreign page": ((OWN, b"Sec-Fetch-Site: cross-site"), 403),
}


@pytest.mark.parametrize("case", PAGES)
async def test_a_replay_applies_the_host_and_origin_rules_of_the_proxy(case: str, autojump_clock: MockClock) -> None:
    lines, status = PAGES[case]
    said: list[str] = []
    upstream = Upstream(lambda _: json_answer(b"{}"), say=said.append, host="127.0.0.1")
    answer = await said_by(upstream, asking(*lines))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert len(said) == (status != 200)
    assert "setting" not in "".join(said), "a replay has none"


def status_of(url: str, **headers: str) -> int:
    connection = http.client.HTTPConnection(url.split("/")[2], timeout=10)
    connection.request("POST", "/v1/chat/completions", BODY, headers)
    status = connection.getresponse().status
    connection.close()
    return status


async def test_a_listening_replay_applies_them() -> None:
    async with listening(lambda _: json_answer(b"{}"), say=lambda _: None) as (url, _):
        asked = partial(trio.to_thread.run_sync, partial(status_of, url, Host="evil.example"))
        assert await asked() == 421


@pytest.mark.slow
def test_the_server_of_the_pytest_plugin_applies_them() -> None:
    with closing(Thread()) as thread:
        url = thread.serve("1", lambda _: json_answer(b"{}"))
        assert status_of(url, Host="evil.example") == 421
        assert status_of(url, Origin="http://evil.example") == 403


PLAYED: Final = [["content-type", "text/event-stream"], ["x-request-id", "a"]]
FOR_BROWSERS: Final = [
    ["Access-Control-Allow-Origin", "*"],
    ["access-control-expose-headers", "x"],
    ["Set-Cookie", "a=b"],
]


@pytest.mark.parametrize("asked", [False, True])
def test_recorded_cors_and_cookie_headers_are_played_only_if_asked(asked: bool) -> None:
    recording = files.parse(changed("head", headers=[*PLAYED, *FOR_BROWSERS]))
    serving = Serving(deck_of([("", recording)], "key"), Faults.of(()), all_headers=asked)
    script = serving.choose(request_of(recording.streams[0]))
    names = [name.decode() for name, _ in script.headers]
    assert names == [name for name, _ in [*PLAYED, *FOR_BROWSERS * asked]]
