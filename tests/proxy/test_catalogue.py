"""The catalogue says what the tapes say, and nothing is lost with it."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.laws.generated import streams
from tests.proxy.store_cases import CREATED, opened_files, put, stream_of
from tests.support.chat import DONE, call, finish, frame
from tests.support.chat import tape as chat_tape
from tests.support.corpus import needs_corpus, sampled
from wiretape.events.core.json_text import dumps
from wiretape.events.emit import Emitter, summarise
from wiretape.events.tape.record import Record
from wiretape.proxy.config.model import Keep
from wiretape.proxy.limits import PARSE_INLINE_BYTES_MAX
from wiretape.proxy.store.catalogue import reindex
from wiretape.proxy.store.catalogue_row import (
    AnswerRow,
    digest,
    row_of_tape,
)
from wiretape.proxy.store.files import FileStore, open_files
from wiretape.proxy.store.folder import Folder
from wiretape.proxy.store.store import Filter, links_of

USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}


# -- rows of a tape ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "expected"), [(5, 5), (2**63 - 1, 2**63 - 1), (2**63, None), (-1, None), ("5", None), (True, None)]
)
def test_a_token_count_is_a_number_that_sqlite_takes(count: Any, expected: int | None) -> None:
    upstream = [frame({"content": "a"}, "stop", usage={**USAGE, "prompt_tokens": count}), DONE]
    assert row_of_tape("s1", chat_tape(upstream)).stream.input_tokens == expected


JUNK = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=4)


@given(keys=st.dictionaries(st.sampled_from(["created", "caller", "route", "dialect", "ending", "flags"]), JUNK))
def test_junk_in_a_record_still_makes_a_valid_row(keys: dict[str, Any]) -> None:
    row = row_of_tape("s1", [Record(0, 0, "open", keys), Record(1, 0, "end", keys)]).stream
    assert 0 <= row.created < 2**63
    assert isinstance(row.caller, str)
    assert all(isinstance(flag, str) for flag in row.flags)


@pytest.mark.parametrize(
    ("created_us", "opened_us"), [(7_250_000, 7_250_000), (9_000_000, 7_000_000), ("x", 7_000_000), (None, 7_000_000)]
)
def test_a_call_is_handed_over_with_its_finish(created_us: Any, opened_us: int) -> None:
    whole = [call(index=0, id="a", name="f", arguments=' {"x": 1.0, "b": [1] }'), finish("tool_calls"), DONE]
    made = chat_tape([*whole])
    made[0] = made[0]._replace(keys={**made[0].keys, "created_us": created_us})
    made[1] = made[1]._replace(keys={**made[1].keys, "messages": 5})
    (row,) = row_of_tape("s1", made).calls
    assert (row.handed_us, row.messages) == (opened_us + 2, 5)
    assert row.arguments == digest('{"b":[1],"x":1}')
    (cut,) = row_of_tape("s1", chat_tape(whole[:1])).calls
    assert (cut.handed_us, cut.messages, cut.arguments) == (7_000_000 + (1 << 40), -1, "")


def test_rewritten_arguments_have_the_same_digest_up_to_a_bound() -> None:
    same = ['{"a":1,"b":"\u00e9"}', ' { "b" : "\\u00e9", "a" : 1.0 } ', '{"a":1e0,"b":"é"}']
    assert len({digest(text) for text in same}) == 1
    assert digest("") == digest("{}") != digest("[]")
    assert len({digest("{"), digest("{ "), digest("\ud83d"), digest("\ud83e")}) == 4  # no JSON
    huge, half = 123456789012345678901234567890, '"\\ud83d"'
    assert digest(f'{{"n":{huge},"s":{half}}}') == digest(f'{{ "s": {half}, "n": {huge} }}')  # orjson writes neither
    assert digest('[1.0,{"a":-2.0}]') == digest('[1,{"a":-2}]') != digest('[1.5,{"a":-2}]')
    deep = "[" * 500 + "]" * 500
    assert digest(deep) != digest("[]")
    for over, equal in ((-1, True), (0, True), (1, False)):
        text_of = "x" * (PARSE_INLINE_BYTES_MAX + over - 14)
        said, other = f'{{"a":"{text_of}","b":1}}', f'{{"b":1,"a":"{text_of}"}}'
        assert len(said) == PARSE_INLINE_BYTES_MAX + over
        assert (digest(said) == digest(other)) is equal


# -- the file ---------------------------------------------------------------------------------------------------------


def answer(call_id: str, **named: Any) -> AnswerRow:
    """A result of the call that `stream_of` makes."""
    said: dict[str, Any] = {"caller": "c1", "call": call_id, "stream": "new", "name": "look_up"}
    said |= {"arguments": digest("{}"), "after": 1, "failed": False, "arrived_us": (CREATED + 100) * 1_000_000}
    return AnswerRow(**said | named)


async def fill(store: FileStore, count: int) -> None:
    for number in range(count):
        stream = f"s{number}"
        await store.create(stream)
        call_id = f"call-{number % 3}" if number % 2 else ""
        for batch in stream_of(stream, created=CREATED + number // 4, call_id=call_id, caller=f"c{number % 2}"):
            await store.append(stream, batch)


def content(root: Path) -> list[str]:
    base = sqlite3.connect(root / "catalogue.db")
    try:
        return sorted(base.iterdump())
    finally:
        base.close()


def reindexed(root: Path) -> int:
    folder = Folder(root)
    try:
        return reindex(folder)
    finally:
        folder.close()


async def test_a_catalogue_that_lacks_rows_is_completed_at_the_next_start(tmp_path: Path) -> None:
    async with opened_files(tmp_path) as store:
        await fill(store, 50)
        calls = [await links_of(store, [answer(f"call-{number}")], {}) for number in range(3)]
    before, path = content(tmp_path), tmp_path / "catalogue.db"
    assert all(link is not None for (link,) in calls)
    assert reindexed(tmp_path) == 50
    assert content(tmp_path) == before
    base = sqlite3.connect(path)
    base.execute("DELETE FROM streams WHERE stream LIKE 's1%'")
    base.commit()
    base.close()
    for deleted in (False, True):
        if deleted:
            path.unlink()
        async with opened_files(tmp_path) as store:
            while len(await store.list(Filter())) < 50:
                pass
            assert [await links_of(store, [answer(f"call-{number}")], {}) for number in range(3)] == calls
        assert content(tmp_path) == before
    (tmp_path / "2026-11-18" / "s4.tape").unlink()
    async with opened_files(tmp_path) as store:
        while len(rows := await store.list(Filter())) != 49:
            pass
    assert "s4" not in {row.stream for row in rows}


async def test_the_turns_of_a_run_are_all_found_by_the_first_look_after_a_crash(tmp_path: Path) -> None:
    """With its newest turn missing, a run would be in another state."""
    async with opened_files(tmp_path) as store:
        for number in range(50):
            turn = stream_of(f"s{number}", run="run_a", turn=number + 1, created=CREATED - number * 7_200)
            await put(store, f"s{number}", turn)
    (tmp_path / "catalogue.db").unlink()
    async with opened_files(tmp_path) as store:
        assert len(await store.list(Filter(run="run_a"))) == 50


async def test_a_tape_that_our_reading_fails_on_is_still_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_files(tmp_path) as store:
        await put(store, "a", stream_of("a"))
        await put(store, "b", stream_of("b"))
    feed = Emitter.feed

    def failing(self: Emitter, record: Record) -> list[bytes]:
        assert record.kind != "frame", "a bug of ours"
        return feed(self, record)

    monkeypatch.setattr(Emitter, "feed", failing)
    assert reindexed(tmp_path) == 2


@pytest.mark.parametrize("damage", ["no database", "half a page", "empty", "other version", "wrong pages"])
async def test_a_damaged_catalogue_is_replaced_with_one_warning(tmp_path: Path, damage: str) -> None:
    async with opened_files(tmp_path) as store:
        await fill(store, 30)
    before, path = content(tmp_path), tmp_path / "catalogue.db"
    data = path.read_bytes()
    if damage == "other version":
        base = sqlite3.connect(path)
        base.execute("PRAGMA user_version = 99")
        base.close()
    else:
        pages = data[:4096] + b"\xff" * (len(data) - 4096)
        path.write_bytes({"no database": b"x" * 8192, "half a page": data[:3000], "empty": b""}.get(damage, pages))
    said: list[str] = []
    async with open_files(tmp_path, warn=said.append) as store:
        while len(await store.list(Filter())) < 30:
            pass
        await put(store, "new", stream_of("new"))
        assert len(await store.list(Filter())) == 31
        assert await store.expire(CREATED, Keep(bytes=0)) != []
    assert len(said) == (0 if damage in ("empty", "other version") else 1), said
    assert len(before) > 30


@pytest.mark.parametrize("over", [-1, 0, 1])
async def test_of_very_many_equal_calls_the_latest_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: int
) -> None:
    monkeypatch.setattr("wiretape.proxy.store.catalogue.SAME_CALLS_MAX", 3)
    async with opened_files(tmp_path) as store:
        for number in range(3 + over):
            how: dict[str, Any] = {"created": CREATED + number, "messages": 1 + number}
            await put(store, f"s{number}", stream_of(f"s{number}", caller="c1", call_id="call_0", **how))
        (link,) = await links_of(store, [answer("call_0")], {})
        assert link is not None
        assert link.stream == ("s0" if over <= 0 else f"s{2 + over}")  # the first one had as many messages


def check_against_the_events(records: list[Record]) -> None:
    """Compare the row, which is made without events, with the summary that every event went into."""
    row, calls, _ = row_of_tape("s1", records)
    summary = summarise(records)
    counts = summary.wire.usage
    assert row.usage == (None if counts is None else dumps(counts).decode())
    assert (row.ending, list(row.flags)) == (summary.ending, summary.flags)
    assert {(call.call, call.name) for call in calls} <= {(call.id, call.name) for call in summary.wire.calls()}
    assert (row.first_frame_us, row.first_content_us) == (summary.first_frame_us, summary.first_content_us)


@given(body=streams())
@example(body=call(index=0, id="a", type="function", name="f", arguments="{}"))
def test_the_row_of_any_stream_agrees_with_its_events(body: bytes) -> None:
    check_against_the_events(chat_tape(body, reads=97))


@needs_corpus
@pytest.mark.slow
def test_the_row_of_every_captured_stream_agrees_with_its_events() -> None:
    for _, capture in sampled():
        check_against_the_events(chat_tape(capture.body, reads=1_000))
