"""The codec against the WHATWG text: what is dispatched, what a frame holds, limits, and the same for any split."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wiretape.events.core.errors import LocalError
from wiretape.events.wire.sse import BOM, Decoder, Frame, encode, is_block, parse_block


class Dispatched(NamedTuple):
    """What a browser's `EventSource` would fire."""

    data: str
    type: str = "message"
    last_event_id: str = ""


def pieces(body: bytes, size: int) -> Iterator[bytes]:
    yield from (body[place : place + size] for place in range(0, len(body), size))


def framed(reads: Iterator[bytes] | list[bytes], decoder: Decoder | None = None) -> tuple[list[Frame], bytes, str]:
    """The frames of a whole body, what is left, and the limit that it met."""
    decoder = decoder or Decoder()
    frames: list[Frame] = []
    for read in reads:
        if decoder.overflow:
            break
        frames += decoder.feed(read)
    frames += decoder.close()
    return frames, decoder.rest, decoder.overflow


def dispatched(body: bytes, size: int) -> list[Dispatched]:
    """The standard's dispatch over our frames: only the id outlives a frame."""
    last_event_id, events = "", list[Dispatched]()
    frames, rest, _ = framed(pieces(body, size))
    assert b"".join(frame.raw for frame in frames) + rest == body
    for frame in frames:
        last_event_id = last_event_id if frame.id is None else frame.id.decode("utf-8", "replace")
        if frame.payload is not None:
            data = frame.payload.decode("utf-8", "replace")
            events.append(Dispatched(data, frame.event.decode() or "message", last_event_id))
    return events


def data(*payloads: str) -> list[Dispatched]:
    return [Dispatched(payload) for payload in payloads]


# Transcribed from web-platform-tests eventsource/ (the `message=` of each file and the data it expects). Where its
# server adds the last blank line by itself, this table has it.
WPT: Final = {
    "event-data": (
        b"data:msg\ndata: msg\n\n:\nfalsefield:msg\n\nfalsefield:msg\nData:data\n\ndata\n\ndata:end\n\n",
        data("msg\nmsg", "", "end"),
    ),
    "format-bom: one BOM is skipped": (BOM + b"data:1\n\ndata:2\n\ndata:3\n\n", data("1", "2", "3")),
    "format-bom-2: a second BOM is part of the field's name": (
        BOM + BOM + b"data:1\n\ndata:2\n\ndata:3\n\n",
        data("2", "3"),
    ),
    "format-comments": (
        b"data:1\r:\0\n:\r\ndata:2\n:%b\rdata:3\n:data:fail\r:%b\ndata:4\n\n" % (b"long" * 512, b"long" * 512),
        data("1\n2\n3\n4"),
    ),
    "format-data-before-final-empty-line: no dispatch at the end": (
        b"retry:1000\ndata:test1\n\nid:test\ndata:test2",
        data("test1"),
    ),
    "format-field-data": (b"data:\n\ndata\ndata\n\ndata:test\n\n", data("", "\n", "test")),
    "format-field-event": (b"event:test\ndata:x\n\ndata:x\n\n", [Dispatched("x", "test"), Dispatched("x")]),
    "format-field-event-empty": (b"event: \ndata:data\n\n", data("data")),
    "format-field-id": (
        b"id: 1\ndata:1\n\ndata:2\n\n",
        [Dispatched("1", last_event_id="1"), Dispatched("2", last_event_id="1")],
    ),
    "format-field-id-2: an empty id resets it": (
        b"id: 1\ndata: 1\n\nid\ndata:2\n\nid:3\ndata:3\n\ndata:4\n\n",
        [
            Dispatched("1", last_event_id="1"),
            Dispatched("2", last_event_id=""),
            Dispatched("3", last_event_id="3"),
            Dispatched("4", last_event_id="3"),
        ],
    ),
    "format-field-id-3: an id counts without data": (b"id: 1\n\ndata: 2\n\n", [Dispatched("2", last_event_id="1")]),
    "format-field-id-null: an id with NUL is ignored": (
        b"id: 1\ndata:0\n\nid: 2\x00\ndata:1\n\nid: \x003\ndata:2\n\n",
        [Dispatched(payload, last_event_id="1") for payload in "012"],
    ),
    "format-field-parsing": (
        (
            b"data:\0\ndata:  2\rData:1\ndata\0:2\ndata:1\r\0data:4\nda-ta:3\rdata_5\ndata:3\rdata:\r\n data:32\n"
            b"data:4\n\n"
        ),
        data("\0\n 2\n1\n3\n\n4"),
    ),
    "format-field-retry": (b"retry:03000\ndata:x\n\n", data("x")),
    "format-field-unknown": (
        b"data:test\n data\ndata\nfoobar:xxx\njustsometext\n:thisisacommentyay\ndata:test\n\n",
        data("test\n\ntest"),
    ),
    "format-leading-space: only one is taken": (b"data:\ttest\rdata: \ndata:test\n\n", data("\ttest\n\ntest")),
    "format-newlines": (b"data:test\r\ndata\ndata:test\r\n\r\n", data("test\n\ntest")),
    "format-null-character: NUL is data": (b"data:\0\n\n\n\n", data("\0")),
    "format-utf-8": ("data:ok…\n\n".encode(), data("ok…")),
}

