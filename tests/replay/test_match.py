"""Which recorded stream answers: by what was asked, first in first out."""

from wiretape.events.record import Record
from wiretape.replay.match import Deck, Miss, Taken
from wiretape.replay.script import Request

CHAT = "/v1/chat/completions"


def stream(body: bytes, path: str = CHAT) -> list[Record]:
    """A stream of which only the request matters."""
    return [
        Record(0, 0, "open", {"dialect": "chat"}),
        Record(1, 0, "request", {"method": "POST", "path": path, "headers": []}, body, body),
    ]


def asking(body: bytes, path: str = CHAT) -> Request:
    return Request(b"POST", path.encode(), (), body)


def taken(deck: Deck, *requests: Request) -> list[int | None]:
    """The places of what answered."""
    answers = [deck.take(request) for request in requests]
    return [answer.place if isinstance(answer, Taken) else None for answer in answers]


def test_the_same_question_is_answered_in_the_order_of_the_recording_and_others_in_any() -> None:
    deck = Deck([stream(b'{"a":1}'), stream(b'{"b":1}'), stream(b'{"a": 1}')])
    assert taken(deck, asking(b'{"b":1}'), asking(b'{"a":1}'), asking(b'{"a":1}')) == [1, 0, 2]
    assert deck.unused == []


def test_a_second_use_is_a_miss() -> None:
    deck = Deck([stream(b"{}")])
    assert taken(deck, asking(b"{}"), asking(b"{}")) == [0, None]
    assert isinstance(deck.take(asking(b"{}")), Miss)
