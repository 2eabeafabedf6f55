"""Bodies that came compressed are sealed and matched decoded; unreadable bytes are not kept."""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from tests.replay.canaries import CANARIES
from tests.replay.made import checked, codes, deck_of, live
from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record
from wiretape.proxy.cli.main import app
from wiretape.replay.compare.compare import compare
from wiretape.replay.matching.match import Taken
from wiretape.replay.playback.script import Request, script_of
from wiretape.replay.redaction import plain_text as coded
from wiretape.replay.redaction.plain_text import opened, plain_body, unreadable
from wiretape.replay.seal import EXACT, Rules, seal
from wiretape.replay.sealed.files import parse

KEY: Final = CANARIES["openai"]
JSON: Final = "application/json"
BODY: Final = b'{"model":"m","input":"use %b please"}' % KEY.encode()
CLEAN: Final = b'{"model":"m","input":"hello"}'
PATH: Final = "/v1/responses"


def layered(data: bytes, layers: int) -> bytes:
    for _ in range(layers):
        data = zlib.compress(data)
    return data


def utf(name: str) -> Callable[[bytes], bytes]:
    return lambda data: data.decode().encode(name)


#: By name: content type, coding, and how it is made.
CODED: Final[dict[str, tuple[str, str, Callable[[bytes], bytes]]]] = {
    "gzip": (JSON, "gzip", gzip.compress),
    "gzip by another name": (JSON, "X-Gzip", gzip.compress),
    "gzip of two members": (JSON, "gzip", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "gzip twice": (JSON, "gzip, gzip", lambda data: gzip.compress(gzip.compress(data))),
    "deflate": (JSON, "deflate", zlib.compress),
}
#: Bodies that cannot be decoded, and why.
CLOSED: Final[dict[str, tuple[str, bytes, str]]] = {
    "brotli": ("br", b"\x0b\x0e\x80" + KEY.encode() + b"\x03", "coding"),
    "zstd": ("zstd", b"\x28\xb5\x2f\xfd" + KEY.encode(), "coding"),
    "brotli in gzip": ("br, gzip", gzip.compress(b"\x0b\x0e\x80" + KEY.encode()), "coding"),
    "no gzip": ("gzip", b"\x00" + KEY.encode(), "damaged"),
    "damaged": ("gzip", gzip.compress(BODY)[:-8] + bytes(8), "damaged"),
    "junk behind it": ("gzip", gzip.compress(BODY) + b"\x00junk", "damaged"),
    "UTF-16": ("", utf("utf-16")(BODY), "coding"),
    "UTF-16 without its mark": ("", utf("utf-16-le")(BODY), "coding"),
    "UTF-32 in gzip": ("gzip", gzip.compress(utf("utf-32")(BODY)), "coding"),
    "gzip without its header": ("", gzip.compress(BODY), "coding"),
    "gzip twice, stated once": ("gzip", gzip.compress(gzip.compress(BODY)), "coding"),
    "deflate without its header": ("", zlib.compress(BODY), "coding"),
    "six layers": (", ".join(["deflate"] * 6), layered(BODY, 6), "coding"),
}


def headers(kind: str, coding: str) -> list[list[str]]:
    return [["content-type", kind]] + ([["content-encoding", coding]] if coding else [])


def asked(body: bytes, kind: str = JSON, coding: str = "", *, uploaded: bool = False) -> list[Record]:
    """An exchange; with `uploaded` its request came in three pieces."""
    keys: dict[str, Any] = {"method": "POST", "path": PATH, "headers": headers(kind, coding)}
    pieces = [body[:7], body[7:11], body[11:]] if uploaded else []
    request = Record(1, 0, "request", {**keys, "streamed": True} if uploaded else keys, None if uploaded else body)
    begun = [Record(0, 0, "open", {"format": 1, "dialect": "", "created": 1_795_000_000}), request]
    begun += [Record(2 + at, 5 + at, "upload", {}, piece) for at, piece in enumerate(pieces)]
    return [*begun, Record(len(begun), 10, "attempt", {"number": 1, "upstream": "u"})]


def answered(
    records: Sequence[Record], body: bytes, kind: str = JSON, coding: str = "", *, read_bytes: int = 9
) -> list[Record]:
    """In reads of so many bytes."""
    new = [*records, Record(len(records), 20, "head", {"status": 200, "headers": headers(kind, coding)})]
    for at in range(0, len(body), read_bytes):
        new.append(Record(len(new), 30 + at, "body", {}, body[at : at + read_bytes]))
    said = {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest(), "framed": True}
    return [*new, Record(len(new), 10**9, "end", {"cause": "framed", "ending": "completed", "flags": [], **said})]


def whole(body: bytes, kind: str = JSON, coding: str = "", *, uploaded: bool = False) -> list[Record]:
    return answered(asked(body, kind, coding, uploaded=uploaded), b'{"id":"resp_1"}')


def request_of(body: bytes, kind: str = JSON, coding: str = "") -> Request:
    rows = [(name.encode(), value.encode()) for name, value in headers(kind, coding)]
    return Request(b"POST", PATH.encode(), rows, body)


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uploaded", [False, True], ids=["whole", "uploaded"])
@pytest.mark.parametrize("name", sorted(CODED))
def test_coded_request_is_sealed_decoded(name: str, uploaded: bool) -> None:
    kind, coding, make = CODED[name]
    records = whole(make(BODY), kind, coding, uploaded=uploaded)
    found = checked(seal([records]))
    assert found.header["exact"] is False
    [new] = found.streams
    said = b"".join(record.raw or b"" for record in new if record.kind in ("request", "upload"))
    assert said == b'{"model":"m","input":"use [redacted-openai-1] please"}'
    [plain] = parse(seal([whole(BODY, kind.partition(";")[0], uploaded=uploaded)])).streams
    assert new[1].keys["key"] == plain[1].keys["key"]
    words = {*coding.lower().split(", ")} - {""}
    assert words <= {*new[1].keys["decoded"].split(", ")}
    assert list(compare([records], [opened([records])[0]], "bytes")) == []
    with pytest.raises(TapeError, match="would hold 1 secrets"):
        seal([records], EXACT)
    assert codes(live(records)) == ["unsealed", "secret"]
    deck = deck_of([new], header=found.header)
    assert isinstance(deck.take(request_of(make(BODY), kind, coding)), Taken)


def test_plain_text_with_wrong_headers_is_kept() -> None:
    for coding, kind in (("gzip", JSON), ("br", JSON), ("", JSON + "; charset=utf-16"), ("aws-chunked", "text/plain")):
        records = whole(BODY, kind, coding)
        assert unreadable([records]) == []
        [new] = parse(seal([records])).streams
        assert b"[redacted-openai-1]" in (new[1].raw or b"")
        assert "decoded" not in new[1].keys
        assert plain_body([("content-type", kind), ("content-encoding", coding)], BODY) == BODY
    sound = b"\xff\xfe" + bytes(range(200))
    assert plain_body([("content-type", "audio/mpeg")], sound) == sound
    assert plain_body([("content-type", JSON)], b"\x00\x01\x02") == b"\x00\x01\x02"


def test_cut_request_is_decoded_as_far_as_it_goes() -> None:
    body = b'{"input":"%b","more":"' % KEY.encode() + bytes(range(0x30, 0x7A)) * 9
    sealed = seal([whole(gzip.compress(body)[:-9], coding="gzip")])
    assert KEY.encode() not in sealed
    assert b'"input":"[redacted-openai-1]' in (parse(sealed).streams[0][1].raw or b"")
    assert codes(sealed) == []


@pytest.mark.parametrize("uploaded", [False, True], ids=["whole", "uploaded"])
@pytest.mark.parametrize("name", sorted(CLOSED))
def test_unreadable_request_is_not_kept(name: str, uploaded: bool) -> None:
    coding, body, why = CLOSED[name]
    records = whole(body, JSON, coding, uploaded=uploaded)
    [one] = unreadable([records])
    assert (one.stream, one.n, one.whose, one.why) == (0, 1, "request", why)
    assert "unread" in codes(live(records))
    assert "unread" in codes(seal([records], Rules(exact=True, secrets_allowed=True)))
    with pytest.raises(TapeError, match=r"An exact tape may hold secrets|would hold 1 secrets"):
        seal([records], EXACT)
    _, [new] = checked(seal([records]))
    assert not [record for record in new if record.kind in ("request", "upload") and record.raw]
    sha256 = hashlib.sha256(body).hexdigest()
    said = new[1].keys
    assert (said["unreadable"], said["bytes"], said["sha256"]) == (why, len(body), sha256)
    assert isinstance(deck_of([new]).take(request_of(body, coding=coding)), Taken)
    assert not isinstance(deck_of([new]).take(request_of(body + b"\x00", coding=coding)), Taken)


def test_decompression_bombs_are_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    def why(limit: str, bytes_max: int, *texts: bytes) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(coded, limit, bytes_max)
            return [one.why for one in unreadable([whole(gzip.compress(text), coding="gzip") for text in texts])]

    assert why("_BODY_BYTES_MAX", 1_000, b"a" * 1_000) == []
    assert why("_BODY_BYTES_MAX", 1_000, b"a" * 1_001) == ["size"]
    assert why("_FILE_BYTES_MAX", 1_000, b"a" * 500, b"a" * 500) == []
    assert why("_FILE_BYTES_MAX", 1_000, b"a" * 500, b"a" * 501) == ["size"]
    layers = b"a" * 2_000_000
    for _ in range(5):
        layers = gzip.compress(layers)
    headers = [("content-encoding", ", ".join(["gzip"] * 5))]
    assert plain_body(headers, layers) == b"a" * 2_000_000
    assert plain_body([("content-encoding", ", ".join(["gzip"] * 6))], gzip.compress(layers)) == gzip.compress(layers)


def test_gzip_of_too_many_members_is_unreadable() -> None:
    headers = [("content-encoding", "gzip")]
    some = gzip.compress(b"", mtime=0) * 9_000 + gzip.compress(CLEAN)
    assert plain_body(headers, some) == CLEAN
    assert plain_body(headers, some * 2) == some * 2
    assert [one.why for one in unreadable([whole(some * 2, coding="gzip")])] == ["size"]


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CODED))
def test_coded_answer_is_sealed_decoded(name: str) -> None:
    kind, coding, make = CODED[name]
    harmless = answered(asked(CLEAN), make(b'{"output":"nothing"}'), kind, coding)
    [new] = parse(seal([harmless])).streams
    assert b"".join(record.raw or b"" for record in new if record.kind == "body") == b'{"output":"nothing"}'
    assert parse(seal([harmless], EXACT)).streams == [harmless]
    assert codes(seal([harmless])) == codes(seal([harmless], EXACT)) == []

    records = answered(asked(CLEAN), make(b'{"output":"%b"}' % KEY.encode()), kind, coding)
    with pytest.raises(TapeError, match="would hold 1 secrets"):
        seal([records], EXACT)
    _, [new] = checked(seal([records]))
    script = script_of(new)
    assert (
        b"".join(step.what for step in script.steps if isinstance(step.what, bytes))
        == b'{"output":"[redacted-openai-1]"}'
    )
    assert b"content-encoding" not in [name for name, _ in script.headers]
    assert new[-1].keys["sha256"] == hashlib.sha256(b'{"output":"[redacted-openai-1]"}').hexdigest()