# The examples in the standard's text.
WHATWG: Final = {
    "a one-line, a two-line, and a multi-line event": (
        b"data: The first message.\n\ndata: The second message, it\ndata: has two lines.\n\ndata: The third one.\n\n",
        data("The first message.", "The second message, it\nhas two lines.", "The third one."),
    ),
    "named events": (
        b"event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\nevent: add\ndata: 113411\n\n",
        [Dispatched("73857293", "add"), Dispatched("2153", "remove"), Dispatched("113411", "add")],
    ),
    "stocks: the lines are joined": (b"data: YHOO\ndata: +2\ndata: 10\n\n", data("YHOO\n+2\n10")),
    "test stream: comment, id set, id reset, leading space, no last blank line": (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n",
        [Dispatched("first event", last_event_id="1"), Dispatched("second event")],
    ),
    "empty data, two empty lines, and a block that never ends": (b"data\n\ndata\ndata\n\ndata:", data("", "\n")),
    "the space after the colon is optional": (b"data:test\n\ndata: test\n\n", data("test", "test")),
}

OURS: Final[dict[str, tuple[bytes, list[Dispatched]]]] = {
    "empty body": (b"", []),
    "stray blank lines": (b"\n\n\ndata: 1\n\n\n\n\ndata: 2\n\n\n", data("1", "2")),
    "a BOM in the middle is no BOM": (b"data: 1\n\n" + BOM + b"data: 2\n\ndata: 3\n\n", data("1", "3")),
    "a BOM inside data stays": (b"data: " + BOM + b"1\n\n", data("\ufeff1")),
    "a BOM behind a blank line is no BOM": (b"\n" + BOM + b"data: 1\n\ndata: 2\n\n", data("2")),
    "a BOM before stray blank lines": (BOM + b"\n\r\n\ndata: 1\n\ndata: 2\n\n", data("1", "2")),
    "half a BOM is part of the field's name": (BOM[:2] + b"data: 1\n\ndata: 2\n\n", data("2")),
    "a BOM in the middle is no BOM, CRLF": (b"data: 1\r\n\r\n" + BOM + b"data: 2\r\n\r\n", data("1")),
    "a comment alone": (b": keepalive\n\n:\n\ndata: 1\n\n", data("1")),
    "CR only": (b"data: 1\rdata: 2\r\rdata: 3\r\r", data("1\n2", "3")),
    "CRLF only": (b"data: 1\r\ndata: 2\r\n\r\ndata: 3\r\n\r\n", data("1\n2", "3")),
    "CRLF line, CR blank line": (b"data: 1\r\n\rdata: 2\r\n\r", data("1", "2")),
    "LF line, CR blank line": (b"data: 1\n\rdata: 2\n\r", data("1", "2")),
    "LF line, CRLF blank line": (b"data: 1\n\r\ndata: 2\n\r\n", data("1", "2")),
    "CR line, CRLF blank line": (b"data: 1\r\r\ndata: 2\r\r\n", data("1", "2")),
    "CR line, LF blank line is one line end, not two": (b"data: 1\r\ndata: 2\n\n", data("1\n2")),
    "CRLF line, LF blank line": (b"data: 1\r\n\ndata: 2\r\n\n", data("1", "2")),
    "LF until a CR comes late": (b"data: 1\n\ndata: 2\n\n\r\ndata: 3\r\n\r\n", data("1", "2", "3")),
    "other line ends of Unicode are none": (
        "data: a\u2028b\u2029c\x85d\x0be\x0cf\n\n".encode(),
        data("a\u2028b\u2029c\x85d\x0be\x0cf"),
    ),
    "not UTF-8": (
        b"data: \xff\xfe\n\nevent: \xc3\xa9\ndata: 2\n\n",
        [Dispatched("\ufffd\ufffd"), Dispatched("2", "é")],
    ),
    "the last event and id of a block count": (
        b"event: a\nevent: b\nid: 1\nid: 2\nretry: 1\nretry: 2\ndata: x\n\n",
        [Dispatched("x", "b", "2")],
    ),
    "an event without data is not dispatched and its name does not linger": (b"event: a\n\ndata: x\n\n", data("x")),
    "an id with NUL leaves the one before it in the same block": (
        b"id: 1\nid: 2\0\ndata: x\n\n",
        [Dispatched("x", "message", "1")],
    ),
    "fields are case-sensitive and take no space before the colon": (
        b"DATA: 1\ndata : 2\n data: 3\ndata: 4\n\n",
        data("4"),
    ),
}

