"""Records as lines: the exact bytes of a line, and what of a hostile line is believed."""

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretape.events.core.json_text import ABSENT, dumps
from wiretape.events.core.limits import QUOTED_BYTES_MAX
from wiretape.events.tape.record import NO_KEYS, Record, Shape, decode, encode
from wiretape.events.wire.sse import BOM, parse_block


def sealed(body: bytes) -> bytes:
    """A line with the right checksum over any body, its LF left out."""
    return b'{"c":"%08x",%b' % (zlib.crc32(body), body)


def frame(raw: bytes, payload: bytes | None = None, value: Any = ABSENT, **keys: Any) -> Record:
    return Record(3, 5, "frame", keys, raw, payload, value)


LINES: Final[dict[str, tuple[Record, bytes]]] = {
    "a canonical frame is one concatenation": (
        frame(b'data: {"a":1}\n\n', b'{"a":1}', {"a": 1}),
        b'{"c":"67b38ea6","n":3,"t":5,"k":"frame","data":{"a":1}}',
    ),
    "spaces of the payload are kept": (
        frame(b"data:  [1, 2] \n\n", b" [1, 2] ", [1, 2]),
        b'{"c":"961ecfbc","n":3,"t":5,"k":"frame","data": [1, 2] }',
    ),
    "big integers, repeated keys and escapes are kept": (
        frame(
            b'data: {"a":123456789012345678901,"a":"\\u00e9","\\/":1E2}\n\n',
            b'{"a":123456789012345678901,"a":"\\u00e9","\\/":1E2}',
            {"a": "é", "/": 100.0},
        ),
        b'{"c":"783474a2","n":3,"t":5,"k":"frame","data":{"a":123456789012345678901,"a":"\\u00e9","\\/":1E2}}',
    ),
    "a payload that looks like the end of a head": (
        frame(b'data: {"x":1,"data":{"data":2}}\n\n', b'{"x":1,"data":{"data":2}}', {"x": 1, "data": {"data": 2}}),
        b'{"c":"4a9df5e7","n":3,"t":5,"k":"frame","data":{"x":1,"data":{"data":2}}}',
    ),
    "a payload that is a string": (
        frame(b'data: "}"\n\n', b'"}"', "}"),
        b'{"c":"8021217b","n":3,"t":5,"k":"frame","data":"}"}',
    ),
    "an event": (
        frame(b"event: \xc3\xa9\ndata: 1\n\n", b"1", 1, event="é"),
        '{"c":"73c2eaa6","n":3,"t":5,"k":"frame","event":"é","data":1}'.encode(),
    ),
    "an event of no name": (
        frame(b"event: \ndata: 1\n\n", b"1", 1, event=""),
        b'{"c":"f536fe47","n":3,"t":5,"k":"frame","event":"","data":1}',
    ),
    "another way of writing it": (
        frame(b"data:1\r\n\r\n", b"1", 1, sse=["data:", "\r\n\r\n"]),
        b'{"c":"f44f2eab","n":3,"t":5,"k":"frame","sse":["data:","\\r\\n\\r\\n"],"data":1}',
    ),
    "a BOM": (
        frame(BOM + b"data: 1\n\n", b"1", 1, bom=True, sse=["\ufeffdata: ", "\n\n"]),
        '{"c":"5ecd3f4e","n":3,"t":5,"k":"frame","bom":true,"sse":["\ufeffdata: ","\\n\\n"],"data":1}'.encode(),
    ),
    "cuts": (
        frame(b"data: 1\n\n", b"1", 1, cuts=[[1, 2], [4, 9]]),
        b'{"c":"b82e2b06","n":3,"t":5,"k":"frame","cuts":[[1,2],[4,9]],"data":1}',
    ),
    "a comment": (
        frame(b": \xf0\x9f\x90\x8d\n\n"),
        '{"c":"ce3bcaca","n":3,"t":5,"k":"frame","raw":": 🐍\\n\\n"}'.encode(),
    ),
    "bytes that are not UTF-8": (frame(b": \xff\n\n"), b'{"c":"df3e7bad","n":3,"t":5,"k":"frame","b64":"OiD/Cgo="}'),
    "a record without bytes": (Record(0, 0, "keepalive"), b'{"c":"0c709f73","n":0,"t":0,"k":"keepalive"}'),
    "a kind that we do not know, with keys": (
        Record(9, 9, 'of "theirs"', {"a": {"data": [None]}, "bom": 1, "cuts": "as they like"}),
        b'{"c":"3d371c78","n":9,"t":9,"k":"of \\"theirs\\"","a":{"data":[null]},"bom":1,"cuts":"as they like"}',
    ),
    "a body that is JSON": (
        Record(1, 2, "request", {"method": "POST"}, b'{"x": 1}', b'{"x": 1}', {"x": 1}),
        b'{"c":"b69e826e","n":1,"t":2,"k":"request","method":"POST","data":{"x": 1}}',
    ),
    "a body with a CR": (
        Record(1, 2, "body", {}, b"{\r}", b"{\r}", {}),
        b'{"c":"430f6059","n":1,"t":2,"k":"body","data":{\r}}',
    ),
    "a body that is no JSON": (
        Record(1, 2, "body", {}, b"<html>\n"), b'{"c":"c7cf16d6","n":1,"t":2,"k":"body","raw":"<html>\\n"}'
    ),
    "an empty body": (Record(1, 2, "body", {}, b""), b'{"c":"751ccfca","n":1,"t":2,"k":"body","raw":""}'),
    "lone surrogates and what looks like a payload, in a key": (
        Record(1, 2, "head", {"a": '\ud83d,"data":1'}),
        b'{"c":"98563edb","n":1,"t":2,"k":"head","a":"\\ud83d,\\"data\\":1"}',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("record", "line"), LINES.values(), ids=LINES.keys())
def test_a_record_is_this_line_and_comes_back(record: Record, line: bytes) -> None:
    assert encode(record) == line + b"\n"
    assert line == sealed(line[16:])
    assert decode(line) == record
    assert json.loads(line) is not None  # for jq


@pytest.mark.parametrize("keys", [{"n": 1}, {"raw": ""}, {"b64": ""}, {"data": 1}, {"c": 1}, {"k": 1}, {"t": 1}])
def test_a_key_of_the_format_is_not_for_others(keys: Mapping[str, Any]) -> None:
    with pytest.raises(AssertionError, match="reserved key"):
        encode(Record(0, 0, "x", keys))


def test_a_nested_key_that_would_hide_the_payload_is_refused() -> None:
    with pytest.raises(AssertionError, match="would hide the payload"):
        encode(Record(0, 0, "x", {"a": {"b": 1, "data": 2}}))


def test_a_record_without_keys_shares_one_empty_mapping() -> None:
    for line in (b'"n":0,"t":0,"k":"x"}', b'"n":0,"t":0,"k":"x","raw":"a"}', b'"n":0,"t":0,"k":"frame","data":1}',
                 b'"n":0,"t":0,"k":"x","data":1}', b'"n":0,"t":0,"k":"x","b64":"YQ=="}'):  # fmt: skip
        record = decode(sealed(line))
        assert isinstance(record, Record)
        assert record.keys is NO_KEYS


FRAMES: Final = {
    "canonical": frame(b"data: 1\n\n", b"1", 1),
    "event": frame(b"event: e\ndata: 1\n\n", b"1", 1, event="e"),
    "comment": frame(b": 1\n\n"),
    "BOM at the start": frame(BOM + b"data: 1\n\n", b"1", 1, bom=True, sse=["\ufeffdata: ", "\n\n"]),
    "id": frame(b"id: 7\n\n"),
    "BOM elsewhere": frame(BOM + b"data: 1\n\n"),
}


@pytest.mark.parametrize("record", FRAMES.values(), ids=FRAMES.keys())
def test_a_record_gives_its_frame(record: Record) -> None:
    assert record.raw is not None
    assert record.frame() == parse_block(record.raw, first="bom" in record.keys)


def test_a_record_without_bytes_is_no_frame() -> None:
    with pytest.raises(AssertionError, match="record 4 of kind rest carries no frame"):
        Record(4, 0, "rest").frame()


NO_RECORD: Final = {
    "empty": b"",
    "no object": b"[]",
    "JSON of somebody else": b'{"n":0,"t":0,"k":"x"}',
    "another first key": b'{"d":"00000000","n":0,"t":0,"k":"x"}',
    "a checksum of another length": b'{"c":"0000000","n":0,"t":0,"k":"x"}',
    "a tilde behind the brace": sealed(b'"n":0,"t":0,"k":"x"}~'),
    "no brace at the end": sealed(b'"n":0,"t":0,"k":"x"} '),
}
NO_CHECKSUM: Final = {
    "another number": sealed(b'"n":0,"t":0,"k":"x"}').replace(b'"n":0', b'"n":1'),
    "another digit": b'{"c":"00000000","n":0,"t":0,"k":"x"}',
    "capital digits": b'{"c":"0C709F73","n":0,"t":0,"k":"keepalive"}',
}  # fmt: skip

HEAD: Final = b'"n":0,"t":5,"k":"frame"'
HEADS: Final = "n, t or k is not as it should be"
BYTES: Final = "its bytes are not as they should be"
#: With the right checksum: what a hostile or broken writer may say.
HOSTILE: Final = {
    "not JSON": (b"x}", "not a JSON object"),
    "nothing": (b"}", HEADS),
    "not JSON before data": (b'"n":0,"t":5,"k":"x","a":{"b":1,"data":2}}', "data is not JSON"),
    "a nested data with JSON behind it": (b'"n":0,"t":5,"k":"x","a":[1,"data":2}', "not a JSON object"),
    "data is not JSON": (HEAD + b',"data":{}', "data is not JSON"),
    "data is empty": (HEAD + b',"data":}', "data is not JSON"),
    "data with a key behind it": (HEAD + b',"data":1,"x":2}', "data is not JSON"),
    "data nested too deeply": (HEAD + b',"data":%b}' % (b"[" * 1025 + b"]" * 1025), "data is not JSON"),
    "data that is not UTF-8": (HEAD + b',"data":"\xff"}', "data is not JSON"),
    "data with a CR is two lines of SSE": (HEAD + b',"data":[\r]}', "not one frame"),
    "a nested key named data, with a space before it": (
        b'"n":0,"t":5,"k":"x","a":{"b":1, "data":2}}',
        "a nested key named data",
    ),
    "a nested key named data, escaped": (b'"n":0,"t":5,"k":"x","a":{"b":1,"\\u0064ata":2}}', "a nested key named data"),
    "a nested key named data, before data": (
        b'"n":0,"t":5,"k":"x","a":{"b":1, "data":2},"data":1}',
        "a nested key named data",
    ),
    "n is missing": (b'"t":5,"k":"x"}', HEADS),
    "t is missing": (b'"n":5,"k":"x"}', HEADS),
    "k is missing": (b'"n":5,"t":5}', HEADS),
    "k is missing before data": (b'"n":5,"t":5,"data":1}', HEADS),
    "n is true": (b'"n":true,"t":5,"k":"x"}', HEADS),
    "t is false": (b'"n":0,"t":false,"k":"x"}', HEADS),
    "n is a float": (b'"n":0.0,"t":5,"k":"x"}', HEADS),
    "n is negative": (b'"n":-1,"t":5,"k":"x"}', HEADS),
    "t is negative": (b'"n":1,"t":-1,"k":"x"}', HEADS),
    "n is huge": (b'"n":1%b,"t":5,"k":"x"}' % (b"0" * 18), HEADS),
    "t is one more than huge": (b'"n":0,"t":%d,"k":"x"}' % (10**18 + 1), HEADS),
    "t is huge": (b'"n":0,"t":1%b,"k":"x"}' % (b"0" * 5000), HEADS),
    "n of a frame is huge": (b'"n":1%b,"t":5,"k":"frame","data":1}' % (b"0" * 18), HEADS),
    "k is a number": (b'"n":0,"t":5,"k":1}', HEADS),
    "bytes twice, data and raw": (b'"n":0,"t":5,"k":"x","raw":"","data":1}', "carries its bytes twice"),
    "bytes twice, data and b64": (HEAD + b',"b64":"","data":1}', "carries its bytes twice"),
    "bytes twice, raw and b64": (HEAD + b',"raw":"","b64":""}', BYTES),
    "raw is null": (HEAD + b',"raw":null}', BYTES),
    "raw is a number": (HEAD + b',"raw":1}', BYTES),
    "raw with a lone surrogate": (HEAD + b',"raw":"\\ud800\\n\\n"}', BYTES),
    "b64 that is none": (HEAD + b',"b64":"a"}', BYTES),
    "b64 with spaces": (HEAD + b',"b64":"OiD/ Cgo="}', BYTES),
    "b64 of letters that are not ASCII": (HEAD + ',"b64":"é"}'.encode(), BYTES),
    "c twice": (HEAD + b',"c":"00000000"}', BYTES),
    "c and raw": (HEAD + b',"c":"00000000","raw":":\\n\\n"}', BYTES),
    "c and b64": (HEAD + b',"c":"00000000","b64":"OiD/Cgo="}', BYTES),
    "a frame without bytes": (HEAD + b"}", "not one frame"),
    "sse is null": (HEAD + b',"sse":null,"data":1}', "not one frame"),
    "sse is a string of two": (HEAD + b',"sse":"ab","data":1}', "not one frame"),
    "sse is an object of two": (HEAD + b',"sse":{"data: ":1,"\\n\\n":2},"data":1}', "not one frame"),
    "sse of one": (HEAD + b',"sse":["data: "],"data":1}', "not one frame"),
    "sse of three": (HEAD + b',"sse":["data: ","\\n\\n",""],"data":1}', "not one frame"),
    "sse of a number": (HEAD + b',"sse":["data: ",1],"data":1}', "not one frame"),
    "sse with a lone surrogate": (HEAD + b',"sse":["\\ud800\\ndata: ","\\n\\n"],"data":1}', "not one frame"),
    "event is a number": (HEAD + b',"event":1,"data":1}', "not one frame"),
    "event is null": (HEAD + b',"event":null,"data":1}', "not one frame"),
    "event with a lone surrogate": (HEAD + b',"event":"\\ud800","data":1}', "not one frame"),
    "event beside sse": (HEAD + b',"event":"e","sse":["data: ","\\n\\n"],"data":1}', "not one frame"),
    "event of two lines": (HEAD + b',"event":"e\\ndata: 2","data":1}', "not one frame"),
    "event with a blank line": (HEAD + b',"event":"e\\n","data":1}', "not one frame"),
    "sse that makes a comment of it": (HEAD + b',"sse":[": ","\\n\\n"],"data":1}', "not one frame"),
    "sse that ends nothing": (HEAD + b',"sse":["data: ","\\n"],"data":1}', "not one frame"),
    "sse that ends it twice": (HEAD + b',"sse":["data: ","\\n\\n\\n"],"data":1}', "not one frame"),
    "a BOM that is not said": (HEAD + b',"sse":["\xef\xbb\xbfdata: ","\\n\\n"],"data":1}', "not one frame"),
    "raw of no frame": (HEAD + b',"raw":": a\\n"}', "not one frame"),
    "raw of two frames": (HEAD + b',"raw":": a\\n\\n: b\\n\\n"}', "not one frame"),
    "raw of nothing": (HEAD + b',"raw":""}', "not one frame"),
    "b64 of no frame": (HEAD + b',"b64":"YQ=="}', "not one frame"),
}  # fmt: skip


@pytest.mark.parametrize("line", NO_RECORD.values(), ids=NO_RECORD.keys())
def test_is_not_a_record(line: bytes) -> None:
    assert decode(line) == "not a record"


@pytest.mark.parametrize("line", NO_CHECKSUM.values(), ids=NO_CHECKSUM.keys())
def test_its_checksum_does_not_match(line: bytes) -> None:
    assert decode(line) == "checksum does not match"


@pytest.mark.parametrize(("body", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
def test_is_not_believed(body: bytes, reason: str) -> None:
    assert decode(sealed(body)) == reason


def with_cuts(cuts: bytes, kind: bytes = b"frame", raw: bytes = b'"raw":": a\\n\\n"') -> Record | str:
    return decode(sealed(b'"n":0,"t":5,"k":"%b","cuts":%b,%b}' % (kind, cuts, raw)))


@pytest.mark.parametrize("cuts", [b"[]", b"[[0,1]]", b"[[4,5]]", b"[[0,1],[1,2],[2,3],[3,4],[4,5]]"], ids="{}".format)
@pytest.mark.parametrize("kind", [b"frame", b"rest", b"body", b"of theirs"])
def test_cuts_inside_the_bytes_are_believed(cuts: bytes, kind: bytes) -> None:
    record = with_cuts(cuts, kind)
    assert isinstance(record, Record)
    assert record.keys["cuts"] == json.loads(cuts)


WRONG_CUTS: Final = {
    "null": b"null",
    "an object": b"{}",
    "of a number": b"[1]",
    "of one": b"[[1]]",
    "of three": b"[[1,2,3]]",
    "of strings": b'["12"]',
    "a boolean as time": b"[[true,2]]",
    "a boolean as place": b"[[1,true]]",
    "a negative time": b"[[-1,2]]",
    "a float as place": b"[[1,2.0]]",
    "a huge place": b"[[1,1%b]]" % (b"0" * 5000),
    "at the very start": b"[[1,0]]",
    "beyond the bytes": b"[[1,6]]",
    "places not increasing": b"[[1,2],[2,2]]",
    "places running backwards": b"[[1,3],[2,2]]",
    "times not increasing": b"[[1,2],[1,3]]",
    "times running backwards": b"[[3,2],[2,3]]",
    "as late as the frame itself": b"[[5,2]]",
    "later than the frame itself": b"[[6,2]]",
    "only the last is wrong": b"[[1,2],[2,3],[5,4]]",
}


@pytest.mark.parametrize("cuts", WRONG_CUTS.values(), ids=WRONG_CUTS.keys())
@pytest.mark.parametrize("kind", [b"frame", b"rest", b"body"])
def test_cuts_that_cannot_be_are_not_believed(cuts: bytes, kind: bytes) -> None:
    assert with_cuts(cuts, kind) == "cuts are not as they should be"


def test_other_kinds_may_call_anything_cuts() -> None:
    assert with_cuts(b"null", b"of theirs") == Record(0, 5, "of theirs", {"cuts": None}, b": a\n\n")


def test_cuts_of_nothing_are_not_believed() -> None:
    assert decode(sealed(b'"n":0,"t":5,"k":"rest","cuts":[[1,1]]}')) == "cuts are not as they should be"
    assert decode(sealed(b'"n":0,"t":5,"k":"rest","cuts":[]}')) == Record(0, 5, "rest", {"cuts": []})
    assert decode(sealed(HEAD + b',"cuts":[[1,10]],"data":1}')) == "cuts are not as they should be"


@given(line=st.binary(max_size=80))
def test_any_bytes_are_a_record_or_not(line: bytes) -> None:
    assert decode(line) == "not a record"
    assert isinstance(decode(sealed(line)), Record | str)
    assert isinstance(decode(sealed(HEAD + b"," + line + b"}")), Record | str)


KEYS: Final = st.dictionaries(
    st.sampled_from(["a", "settings", "é", "sse", "event", "cuts", "bom"]), st.text() | st.none(), max_size=3
)


@given(
    n=st.integers(0, 10**18 - 1), t=st.integers(0, 10**18 - 1), kind=st.text(), keys=KEYS, raw=st.none() | st.binary()
)
def test_any_record_of_another_kind_comes_back(
    n: int, t: int, kind: str, keys: dict[str, Any], raw: bytes | None
) -> None:
    record = Record(n, t, kind + "+", keys, raw)
    assert decode(encode(record)[:-1]) == record


@pytest.mark.parametrize("more", [-1, 0, 1, 2, 5])
def test_many_raw_bytes_are_the_same_json_as_few(more: int) -> None:
    raw = b": " + b"x" * (QUOTED_BYTES_MAX - 4 + more) + 'é🎉\n"'.encode() + b"\n\n"
    record = Record(0, 0, "rest", {}, raw)
    assert encode(record).partition(b'"raw":')[2] == dumps(raw.decode()) + b"}\n"
    for torn in (raw + b"\xff", b"x" * (QUOTED_BYTES_MAX - 1) + b"\xc3"):
        assert b'"b64":' in encode(record._replace(raw=torn))


SHAPE = Shape((b'{"id":"content","content":"', b'","n":[]}'), 0)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":1}',
        b"[]",
        b'{"content":""}',
        b'{"content":null,"name":"x"}',
        b'{"content":"x","usage":{"total_tokens":1}}',
        rb'{"id":"\"content\":\"x\""}',
    ],
)
def test_payload_without_streamed_text_has_no_shape(payload: bytes) -> None:
    assert Shape.of(payload) is None


@pytest.mark.parametrize("text", ["", "x", "é🎉", r"\n\"\\", "a" * 9_999])
def test_shape_fits_any_text_in_its_place(text: str) -> None:
    assert Shape.of(b'{"id":"content","content":"x","n":[]}') == SHAPE
    assert SHAPE.texts(text.encode().join(SHAPE.pieces)) == [text.encode()]


@pytest.mark.parametrize("payload", [b'{"p":"%b","content":"%b"}', b'{"content":"%b", "obfuscation": "%b"}'])
def test_shape_fits_any_padding(payload: bytes) -> None:
    shape = Shape.of(payload % (b"x", b"x"))
    assert shape is not None
    assert shape.place == (1 if b'"p"' in payload else 0)
    assert shape.texts(payload % (b"text", b"")) == [b"text", b""]
    assert shape.texts(payload % (b"te\\u0078t", b"")) is None


@pytest.mark.parametrize(
    "text", [b'","content":"', b"\n", b"\\", b"\\u0041", b"\\x", b"\\/", b"\xff", b"\xed\xa0\x80", b'"', b"\x1f"]
)
def test_shape_rejects_text_that_needs_parsing(text: bytes) -> None:
    assert SHAPE.texts(text.join(SHAPE.pieces)) is None


def test_shape_rejects_other_payloads() -> None:
    payload = b"x".join(SHAPE.pieces)
    assert SHAPE.texts(payload) == [b"x"]
    assert SHAPE.texts(payload + b" ") is None
    assert SHAPE.texts(b" " + payload) is None
    assert Shape((b'{"content":"', b'"}'), 0).texts(b'{"content":"}') is None


def test_record_without_value_is_parsed_on_demand() -> None:
    record = frame(b'data: {"a":"x"}\n\n', b'{"a":"x"}')
    assert record.read().value == {"a": "x"}
    assert record.read().read() == record._replace(value={"a": "x"})


def test_shape_has_no_bytes_after_its_end() -> None:
    shape = Shape.of(b'{"content":"a"}')
    assert shape is not None
    assert shape.texts(b'{"content":"b"}') == [b"b"]
    assert shape.texts(b'{"content":"b"}"}') is None
