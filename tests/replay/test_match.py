"""Choose the stream that answers a request: by key, by position; and explain a miss."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.replay.made import deck_of
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_object, parse
from wiretape.events.tape.record import Record
from wiretape.replay.matching.match import Deck, Drift, How, Miss, Row, Taken, blank, prepare_of, request_of
from wiretape.replay.playback.script import Request
from wiretape.replay.redaction.redact import redact
from wiretape.replay.redaction.user_rules import Redaction

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
FILES = "/v1/files"


def body(*said: str, **more: Any) -> bytes:
    messages = [{"role": "user", "content": text} for text in said]
    return json.dumps({"model": "m", **more, "messages": messages}).encode()


def stream(content: bytes, path: str = CHAT, method: str = "POST", **keys: Any) -> list[Record]:
    """Return a stream without a response."""
    return [
        Record(0, 0, "open", {"dialect": "chat"}),
        Record(1, 0, "request", {"method": method, "path": path, "headers": [], **keys}, content or None),
    ]


def asking(content: bytes, path: str = CHAT, method: str = "POST") -> Request:
    return Request(method.encode(), path.encode(), (), content)


def asked(*contents: bytes, path: str = CHAT) -> Iterator[Request]:
    return (asking(content, path) for content in contents)


def streams(*contents: bytes) -> list[list[Record]]:
    return [stream(content) for content in contents]


def taken(deck: Deck, *requests: Request) -> list[int | None]:
    """Return the positions of the streams that answered."""
    answers = [deck.take(request) for request in requests]
    return [answer.place if isinstance(answer, Taken) else None for answer in answers]


def miss(deck: Deck, request: Request) -> Miss:
    answer = deck.take(request)
    assert isinstance(answer, Miss)
    return answer


A, B, C = (body(text) for text in "abc")


def said_by_tool(content: str, question: str = "go") -> bytes:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": content},
    ]
    return json.dumps({"model": "m", "messages": messages}).encode()


def answering(id_: str, content: bytes, path: str = RESPONSES) -> list[Record]:
    """Return a stream whose response has an id."""
    said = json.dumps({"object": "response", "id": id_}).encode()
    return [*stream(content, path), Record(2, 1, "body", {}, said)]


def going_on(id_: str, **more: Any) -> bytes:
    return json.dumps({"model": "m", "input": "go on", "previous_response_id": id_, **more}).encode()


def referring(id_: str) -> bytes:
    items = [{"type": "item_reference", "id": id_}, {"role": "user", "content": "go on"}]
    return json.dumps({"model": "m", "input": items}).encode()


def calling(id_: str) -> bytes:
    return said_by_tool("sun").replace(b'"a"', json.dumps(id_).encode())


DAYS = [said_by_tool(f"free on 2026-11-{day}") for day in (18, 19, 20)]
ANOTHER_DAY = said_by_tool("free on 2027-01-01")
GOING_ON = going_on("resp_1")
CALLS = [
    answering("call_1", A, CHAT),
    answering("c", calling("call_1"), CHAT),
    answering("call_2", A, CHAT),
    answering("d", calling("call_2"), CHAT),
]
ROUTES = [stream(A, f"/{route}{CHAT}") for route in ("alpha", "beta")]
UPLOAD = [*stream(b"", FILES), Record(2, 1, "upload", {}, b"ab"), Record(3, 2, "upload", {}, b"cd")]
HASHED: dict[str, Any] = {"bytes": 4, "sha256": hashlib.sha256(b"abcd").hexdigest()}

#: The deck, the streams, the requests, and the positions of the streams that answer.
TAKEN: dict[str, tuple[dict[str, Any], list[list[Record]], list[Request], list[int | None]]] = {
    "equal requests in order, others in any": ({}, streams(A, B, A), [*asked(B, A, A)], [1, 0, 2]),
    "each stream once": ({}, streams(A, B), [*asked(A, A)], [0, None]),
    "again with repeat": ({"repeat": True}, streams(A, A, B), [*asked(A, A, A, C)], [0, 1, 1, None]),
    "the same volatile values": ({}, streams(*DAYS), [*asked(DAYS[2], DAYS[0], DAYS[1])], [2, 0, 1]),
    "other volatile values": ({}, streams(*DAYS), [*asked(DAYS[1], ANOTHER_DAY, ANOTHER_DAY)], [1, 0, 2]),
    "the exact stream again before a similar one": (
        {"repeat": True}, streams(*DAYS[:2]), [*asked(DAYS[0], DAYS[0], DAYS[1], DAYS[0])], [0, 0, 1, 0]
    ),
    "a stream that is left before a similar one again": (
        {"repeat": True}, streams(*DAYS[:2]), [*asked(DAYS[0], ANOTHER_DAY, ANOTHER_DAY)], [0, 1, 1]
    ),
    "a call id of a recording": ({}, CALLS, [*asked(calling("call_2"), calling("call_1"))], [3, 1]),
    "other call ids": ({}, CALLS, [*asked(calling("mine"), calling("another"))], [1, 3]),
    "a call id again": ({"repeat": True}, CALLS, [*asked(calling("call_2"), calling("call_2"))], [3, 3]),
    "of two files with equal ids, the one that answered": (
        {"conversations": [0, 0, 1, 1]},
        [answering(f"resp_{number}", content) for first in (A, B) for number, content in ((1, first), (2, GOING_ON))],
        [*asked(B, GOING_ON, path=RESPONSES)],
        [2, 3],
    ),
    "the same path prefix": (
        {}, ROUTES, [asking(A, f"/{route}{CHAT}") for route in ("beta", "beta", "alpha")], [1, None, 0]
    ),
    "another path prefix": ({}, ROUTES, [*asked(A, A, path=f"/t/x{CHAT}")], [0, 1]),
    "a used stream is a miss and no loose match": (
        {}, streams(said_by_tool("pid 1"), said_by_tool("pid 2")),
        [*asked(said_by_tool("pid 1"), said_by_tool("pid 1"), said_by_tool("pid 3"))], [0, None, 1],
    ),
    "a hashed body": ({}, [stream(b"", FILES, **HASHED)], [*asked(b"abc", b"abcd", path=FILES)], [None, 0]),
    "an upload": ({}, [UPLOAD], [*asked(b"abc", b"abcd", path=FILES)], [None, 0]),
    "a hashed upload": (
        {}, [[*stream(b"", FILES), Record(2, 1, "upload", HASHED)]], [*asked(b"abc", b"abcd", path=FILES)], [None, 0]
    ),
    "a part of an upload": (
        {}, [[*stream(b"", FILES), Record(2, 1, "upload", {**HASHED, "part": True})]],
        [*asked(b"abc", b"abcd", path=FILES)], [None, None],
    ),
    "by position, methods and paths apart": (
        {"how": "position"}, [stream(b"", "/v1/models", "GET"), stream(A)],
        [asking(A), asking(b"", "/v1/models", "GET"), asking(B)], [1, 0, None],
    ),
    "by position, the last stream again": (
        {"how": "position", "repeat": True}, streams(A, B), [*asked(A, B, C)], [0, 1, 1]
    ),
    "by position, each stream once": ({"how": "position"}, streams(A), [*asked(A, A)], [0, None]),
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN)
def test_the_stream_that_answers(case: str) -> None:
    how, recorded, requests, due = TAKEN[case]
    deck = deck_of(recorded, **how)
    assert taken(deck, *requests) == due
    assert deck.unused == [place for place in range(len(recorded)) if place not in due]


# -- ids of responses -------------------------------------------------------------------------------------------------

#: The ways to name a response.
TURNS = {"previous_response_id": going_on, "item_reference": referring}


@pytest.mark.parametrize("how", TURNS)
def test_a_turn_continues_the_response_that_it_names(how: str) -> None:
    turn = TURNS[how]
    recorded = [
        answering("resp_1", A),
        answering("resp_2", turn("resp_1")),
        answering("resp_3", B),
        answering("resp_4", turn("resp_3")),
    ]
    later, first = (asking(turn(id_), RESPONSES) for id_ in ("resp_3", "resp_1"))
    for repeat in (False, True):
        assert taken(deck_of(recorded, repeat=repeat), later, first) == [3, 1]
    for id_ in ("resp_2", "resp_4"):
        said = miss(deck_of(recorded), asking(turn(id_), RESPONSES))
        assert (said.used, bool(said.drift)) == (False, True)
        assert f'"resp_1" -> "{id_}"' in str(said.drift[0])
    once = deck_of(recorded)
    assert taken(once, later) == [3]
    assert miss(once, later).used
    assert taken(deck_of(recorded), asking(turn("resp_of_last_year"), RESPONSES)) == [1]


# -- loosely ----------------------------------------------------------------------------------------------------------

#: Recorded requests, the sent request, and the stream that answers loosely.
LOOSELY_TAKEN: dict[str, tuple[list[bytes], bytes, int | None]] = {
    "the only stream": ([said_by_tool("pid 4711"), A], said_by_tool("pid 12"), 0),
    "two are ambiguous": ([said_by_tool("pid 4711"), said_by_tool("pid 4712")], said_by_tool("pid 12"), None),
    "the same key comes first": ([said_by_tool("pid 4711"), said_by_tool("pid 12")], said_by_tool("pid 12"), None),
    "another number is another result": ([said_by_tool("5 rows")], said_by_tool("6 rows"), None),
    "a user's words are never read loosely": ([said_by_tool("x", "at 10:30?")], said_by_tool("x", "at 10:31?"), None),
}


@pytest.mark.parametrize("case", LOOSELY_TAKEN)
def test_loose_reading(case: str) -> None:
    recorded, asked, place = LOOSELY_TAKEN[case]
    answer = deck_of([stream(each) for each in recorded]).take(asking(asked))
    if place is not None:
        assert isinstance(answer, Taken)
        assert (answer.place, answer.loosely) == (place, True)
        assert answer.note() == 'matched loosely: messages[2].content: "pid 4711" -> "pid 12"'
    else:
        assert not (isinstance(answer, Taken) and answer.loosely)


def test_a_request_is_redacted_as_its_recording_was() -> None:
    asked = body("a long and private story", temperature=1)
    header = {"redacted": {"prompts": "sha256"}}
    record = Record(1, 0, "request", {"method": "POST", "path": CHAT, "headers": []}, asked, asked)
    [[sealed]] = redact([[record]], Redaction(prompts=True))
    assert b"story" not in (sealed.raw or b"")
    deck = Deck([Row([sealed], prepare=prepare_of(header)), Row(stream(A))])
    assert taken(deck, asking(body("another story")), asking(A), asking(asked)) == [None, 1, 0]
    paths = prepare_of({"redacted": {"paths": ["messages[*].content"]}})
    assert b"story" not in paths(asking(asked)).body
    assert prepare_of({}) is blank


def test_a_stream_without_its_request_is_an_error() -> None:
    with pytest.raises(TapeError, match="without its request"):
        request_of([Record(0, 0, "open")])


# -- misses -----------------------------------------------------------------------------------------------------------

LONG = "x" * 500

MISSES: dict[str, tuple[How, list[bytes], bytes, int, list[str]]] = {
    "one member differs": (
        "key", [body("a", temperature=0), B], body("a", temperature=1), 2,
        ["nearest: stream 1, which differs in", "  temperature: 0 -> 1"],
    ),
    "another turn": (
        "key", [body("a"), body("a", "b")], body("a", "b", "c"), 2,
        ["nearest: stream 2, which differs in", '  messages[2]: (absent) -> {"content": "c", "role": "user"}'],
    ),
    "it was used": (
        "key", [A], A, 0,
        ["stream 1 matches this request but has already answered; set repeat to reuse it"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSES)
def test_a_miss_names_the_nearest_stream_and_its_differences(case: str) -> None:
    how, recorded, asked, left, due = MISSES[case]
    deck = deck_of([stream(content) for content in recorded], how)
    if case == "it was used":
        deck.take(asking(asked))
    said = miss(deck, asking(asked))
    record = [] if case == "it was used" else ["to record it: wiretape record --upstream URL -o FILE -- COMMAND"]
    first = f"nothing recorded answers POST /v1/chat/completions (key {said.key}, {left} streams left)"
    assert said.lines() == [first, *due, *record]


def test_long_misses_are_shortened() -> None:
    recorded = body(*[LONG] * 30)
    said = miss(deck_of([stream(recorded)]), asking(body(*["y" * 500] * 30)))
    lines = said.lines()
    assert len(lines) == 24
    assert lines[-2] == "  and 10 more"
    assert max(map(len, lines)) < 300


def test_a_miss_is_a_response_that_sdks_do_not_retry() -> None:
    said = miss(Deck([Row(stream(A), "tapes/x.tape, stream 1")], record="make tapes"), asking(B))
    script = said.script
    assert script.status == 599
    assert dict(script.headers)[b"X-Should-Retry"] == b"false"
    content = script.steps[0].what
    assert isinstance(content, bytes)
    error = as_object(as_object(parse(content))["error"])
    assert error["nearest"] == "tapes/x.tape, stream 1"
    assert error["record"] == "make tapes"
    assert error["differences"] == [{"path": "messages[0].content", "recorded": '"a"', "asked": '"b"'}]
    assert error["message"].splitlines() == said.lines()


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/v1/chat/completions", "/v1/completions"])
def test_a_miss_with_a_wrong_base_url_names_the_recorded_path(path: str) -> None:
    other = stream(A, path="/v1/models")
    found = deck_of([other, stream(A)]).take(asking(A)._replace(target=path.encode()))
    assert isinstance(found, Miss)
    assert found.nearest == "stream 2"
    assert found.drift == [Drift("path", "POST /v1/chat/completions", f"POST {path}")]
    assert "  path: POST /v1/chat/completions -> POST " + path in found.lines()
