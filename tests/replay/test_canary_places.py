"""Every canary in every place that matters, each in a file of its own kind, so that no other place gives it away."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.replay.canaries import CANARIES, PLACED, pieces
from tests.replay.test_canaries import DOCS, parts, said
from tests.replay.test_redact import arguments, content, tape
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.replay.redaction.redact import redact
from wiretape.replay.redaction.shapes import ROWS, find

#: A private key has several lines, so it is in no header and no URL.
ON_A_LINE: Final = {vendor: key for vendor, key in CANARIES.items() if "\n" not in key}


def asked(text: str) -> bytes:
    return dumps({"messages": [{"role": "user", "content": text}]})


def in_pieces(text: str) -> list[str]:
    return pieces(text, max(3, len(text) // 8))


def escaped(key: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in key)


def answered_with(header: str) -> list[Record]:
    records = tape()
    return [
        each._replace(keys={**each.keys, "headers": [["x-request-id", header]]}) if each.kind == "head" else each
        for each in records
    ]


PLACES: Final[dict[str, Callable[[str], list[Record]]]] = {
    "a header of the request": lambda key: tape(keys={"headers": [["user-agent", f"agent/1 {key}"]]}),
    "a header of the response": answered_with,
    "a path": lambda key: tape(keys={"path": f"/v1/things/{quote(key, safe='')}"}),
    "a query": lambda key: tape(keys={"path": f"/v1/things?a=1&thing={key}&b=2"}),
    "a value of JSON": lambda key: tape(request=dumps({"messages": [], "thing": key})),
    "a name of JSON": lambda key: tape(request=dumps({"messages": [], "things": {key: 1}})),
    "a sentence": lambda key: tape(request=asked(f"It is {key}, as you said.")),
    "quotes in a program": lambda key: tape(request=asked(f"x = f('{key}')")),
    "JSON in a string": lambda key: tape(request=asked(json.dumps({"a": {"b": key}}))),
    "JSON in a string in a string": lambda key: tape(request=asked(json.dumps({"a": json.dumps({"b": key})}))),
    "escapes": lambda key: tape(request=asked("X").replace(b"X", f"it is {escaped(key)}".encode())),
    "a URL in a sentence": lambda key: tape(request=asked(f"see https://x.example/a?b={quote(key, safe='')}&c=1")),
    "a form": lambda key: tape(request=f"a=1&thing={quote(key, safe='')}&b=2".encode()),
    "text": lambda key: tape(f"a page with {key} in it\n".encode(), streamed=False),
    "pieces of text": lambda key: tape(*content("it is ", *in_pieces(key), " so")),
    "pieces of arguments": lambda key: tape(*arguments('{"a":"', *in_pieces(json.dumps(key)[1:-1]), '"}')),
    "an error": lambda key: tape(dumps({"error": {"message": f"Incorrect key: {key}"}}), streamed=False),
}
OF_ONE_LINE: Final = frozenset({"a header of the request", "a header of the response", "a path", "a query"})


@pytest.mark.parametrize("place", PLACES)
def test_no_part_of_any_canary_is_left(place: str) -> None:
    keys = ON_A_LINE if place in OF_ONE_LINE else CANARIES
    tapes = [PLACES[place](key) for key in keys.values()]
    before, after = said(tapes), said(redact(tapes))
    forms = [(key.encode(), quote(key, safe="").encode(), escaped(key).encode()) for key in ON_A_LINE.values()]
    assert all(any(form in before for form in some) for some in forms), "the tape says them"
    left = {vendor for vendor, key in keys.items() if any(part in after for part in parts(key))}
    assert left == set()


def test_every_row_of_the_table_has_a_canary() -> None:
    texts = [*CANARIES.values(), *PLACED.values()]
    shapes = [(vendor, re.compile(f"(?:{begins})(?:{goes_on})")) for vendor, begins, goes_on in ROWS]
    assert [shape for _, shape in shapes if not any(map(shape.search, texts))] == []


@pytest.mark.parametrize("vendor", PLACED)
def test_a_secret_of_one_place_is_found_there(vendor: str) -> None:
    text = PLACED[vendor]
    *_, hit = find(text)
    assert (hit.vendor, hit.end) == (vendor, len(text))


def test_the_docs_list_every_vendor() -> None:
    vendors = sorted({vendor for vendor, _, _ in ROWS})
    said_there = DOCS.read_text().partition("Vendors and formats: ")[2].partition(".\n")[0]
    assert " ".join(said_there.split()) == ", ".join(vendors)


OAUTH: Final[Sequence[Any]] = (
    ("https://app.example/callback?code=SplxlOBeZQQYbYS6WxSbIA7&state=x", "SplxlOBeZQQYbYS6WxSbIA7"),
    ("grant_type=authorization_code&code=4/P7q7W91a-oMsCeLvIaQm6bTrgtp7&x=1", "4/P7q7W91a-oMsCeLvIaQm6bTrgtp7"),
    ("code_verifier=dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
    ('{"code_verifier":"dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"}', "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
    ("cat ~/.pgpass\ndb.example:5432:app:alice:hunter2xyz\n*:*:*:bob:tr0ub4dor\n", "hunter2xyz"),
    ("https://b.s3.amazonaws.com/x?X-Amz-Signature=" + "0a1b" * 16, "0a1b" * 16),
)


@pytest.mark.parametrize(("text", "secret"), OAUTH)
def test_oauth_codes_pgpass_and_signatures_are_found(text: str, secret: str) -> None:
    assert secret in [hit.secret for hit in find(text)]


@pytest.mark.parametrize(
    "text",
    [
        "code=invalid_request_error&x=1 code=200 exit_code=12345678 code=ERR_MODULE_NOT_FOUND status_code=2026",
        "main.c:1234:error:undefined reference\nfile.py:100:5:E501 line\n127.0.0.1:8080:a:b:c",
        "pat-answers-to-questions npm_config dp.status.value v1.local.example fly_machine_id square EAAAAAAA",
        "https://x.example/a?code=not-a-real-authorization-code",
    ],
)
def test_no_false_alarm_of_the_new_shapes(text: str) -> None:
    assert find(text) == []
