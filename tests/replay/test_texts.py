"""Texts of a recording: each scalar has its place, and an edit changes nothing else."""

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from wiretape.events.core.json_text import Edit, is_list, is_object
from wiretape.events.tape.record import Record
from wiretape.events.tape.record import encode as line_of
from wiretape.events.tape.tape import Reader, Recorder, reads
from wiretape.replay.sealed.texts import Path, Text, edited, scalars, texts

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
    changes: list[tuple[Text, list[Edit]]] = []
    for text in texts(records):
        places = [at for at in range(len(text.raw)) if text.raw.startswith(b"OLD", at)]
        changes.append((text, [Edit(at, at + 3, new) for at in places]))
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


def test_places_of_a_history_follow_edits() -> None:
    record = Record(0, 0, "request", {}, b'{"x":"OLD","y":"z"}')
    history = Record(1, 0, "history", {"edits": [[14, 17, '""'], "no edit"]})
    [asked, moved] = replaced([record, history], b"longer")
    [start, end, _] = moved.keys["edits"][0]
    assert (asked.raw or b"")[start:end] == (record.raw or b"")[14:17]
    assert moved.keys["edits"][1] == "no edit"


# -- scalars ---------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def leaves(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    if is_object(value):
        return [leaf for key, each in value.items() for leaf in leaves(each, (*path, key))]
    if is_list(value):
        return [leaf for at, each in enumerate(value) for leaf in leaves(each, (*path, at))]
    return [(path, value)]


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_each_scalar_has_its_place(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = [(each.path, json.loads(text[each.start : each.end])) for each in scalars(text) if each.sort != "name"]
    assert found == leaves(value)
