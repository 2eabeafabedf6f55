"""What a name gives away in one place of a file is gone in all others, and who asks with it is still answered."""

import re
from typing import Any, Final

import pytest

from tests.replay.made import asked, checked, codes, deck_of, stream
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.replay.matching.key import fits
from wiretape.replay.matching.match import Taken
from wiretape.replay.playback.script import Request, event_stream, json_answer
from wiretape.replay.redaction.redact import redact
from wiretape.replay.seal import Rules, seal
from wiretape.replay.sealed.files import parse

pytestmark = pytest.mark.slow

#: No vendor's, and no name before it.
WORD: Final = "hunter2-Tiger/9"
ANOTHER: Final = "winter3-Zebra/8!"
PATH: Final = b"/v1/chat/completions"
JSON: Final = (b"content-type", b"application/json")
NAMES_IT: Final = json_answer(dumps({"choices": [], "password": WORD}))


def request(text: str, **more: Any) -> Request:
    return Request(b"POST", PATH, [JSON], asked(text, **more))


def took(data: bytes, *requests: Request, how: Any = "key") -> list[int | None]:
    """Of each request the stream that answers, if one does."""
    header, streams = parse(data)
    deck = deck_of(streams, how, header)
    answers = [deck.take(each) for each in requests]
    return [answer.place if isinstance(answer, Taken) and not answer.drift else None for answer in answers]


