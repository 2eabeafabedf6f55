"""Serve recordings: lines and leftovers, faults, and the outcome of each response."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.replay.dialects import ANSWERS, PATHS
from tests.replay.made import asked, deck_of, live, sealed, stream
from tests.support.tapes import CHAT, asking, records_of, text
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.tape.record import Record
from wiretape.replay.faults.faults import Faults
from wiretape.replay.matching.match import Deck, How, Taken
from wiretape.replay.playback.script import Fault, Request, Script, Step, event_stream
from wiretape.replay.playback.server import Served
from wiretape.replay.sealed.sealed import encode
from wiretape.replay.serving.serving import Serving, load_deck

#: Found by its shape.
KEY = b"sk-proj-" + b"abcdefghijklmnopqrstuvwxyz0123456789"


class Table:
    """A replay of these files, and its lines."""

    def __init__(self, *paths: Path, how: How = "key", faults: Faults | None = None, **more: Any) -> None:
        self.lines: list[str] = []
        deck = load_deck(paths, how)
        self.serving = Serving(deck, faults or Faults(), say=self.lines.append, **more)

    def ask(self, text: str, dialect: str = "chat") -> Script:
        return self.serving.choose(Request(b"POST", PATHS[dialect].encode(), (), asked(text, dialect)))


def unplayable(records: Sequence[Record]) -> list[Record]:
    return [each._replace(keys={**each.keys, "status": None}) if each.kind == "head" else each for each in records]


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "a.tape"
    path.write_bytes(sealed(stream(text="a"), stream(event_stream(ANSWERS["chat"][:3], end=Fault.CUT), "b")))
    return path


def test_a_tape_without_streams_is_an_error(tmp_path: Path) -> None:
    (path := tmp_path / "a.tape").write_bytes(encode({}, []))
    with pytest.raises(TapeError, match=f"{path}: line 1: the tape contains no stream"):
        load_deck([path], "key")


def test_each_request_has_a_line(tape: Path) -> None:
    table = Table(tape)
    table.ask("b")
    table.ask("a")
    assert table.ask("c").status == 599
    size = len(b"".join(ANSWERS["chat"]))
    some = len(b"".join(ANSWERS["chat"][:3]))
    assert table.lines[:2] == [
        f"POST /v1/chat/completions -> {tape}, stream 2: 200, {some} bytes in 3 chunks, cut",
        f"POST /v1/chat/completions -> {tape}, stream 1: 200, {size} bytes in 12 chunks, complete",
    ]
    assert table.lines[2].startswith("POST /v1/chat/completions -> miss: nothing recorded answers")
    assert 'messages[0].content: "a" -> "c"' in table.lines[2]
    assert f"to record it: wiretape record --upstream URL -o {tape} -- COMMAND" in table.lines[2]
    assert all("\n" not in line for line in table.lines)
    assert (table.serving.requests, table.serving.missed, table.serving.remaining()) == (3, 1, [])


def test_a_response_without_a_body_has_a_line_without_its_bytes() -> None:
    script = Script(status=204, steps=[Step(0, b"unsent")], headers=())
    lines: list[str] = []
    serving = Serving(deck_of([stream(script, "a")]), Faults(), say=lines.append)
    serving.choose(Request(b"POST", PATHS["chat"].encode(), (), asked("a")))
    assert lines == ["POST /v1/chat/completions -> stream 1: 204, 0 bytes in 0 chunks, complete"]


def test_streams_that_were_not_requested_are_listed(tape: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.tape"
    other.write_bytes(live(stream(text="z")))
    table = Table(tape, other)
    table.ask("a")
    assert table.serving.remaining() == [f"{tape}, stream 2 was not requested", f"{other} was not requested"]
    many = tmp_path / "many.tape"
    many.write_bytes(sealed(*[stream(text=str(number)) for number in range(25)]))
    assert Table(many).serving.remaining()[-1] == "nor were 5 more"


def test_a_fault_without_a_place_is_listed(tape: Path) -> None:
    table = Table(tape, faults=Faults.of(["cut@tool:missing", "cut@frame:1#1"]))
    table.ask("a")
    table.ask("b")
    assert table.serving.remaining() == ["fault cut@tool:missing had no place in any response"]
    assert table.lines[0].endswith("chunks, cut (faulty)")


def test_an_internal_error_is_one_response_and_one_line(tape: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tape)
    nothing: dict[str, Taken] = {}

    def take(_: Deck, request: Request) -> Taken:
        return nothing[f"my prompt to {request.target!r}"]

    with monkeypatch.context() as patched:
        patched.setattr(Deck, "take", take)
        answer = table.ask("a")
    assert answer.status == 500
    assert (b"X-Should-Retry", b"false") in answer.headers
    assert parse(answer.body)["error"]["code"] == "internal"
    [line] = table.lines
    assert line.startswith("POST /v1/chat/completions -> internal error: KeyError in test_serving.py line ")
    assert "my prompt" not in line
    assert table.ask("a").status == 200


def test_keys_in_a_query_are_masked(tape: Path) -> None:
    table = Table(tape)
    table.serving.choose(Request(b"GET", b"/v1/models?api_key=abcdef", (), b""))
    assert "abcdef" not in table.lines[0]
    assert "GET /v1/models?api_key=***" in table.lines[0]
    table.serving.choose(Request(b"GET", b"/v1/models?k=" + KEY, (), b""))
    assert KEY.decode() not in table.lines[1]
    assert "GET /v1/models?k=[redacted-openai]" in table.lines[1]


def test_a_client_that_left_first_is_reported(tape: Path) -> None:
    table = Table(tape)
    outcome = Served(Request(b"POST", b"/v1/chat/completions?key=secret", (), b""))
    outcome.ended, outcome.due, outcome.pieces, outcome.bytes = "left", 12, 3, 450
    table.serving.ended(outcome)
    assert [line.replace("secret", "SECRET") for line in table.lines] == table.lines
    assert table.lines[0].startswith("POST /v1/chat/completions?")
    assert table.lines[0].endswith(": the client left after 3 of 12 chunks, 450 bytes")
    for ended, pieces in (("left", 12), ("ended", 12), ("reset", 3)):  # the first is a recorded silence
        outcome.ended, outcome.pieces = ended, pieces
        table.serving.ended(outcome)
    assert len(table.lines) == 1


# -- what a test learns -----------------------------------------------------------------------------------------------

STREAMS = [records_of(text("hi", "sunny")), records_of(text("more", "rain"))]


def serving(*faults: str, streams: Sequence[Sequence[Record]] = STREAMS, match: How = "key", **more: Any) -> Serving:
    return Serving(deck_of(streams, match), Faults.of(faults), **more)


def request(question: str) -> Request:
    return Request(b"POST", CHAT.encode(), [(b"X-Name", b"a"), (b"x-name", b"b")], dumps(asking(question)))


@pytest.mark.parametrize("match", ["key", "position"])
@pytest.mark.parametrize("fault", ["drop@done", "duplicate@done", "eof@done", "rechunk=1"])
def test_a_fault_that_leaves_the_response_complete_counts_as_answered(fault: str, match: How) -> None:
    served = serving(fault, streams=STREAMS[:1] * 2, match=match)
    assert [served.choose(request("hi")).status for _ in range(3)] == [200, 200, 599]


def test_by_position_only_the_same_request_is_a_retry() -> None:
    more = "something else"
    served = serving("cut@text", match="position")
    sunny = [b"sunny" in served.choose(request(words)).body for words in ("hi", "hi", more, more)]
    assert sunny == [True, True, False, False]
    assert not served.unused


def test_an_unplayable_stream_is_kept_and_shifts_no_line() -> None:
    served = serving(streams=[unplayable(STREAMS[0]), STREAMS[1]])
    served.choose(request("hi"))
    served.choose(request("more"))
    assert isinstance(served.broken, AssertionError), "loading a tape refuses it before"
    assert [line.rpartition("-> ")[2] for line in served.lines] == ["no recorded response", "stream 2, completed"]
