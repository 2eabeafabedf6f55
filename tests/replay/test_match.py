"""Choose the stream that answers a request: by key, by position, strictly; and explain a miss."""

import hashlib
import json
from typing import Any

import pytest

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_object, parse
from wiretape.events.tape.record import Record
from wiretape.replay.matching.compared_request import blank, prepare_of, request_of
from wiretape.replay.matching.match import Deck, Drift, How, Miss, Taken
from wiretape.replay.playback.script import Request
from wiretape.replay.redaction.redact import redact
from wiretape.replay.redaction.user_rules import Redaction

CHAT = "/v1/chat/completions"


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


def taken(deck: Deck, *requests: Request) -> list[int | None]:
    """Return the positions of the streams that answered."""
    answers = [deck.take(request) for request in requests]
    return [answer.place if isinstance(answer, Taken) else None for answer in answers]


def miss(deck: Deck, request: Request) -> Miss:
    answer = deck.take(request)
    assert isinstance(answer, Miss)
    return answer


A, B, C = (body(text) for text in "abc")


# -- by key -----------------------------------------------------------------------------------------------------------


def test_equal_requests_are_answered_in_order_and_others_in_any_order() -> None:
    deck = Deck([stream(A), stream(B), stream(A)])
    assert taken(deck, asking(B), asking(A), asking(A)) == [1, 0, 2]
    assert deck.unused == []


def said_by_tool(content: str, question: str = "go") -> bytes:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": content},
    ]
    return json.dumps({"model": "m", "messages": messages}).encode()


DAYS = [said_by_tool(f"free on 2026-11-{day}") for day in (18, 19, 20)]


def test_volatile_values_tell_streams_with_one_key_apart() -> None:
    recorded = [stream(each) for each in DAYS]
    assert taken(Deck(recorded), *(asking(DAYS[place]) for place in (2, 0, 1))) == [2, 0, 1]
    other = asking(said_by_tool("free on 2027-01-01"))
    assert taken(Deck(recorded), asking(DAYS[1]), other, other) == [1, 0, 2]


def test_with_repeat_the_exact_stream_answers_again_before_a_similar_one() -> None:
    recorded = [stream(each) for each in DAYS[:2]]
    again = Deck(recorded, repeat=True)
    assert taken(again, *(asking(DAYS[place]) for place in (0, 0, 1, 0))) == [0, 0, 1, 0]
    other = asking(said_by_tool("free on 2027-01-01"))
    assert taken(Deck(recorded, repeat=True), asking(DAYS[0]), other, other) == [0, 1, 1]


def test_a_similar_stream_that_answers_instead_is_reported() -> None:
    deck = Deck([stream(each) for each in DAYS[:2]])
    assert taken(deck, asking(DAYS[0])) == [0]
    answer = deck.take(asking(DAYS[0]))
    assert isinstance(answer, Taken)
    assert (answer.place, answer.loosely) == (1, True)
    assert answer.note() == 'matched loosely: messages[2].content: "free on 2026-11-19" -> "free on 2026-11-18"'
    assert miss(deck, asking(DAYS[0])).used


# -- ids of responses -------------------------------------------------------------------------------------------------

RESPONSES = "/v1/responses"


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
    asked = [asking(turn(id_), RESPONSES) for id_ in ("resp_3", "resp_1")]
    for repeat in (False, True):
        assert taken(Deck(recorded, repeat=repeat), *asked) == [3, 1]
    for id_ in ("resp_2", "resp_4"):
        said = miss(Deck(recorded), asking(turn(id_), RESPONSES))
        assert (said.used, bool(said.drift)) == (False, True)
        assert f'"resp_1" -> "{id_}"' in str(said.drift[0])
    once = Deck(recorded)
    assert taken(once, asked[0]) == [3]
    assert miss(once, asked[0]).used
    assert taken(Deck(recorded), asking(turn("resp_of_last_year"), RESPONSES)) == [1]


def test_a_known_call_id_selects_its_stream_and_other_ids_go_by_order() -> None:
    recorded = [
        answering("call_1", A, CHAT),
        answering("c", calling("call_1"), CHAT),
        answering("call_2", A, CHAT),
        answering("d", calling("call_2"), CHAT),
    ]
    assert taken(Deck(recorded), *(asking(calling(id_)) for id_ in ("call_2", "call_1"))) == [3, 1]
    assert taken(Deck(recorded), *(asking(calling(id_)) for id_ in ("mine", "another"))) == [1, 3]
    assert taken(Deck(recorded, repeat=True), *(asking(calling("call_2")) for _ in "ab")) == [3, 3]


def test_of_two_files_with_equal_ids_the_one_that_answered_goes_on() -> None:
    recorded = [answering("resp_1", A), answering("resp_2", going_on("resp_1"))]
    other = [answering("resp_1", B), answering("resp_2", going_on("resp_1"))]
    deck = Deck([*recorded, *other], conversations=[0, 0, 1, 1])
    assert taken(deck, asking(B, RESPONSES), asking(going_on("resp_1"), RESPONSES)) == [2, 3]