CASES: Final = {**WPT, **WHATWG, **OURS}


@pytest.mark.parametrize("size", [1, 2, 3, 1 << 20], ids="in reads of {}".format)
@pytest.mark.parametrize(("body", "events"), CASES.values(), ids=CASES.keys())
def test_dispatches_as_the_standard_says(body: bytes, events: list[Dispatched], size: int) -> None:
    assert dispatched(body, size) == events
    assert framed(pieces(body, size)) == framed([body])


FRAMES: Final = {
    "canonical": (b"data: {}\n\n", Frame(b"data: {}\n\n", b"{}", canonical=True)),
    "canonical and empty": (b"data: \n\n", Frame(b"data: \n\n", b"", canonical=True)),
    "two spaces: one is payload": (b"data:  {}\n\n", Frame(b"data:  {}\n\n", b" {}", canonical=True)),
    "no space": (b"data:{}\n\n", Frame(b"data:{}\n\n", b"{}")),
    "CRLF": (b"data: {}\r\n\r\n", Frame(b"data: {}\r\n\r\n", b"{}")),
    "stray blank line before it": (b"\ndata: {}\n\n", Frame(b"\ndata: {}\n\n", b"{}")),
    "BOM before it": (BOM + b"data: {}\n\n", Frame(BOM + b"data: {}\n\n", b"{}")),
    "two lines": (b"data: {\ndata: }\n\n", Frame(b"data: {\ndata: }\n\n", b"{\n}")),
    "two lines that look canonical": (b"data: {\n}\n\n", Frame(b"data: {\n}\n\n", b"{")),
    "event": (b"event: e\ndata: {}\n\n", Frame(b"event: e\ndata: {}\n\n", b"{}", b"e", named=True)),
    "event without a name": (b"event: \ndata: {}\n\n", Frame(b"event: \ndata: {}\n\n", b"{}", named=True)),
    "event without a space": (b"event:e\ndata: {}\n\n", Frame(b"event:e\ndata: {}\n\n", b"{}", b"e")),
    "event and two lines": (b"event: e\ndata: {\n}\n\n", Frame(b"event: e\ndata: {\n}\n\n", b"{", b"e")),
    "event after data": (b"data: {}\nevent: e\n\n", Frame(b"data: {}\nevent: e\n\n", b"{}", b"e")),
    "event, id, retry": (
        b"event: e\nid: 7\nretry: 3\ndata: {}\n\n",
        Frame(b"event: e\nid: 7\nretry: 3\ndata: {}\n\n", b"{}", b"e", b"7"),
    ),
    "empty id": (b"id\n\n", Frame(b"id\n\n", None, b"", b"")),
    "comment": (b": {}\n\n", Frame(b": {}\n\n", None)),
    "data in another frame's middle": (b"x: y\ndata: {}\n\n", Frame(b"x: y\ndata: {}\n\n", b"{}")),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "frame"), FRAMES.values(), ids=FRAMES.keys())
