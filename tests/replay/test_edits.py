"""Changed recordings: all other bytes stay, each read keeps its place, and what speaks of them follows."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from wiretape.events.tape.record import Record
from wiretape.events.tape.record import encode as line_of
from wiretape.events.tape.tape import Reader, Recorder, reads
from wiretape.replay.sealed.texts import Change, Text, edited, texts

BODY: Final = b'data: {"a":"OLD"}\n\nevent: x\ndata: {"b":["OLD","OLD"]}\n\n: OLD\n\ndata: OLD'


def recording(cuts: Sequence[int], *, streamed: bool) -> list[Record]:
    recorder = Recorder()
    records = recorder.attempt(0, {"number": 1})
    places = [0, *sorted(set(cuts)), len(BODY)]
    for number, (start, end) in enumerate(pairwise(places)):
        part = BODY[start:end]
        records += recorder.read(number + 1, part) if streamed else [recorder.body(number + 1, part)]
    records += recorder.rest(99)
    records.append(recorder.record("gone", 99, {"at": len(records) - 1}))
    return [*records, recorder.end(99, {"cause": "eof"})]


def replaced(records: Sequence[Record], new: bytes) -> list[Record]:
    changes: list[tuple[Text, list[Change]]] = []
    for text in texts(records):
        places = [at for at in range(len(text.raw)) if text.raw.startswith(b"OLD", at)]
        changes.append((text, [Change(at, at + 3, new) for at in places]))
    return edited(records, changes)


@given(
    st.sets(st.integers(1, len(BODY) - 1)), st.sampled_from([b"", b"n", b"NEW", b"longer than it was"]), st.booleans()
)
def test_edit_changes_nothing_else(cuts: set[int], new: bytes, streamed: bool) -> None:
    before = recording(sorted(cuts), streamed=streamed)
    after = replaced(before, new)
    received = b"".join(data for _, data in reads(after))
    assert received == BODY.replace(b"OLD", new)
    assert {t for t, _ in reads(after)} <= {t for t, _ in reads(before)}
    assert after[-1].keys["sha256"] == hashlib.sha256(received).hexdigest()
    assert after[-1].keys["bytes"] == len(received)
    assert [record.n for record in after] == list(range(len(after)))
    assert after[-2].keys["at"] == len(after) - 3, "it names the same record"
    reader = Reader()
    assert reader.feed(b"".join(map(line_of, after))) == after
    assert not reader.damage


def test_read_boundaries_between_edits_stay() -> None:
    before = recording([9, 30, 50], streamed=True)
    assert [data for _, data in reads(replaced(before, b"another"))] == [
        BODY[start:end].replace(b"OLD", b"another") for start, end in ((0, 9), (9, 30), (30, 50), (50, len(BODY)))
    ]


def test_no_edit_changes_nothing() -> None:
    records = recording([], streamed=True)
    assert edited(records, [(text, []) for text in texts(records)]) == records


def test_places_of_a_history_follow_edits() -> None:
    record = Record(0, 0, "request", {}, b'{"x":"OLD","y":"z"}')
    history = Record(1, 0, "history", {"edits": [[14, 17, '""'], "no edit"]})
    [asked, moved] = replaced([record, history], b"longer")
    [start, end, _] = moved.keys["edits"][0]
    assert (asked.raw or b"")[start:end] == (record.raw or b"")[14:17]
    assert moved.keys["edits"][1] == "no edit"
