"""One answer in three dialects, and crossed from each into each: sealed, compared, found again, played, verified."""

from collections.abc import Callable, Mapping
from itertools import permutations, product
from pathlib import Path
from typing import Any, Final

import pytest

from tests.replay.dialects import ANSWERS, PATHS
from tests.replay.made import asked, checked, deck_of, stream
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads
from wiretape.replay.compare.compare import compare, verdict
from wiretape.replay.compare.recheck import recheck
from wiretape.replay.compare.verify import verify
from wiretape.replay.faults.cutting import prefixes_of
from wiretape.replay.faults.faults import Faults
from wiretape.replay.formats.har import to_har
from wiretape.replay.formats.table import read
from wiretape.replay.matching.match import Taken
from wiretape.replay.playback.script import (
    ORIGINAL,
    Fault,
    Request,
    attempts_of,
    event_stream,
    is_crossed,
    json_answer,
    script_of,
)
from wiretape.replay.playback.server import listening
from wiretape.replay.redaction.user_rules import Redaction
from wiretape.replay.seal import Rules, seal
from wiretape.replay.sealed.files import load
from wiretape.replay.sealed.files import parse as parse_tape
from wiretape.replay.serving.serving import Outcome, Serving

each_dialect = pytest.mark.parametrize("dialect", ANSWERS)
each_pair = pytest.mark.parametrize(("client", "upstream"), [*permutations(ANSWERS, 2)])
CROSSED: Final = sorted((Path(__file__).parents[2] / "fixtures/crossed").glob("*.tape"))
each_crossed = pytest.mark.parametrize("path", CROSSED, ids=[path.stem for path in CROSSED])


def crossed(client: str, upstream: str, *, cut: bool = False) -> list[Record]:
    """Return the tape of a client whose request was crossed."""
    script = event_stream(
        ANSWERS[upstream][:8] if cut else ANSWERS[upstream], gap_s=0.5, end=Fault.CUT if cut else None
    )
    records = stream(script, dialect=upstream)
    opened, request = records[0], records[1]
    body = asked("hi", client)
    begun = [
        opened._replace(keys={**opened.keys, "dialect": client}),
        request._replace(keys={**request.keys, "path": PATHS[client]}, raw=body, payload=body),
    ]
    crossing = {"tools": dict[str, Any](), "echo": dict[str, Any](), "lost": list[str]()}
    attempt = records[2]._replace(keys={**records[2].keys, "dialect": upstream, "crossing": crossing})
    status = Record(0, records[3].t, "commit", {"status": 200})
    end = records[-1]._replace(keys={**records[-1].keys, "answer": "whole"})
    every = [*begun, attempt, records[3], status, *records[4:-1], end]
    return [record._replace(n=n) for n, record in enumerate(every)]


# -- the same dialect --------------------------------------------------------------------------------------------------


@each_dialect
def test_every_dialect_folds_to_the_same_message(dialect: str) -> None:
    fold = Outcome(stream(dialect=dialect)).fold
    assert (fold.ending, fold.text, fold.finish) == ("completed", "Grüße aus Zürich", "tool_calls")
    said = [(call.name, call.arguments, call.whole) for call in fold.calls]
    assert said == [("read_file", '{"path":"notes"}', True), ("write_file", '{"path":"b"}', True)]


@each_dialect
def test_an_end_without_the_last_event_is_truncated_in_every_dialect(dialect: str) -> None:
    fold = Outcome(stream(event_stream(ANSWERS[dialect][:8]), dialect=dialect)).fold
    assert fold.ending == "truncated"
    assert (fold.calls[-1].name, fold.calls[-1].state, fold.calls[-1].whole) == ("write_file", "dropped", False)


@each_dialect
def test_a_sealed_tape_states_its_result_in_every_dialect(dialect: str) -> None:
    data = seal([stream(dialect=dialect)])
    checked(data)
    assert recheck(data)[1] == []
    fold = data.rpartition(b'{"k":"fold"')[2]
    assert b'"text":"Gr\xc3\xbc\xc3\x9fe aus Z\xc3\xbcrich"' in fold
    assert b'"name":"write_file"' in fold


@pytest.mark.parametrize(("client", "upstream"), [*product(ANSWERS, repeat=2)])
def test_no_prefix_is_completed_or_has_half_a_call(client: str, upstream: str) -> None:
    records = stream(dialect=client) if client == upstream else crossed(client, upstream)
    prefixes = prefixes_of([records], "frames")
    assert prefixes[-1].bytes == len(script_of(records).body)
    for prefix in prefixes[:-1]:
        script, _ = Faults.of([prefix.fault("cut")]).over(script_of(records), 0)
        fold = Outcome(records, script).fold
        # In chat a finish is enough, and usage and [DONE] follow it.
        assert fold.ending == "truncated" or (client == "chat" and prefix.frames >= len(prefixes) - 3)
        assert {call.arguments for call in fold.calls if call.whole} <= {'{"path":"notes"}', '{"path":"b"}'}