def test_a_frame_holds_its_bytes_and_what_they_mean(raw: bytes, frame: Frame) -> None:
    assert framed([raw]) == ([frame], b"", "")
    assert framed([raw, b"data: 1\n\n"])[0][0] == frame
    assert framed(pieces(raw, 1)) == ([frame], b"", "")
    assert parse_block(raw, first=True) == frame
    assert is_block(raw, first=True)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
@pytest.mark.parametrize("strays", [1, 2, 3, 4])
def test_stray_blank_lines_belong_to_the_next_frame(strays: int, end: bytes) -> None:
    raws = [b"data: 1" + end * 2, end * strays + b"data: 2" + end * 2, end * strays + b": 3" + end * 2]
    frames, rest, _ = framed([b"".join(raws) + end * strays])
    assert [frame.raw for frame in frames] == raws
    assert rest == end * strays


def test_by_itself_a_block_does_not_start_a_body() -> None:
    assert parse_block(BOM + b"data: 1\n\n").payload is None
    assert parse_block(BOM + b"data: 1\n\n", first=True).payload == b"1"


def test_a_frame_after_another_one_is_the_same_frame() -> None:
    """The fast path and the slow one alternate within one read."""
    for raw, frame in list(FRAMES.values()):
        if raw.startswith(BOM):
            continue
        frames, rest, _ = framed([b"data: 1\n\n" + raw + b"data: 2\n\n" + raw + b"data: 3"])
        assert [frames[1], frames[3]] == [frame, frame]
        assert [frames[0].payload, frames[2].payload, rest] == [b"1", b"2", b"data: 3"]


# When each frame is known, as the numbers of the single bytes that completed it; the end of the bytes is -1.
COMPLETED: Final[dict[str, tuple[bytes, list[int]]]] = {
    "LF LF ends at once": (b"a\n\nb\n\n", [2, 5]),
    "CR CR ends at once": (b"a\r\rb\r\r", [2, 5]),
    "CRLF CRLF ends with its last LF": (b"a\r\n\r\nb\r\n\r\n", [4, 9]),
    "LF CR ends at once, a later LF is a stray line": (b"a\n\r\nb\n\r", [2, 6]),
    "CR CRLF ends at once, a later LF is a stray line": (b"a\r\r\nb\r\r", [2, 6]),
    "CRLF CR waits for its LF and gets another byte": (b"a\r\n\rb\n\n", [4, 6]),
    "CRLF CR waits for its LF and gets a CR": (b"a\r\n\r\rb\n\n", [4, 7]),
    "CRLF CR waits for its LF and gets the end": (b"a\r\n\r", [-1]),
    "CRLF LF ends at once": (b"a\r\n\nb\n\n", [3, 6]),
    "one line end does not end it": (b"a\r\nb\nc\rd", []),
    "stray line ends alone end nothing": (b"\r\n\r\n\r", []),
    "stray CRLF CR behind a frame is no frame": (b"a\n\n\r\n\r", [2]),
}