def test_the_stream_with_the_same_path_prefix_answers() -> None:
    recorded = [stream(A, f"/{route}{CHAT}") for route in ("alpha", "beta")]
    assert taken(Deck(recorded), *(asking(A, f"/{route}{CHAT}") for route in ("beta", "beta", "alpha"))) == [1, None, 0]
    assert taken(Deck(recorded), *(asking(A, f"/t/x{CHAT}") for _ in "ab")) == [0, 1]


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
    hows: tuple[How, ...] = ("key", "strict")
    for how in hows:
        answer = Deck([stream(each) for each in recorded], how).take(asking(asked))
        if how == "key" and place is not None:
            assert isinstance(answer, Taken)
            assert (answer.place, answer.loosely) == (place, True)
            assert answer.note() == 'matched loosely: messages[2].content: "pid 4711" -> "pid 12"'
        else:
            assert not (isinstance(answer, Taken) and answer.loosely)


def test_a_used_stream_is_a_miss_and_not_a_loose_match() -> None:
    deck = Deck([stream(said_by_tool("pid 1")), stream(said_by_tool("pid 2"))])
    assert taken(deck, asking(said_by_tool("pid 1"))) == [0]
    again = miss(deck, asking(said_by_tool("pid 1")))
    assert again.used
    assert taken(deck, asking(said_by_tool("pid 3"))) == [1]


def test_a_match_by_key_has_no_note() -> None:
    [answer] = [Deck([stream(A)]).take(asking(A))]
    assert isinstance(answer, Taken)
    assert answer.note() == ""


def test_each_stream_answers_once_unless_it_may_repeat() -> None:
    deck = Deck([stream(A), stream(B)])
    assert taken(deck, asking(A), asking(A)) == [0, None]
    assert deck.unused == [1]
    again = Deck([stream(A), stream(A), stream(B)], repeat=True)
    assert taken(again, asking(A), asking(A), asking(A), asking(C)) == [0, 1, 1, None]
    assert again.unused == [2]


def test_a_broken_response_is_given_again_in_its_order() -> None:
    deck = Deck([stream(A), stream(A)])
    first = deck.take(asking(A))
    assert isinstance(first, Taken)
    deck.broke(asking(A), first)
    assert deck.unused == [0, 1]
    assert taken(deck, asking(A), asking(A)) == [0, 1]


def test_a_recording_with_hashed_bodies_is_matched_by_hash() -> None:
    deck = Deck([stream(b"", bytes=len(A), sha256=hashlib.sha256(A).hexdigest())])
    assert taken(deck, asking(B), asking(A)) == [None, 0]


def test_an_upload_is_matched_by_its_bytes() -> None:
    records = [*stream(b"", "/v1/files"), Record(2, 1, "upload", {}, b"ab"), Record(3, 2, "upload", {}, b"cd")]
    assert taken(Deck([records]), asking(b"abc", "/v1/files"), asking(b"abcd", "/v1/files")) == [None, 0]


def test_a_hashed_upload_is_matched_only_if_complete() -> None:
    said = {"bytes": 4, "sha256": hashlib.sha256(b"abcd").hexdigest()}
    whole, part = (
        [*stream(b"", "/v1/files"), Record(2, 1, "upload", {**said, **more})] for more in ({}, {"part": True})
    )
    asked = asking(b"abc", "/v1/files"), asking(b"abcd", "/v1/files")
    assert taken(Deck([whole]), *asked) == [None, 0]
    assert taken(Deck([part]), *asked) == [None, None]


def test_secrets_do_not_count() -> None:
    one, other = (body(f"my key is sk-proj-{letter * 40}9") for letter in "ab")
    deck = Deck([stream(one), stream(body("my key is [redacted-openai-1]"))])
    assert taken(deck, asking(other), asking(one), asking(other)) == [0, 1, None]
    assert "sk-proj" not in str(miss(Deck([stream(one)]), asking(body("what?"))).to_json())


def test_a_request_is_redacted_as_its_recording_was() -> None:
    asked = body("a long and private story", temperature=1)
    header = {"redacted": {"prompts": "sha256"}}
    record = Record(1, 0, "request", {"method": "POST", "path": CHAT, "headers": []}, asked, asked)
    [[sealed]] = redact([[record]], Redaction(prompts=True))
    assert b"story" not in (sealed.raw or b"")
    deck = Deck([[sealed], stream(A)], prepares=[prepare_of(header), blank])
    assert taken(deck, asking(body("another story")), asking(A), asking(asked)) == [None, 1, 0]
    paths = prepare_of({"redacted": {"paths": ["messages[*].content"]}})
    assert b"story" not in paths(asking(asked)).body
    assert prepare_of({}) is blank


