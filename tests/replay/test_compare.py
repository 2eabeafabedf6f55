"""Compare recordings: one row for each kind of difference, with its verdict at each level."""

import pytest

from tests.support.chat import DONE, call, finish, frame, sse, text
from tests.support.make_fixtures import TAPES
from wiretape.events.chat.request import facts
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader, Recorder, reads
from wiretape.replay.compare.compare import LEVELS, compare, verdict
from wiretape.replay.compare.verify import compare_shapes
from wiretape.replay.formats.har import to_har
from wiretape.replay.formats.table import to_sse
from wiretape.replay.seal import seal
from wiretape.replay.sealed.files import parse

TEXT = [text("Hel", role=True), text("lo"), finish(), DONE]
CALL = [call(index=0, id="call_1", name="save", arguments='{"a": 1}', role=True), finish("tool_calls"), DONE]
CUSTOM = call(index=0, id="call_1", type="custom", custom={"name": "save", "input": '{"a": 1}'}, role=True)
USAGE = sse(
    {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": {"total_tokens": 3}}
)


def recorded(
    reads: list[bytes],
    *,
    dialect: str = "chat",
    content: str = "hi",
    cause: str = "eof",
    ending: str = "completed",
    status: int = 200,
    headers: list[list[str]] | None = None,
    gap_us: int = 10_000,
    body: bool = False,
    attempts: int = 1,
) -> list[Record]:
    """Return the records of one chat stream, or of an exchange."""
    recorder = Recorder()
    asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": content}]}
    said = {"method": "POST", "path": "/v1/chat/completions", "facts": facts(asked).to_keys()}
    records = [
        recorder.record("open", 0, {"format": 1, "stream": "s1", "dialect": dialect, "created": 7}),
        recorder.record("request", 10, said, dumps(asked)),
    ]
    for number in range(1, attempts + 1):
        records += recorder.attempt(20, {"number": number, "upstream": "u"})
    head = {"status": status, "headers": headers or [["content-type", "text/event-stream"]]}
    records.append(recorder.record("head", 30, head))
    for number, data in enumerate(reads, 1):
        records += [recorder.body(gap_us * number, data)] if body else recorder.read(gap_us * number, data)
    end = gap_us * (len(reads) + 1)
    return [*records, *recorder.rest(end), recorder.end(end, {"cause": cause, "ending": ending, "flags": []})]


#: The difference; the verdicts on content, shape and bytes; the path of the first difference in content that counts.
ROWS: dict[str, tuple[list[Record], list[Record], tuple[int, int, int], str]] = {
    "nothing": (recorded(TEXT), recorded(TEXT), (0, 0, 0), ""),
    "a text": (recorded(TEXT), recorded([TEXT[0], text("p"), *TEXT[2:]]), (2, 0, 2), "text of answer 0"),
    "pieces of a text": (
        recorded(TEXT), recorded([text("He", role=True), text("llo"), *TEXT[2:]]), (0, 0, 2), "",
    ),
    "an id": (
        recorded(TEXT), recorded([each.replace(b"chatcmpl-1", b"chatcmpl-2") for each in TEXT]), (1, 0, 1), "id",
    ),
    "the model's name": (
        recorded(TEXT), recorded([each.replace(b'"m"', b'"n"') for each in TEXT]), (1, 0, 2), "model",
    ),
    "the finish": (
        recorded(TEXT), recorded([*TEXT[:2], finish("length"), DONE]), (2, 0, 2), "finish of answer 0",
    ),
    "no finish": (
        recorded(TEXT), recorded(TEXT[:2], ending="truncated"), (2, 2, 2), "finish of answer 0",
    ),
    "the ending": (
        recorded(TEXT[:2], ending="truncated"), recorded(TEXT[:2], cause="reset", ending="reset"),
        (2, 2, 2), "ending",
    ),
    "no [DONE]": (recorded(TEXT), recorded(TEXT[:3]), (1, 2, 2), "flags"),
    "usage": (
        recorded([*TEXT[:3], USAGE, DONE]), recorded([*TEXT[:3], USAGE.replace(b":3}", b":4}"), DONE]),
        (1, 0, 2), "usage.total_tokens",
    ),
    "no usage": (
        recorded([*TEXT[:3], USAGE, DONE]), recorded(TEXT), (1, 2, 2), "usage.total_tokens",
    ),
    "new usage": (
        recorded(TEXT), recorded([*TEXT[:3], USAGE, DONE]), (1, 1, 2), "usage.total_tokens",
    ),
    "a type": (
        recorded([*TEXT[:3], USAGE, DONE]), recorded([*TEXT[:3], USAGE.replace(b":3}", b':"3"}'), DONE]),
        (1, 2, 2), "usage.total_tokens",
    ),
    "a missing member": (
        recorded(TEXT), recorded([each.replace(b'"created":7,', b"") for each in TEXT]), (0, 2, 2), "",
    ),
    "a member missing in some frames": (
        recorded(TEXT), recorded([TEXT[0].replace(b'"created":7,', b""), *TEXT[1:]]), (0, 0, 2), "",
    ),
    "a new member": (
        recorded([each.replace(b'"created":7,', b"") for each in TEXT]), recorded(TEXT), (0, 1, 2), "",
    ),
    "reasoning": (
        recorded([frame({"reasoning_content": "Hm"}), *TEXT]), recorded([frame({"reasoning_content": "Ah"}), *TEXT]),
        (2, 0, 2), "reasoning of answer 0",
    ),
    "another order of kinds": (
        recorded([frame({"reasoning_content": "Hm"}), *TEXT]),
        recorded([*TEXT[:2], frame({"reasoning_content": "Hm"}), *TEXT[2:]]),
        (0, 2, 2), "",
    ),
    "a second answer": (
        recorded(TEXT), recorded([*TEXT[:2], text("2", index=1), finish(index=1), *TEXT[2:]]), (2, 0, 2), "answer 1",
    ),
    "a call's name": (
        recorded(CALL), recorded([CALL[0].replace(b"save", b"load"), *CALL[1:]]), (2, 0, 2), "call 0: name",
    ),
    "a call's arguments": (
        recorded(CALL), recorded([CALL[0].replace(b'\\"a\\": 1', b'\\"a\\": 2'), *CALL[1:]]),
        (2, 0, 2), "call 0: arguments.a",
    ),
    "white space in a call's arguments": (
        recorded(CALL), recorded([CALL[0].replace(b'\\"a\\": 1', b'\\"a\\":1'), *CALL[1:]]),
        (1, 0, 2), "call 0: arguments, written another way",
    ),
    "the kind of a tool": (
        recorded(CALL), recorded([CUSTOM, *CALL[1:]]), (2, 2, 2), "call 0: tool",
    ),
    "spaces in the input of a custom call": (
        recorded([CUSTOM, *CALL[1:]]), recorded([CUSTOM.replace(b'\\"a\\": 1', b'\\"a\\":1'), *CALL[1:]]),
        (2, 0, 2), "call 0: input",
    ),
    "a call's id": (
        recorded(CALL), recorded([CALL[0].replace(b"call_1", b"call_2"), *CALL[1:]]), (1, 0, 1), "call 0: id",
    ),
    "a new call": (
        recorded(CALL), recorded([CALL[0], call(index=1, id="call_2", name="b", arguments="{}"), *CALL[1:]]),
        (2, 0, 2), "call 1",
    ),
    "a call cut short": (
        recorded(CALL), recorded([CALL[0].replace(b': 1}', b': '), *CALL[1:]]), (2, 0, 2), "call 0: state",
    ),
    "the request": (recorded(TEXT), recorded(TEXT, content="ho"), (1, 0, 2), "request.messages[0].content"),
    "the status": (
        recorded([b'{"error":{"message":"no"}}'], status=400, body=True, ending="upstream_error", cause="status"),
        recorded([b'{"error":{"message":"no"}}'], status=401, body=True, ending="upstream_error", cause="status"),
        (2, 2, 2), "status",
    ),
    "Retry-After": (
        recorded(TEXT), recorded(TEXT, headers=[["content-type", "text/event-stream"], ["retry-after", "7"]]),
        (0, 0, 2), "",
    ),
    "a request id in a header": (
        recorded(TEXT), recorded(TEXT, headers=[["content-type", "text/event-stream"], ["x-request-id", "7"]]),
        (0, 0, 1), "",
    ),
    "a retry": (recorded(TEXT), recorded(TEXT, attempts=2), (1, 0, 2), "attempts"),
    "a comment": (recorded(TEXT), recorded([b": ping\n\n", *TEXT]), (0, 0, 2), ""),
    "spaces in a frame": (
        recorded(TEXT), recorded([TEXT[0].replace(b'":', b'": '), *TEXT[1:]]), (0, 0, 2), "",
    ),
    "line ends": (recorded(TEXT), recorded([each.replace(b"\n", b"\r\n") for each in TEXT]), (0, 0, 2), ""),
    "the read boundaries": (recorded(TEXT), recorded([b"".join(TEXT)]), (0, 0, 2), ""),
    "the times": (recorded(TEXT), recorded(TEXT, gap_us=20_000), (0, 0, 1), ""),
    "the times within the tolerance": (recorded(TEXT), recorded(TEXT, gap_us=10_001), (0, 0, 0), ""),
    "bytes of an exchange": (
        recorded([b"event: a\ndata: {}\n\n"], dialect=""), recorded([b"event: b\ndata: {}\n\n"], dialect=""),
        (1, 2, 1), "frame 0, written another way",
    ),
    "a value of an exchange": (
        recorded([b'{"data":[1]}'], dialect="", body=True), recorded([b'{"data":[2]}'], dialect="", body=True),
        (2, 0, 2), "body 0.data[0]",
    ),
    "an exchange that is not JSON": (
        recorded([b"one two"], dialect="", body=True), recorded([b"one too"], dialect="", body=True),
        (2, 0, 2), "body 0",
    ),
    "bytes after the last frame": (
        recorded([*TEXT, b"data: 1"]), recorded([*TEXT, b"data: 2"]), (0, 0, 2), "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_each_level_has_its_own_verdict(name: str) -> None:
    a, b, verdicts, path = ROWS[name]
    content, shape, raw = list(compare([a], [b])), list(compare_shapes([a], [b])), list(compare([a], [b], "bytes"))
    assert (verdict(content), verdict(shape), verdict(raw)) == verdicts
    if path:
        assert next((each for each in content if each.breaking), content[0]).path == path


def test_a_live_tape_equals_its_sealed_tape() -> None:
    """Ids are shorter after sealing, and the read boundaries still match."""
    long_id = [data.replace(b'"chatcmpl-1"', b'"chatcmpl-B9aXc0dEfG1hIjKlMnOpQr"') for data in TEXT]
    one, two, three, four = long_id
    live = recorded([one, two + three[:-20], three[-20:] + four])
    sealed = parse(seal([live])).streams
    assert len(b"".join(data for _, data in reads(sealed[0]))) < len(b"".join(long_id))
    assert all(verdict(list(compare([live], sealed, level))) <= 1 for level in set(LEVELS.values()))
    other = recorded([one, two + three[:-21], three[-21:] + four])
    assert verdict(list(compare([other], sealed, "bytes"))) == 2


@pytest.mark.parametrize("name", [*TAPES, "a call's name"])
def test_every_prefix_of_a_tape_can_be_compared_and_exported(name: str) -> None:
    """Law L4."""
    records = Reader().feed(TAPES[name]) if name in TAPES else ROWS[name][0]
    for end in range(1, len(records)):
        prefix = records[:end]
        for level in set(LEVELS.values()):
            assert list(compare([prefix], [prefix], level)) == []
            list(compare([prefix], [records], level))
        list(compare_shapes([prefix], [records]))
        to_har([prefix])
        to_sse(prefix, client=True)