@pytest.mark.parametrize(("body", "numbers"), COMPLETED.values(), ids=COMPLETED.keys())
def test_no_frame_is_late(body: bytes, numbers: list[int]) -> None:
    decoder = Decoder()
    known = [number for number, byte in enumerate(body) for _ in decoder.feed(bytes([byte]))]
    known += [-1 for _ in decoder.close()]
    assert known == numbers


PIECES: Final = (
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b":", b"a", b" ", b"\0", BOM, BOM[:1]),
    *(b"data: ", b"data:", b"data", b"id:", b"event: e", b"retry: 1", b"data: {}\n\n"),
)
STREAM_BYTES: Final = st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join)


@given(body=STREAM_BYTES, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6))
@example(body=b"a\r\n\r", sizes=[1])
@example(body=BOM + b"\n\ndata: 1\n\n", sizes=[1])
def test_any_split_gives_the_same_frames(body: bytes, sizes: list[int]) -> None:
    reads: list[bytes] = []
    left = body
    while left:
        size = sizes[len(reads) % len(sizes)]
        reads.append(left[:size])
        left = left[size:]
    whole = framed([body])
    assert framed(reads) == whole
    assert b"".join(frame.raw for frame in whole[0]) + whole[1] == body
    assert all(is_block(frame.raw, first=not number) for number, frame in enumerate(whole[0]))
    # What a plain reader of lines, written from the standard, makes of the same bytes.
    assert dispatched(body, max(1, len(body))) == plain_reader(body)


def plain_reader(body: bytes) -> list[Dispatched]:
    """The standard word by word, slow, over a whole body."""
    events, lines = list[Dispatched](), re.split(rb"\r\n|\r|\n", body.removeprefix(BOM))[:-1]
    payload, name, last_event_id = list[bytes](), b"", b""
    for line in lines:
        field, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"" if not colon:
                if payload:
                    text = b"\n".join(payload).decode("utf-8", "replace")
                    events.append(
                        Dispatched(text, name.decode() or "message", last_event_id.decode("utf-8", "replace"))
                    )
                payload, name = [], b""
            case b"data":
                payload.append(value)
            case b"event":
                name = value
            case b"id" if b"\0" not in value:
                last_event_id = value
            case _:
                pass
    return events


# -- not a block -----------------------------------------------------------------------------------------------------

NO_BLOCK: Final = {
    "nothing": b"",
    "a blank line alone": b"\n",
    "no blank line": b"data: 1\n",
    "two blocks": b"data: 1\n\ndata: 2\n\n",
    "a stray blank line behind it": b"data: 1\n\n\n",
    "a byte behind it": b"data: 1\n\nx",
    "a CR that no longer waits": b"data: 1\r\n\rx",
}


@pytest.mark.parametrize("raw", NO_BLOCK.values(), ids=NO_BLOCK.keys())
def test_is_no_block(raw: bytes) -> None:
    assert not is_block(raw)
    assert not is_block(raw, first=True)


def test_a_bom_and_a_blank_line_are_a_block_only_inside_a_body() -> None:
    assert is_block(BOM + b"\n\n")
    assert not is_block(BOM + b"\n\n", first=True)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_closed_decoder_stays_closed() -> None:
    decoder = Decoder()
    decoder.feed(b"a\r\n\r")
    assert len(decoder.close()) == 1
    assert decoder.close() == []
    with pytest.raises(LocalError, match="fed after its end"):
        decoder.feed(b"x")


def test_a_decoder_that_met_a_limit_stays_there() -> None:
    decoder = Decoder(line_bytes_max=4)
    assert decoder.feed(b"a\n\nabcde") == [parse_block(b"a\n\n")]
    assert (decoder.overflow, decoder.rest) == ("line", b"abcde")
    assert decoder.close() == []
    with pytest.raises(LocalError, match="fed after its line"):
        decoder.feed(b"x")