@pytest.mark.parametrize("name", sorted(CLOSED))
def test_unreadable_answer_is_not_kept(name: str) -> None:
    coding, body, why = CLOSED[name]
    records = answered(asked(CLEAN), body, JSON, coding)
    assert [(one.whose, one.why) for one in unreadable([records])] == [("answer", why)]
    _, [new] = checked(seal([records]))
    script = script_of(new)
    [said] = [step.what for step in script.steps if isinstance(step.what, bytes) and step.what]
    assert said.decode() == f"[unreadable: {why}, {len(body)} bytes, sha256 {hashlib.sha256(body).hexdigest()}]"
    assert b"content-encoding" not in [name for name, _ in script.headers]


@pytest.mark.parametrize("claim", ["gzip", "br", ""])
@pytest.mark.parametrize("name", ["gzip", "deflate"])
@pytest.mark.parametrize("uploaded", [False, True])
def test_body_that_a_recorder_claims_to_have_decoded_is_not_kept(name: str, claim: str, *, uploaded: bool) -> None:
    kind, coding, make = CODED[name]
    records = whole(make(BODY), kind, coding, uploaded=uploaded)
    records[1] = records[1]._replace(keys={**records[1].keys, "decoded": claim})
    assert "unread" in codes(live(records))
    [new] = parse(seal([records])).streams
    assert not any(record.raw for record in new[1:5] if record.kind in ("request", "upload"))
    assert new[1].keys["unreadable"] == "coding"


