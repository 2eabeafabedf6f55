"""Recordings of other tools become tapes and back: what is read, what is lost, what is refused."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.replay.format_samples import AIMOCK, ASKED, BODY, HAR, SAMPLES
from tests.replay.test_compare import CALL, TEXT, recorded
from tests.support.make_fixtures import TAPES
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import dumps
from wiretape.events.core.limits import EVENT_BYTES_MAX
from wiretape.events.emit import emit, summarise
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader, reads
from wiretape.proxy.cli.main import app
from wiretape.replay.cli.seal import FORMAT_NAMES
from wiretape.replay.compare.compare import compare
from wiretape.replay.formats import vcr
from wiretape.replay.formats.har import to_har
from wiretape.replay.formats.table import EXPORTS, FORMATS, Outcome, read
from wiretape.replay.formats.vcr import read_yaml
from wiretape.replay.playback.script import attempts_of
from wiretape.replay.redaction.user_rules import Redaction
from wiretape.replay.seal import Rules, seal
from wiretape.replay.sealed.files import load as load_tape
from wiretape.replay.sealed.sealed import decode, encode

EACH = [(name, data) for name, files in SAMPLES.items() for data in files]
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
NDJSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n"
IDS = [f"{name}-{number}" for name, files in SAMPLES.items() for number in range(len(files))]


def test_import_accepts_every_format_by_name() -> None:
    assert ("auto", *FORMATS) == FORMAT_NAMES


def from_har(data: bytes) -> Outcome:
    return read(data, "har")[1]


def body_of(records: list[Record]) -> bytes:
    return b"".join(data for _, data in reads(attempts_of(records)[-1]))


def end_of(records: list[Record]) -> dict[str, Any]:
    return dict(records[-1].keys)


@pytest.mark.parametrize(("name", "numbers"), [("sse", [0]), ("curl", [0, 1, 4]), ("har", [0]), ("vcr", [0, 1, 2])])
def test_recorded_bytes_are_kept_without_credentials(name: str, numbers: list[int]) -> None:
    for number in numbers:
        (records, *_) = read(SAMPLES[name][number])[1].streams
        assert body_of(records) == BODY
        assert (records[0].keys["dialect"], end_of(records)["ending"]) == ("chat", "completed")
        assert b"secret" not in encode({}, [records])
        if name in ("har", "vcr") and number != 1:
            assert (records[1].raw, records[1].keys["path"]) == (ASKED, "/v1/chat/completions?beta=1")
            assert (records[1].keys["facts"]["model"], records[1].keys["messages"]) == ("m", 1)


def test_har_timings_and_chunks_in_milliseconds_are_kept() -> None:
    har = json.loads(dumps(HAR))
    (records,) = from_har(dumps(har)).streams
    assert (records[3].kind, records[3].t, records[-1].t) == ("head", 250_000, 1_500_000)
    assert records[0].keys["created"] == datetime(2026, 11, 18, 10, tzinfo=UTC).timestamp()
    entry = har["log"]["entries"][0]
    entry["_chunks"] = [{"ts": 300.5, "bytes": 100}, {"ts": 900, "bytes": len(BODY) - 100}]
    (records,) = from_har(dumps(har)).streams
    assert [(t, len(data)) for t, data in reads(records)] == [(300_500, 100), (900_000, len(BODY) - 100)]
    entry["_chunks"][1]["bytes"] += 1  # sizes of another body are ignored
    assert "boundaries" in from_har(dumps(har)).losses
    del entry["response"]["content"]["text"]
    outcome = from_har(dumps(har))
    assert "body" in outcome.losses
    assert end_of(outcome.streams[0])["ending"] == "truncated"


def test_reads_beyond_the_event_limit_are_counted() -> None:
    har = json.loads(dumps(HAR))
    body = "data: " + "x" * EVENT_BYTES_MAX
    har["log"]["entries"][0]["response"]["content"]["text"] = body + "more"
    har["log"]["entries"][0]["_chunks"] = [{"at_us": 300, "bytes": len(body)}, {"at_us": 400, "bytes": 4}]
    (records,) = from_har(dumps(har)).streams
    assert end_of(records)["bytes"] == len(body) + 4 == sum(len(data) for _, data in reads(records))


@pytest.mark.parametrize(
    ("answer", "body", "status", "lost"),
    [
        ({"status": {"code": 200}, "body": {"string": "é"}}, "é".encode(), 200, False),
        ({"status_code": 201, "content": "x"}, b"x", 201, False),
        ({"status": 200, "body": "x"}, b"x", 200, False),
        ({"status": 200, "body": None, "parsed_body": {"a": 1}}, b'{"a":1}', 200, True),
        ({"status": 200, "body": {"a": [1]}}, b'{"a":[1]}', 200, True),
        ({"status": 200, "body": {"type": "json", "content": {"a": 1}}}, b'{"a":1}', 200, True),
        ({"status": 200, "body": {"type": "text", "content": "x"}}, b"x", 200, False),
        ({"status": 200, "body": {"type": "binary", "content": "00ff"}}, b"\x00\xff", 200, False),
        ({"status": 200, "body": {"type": "none"}}, b"", 200, False),
        ({"status": 200, "body": {"type": "text", "more": 1}}, b'{"type":"text","more":1}', 200, True),
    ],
)
def test_cassette_bodies_of_every_version_are_read(
    answer: dict[str, Any], body: bytes, status: int, lost: bool
) -> None:
    cassette = [{"request": {"method": "GET", "uri": "http://x/y?z=1"}, "response": answer}]
    outcome = read(dumps({"interactions": cassette}))[1]
    (records,) = outcome.streams
    assert (body_of(records), records[3].keys["status"], records[1].keys["path"]) == (body, status, "/y?z=1")
    assert ("json" in outcome.losses) is lost


def test_cassette_headers_have_one_value_or_several() -> None:
    answer = {"status": 200, "headers": {"Content-Type": "text/plain", "Retry-After": ["7"]}, "body": "x"}
    (records,) = read(dumps({"interactions": [{"request": {"method": "GET"}, "response": answer}]}))[1].streams
    assert records[3].keys["headers"] == [["content-type", "text/plain"], ["retry-after", "7"]]


def test_aimock_results_become_streams() -> None:
    text, call, error = read(dumps(AIMOCK))[1].streams
    assert [end_of(records)["ending"] for records in (text, call)] == ["completed", "completed"]
    assert [(said.id, said.name, said.arguments) for said in summarise(call).wire.calls()] == [
        ("call_0", "save", '{"a":1}')
    ]
    assert (error[3].keys["status"], error[3].keys["headers"][-1]) == (429, ["retry-after", "7"])
    assert text[1].raw == dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
    assert "other_protocols" in read(dumps(AIMOCK))[1].losses


@pytest.mark.parametrize(
    ("data", "ending"),
    [
        (b'data: {"type":"something"}\n\n', "completed"),
        (b'data: {"type":"something"}\n\ndata: {"type":"someth', "truncated"),
        (b"data: what", "truncated"),
        (b"data: what\n\n\n\n", "completed"),
        (b"data:\n\n", "truncated"),
        (b"data: {}\n\n: hello\n\nid: 7\n\n", "truncated"),
        (b"data: null\n\n", "truncated"),
        (SSE_HEAD + b"\r\ndata: {}\n\n", "truncated"),
        (SSE_HEAD + b"content-length: 0\r\n\r\n", "completed"),
        (SSE_HEAD + b"\r\n", "truncated"),
        (NDJSON_HEAD + b'{"a":1}\n', "completed"),
        (NDJSON_HEAD + b'{"a":1}\n{"a":', "truncated"),
        (NDJSON_HEAD + b'{"message":{},"done":false}\n', "truncated"),
        (NDJSON_HEAD + b'{"message":{},"done":false}\n{"done":true}\n', "completed"),
        (SSE_HEAD + b'\r\ndata: {"candidates":[{}]}\n\n', "truncated"),
        (SSE_HEAD + b'\r\ndata: {"candidates":[{"finishReason":"STOP"}]}\n\n', "completed"),
        (SSE_HEAD + b'\r\ndata: {"type":"content-delta"}\n\n', "truncated"),
        (b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"object":"respo', "truncated"),
        (b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"object":"response"}', "completed"),
        # The framing decides.
        (SSE_HEAD + b'content-length: 25\r\n\r\ndata: {"type":"response."', "completed"),
        (SSE_HEAD + b'content-length: 99\r\n\r\ndata: {"type":"message_stop"}\n\n', "truncated"),
        (SSE_HEAD + b"transfer-encoding: chunked\r\n\r\n3\r\n: a\r\n", "truncated"),
    ],
)
def test_torn_or_empty_body_is_truncated(data: bytes, ending: str) -> None:
    assert end_of(read(data)[1].streams[0])["ending"] == ending


@pytest.mark.parametrize(
    ("data", "target", "dialect"),
    [
        (b'data: {"type":"response.created"}\n\n', "/v1/responses", "responses"),
        (b'event: message_start\ndata: {"type":"message_start"}\n\n', "/v1/messages", "messages"),
        (b'data: {"object":"text_completion","choices":[{"text":"a"}]}\n\n', "/v1/completions", ""),
        (b"data: what\n\n", "/v1", ""),
    ],
)
def test_request_path_is_guessed_from_the_response(data: bytes, target: str, dialect: str) -> None:
    (records,) = read(data, "sse")[1].streams
    assert (records[1].keys["path"], records[0].keys["dialect"]) == (target, dialect)


def _har(content_type: str = "text/event-stream", method: str = "POST") -> bytes:
    """Return an exchange as HAR."""
    request = {"method": method, "url": "https://h.example/v1/chat/completions"}
    response = {"status": 200, "headers": [{"name": "content-type", "value": content_type}]}
    return json.dumps({"log": {"entries": [{"request": request, "response": response}]}}).encode()


JUNK = [
    (b"", "unknown format"),
    (b"hello", "unknown format"),
    (b"\xff\xfe\x00", "unknown format"),
    (b'{"c":"65f34cf0","n":0}\n', "already a tape"),
    (b'{"wiretape":"sealed","format":1}\n', "already a tape"),
    (b"26:7:version;2:21#4:type;3:tcp;}", "flows of mitmproxy; export them as HAR"),
    (b"HTTP/1.1 200 OK\r\nbroken\r\n\r\n", "as curl: byte 17: expected a header"),
    (b"HTTP/1.1 200", "as curl: byte 0: expected a status line"),
    (b'{"log":{}}', "as har: no log with entries"),
    (b'{"log":{"entries":[]}}', "as har: no exchange with a response"),
    (b'{"log":{"entries":[{"request":{"url":"http://x"},"response":{"status":"x"}}]}}', "as har: a response without"),
    (b"HTTP/1.1 101 Switching\r\n\r\nx", "as curl: stream 1: its status is not a number from 200 to 999"),
    (_har(method="GET / HTTP/1.1\r\nEvil: 1"), "as har: stream 1: its method and path are not those of a request"),
    (_har("text/event-stream\r\nEvil: 1"), "as har: stream 1: a header has a forbidden character"),
    (b'{"fixtures":[]}', "as aimock: no fixtures"),
    (b'{"interactions":[]}', "as vcr: no interactions"),
    (b"interactions:\n- request: {a: 1}\n  response: {b: 1}\n", "as vcr: a response without a status"),
    (b"interactions:\n- !!python/object:os.system x\n", "as vcr: line 2: could not determine"),
    (b"interactions:\n  - a\n b: 1\n", "as vcr: line 3"),
    (b'{"a":1}\n{"b":', "unknown format"),
    (b'{"model":"m","messages":[{"role":"user","content":"hi"}]}', "unknown format"),
    (b'[{"request":{},"response":{}}]', "unknown format"),
]


@pytest.mark.parametrize(("data", "said"), JUNK)
def test_unreadable_file_is_refused_in_one_line(data: bytes, said: str) -> None:
    with pytest.raises(TapeError, match=said) as raised:
        read(data)
    assert "\n" not in str(raised.value)


_PIECES = [b"null", b"[]", b"{}", b"-1", b'"', b"\n", b": ", b"1e999", b"&a ", b"*a", b"- ", b"0"]


@given(st.data())
@settings(max_examples=400)
def test_any_bytes_and_damaged_samples_raise_only_tape_errors(draw: st.DataObject) -> None:
    name, data = draw.draw(st.sampled_from([*EACH, *((name, b"") for name in FORMATS)]))
    mutated = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(mutated)))
        end = min(len(mutated), at + draw.draw(st.integers(0, 20)))
        piece = draw.draw(st.one_of(st.binary(max_size=50), st.sampled_from(_PIECES)))
        mutated[at:end] = piece
    try:
        _, outcome = read(bytes(mutated), draw.draw(st.sampled_from([name, "auto"])))
    except TapeError as error:
        assert "\n" not in str(error)  # noqa: PT017 - or nothing is raised at all
    else:
        assert decode(encode({}, outcome.streams)).streams == outcome.streams


# -- export ----------------------------------------------------------------------------------------------------------

STREAMS = {
    **{name: Reader().feed(tape) for name, tape in TAPES.items()},
    "text in reads": recorded(TEXT),
    "a call, asked twice": recorded(CALL, attempts=2),
    "an exchange": recorded([b'{"data":', b"[1]}"], dialect="", body=True, ending="reset", cause="reset"),
    "an error": recorded([b'{"error":{}}'], body=True, status=429, cause="status", ending="upstream_error"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_har_round_trip_keeps_bytes_reads_times_and_ending(name: str) -> None:
    records = STREAMS[name]
    data, losses = to_har([records])
    (back,) = from_har(data).streams
    assert list(reads(attempts_of(back)[-1])) == list(reads(attempts_of(records)[-1]))
    assert end_of(back)["sha256"] == end_of(records)["sha256"]
    for key in ("cause", "ending", "framed", "broke"):
        assert key not in end_of(records) or end_of(back).get(key) == end_of(records)[key]
    mine = [record for record in attempts_of(records)[-1] if record.kind not in ("commit", "keepalive", "gone")]
    if name != "an exchange" and name not in TAPES:
        assert list(compare([mine], [attempts_of(back)[-1]], "bytes")) == []
    assert set(losses) <= set(EXPORTS["har"].sometimes)


def test_har_export_has_the_required_members() -> None:
    log = json.loads(to_har([recorded(CALL)])[0])["log"]
    (entry,) = log["entries"]
    assert log["version"] == "1.2"
    both = {"httpVersion", "cookies", "headers", "headersSize", "bodySize"}
    assert {"startedDateTime", "time", "request", "response", "cache", "timings"} <= entry.keys()
    assert {*both, "method", "url", "queryString"} <= entry["request"].keys()
    assert {*both, "status", "statusText", "content", "redirectURL"} <= entry["response"].keys()


# -- on the command line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "data"), EACH, ids=IDS)
def test_import_writes_a_sealed_tape_and_prints_losses(tmp_path: Path, name: str, data: bytes) -> None:
    source, out = tmp_path / "source", tmp_path / "out.tape"
    source.write_bytes(data)
    done = CliRunner().invoke(app, ["import", str(source), "-o", str(out)])
    assert done.exit_code == 0, done.output
    first, *lost = done.stdout.splitlines()
    assert f"from {name} (" in first
    assert lost
    assert all(line.startswith("lost: ") for line in lost)
    assert len(load_tape(out).streams) == len(read(data)[1].streams)
    said = json.loads(CliRunner().invoke(app, ["import", str(source), "-o", str(out), "--exact", "--json"]).stdout)
    assert said["format"] == name
    assert len(said["lost"]) == len(lost)
    assert list(load_tape(out).streams) == read(data)[1].streams


def test_export_writes_har_and_one_stream_as_sse(tmp_path: Path) -> None:
    tape, out = tmp_path / "a.tape", tmp_path / "out"
    tape.write_bytes(encode({}, [recorded(TEXT), recorded(CALL)]))
    run = CliRunner()
    assert run.invoke(app, ["export", str(tape), "--format", "har", "-o", str(out)]).exit_code == 0
    assert len(from_har(out.read_bytes()).streams) == 2
    asked = run.invoke(app, ["export", str(tape), "--format", "sse", "-o", str(out)])
    assert "choose one with --stream" in str(asked.exception)
    run.invoke(app, ["export", str(tape), "--format", "sse", "--stream", "2", "-o", str(out)])
    assert out.read_bytes() == b"".join(CALL)
    run.invoke(app, ["export", str(tape), "--format", "sse", "--stream", "2", "--as", "client", "-o", str(out)])
    assert out.read_bytes() == emit(recorded(CALL))
    said = json.loads(run.invoke(app, ["export", str(tape), "--format", "har", "-o", str(out), "--json"]).stdout)
    assert [each["code"] for each in said["lost"]] == ["client", "settings"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["import", "a.tape", "-o", "b"], "already a tape"),
        (["import", "junk", "-o", "b"], "unknown format"),
        (["import", "junk", "-o", "b", "--format", "doc"], "--format must be"),
        (["export", "a.tape", "-o", "b", "--format", "doc"], "--format must be"),
        (["export", "a.tape", "-o", "b", "--format", "har", "--as", "client"], "--as client works with"),
        (["export", "a.tape", "-o", "b", "--format", "sse", "--stream", "9"], "has only 1 streams"),
        (["export", "junk", "-o", "b", "--format", "har"], "junk"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.tape").write_bytes(encode({}, [recorded(TEXT)]))
    Path("junk").write_bytes(b"junk")
    done = CliRunner().invoke(app, arguments)
    assert said in str(done.exception)
    assert not Path("b").exists()


@pytest.mark.parametrize(("name", "at"), [("har", 0), ("vcr", 0), ("vcr", 2)])
def test_import_redacts_and_exact_import_refuses_secrets(tmp_path: Path, name: str, at: int) -> None:
    canary = ("sk-" + "proj-" + "Zx9" * 16).encode()
    source, out = tmp_path / "source", tmp_path / "out.tape"
    data = SAMPLES[name][at]
    data = data.replace(b'hi\\"', canary + b'\\"').replace(b'"hi"', b'"%b"' % canary)
    assert canary in data
    source.write_bytes(data)
    assert CliRunner().invoke(app, ["import", str(source), "-o", str(out)]).exit_code == 0
    assert canary not in out.read_bytes()
    refused = CliRunner().invoke(app, ["import", str(source), "-o", str(out), "--exact"])
    assert refused.exception is not None


def test_har_keeps_what_sealing_did_and_import_is_exact_only_on_request(
    tmp_path: Path,
) -> None:
    sealed, har, back = tmp_path / "a.tape", tmp_path / "a.har", tmp_path / "b.tape"
    sealed.write_bytes(seal([recorded(TEXT)], Rules(redaction=Redaction(prompts=True))))
    run = CliRunner()
    before = load_tape(sealed).header
    assert before["exact"] is False
    assert run.invoke(app, ["export", str(sealed), "--format", "har", "-o", str(har)]).exit_code == 0
    for more in ([], ["--exact"]):
        assert run.invoke(app, ["import", str(har), "-o", str(back), *more]).exit_code == 0
        after = load_tape(back).header
        assert [after[name] for name in ("exact", "redacted", "normalised")] == [
            before[name] for name in ("exact", "redacted", "normalised")
        ]
    har.write_bytes(to_har([recorded(TEXT)])[0])
    assert b'"_wiretape":{"exact"' not in har.read_bytes()
    for more, exact in (([], False), (["--exact"], True)):
        run.invoke(app, ["import", str(har), "-o", str(back), *more])
        assert load_tape(back).header["exact"] is exact


# -- YAML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("%YAML 1.2\n---\na: 1\n...\n", {"a": 1}),
        ("a:\nb: ~\nc: null\nd: true\ne: FALSE\n", {"a": None, "b": None, "c": None, "d": True, "e": False}),
        ("a: yes\nb: 010\nc: 12:30:45\nd: 1e5\n", {"a": "yes", "b": "010", "c": "12:30:45", "d": "1e5"}),
        ("a: 2026-11-18\nb: 0x10\nc: 1_000\n", {"a": "2026-11-18", "b": "0x10", "c": "1_000"}),
        ("a: -12\nb: 1.5\nc: 123456789012345678901\n", {"a": -12, "b": 1.5, "c": 123456789012345678901}),
        ("200: a\ntrue: b\n<<: c\n", {"200": "a", "true": "b", "<<": "c"}),
        ("a: !!binary |\n  AAEC\n  AwQ=\n", {"a": b"\x00\x01\x02\x03\x04"}),
        ("a: !!str 1\nb: !!python/tuple [1, '2']\nc: !!int '3'\n", {"a": "1", "b": [1, "2"], "c": 3}),
        ("a: !!timestamp 2026-11-18\n", {"a": "2026-11-18"}),
        ("a: &x [1]\nb: *x\nc: [*x]\n", {"a": [1], "b": [1], "c": [[1]]}),
        ("\ufeffa: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ],
)
def test_yaml_scalars_follow_version_1_2(text: str, value: Any) -> None:
    assert read_yaml(text.encode()) == value


_ALIASES = b"".join(b"%c: &%c [%b]\n" % (98 + n, 98 + n, b", ".join([b"*%c" % (97 + n)] * 8)) for n in range(9))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: \xff", "byte 3: not UTF-8"),
        (b"a: b: c\n", "line 1: mapping values"),
        (b"a: 1\n---\nb: 2\n", "line 2: but found another document"),
        (b"a: *b\n", "line 1: found undefined alias"),
        (b"a: &b [*b]\n", "line 1: too many aliases"),
        (b"? [a]\n: b\n", "line 1: a key that is not a scalar"),
        (b"a: !!binary 'abc'\n", "failed to decode base64"),
        (b"a: !!python/object/apply:os.system ['true']\n", "could not determine"),
        (b"a: !custom b\n", "could not determine"),
        (b"a: !!set {b}\n", "could not determine"),
        (b"a: !!int b\n", "does not fit its tag"),
        (b"a: !!bool b\n", "does not fit its tag"),
        (b"a: \x00\n", "control characters are not allowed"),
        (b"- " * 80 + b"a\n", "nested too deeply"),
        (b"a: " + b"[" * 80, "nested too deeply"),
        (b"a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + _ALIASES, "too many aliases, or one inside an anchor"),
    ],
)
def test_yaml_outside_the_bounds_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(TapeError, match=message) as raised:
        read_yaml(data)
    assert "\n" not in str(raised.value)


def test_missing_pyyaml_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vcr, "HAS_YAML", False)
    with pytest.raises(TapeError, match=r"wiretape\[vcr\]"):
        read(SAMPLES["vcr"][0])