@pytest.mark.parametrize(("a", "b"), [*permutations(ANSWERS, 2)])
def test_the_same_content_in_two_dialects_does_not_differ(a: str, b: str) -> None:
    found = [*compare([stream(dialect=a)], [stream(dialect=b)])]
    assert [each.path for each in found if each.breaking] == []
    other = event_stream([frame.replace(b"aus", b"von") for frame in ANSWERS[b]])
    found = [*compare([stream(dialect=a)], [stream(other, dialect=b)])]
    assert [each.path for each in found if each.breaking] == ["text of answer 0"]


@each_dialect
def test_a_har_of_a_dialect_comes_back_with_its_ending(dialect: str) -> None:
    for ending in (None, Fault.CUT):
        records = stream(event_stream(ANSWERS[dialect][: 8 if ending else None], end=ending), dialect=dialect)
        _, outcome = read(to_har([records])[0])
        assert outcome.streams[0][0].keys["dialect"] == dialect
        assert outcome.streams[0][-1].keys["ending"] == records[-1].keys["ending"]


@each_dialect
def test_a_cassette_and_a_raw_stream_of_a_dialect_are_read_as_that_dialect(dialect: str) -> None:
    body = b"".join(ANSWERS[dialect])
    request = {"method": "POST", "uri": f"https://api.example{PATHS[dialect]}", "body": asked("hi", dialect).decode()}
    headers = {"content-type": ["text/event-stream"]}
    answer = {"status": {"code": 200}, "headers": headers, "body": {"string": body.decode()}}
    cassette = dumps({"version": 1, "interactions": [{"request": request, "response": answer}]})
    for data, name in ((cassette, "vcr"), (body, "sse")):
        found, outcome = read(data)
        [records] = outcome.streams
        assert (found, records[0].keys["dialect"], records[1].keys["path"]) == (name, dialect, PATHS[dialect])
        assert Outcome(records).fold.text == "Grüße aus Zürich"
        assert records[-1].keys["ending"] == "completed"


# -- what only the provider can read ----------------------------------------------------------------------------------


def _thought(proof: str) -> Mapping[str, list[bytes]]:
    """Return an answer with a proof in each dialect that has them."""
    item = {"type": "reasoning", "id": "rs_1", "summary": None, "encrypted_content": proof}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": proof}}
    return {
        "responses": [dumps({"type": "response.output_item.done", "output_index": 0, "item": item})],
        "messages": [dumps(delta)],
    }


