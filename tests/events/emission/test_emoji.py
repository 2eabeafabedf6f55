"""Pictures of tools: none unless they are asked for, one for every name, and in the frames of each step alike."""

import pytest

from tests.support.chat import DONE, call, finish, run, tape
from wiretape.events.core.json_text import parse
from wiretape.events.emission.cards import emoji_of
from wiretape.events.tape.record import Record

CALLS = [
    call(index=0, id="c0", type="function", name="read_file", arguments='{"path":"x"}'),
    finish("tool_calls"),
    DONE,
]


@pytest.mark.parametrize(
    ("tool", "emoji"),
    [
        ("read_file", "📖"),
        ("readFile", "📖"),
        ("READ-FILE", "📖"),
        ("mcp__fs__write_text", "📝"),
        ("web_search", "🌐"),
        ("bash", "💻"),
        ("frobnicate", "🔧"),
        ("", "🔧"),
        ("日本", "🔧"),
    ],
)
def test_the_first_word_that_is_known_decides(tool: str, emoji: str) -> None:
    assert emoji_of(tool) == emoji


def frames(records: list[Record]) -> list[dict[str, object]]:
    sent = [frame for frame in run(records).sent if frame.startswith(b"event: ")]
    return [parse(frame.partition(b"\ndata: ")[2]) for frame in sent]


def test_there_is_no_emoji_by_default() -> None:
    assert all("emoji" not in frame for frame in frames(tape(CALLS)))


def test_every_step_of_a_call_has_the_same() -> None:
    made = [*frames(tape(CALLS, emoji=True)), *frames(tape(CALLS[:1], emoji=True))]
    assert [(frame["status"], frame["emoji"]) for frame in made] == [("running", "📖"), ("dropped", "📖")]
    result = Record(2, 0, "results", {"results": [{"id": "c0", "name": "read_file", "output": "hi"}]})
    opened, asked, *rest = tape(CALLS, emoji=True)
    told = frames([opened, asked, result, *(record._replace(n=record.n + 1) for record in rest)])
    assert [(frame["status"], frame["emoji"]) for frame in told] == [("completed", "📖"), ("running", "📖")]
