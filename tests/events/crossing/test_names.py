"""Names, ids and envelopes, which both directions of crossing share."""

import base64
from typing import Any

import pytest

from tests.events.crossing.asking import chat, crossed, responses, user
from wiretape.events.core.json_text import dumps
from wiretape.events.core.limits import CROSSED_ID_CHARS_MAX, ENVELOPE_BYTES_MAX, TOOL_NAME_CHARS_MAX
from wiretape.events.crossing.envelope import Envelope, is_envelope, may_hold, opened, seal
from wiretape.events.crossing.names import call_id, flat_name, user_id, way_back


@pytest.mark.parametrize("given", ["call_1", "toolu_01-A", "x" * CROSSED_ID_CHARS_MAX])
def test_id_that_fits_stays(given: str) -> None:
    assert call_id(given) == given


@pytest.mark.parametrize("given", ["", "call.1", "call 1", "é", "\ud800", "x" * (CROSSED_ID_CHARS_MAX + 1)])
def test_other_id_becomes_a_hash_that_is_the_same_each_time(given: str) -> None:
    made = call_id(given, "toolu_")
    assert made.startswith("toolu_")
    assert made == call_id(given, "toolu_") == call_id(made)
    assert len(made) <= CROSSED_ID_CHARS_MAX


def test_names_at_the_limit_and_beyond_it() -> None:
    assert flat_name("x" * TOOL_NAME_CHARS_MAX) == "x" * TOOL_NAME_CHARS_MAX
    beyond = flat_name("x" * (TOOL_NAME_CHARS_MAX + 1))
    assert len(beyond) == TOOL_NAME_CHARS_MAX
    assert beyond != flat_name("x" * (TOOL_NAME_CHARS_MAX + 2))
    assert flat_name("a.b") != flat_name("a_b") == "a_b"
    assert flat_name("b", "a") == "a__b"
    assert user_id("x" * CROSSED_ID_CHARS_MAX) == "x" * CROSSED_ID_CHARS_MAX
    assert len(user_id("x" * (CROSSED_ID_CHARS_MAX + 1))) <= CROSSED_ID_CHARS_MAX


def test_way_back_is_the_declared_name_or_the_name_itself() -> None:
    space: dict[str, Any] = {
        "type": "namespace",
        "name": "a",
        "description": "",
        "tools": [{"type": "function", "name": "b", "parameters": {}, "strict": False}],
    }
    crossing = crossed(responses(user(), tools=[space]), "responses", "chat").crossing
    found = way_back(crossing, "a__b")
    assert (found.name, found.namespace, found.kind) == ("b", "a", "function")
    unknown = way_back(crossing, "c")
    assert (unknown.name, unknown.namespace, unknown.kind) == ("c", "", "function")


def test_names_that_an_upstream_does_not_take_come_back() -> None:
    long = "mcp__server__" + "tool" * 20
    tools = [{"type": "function", "function": {"name": long}}, {"type": "function", "function": {"name": "a.b"}}]
    found = crossed(chat(user(), tools=tools), "chat", "messages")
    flat = [each["name"] for each in found.body["tools"]]
    assert [way_back(found.crossing, name).name for name in flat] == [long, "a.b"]
    assert all(len(name) <= TOOL_NAME_CHARS_MAX for name in flat)


def test_envelope_gives_back_what_was_sealed() -> None:
    proofs = [("signature", "c2ln"), ("reasoning_details", [{"data": "x"}])]
    sealed = seal(proofs, {"call_1": [("extra_content", {"google": 1})]})
    assert sealed is not None
    assert is_envelope(sealed)
    assert opened("", sealed) == Envelope(tuple(proofs), {"call_1": (("extra_content", {"google": 1}),)})


def test_body_that_may_hold_an_envelope_is_found_without_reading_it() -> None:
    sealed = seal([("signature", "c2ln")])
    assert may_hold(dumps({"input": [{"encrypted_content": sealed}]}))
    assert not may_hold(dumps({"input": [{"encrypted_content": "EqwB"}]}))


def test_envelope_at_the_limit_and_beyond_it() -> None:
    room = (ENVELOPE_BYTES_MAX - len("wt1.")) // 4 * 3 - len(dumps({"p": [["signature", ""]]}))
    sealed = seal([("signature", "x" * room)])
    assert sealed is not None
    assert opened("", sealed).proofs == (("signature", "x" * room),)
    assert seal([("signature", "x" * (room + 3))]) is None
    assert opened("", sealed + "AAAA" * 2) == Envelope()


@pytest.mark.parametrize(
    "damaged",
    [
        "wt1.",
        "wt1.!",
        "wt1.A",
        "wt1." + base64.urlsafe_b64encode(b"[]").decode(),
        "wt1." + base64.urlsafe_b64encode(b'{"p":[1,["a"],[1,2]],"c":{"x":1}}').decode(),
        "wt2." + base64.urlsafe_b64encode(b'{"p":[["signature","x"]]}').decode(),
    ],
)
def test_damaged_envelope_is_recognised_and_has_no_proofs(damaged: str) -> None:
    assert is_envelope(damaged)
    assert opened("", damaged).proofs == ()


@pytest.mark.parametrize("foreign", ["", "wt", "EqwB", None, 1, ["wt1."]])
def test_proof_of_a_vendor_is_no_envelope(foreign: Any) -> None:
    assert not is_envelope(foreign)
