"""What is a sign of life."""

import pytest

from tests.support.chat import DONE, frame, sse, text
from wiretape.events.tape.record import lives, speaks
from wiretape.events.tape.tape import Recorder

KEEPALIVE = b": keepalive\n\n"


@pytest.mark.parametrize(
    "alive",
    [text("a"), frame({}), DONE, b"data: {\n\n", b"data: {}\r\n\r\n", b"event: x\ndata: {}\n\n", b"data: \xff\n\n"],
)
def test_any_data_resets_the_stall_timer(alive: bytes) -> None:
    (record,) = Recorder().read(1, alive)
    assert speaks(record)
    assert lives(record)


@pytest.mark.parametrize(
    "silent",
    [b": c\n\n", b"event: x\n\n", b"data:\n\n", b"data: : c\n\n", b"event: ping\ndata: {}\n\n", sse({"type": "ping"})],
)
def test_comments_and_pings_are_none(silent: bytes) -> None:
    (record,) = Recorder().read(1, silent)
    assert not speaks(record)
    assert not lives(record)


def test_a_keepalive_is_life_of_an_agent_alone() -> None:
    (record,) = Recorder().read(1, KEEPALIVE)
    assert (speaks(record), lives(record)) == (False, True)