_ASKED_AGAIN: Final[Mapping[str, Callable[[str], Any]]] = {
    "responses": lambda proof: {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": proof},
    "messages": lambda proof: {"role": "assistant", "content": [{"type": "thinking", "signature": proof}]},
}


@pytest.mark.parametrize("dialect", _ASKED_AGAIN)
def test_proofs_are_renamed_and_found_again(dialect: str) -> None:
    def turns(proof: str) -> list[list[Record]]:
        frames = [b"data: %b\n\n" % frame for frame in _thought(proof)[dialect]]
        first = stream(event_stream([*ANSWERS[dialect][:1], *frames, *ANSWERS[dialect][1:]]), dialect=dialect)
        second = stream(text="again", dialect=dialect)
        [list_] = [name for name in ("input", "messages") if name.encode() in (second[1].raw or b"")]
        body = dumps({"model": "m", "stream": True, list_: [_ASKED_AGAIN[dialect](proof)]})
        return [first, [second[0], second[1]._replace(raw=body, payload=body), *second[2:]]]

    data, other = (seal(turns(proof)) for proof in ("EqoB" + "x" * 400, "AbCd" + "y" * 300))
    assert b"xxxx" not in data
    assert data.count(b'"proof_1"') == 2
    assert data == other, "another recording of the same"
    checked(data)


# -- crossed tapes -----------------------------------------------------------------------------------------------------


@each_pair
def test_a_crossed_tape_is_played_as_its_client_got_it(client: str, upstream: str) -> None:
    records = crossed(client, upstream)
    assert is_crossed(records)
    script = script_of(records, speed=ORIGINAL)
    assert (script.status, script.body, script.fault) == (200, emit(records), None)
    assert sum(step.delay_s for step in script.steps) <= 0.5 * len(ANSWERS[upstream])
    fold = Outcome(records).fold
    assert (fold.ending, fold.text, [call.name for call in fold.calls]) == (
        "completed", "Grüße aus Zürich", ["read_file", "write_file"],
    )  # fmt: skip
    assert verdict([*compare([records], [stream(dialect=client)])]) < 2


@each_pair
def test_a_cut_crossed_stream_is_a_failure_for_the_client(client: str, upstream: str) -> None:
    records = crossed(client, upstream, cut=True)
    assert Outcome(records).fold.ending == "truncated"
    script = script_of(records)
    assert script.fault is None, "the client was told"
    assert Outcome(records, script).fold.ending == "upstream_error"


@each_pair
def test_a_crossed_tape_is_sealed_and_found_by_its_clients_request(client: str, upstream: str) -> None:
    data = seal([crossed(client, upstream)])
    recording = checked(data)
    deck = deck_of(recording.streams)
    sent = Request(b"POST", PATHS[client].encode(), (), asked("hi", client))
    assert isinstance(deck.take(sent), Taken)
    other = Request(b"POST", PATHS[upstream].encode(), (), asked("hi", upstream))
    assert not isinstance(deck_of(recording.streams).take(other), Taken)


@pytest.mark.parametrize("redaction", [Redaction(prompts=True), Redaction(paths=("instructions",))])
def test_what_a_crossed_answer_repeats_of_its_request_is_redacted_with_it(redaction: Redaction) -> None:
    records = crossed("responses", "chat")
    body = asked("hi", "responses", instructions="Answer as people in Ulm do.")
    records[1] = records[1]._replace(raw=body, payload=body, value=parse(body))
    attempt = records[2]
    crossing = {**attempt.keys["crossing"], "echo": {"instructions": "Answer as people in Ulm do.", "top_p": 0.5}}
    records[2] = attempt._replace(keys={**attempt.keys, "crossing": crossing})
    assert b"Ulm" in emit(records)
    data = seal([records], Rules(redaction=redaction))
    assert b"Ulm" not in data
    assert b"Ulm" not in emit(parse_tape(data).streams[0])
    assert redaction.prompts or b'"top_p":0.5' in data


@pytest.mark.parametrize("upstream", ["chat", "messages"])
def test_a_crossed_response_is_continued_by_the_id_that_its_replay_gives_out(upstream: str) -> None:
    def going_on(id_: str) -> bytes:
        return asked("more", "responses", previous_response_id=id_)

    first, second = crossed("responses", upstream), crossed("responses", upstream)
    given = f"resp_{first[0].keys['stream']}"
    second[0] = second[0]._replace(keys={**second[0].keys, "stream": "t" * 32})
    body = going_on(given)
    second[1] = second[1]._replace(raw=body, payload=body, value=parse(body))
    recording = checked(seal([first, second]))
    deck = deck_of(recording.streams)
    path = PATHS["responses"].encode()
    answers = [deck.take(Request(b"POST", path, (), each)) for each in (asked("hi", "responses"), body)]
    assert [isinstance(taken, Taken) and taken.place for taken in answers] == [0, 1]
    assert given.encode() in script_of(recording.streams[0]).body
    other = deck_of(recording.streams).take(Request(b"POST", path, (), going_on(f"resp_{'t' * 32}")))
    assert not isinstance(other, Taken)


@each_pair
def test_a_fault_lies_over_what_the_client_of_a_crossed_tape_gets(client: str, upstream: str) -> None:
    serving = Serving(deck_of([crossed(client, upstream)]), Faults.of(["reset@tool:write_file+4"]))
    script = serving.choose(Request(b"POST", PATHS[client].encode(), (), asked("hi", client)))
    assert script.fault is Fault.RESET
    fold = serving.answers[0].fold
    assert (fold.ending, fold.calls[-1].arguments, fold.calls[-1].state) == ("reset", '{"pa', "dropped")


@pytest.mark.parametrize("ending", ["client_gone", "shutdown", "crashed", "internal"])
def test_after_an_end_that_no_client_heard_a_crossed_replay_is_silent(ending: str) -> None:
    records = crossed("messages", "chat", cut=True)
    end = records[-1]
    records[-1] = end._replace(keys={**end.keys, "ending": ending, "cause": ending, "answer": "broken"})
    script = script_of(records)
    assert script.fault is Fault.STALL
    assert emit(records).startswith(script.body)
    assert b"event: error" not in script.body


@each_pair
def test_a_crossed_tape_is_exported_as_its_client_got_it(client: str, upstream: str) -> None:
    records = crossed(client, upstream)
    exported, losses = to_har([records])
    assert losses["merged"] == 1
    [[*again]] = read(exported)[1].streams
    assert b"".join(data for _, data in reads(again)) == emit(records)
    assert again[0].keys["dialect"] == client


@each_crossed
async def test_a_crossed_recording_is_verified_against_its_upstream(path: Path) -> None:
    recording = load(path)
    attempts = [attempts_of(records)[-1] for records in recording.streams]
    pieces = [[data for _, data in reads(attempt)] for attempt in attempts]
    streamed = [any(record.kind == "frame" for record in attempt) for attempt in attempts]
    scripts = iter(
        [
            event_stream(each) if streams else json_answer(b"".join(each))
            for each, streams in zip(pieces, streamed, strict=True)
        ]
    )
    async with listening(lambda _: next(scripts)) as (url, upstream):
        found = await verify(recording, url)
    spoken = {str(attempt[0].keys["dialect"]) for attempt in attempts}
    assert {outcome.request.target.decode() for outcome in upstream.seen} == {PATHS[name] for name in spoken}
    assert [difference.line() for difference in found if difference.breaking] == []