def test_a_fresh_one_has_the_same_limits_and_nothing_else() -> None:
    decoder = Decoder(line_bytes_max=4, event_bytes_max=9)
    decoder.feed(b"a\r\nabcde")
    fresh = decoder.fresh()
    assert (fresh.overflow, fresh.rest) == ("", b"")
    assert fresh.feed(BOM + b"\na\n\n") == [Frame(BOM + b"\na\n\n", None)]
    line, event = fresh.fresh(), fresh.fresh()
    line.feed(b"a\nabcde")
    event.feed(b"abc\nabc\nab")
    assert (line.overflow, event.overflow) == ("line", "event")


# -- limits -----------------------------------------------------------------------------------------------------------

#: Line limit 10, event limit 24: body, number of frames, limit met, how many bytes are kept.
LIMITS: Final = {
    "line at limit-1": (b"data: 123\n\n", 1, "", 0),
    "line at the limit": (b"data: 1234\n\n", 1, "", 0),
    "line at limit+1": (b"data: 12345\n\n", 0, "line", 13),
    "line at limit-1 without an end": (b"data: 123", 0, "", 9),
    "line at the limit without an end": (b"data: 1234", 0, "", 10),
    "line at limit+1 without an end": (b"data: 12345", 0, "line", 11),
    "line at the limit, CRLF": (b"data: 1234\r\n\r\n", 1, "", 0),
    "line at limit+1, CRLF": (b"data: 12345\r\n\r\n", 0, "line", 15),
    "line at limit+1, CR": (b"data: 12345\r\r", 0, "line", 13),
    "a second line at the limit": (b"a\ndata: 1234\n\n", 1, "", 0),
    "a second line at limit+1": (b"a\ndata: 12345\n\n", 0, "line", 15),
    "a second line at limit+1 behind a CRLF": (b"a\r\ndata: 12345\n\n", 0, "line", 16),
    "a first line at limit+1, the second unended": (b"data: 12345\na", 0, "line", 13),
    "event at limit-1": (b"a: 456789\na: 456789\na\n\n", 1, "", 0),
    "event at the limit": (b"a: 456789\na: 456789\nab\n\n", 1, "", 0),
    "event at limit+1": (b"a: 456789\na: 456789\nabc\n\n", 0, "event", 25),
    "event at the limit, CR": (b"a: 456789\ra: 456789\rab\r\r", 1, "", 0),
    "event at limit+1, CR": (b"a: 456789\ra: 456789\rabc\r\r", 0, "event", 25),
    "event at the limit without an end": (b"a: 456789\na: 456789\nabcd", 0, "", 24),
    "event at limit+1 without an end": (b"a: 456789\na: 456789\nabcde", 0, "event", 25),
    "stray blank lines at the limit": (b"\n" * 24, 0, "", 24),
    "stray blank lines at limit+1": (b"\n" * 25, 0, "event", 25),
    "stray blank lines count": (b"\n" * 18 + b"data: 1\n\n", 0, "event", 27),
    "a stray line before a line at the limit": (b"\n1234567890", 0, "", 11),
    "a stray line before a line at limit+1": (b"\n12345678901", 0, "line", 12),
    "frames of CRLF and one of LF, all within the limits": (b"a\r\n\r\n" * 6 + b":\n\n", 7, "", 0),
    "the BOM counts": (BOM + b"data: 12\n\n", 0, "line", 13),
    "a CR waits at the limit, until the end": (b"a: 456789\na: 4567\nabc\r\n\r", 1, "", 0),
    "a CR that waited at the limit gets another byte": (b"a: 456789\na: 4567\nabc\r\n\rxx", 1, "", 2),
    "a CR that waited at the limit gets its LF": (b"a: 456789\na: 4567\nabc\r\n\r\n", 0, "event", 25),
    "line and event at the same byte: the event": (b"a: 456789\nabc\n" + b"1" * 12, 0, "event", 26),
    "line at limit+1 one byte before the event": (b"a: 456789\nab\n" + b"1" * 13, 0, "line", 26),
    "line at limit+1 long before the event, all in one block": (b"a" * 11 + b"\n" * 20 + b"\n", 0, "line", 32),
    "frames before it are frames": (b"data: 1\n\ndata: 2\n\ndata: 12345\n\n:\n\n", 2, "line", 16),
    "frames before it, CRLF": (b"a\r\n\r\nb\r\n\r\ndata: 12345\r\n\r\n:\r\n\r\n", 2, "line", 20),
    "frames before it, slow path": (b":\n\n:\n\nevent: 12345\n\n:\n\n", 2, "line", 17),
}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
@pytest.mark.parametrize(("body", "count", "overflow", "kept"), LIMITS.values(), ids=LIMITS.keys())
def test_limits_are_met_by_any_split(body: bytes, count: int, overflow: str, kept: int, size: int) -> None:
    frames, rest, met = framed(pieces(body, size), Decoder(line_bytes_max=10, event_bytes_max=24))
    whole = framed([body], Decoder(line_bytes_max=10, event_bytes_max=24))
    assert (frames, met) == (whole[0], overflow)
    assert len(frames) == count
    assert len(whole[1]) == kept
    assert b"".join(frame.raw for frame in frames) + whole[1] == body
    assert whole[1].startswith(rest)
    assert overflow or len(rest) == kept