#: By name: the streams of a file in which one place names it.
FILES: Final[dict[str, list[list[Record]]]] = {
    "its answer": [stream(NAMES_IT, f"it is {WORD}, use it")],
    "another answer": [stream(text=f"it is {WORD}, use it"), stream(NAMES_IT, "and?")],
    "another request": [stream(text=f"it is {WORD}, use it"), stream(text=f'{{"db_password": "{WORD}"}}')],
    "an answer before it": [stream(NAMES_IT, "and?"), stream(text=f"it is {WORD}, use it")],
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_named_secret_is_replaced_in_the_whole_file(name: str) -> None:
    sealed = seal(FILES[name])
    assert WORD.encode() not in sealed
    assert b"it is [redacted-secret-1], use it" in sealed
    checked(sealed)
    exact = seal(FILES[name], Rules(exact=True, secrets_allowed=True))
    assert len([code for code in codes(exact) if code == "secret"]) == 2


@pytest.mark.parametrize("how", ["key", "position"])
@pytest.mark.parametrize("name", sorted(FILES))
def test_request_with_another_secret_is_answered(name: str, how: str) -> None:
    place = next(at for at, records in enumerate(FILES[name]) if b"it is" in (records[1].raw or b""))
    sealed = seal(FILES[name])
    if how != "key":
        place, sealed = (
            0,
            seal([FILES[name][place], *(records for records in FILES[name] if records is not FILES[name][place])]),
        )
    for word in (WORD, ANOTHER, "[redacted-secret-1]", "[redacted-password-7]"):
        assert took(sealed, request(f"it is {word}, use it"), how=how) == [place]
    for text in ("it is , use it", f"it is {WORD}, use that", f"it was {WORD}, use it", "it is a\nb c d e, use it"):
        assert took(sealed, request(text), how=how) == [None]
    assert took(sealed, request(f"it is {WORD}, use it", temperature=1), how=how) == [None]


def test_secret_in_a_body_of_parts() -> None:
    def said(word: str) -> bytes:
        return b'--B\r\ncontent-disposition: form-data; name="x"\r\n\r\nuse %b now\r\n--B--\r\n' % word.encode()

    records = stream(NAMES_IT, dialect="responses")
    records[1] = records[1]._replace(raw=said(WORD), payload=None, keys={**records[1].keys, "headers": []})
    sealed = seal([records])
    assert WORD.encode() not in sealed
    asks = [
        Request(b"POST", b"/v1/responses", [], body)
        for body in (said(ANOTHER), said(ANOTHER).replace(b"--B", b"--other"))
    ]
    for ask in asks:
        assert took(sealed, ask) == [0]
    assert took(sealed, asks[0]._replace(body=said(ANOTHER) + b"more")) == [None]


def test_secret_in_pieces_paths_and_results_of_another_stream() -> None:
    first, second = WORD[:6], WORD[6:]
    chunk = '{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%s"}}]}'
    frames = [b"data: %b\n\n" % (chunk % piece).encode() for piece in ("so ", first, second, ".")]
    streamed = stream(event_stream([*frames, b"data: [DONE]\n\n"]), "go")
    results = Record(2, 0, "results", {"results": [{"id": "call_1", "output": f"got {WORD}"}]})
    streamed[2:2] = [results]
    streamed[1] = streamed[1]._replace(keys={**streamed[1].keys, "path": f"/v1/files/{WORD}"})
    streamed = [record._replace(n=at) for at, record in enumerate(streamed)]
    sealed = seal([streamed, stream(NAMES_IT)])
    for part in (WORD, first, second):
        assert f'"{part}"'.encode() not in sealed
    assert WORD.encode() not in sealed
    assert b'"output":"got [redacted-secret-1]"' in sealed
    assert b'"path":"/v1/files/[redacted-secret-1]"' in sealed
    assert codes(sealed) == []


def test_protocol_words_and_placeholders_stay() -> None:
    answer = json_answer(dumps({"choices": [], "model": "gpt-4o-mini", "password": "gpt-4o-mini"}))
    sealed = seal(
        [stream(answer, "say [redacted-openai-7]"), stream(json_answer(dumps({"password": "redacted-openai-7"})))]
    )
    assert b"say [redacted-openai-7]" in sealed
    assert b'"model":"gpt-4o-mini","password":"[redacted-' in sealed
    named = seal([stream(json_answer(dumps({"max_tokens": 1, "password": "max_tokens"})))])
    assert b'"max_tokens":1' in named


def left_of(text: str, *secrets: str) -> str:
    """Return what is left of a text in a file in which these secrets are named elsewhere."""
    answers = [stream(json_answer(dumps({"choices": [], "password": secret}))) for secret in secrets]
    [records, *_] = redact([stream(text=text), *answers])
    return str(records[1].value["messages"][0]["content"])


@pytest.mark.parametrize(("secret", "due"), [("1234567", False), ("12345678", True), ("abcdefgh", False)])
def test_long_named_values_are_looked_for_elsewhere(secret: str, *, due: bool) -> None:
    assert (secret not in left_of(f"it is {secret}, so", secret)) is due


_GAP: Final = "[redacted-secret]"


@pytest.mark.parametrize(
    ("recorded", "asked", "due"),
    [
        ("a", "a", True),
        (f"a {_GAP} b", "a xyz b", True),
        (f"a {_GAP} b", "a xy b", False),
        (f"a {_GAP} b", "a " + "x" * 512 + " b", True),
        (f"a {_GAP} b", "a " + "x" * 513 + " b", False),
        (f"my password: {_GAP} and go", "my password: hunter2abc and go", True),
        (f"my password: {_GAP} and go", "my password: hunter2abc - wait, do NOT go; only list, and go", False),
        (f"my password: {_GAP}", "my password: hunter2abc, but no", False),
        (f"a {_GAP} b", "a x\u00a0yz b", False),
        (f'a "{_GAP}" b', 'a "xyz" b', True),
        (f"a {_GAP} b", 'a x"y\\z b', True),
        (f"a {_GAP} b", "a x\nyz b", False),
        (f'a "{_GAP}" b', 'a "x" y "z" b', False),
        (f"a '{_GAP} b", "a 'x y z b", False),
        ({"content": _GAP}, {"content": "hunter2abc"}, True),
        ({"content": _GAP}, {"content": "delete all of it"}, False),
        ({"content": [_GAP]}, {"content": ["delete all of it"]}, False),
        (f"{_GAP}{_GAP}", "xxxyyy", True),
        (f"{_GAP}{_GAP}", "xxxyy", False),
        (f"a {_GAP} b {_GAP}", "a xyz b zyx", True),
        (f"a {_GAP} b {_GAP} c", "a xyz b c", False),
        ("a [redacted-openai] b", "a xyz b", False),
        ([1, {"a": [_GAP]}], [1, {"a": ["secret"]}], True),
        ([1, {"a": [_GAP]}], [1, {"a": ["secret", 1]}], False),
        ({f"{_GAP}": 1, "b": 2}, {"whose": 1, "b": 2}, True),
        ({f"{_GAP}": 1, "b": 2}, {"whose": 2, "b": 2}, False),
        ({f"{_GAP}": 1, "b": 2}, {"whose": 1, "c": 2}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": _GAP}, {"a": 12345678}, False),
        ({"a": None}, {"a": None}, True),
    ],
)  # fmt: skip
def test_requests_that_fit_a_placeholder(recorded: Any, asked: Any, *, due: bool) -> None:
    texts = [dumps(each).decode() for each in (recorded, asked)]
    assert (texts[0] == texts[1] or fits(*texts)) is due


def test_no_part_of_a_longer_word_is_a_known_secret() -> None:
    left = left_of("order 912345678901, 12345678, 123456789 hunter2-x/y", "12345678", "hunter2-x/")
    assert re.sub(r"\[redacted-[a-z]+-\d\]", "*", left) == "order 912345678901, *, 123456789 *y"
