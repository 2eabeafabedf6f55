"""What a crash leaves is mended: torn tails are cut, everything acknowledged stays, every tape gets its ending."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from tests.proxy.store_cases import flat, stream_of
from wiretape.events.emit import Emitter, emit
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Damage, Reader
from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.log import Log
from wiretape.proxy.serve import running
from wiretape.proxy.store.files import Mended, Recovered, mended, recover
from wiretape.proxy.store.folder import Folder
from wiretape.proxy.store.tape_file import best_sync

LINES = [encode(record) for record in flat(stream_of("s1", call_id="call-1", end=False))]
WHOLE = b"".join(encode(record) for record in flat(stream_of("s1", call_id="call-1")))


def mended_bytes(data: bytes) -> Mended:
    with NamedTemporaryFile(suffix=".tape") as file:
        file.write(data)
        file.flush()
        return mended(Path(file.name))


def records_of(data: bytes) -> tuple[list[Record], list[Damage], bytes]:
    reader = Reader()
    return reader.feed(data), reader.damage, reader.torn


def whole_again(data: bytes) -> bytes:
    what = mended_bytes(data)
    return data[: what.cut_at] + what.end


# -- one tape, pure ---------------------------------------------------------------------------------------------------


def cuts_of_the_last_two() -> Iterator[int]:
    whole = b"".join(LINES)
    yield from range(len(whole) - len(LINES[-1]) - len(LINES[-2]), len(whole) + 1)


@pytest.mark.case("P14")
def test_a_tail_torn_at_any_byte_of_two_records_is_cut_off() -> None:
    whole = b"".join(LINES)
    for cut in cuts_of_the_last_two():
        kept = [line for number, line in enumerate(LINES) if len(b"".join(LINES[: number + 1])) <= cut]
        what = mended_bytes(whole[:cut])
        assert what.cut_at == len(b"".join(kept))
        assert what.torn == cut - what.cut_at
        assert what.damage == ()
        records, damage, torn = records_of(whole_again(whole[:cut]))
        assert (damage, torn) == ([], b"")
        assert [encode(record) for record in records[:-1]] == kept
        assert records[-1].kind == "end"


@pytest.mark.parametrize(
    ("kept", "ending", "flags"),
    [
        (len(LINES), "completed", []),  # its last frame was [DONE]
        (len(LINES) - 1, "completed", ["no_done"]),  # its finish had come
        (len(LINES) - 2, "crashed", []),
        (2, "crashed", []),
        (1, "crashed", []),
    ],
)
def test_a_mended_tape_ends_as_its_records_say(kept: int, ending: str, flags: list[str]) -> None:
    records, _, _ = records_of(whole_again(b"".join(LINES[:kept])))
    end = records[-1]
    assert (end.keys["cause"], end.keys["ending"], end.keys["flags"]) == ("crashed", ending, flags)
    assert (end.n, end.t) == (kept, records[-2].t)


def test_a_tape_that_our_reading_fails_on_gets_its_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Emitter, "feed", _failing)
    records, damage, torn = records_of(whole_again(b"".join(LINES[:-1])))
    assert (damage, torn, records[-1].kind) == ([], b"", "end")
    assert (records[-1].keys["ending"], records[-1].keys["flags"]) == ("crashed", ["failed_here"])


def _failing(self: Emitter, record: Record) -> list[bytes]:
    del self
    assert record.kind != "frame", "what nobody thought of"
    return []


def test_a_mended_tape_counts_its_last_attempt_and_names_the_lost_call() -> None:
    lost = Record(2, 5, "frame", raw=b": one\n\n")
    again, frame = Record(3, 6, "attempt"), Record(4, 7, "frame", raw=b": two!\n\n")
    records, _, _ = records_of(whole_again(b"".join([*LINES[:2], *map(encode, (lost, again, frame))])))
    assert (records[-1].keys["bytes"], records[-1].keys["frames"]) == (8, 1)
    assert b"look_up" in emit(records_of(whole_again(b"".join(LINES[:-2])))[0])


@pytest.mark.parametrize(
    ("damaged", "at", "reason"),
    [
        pytest.param(
            [*LINES[:3], LINES[3].replace(b"word", b"wore"), *LINES[4:]], 3, "checksum does not match", id="a bit"
        ),
        pytest.param([*LINES[:3], b"\0" * 4096 + b"\n", *LINES[3:]], 3, "not a record", id="a page of zeros"),
        pytest.param([*LINES[:3], b"junk\n", *LINES[3:]], 3, "not a record", id="a line of junk"),
        pytest.param([*LINES[:4], LINES[3], *LINES[4:]], 4, "record 3 again", id="a block twice"),
        pytest.param([*LINES[:3], *LINES[4:]], 3, "records 3 to 3 are missing", id="a block lost"),
    ],
)
@pytest.mark.case("P14")
def test_damage_in_the_middle_is_reported_with_its_place_and_stays(damaged: list[bytes], at: int, reason: str) -> None:
    data = b"".join(damaged)
    what = mended_bytes(data)
    assert what.cut_at == len(data)
    assert what.damage[0] == (len(b"".join(damaged[:at])), reason)
    assert [damage.reason for damage in what.damage[1:]] in ([], ["records 3 to 3 are missing"])
    assert whole_again(data).startswith(data)


@pytest.mark.case("P14")
def test_every_flipped_bit_is_detected_and_nothing_raises() -> None:
    data = b"".join(LINES[1:4])
    good = [encode(record) for record in records_of(data)[0]]
    for place in range(len(data)):
        for bit in (0, 5, 7):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            what = mended_bytes(bytes(flipped))
            kept = [encode(record) for record in records_of(whole_again(bytes(flipped)))[0]]
            assert what.torn or len(what.damage) > 1 or kept[:3] != good  # `data` begins at record 1: one damage is its
            assert all(line in good for line in kept[:-1])


# -- a folder ---------------------------------------------------------------------------------------------------------


def left_behind(root: Path, tapes: dict[str, bytes]) -> None:
    (root / "live").mkdir(parents=True)
    for name, data in tapes.items():
        (root / "live" / f"{name}.tape").write_bytes(data)


def recovered(root: Path) -> list[Recovered]:
    folder = Folder(root)
    try:
        return recover(folder, best_sync())
    finally:
        folder.close()


def test_every_tape_in_live_is_mended_and_moves_to_its_day(tmp_path: Path) -> None:
    torn = b"".join(LINES)[:-7]
    left_behind(tmp_path, {"s1": torn, "s2": WHOLE, "s3": b"", "s4": b'{"c":"', "s5": b"junk\n"})
    (tmp_path / "live" / "notes.txt").write_text("not ours")
    found = {tape.stream: tape for tape in recovered(tmp_path)}
    day = tmp_path / "2026-11-18"
    assert (day / "s1.tape").read_bytes() == whole_again(torn)
    assert (day / "s2.tape").read_bytes() == WHOLE
    assert [(found[name].path, found[name].torn) for name in ("s3", "s4")] == [(None, 0), (None, 6)]
    assert found["s1"].torn == len(LINES[-1]) - 7
    assert found["s5"].path is not None  # it is not known what this was, so it stays
    assert [damage.reason for damage in found["s5"].damage] == ["not a record"]
    assert [path.name for path in (tmp_path / "live").iterdir()] == ["notes.txt"]
    assert recovered(tmp_path) == []


@pytest.mark.case("P16")
def test_a_tape_of_a_newer_format_is_left_alone_and_reported(tmp_path: Path) -> None:
    newer = encode(Record(0, 0, "open", {"format": 2, "stream": "s1"})) + b'{"c":"torn'
    left_behind(tmp_path, {"s1": newer})
    for _ in range(2):
        (tape,) = recovered(tmp_path)
        assert "format 2 is newer" in tape.refused
        assert (tmp_path / "live" / "s1.tape").read_bytes() == newer


@pytest.mark.case("P16")
def test_newer_kinds_and_keys_are_kept(tmp_path: Path) -> None:
    lines = [
        *LINES[:2],
        encode(Record(2, 3, "hologram", {"depth": [1, 2]}, b"x")),
        encode(Record(3, 4, "gone", {"new": 1})),
    ]
    left_behind(tmp_path, {"s1": b"".join(lines)})
    (tape,) = recovered(tmp_path)
    assert tape.damage == ()
    assert tape.path is not None
    assert tape.path.read_bytes().startswith(b"".join(lines))


def test_a_recovered_tape_never_replaces_another(tmp_path: Path) -> None:
    left_behind(tmp_path, {"s1": WHOLE})
    (tmp_path / "2026-11-18").mkdir()
    (tmp_path / "2026-11-18" / "s1.tape").write_bytes(b"first")
    (tape,) = recovered(tmp_path)
    assert "exists already" in tape.refused
    assert (tmp_path / "2026-11-18" / "s1.tape").read_bytes() == b"first"
    assert (tmp_path / "live" / "s1.tape").read_bytes() == WHOLE


async def test_a_tape_that_was_not_recovered_is_logged_with_the_reason(tmp_path: Path) -> None:
    newer = encode(Record(0, 0, "open", {"format": 2, "stream": "s2"}))
    left_behind(tmp_path / "data", {"s1": WHOLE, "s2": newer})
    route = Route(name="", targets=(Target(name="x", url="http://127.0.0.1:9/v1"),))
    with (tmp_path / "log").open("wb") as file, closing(Log(file.fileno(), human=False)) as log:
        async with running(Config(data=tmp_path / "data", port=0, routes={"": route}), log=log):
            pass
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(line["event"], line["stream"]) for line in lines] == [("not_recovered", "s2"), ("recovered", "s1")]
    assert "format 2 is newer" in lines[0]["why"]