@given(body=STREAM_BYTES, size=st.integers(1, 9), line=st.integers(1, 30), event=st.integers(1, 40))
def test_any_split_meets_the_same_limit(body: bytes, size: int, line: int, event: int) -> None:
    frames, rest, overflow = framed([body] if body else [], Decoder(line, event))
    again, kept, met = framed(pieces(body, size), Decoder(line, event))
    assert (again, met) == (frames, overflow)
    assert rest.startswith(kept)


def test_the_limits_in_force_are_those_of_the_limits_file() -> None:
    for size, frames, overflow in [(0, 1, ""), (1, 0, "event")]:
        body = b"data: " + b"x" * (8 * 1024 * 1024 - 8 + size) + b"\n\n"
        found = framed(pieces(body, 1 << 16))
        assert (len(found[0]), found[2]) == (frames, overflow)


# -- frames to bytes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "raw"),
    [
        (encode(b"{}"), b"data: {}\n\n"),
        (encode(b""), b"data: \n\n"),
        (encode(b"{\n}"), b"data: {\ndata: }\n\n"),
        (encode(b"{}", event=b"e"), b"event: e\ndata: {}\n\n"),
        (encode(b"1\n\n2", event=b"e"), b"event: e\ndata: 1\ndata: \ndata: 2\n\n"),
    ],
)
def test_encodes(frame: bytes, raw: bytes) -> None:
    assert frame == raw


LINE: Final = st.text(st.characters(exclude_characters="\r\n\0"), max_size=9).map(
    lambda text: text.encode("utf-8", "replace")
)


@given(lines=st.lists(LINE, min_size=1, max_size=4), event=LINE)
def test_encoded_frame_is_read_again(lines: list[bytes], event: bytes) -> None:
    payload = b"\n".join(lines)
    raw = encode(payload, event=event)
    ((frame,), rest, _) = framed([raw])
    assert (frame.raw, frame.payload, frame.event, rest) == (raw, payload, event, b"")
    assert frame.canonical == (not event and len(lines) == 1)


def test_the_rest_can_be_taken_once_nothing_more_comes() -> None:
    decoder = Decoder()
    decoder.feed(b"data: a")
    with pytest.raises(AssertionError):
        decoder.take_rest()
    decoder.close()
    assert (decoder.take_rest(), decoder.rest) == (b"data: a", b"")