# -- who reads it -----------------------------------------------------------------------------------------------------


def test_seal_reports_unreadable_bodies(tmp_path: Path) -> None:
    coding, body, _ = CLOSED["zstd"]
    (tmp_path / "a.tape").write_bytes(live(whole(body, JSON, coding)))
    run = CliRunner()
    done = run.invoke(app, ["seal", str(tmp_path / "a.tape"), "-o", str(tmp_path / "b.tape")])
    assert done.exit_code == 0
    assert done.stderr == "stream 1: the body of its request has an unknown coding: only its size and hash are kept\n"
    refused = run.invoke(app, ["seal", "--exact", str(tmp_path / "a.tape"), "-o", str(tmp_path / "c.tape")])
    assert refused.exit_code != 0
    allowed = ["seal", "--exact", "--allow-secrets", str(tmp_path / "a.tape"), "-o", str(tmp_path / "c.tape")]
    done = run.invoke(app, allowed)
    assert done.exit_code == 0
    assert "its bytes are kept" in done.stderr


def test_text_with_a_zero_byte_is_kept_and_wide_text_is_not() -> None:
    for body, kept in ((b"hello \0 world", True), ("中文 hello".encode("utf-16"), False)):
        [new] = checked(seal([whole(body, "text/plain")])).streams
        assert (new[1].raw == body) is kept