def test_a_stream_without_its_request_is_an_error() -> None:
    with pytest.raises(TapeError, match="without its request"):
        request_of([Record(0, 0, "open")])


# -- by position ------------------------------------------------------------------------------------------------------


def test_by_position_the_next_stream_answers_with_a_note() -> None:
    deck = Deck([stream(A), stream(B)], "position")
    first, second = deck.take(asking(C)), deck.take(asking(B))
    assert isinstance(first, Taken)
    assert isinstance(second, Taken)
    assert (first.place, [str(drift) for drift in first.drift]) == (0, ['messages[0].content: "a" -> "c"'])
    assert (second.place, second.drift) == (1, ())


def test_by_position_methods_and_paths_are_separate() -> None:
    deck = Deck([stream(b"", "/v1/models", "GET"), stream(A)], "position")
    assert taken(deck, asking(A), asking(b"", "/v1/models", "GET"), asking(B)) == [1, 0, None]


def test_by_position_the_most_similar_conversation_goes_on() -> None:
    turns = [body("a"), body("a", "b"), body("x"), body("x", "y")]
    deck = Deck([stream(turn) for turn in turns], "position", conversations=[0, 0, 1, 1])
    asked = [body("x"), body("x", "z"), body("a"), body("a", "q")]
    assert taken(deck, *(asking(content) for content in asked)) == [2, 3, 0, 1]


def test_by_position_the_last_stream_repeats() -> None:
    deck = Deck([stream(A), stream(B)], "position", repeat=True)
    assert taken(deck, asking(A), asking(B), asking(C)) == [0, 1, 1]
    assert taken(Deck([stream(A)], "position"), asking(A), asking(A)) == [0, None]


# -- strictly ---------------------------------------------------------------------------------------------------------


def test_strict_needs_the_next_stream_with_an_equal_request() -> None:
    deck = Deck([stream(A), stream(B)], "strict")
    said = miss(deck, asking(B))
    assert [str(drift) for drift in said.drift] == ['messages[0].content: "a" -> "b"']
    assert taken(deck, asking(A.replace(b": ", b":")), asking(B)) == [0, 1]


def test_strict_compares_every_member() -> None:
    assert taken(Deck([stream(body("a", user="u1"))]), asking(body("a", user="u2"))) == [0]
    deck = Deck([stream(body("a", user="u1"))], "strict")
    assert [str(drift) for drift in miss(deck, asking(body("a", user="u2"))).drift] == ['user: "u1" -> "u2"']


def test_strict_compares_hashes() -> None:
    deck = Deck([stream(b"", sha256=hashlib.sha256(A).hexdigest())], "strict")
    assert taken(deck, asking(B), asking(A)) == [None, 0]


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
    "it was used": ("key", [A], A, 0, ["stream 1 is this request and has answered already (repeat?)"]),
    "out of turn": (
        "strict", [A, B], B, 2, ["nearest: stream 1, which differs in", '  messages[0].content: "a" -> "b"']
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSES)
def test_a_miss_names_the_nearest_stream_and_its_differences(case: str) -> None:
    how, recorded, asked, left, due = MISSES[case]
    deck = Deck([stream(content) for content in recorded], how)
    if case == "it was used":
        deck.take(asking(asked))
    said = miss(deck, asking(asked))
    record = [] if case == "it was used" else ["to record it: wiretape record --upstream URL -o FILE -- COMMAND"]
    first = f"nothing recorded answers POST /v1/chat/completions (key {said.key}, {left} streams left)"
    assert said.lines() == [first, *due, *record]


def test_a_miss_at_another_path_has_no_nearest_stream() -> None:
    said = miss(Deck([stream(A)]), asking(b"", "/v1/models", "GET"))
    assert said.lines() == [
        f"nothing recorded answers GET /v1/models (key {said.key}, 1 streams left)",
        "to record it: wiretape record --upstream URL -o FILE -- COMMAND",
    ]


def test_long_misses_are_shortened() -> None:
    recorded = body(*[LONG] * 30)
    said = miss(Deck([stream(recorded)]), asking(body(*["y" * 500] * 30)))
    lines = said.lines()
    assert len(lines) == 24
    assert lines[-2] == "  and 10 more"
    assert max(map(len, lines)) < 300


def test_a_miss_is_a_response_that_sdks_do_not_retry() -> None:
    said = miss(Deck([stream(A)], names=["tapes/x.tape, stream 1"], record="make tapes"), asking(B))
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
    found = Deck([other, stream(A)]).take(asking(A)._replace(target=path.encode()))
    assert isinstance(found, Miss)
    assert found.nearest == "stream 2"
    assert found.drift == [Drift("path", "POST /v1/chat/completions", f"POST {path}")]
    assert "  path: POST /v1/chat/completions -> POST " + path in found.lines()
