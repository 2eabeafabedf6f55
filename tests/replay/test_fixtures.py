"""Every tape that was recorded from a real upstream: it loads, comes back through the player, and tells nothing."""

import getpass
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest
from trio.testing import MockClock

from tests.replay.virtual import taped
from wiretape.events.core.model import Ending
from wiretape.events.dialects import DIALECTS, spoken
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads
from wiretape.replay.check import check_files
from wiretape.replay.matching.match import request_of
from wiretape.replay.playback.script import ORIGINAL, attempts_of, script_of, uncrossed
from wiretape.replay.sealed.files import load

FOLDER = Path(__file__).parents[2] / "fixtures"
#: Those that a real upstream has a word in; the others are written by scripts of ours.
RECORDED = ("chat", "responses", "messages", "crossed", "exchange", "endings")
TAPES = sorted(path for name in RECORDED for path in (FOLDER / name).glob("*.tape"))
NAMES = [str(path.relative_to(FOLDER).with_suffix("")) for path in TAPES]
each_tape = pytest.mark.parametrize("path", TAPES, ids=NAMES)

#: Endings that the upstream did not cause: a replay falls silent there. No server can be made to refuse while it
#: listens, so that is a reset.
PLAYED = dict.fromkeys(("client_gone", "shutdown", "crashed", "internal", "limit"), "stalled") | {"refused": "reset"}


def test_fixtures_cover_every_ending() -> None:
    ended: dict[str, set[str]] = {name: set() for name in ("", *DIALECTS)}
    for path in TAPES:
        for records in load(path).streams:
            ended[spoken(records[0].keys["dialect"])].add(str(records[-1].keys["ending"]))
    assert {ending for endings in ended.values() for ending in endings} == set(get_args(Ending))
    # Only an upload and frames of megabytes exceed a limit.
    assert [set(get_args(Ending)) - {"limit"} - ended[name] for name in DIALECTS] == [set()] * len(DIALECTS)
    assert [name for name in DIALECTS if len([*(FOLDER / name).glob("*.tape")]) < 10] == []
    said = (FOLDER / "ORIGIN.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}.tape`" not in said] == []


@each_tape
def test_fixture_loads_and_names_no_machine(path: Path) -> None:
    assert not [found for found in check_files([path]) if found.wrong]
    assert path.stat().st_size < 100_000
    assert traces(path.read_bytes()) == []
    for records in load(path).streams:
        body = b"".join(data for _, data in reads(records))
        assert bool(emit(records)) >= (bool(body) and records[-1].keys["ending"] == "completed")


@each_tape
async def test_recording_a_replay_gives_the_same(path: Path, autojump_clock: MockClock) -> None:
    """Bytes, read sizes, times and the ending of the attempt that answered; of a crossed one, as its client got it."""
    del autojump_clock
    for records in map(uncrossed, load(path).streams):
        request = request_of(records)
        if b"/v1/runs" in request.target:  # the proxy answers these itself now
            request = request._replace(target=request.target.replace(b"/v1/runs", b"/v1/theirs"))
        again = await taped(script_of(records, speed=ORIGINAL), request=request)
        due, found = timed(records), timed(again)
        assert [data for _, data in found] == [data for _, data in due]
        assert all(abs(once - twice) <= len(due) for (once, _), (twice, _) in zip(due, found, strict=True))
        ending = str(records[-1].keys["ending"])
        assert again[-1].keys["ending"] == PLAYED.get(ending, ending)


def timed(records: Sequence[Record]) -> list[tuple[int, bytes]]:
    """Since the last attempt began."""
    attempt = attempts_of(records)[-1]
    return [(t - attempt[0].t, data) for t, data in reads(attempt)]


def traces(data: bytes) -> list[str]:
    """Return names of this machine that a tape contains."""
    # A shorter name is found in any id.
    names = {name for name in (getpass.getuser(), socket.gethostname()) if len(name) >= 5}
    words = {str(FOLDER.parent), str(Path.home()), "/tmp/", "/home/", "/Users/", *names}  # noqa: S108 - looked for
    return sorted(word for word in words if word.encode() in data)
