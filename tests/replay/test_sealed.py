"""The sealed form: every tape comes back record by record, from files that a person can read."""

import json

import pytest

from tests.support.make_fixtures import TAPES
from wiretape.events.errors import TapeError
from wiretape.events.tape import Reader
from wiretape.replay.sealed import decode, encode

STREAMS = [Reader().feed(TAPES[name]) for name in sorted(TAPES)]


def test_every_record_comes_back() -> None:
    sealed = decode(encode({"exact": True}, STREAMS))
    assert sealed.streams == STREAMS
    assert sealed.header == {"wiretape": "sealed", "format": 1, "exact": True}


def test_every_line_is_json() -> None:
    for line in encode({}, STREAMS).splitlines():
        json.loads(line)


def test_a_fold_line_that_the_tape_does_not_come_to_is_refused() -> None:
    data = encode({}, STREAMS)
    edited = data.replace(b'"ending":"', b'"ending":"not_', 1)
    assert edited != data
    with pytest.raises(TapeError, match="the fold line says ending"):
        decode(edited)
    decode(edited, verify=False)
