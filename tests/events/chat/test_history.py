"""Markers and warnings in an assistant's words are found and taken out; a person's words and plain code are not."""

import re
from time import process_time
from typing import Any

import pytest

from tests.support.chat import call_entry
from wiretape.events.core.json_text import ABSENT, apply, dumps, parse
from wiretape.events.core.lifecycle import State
from wiretape.events.core.limits import NAME_CHARS_MAX
from wiretape.events.core.settings import Facts
from wiretape.events.emission.marks import Marks, find_marks
from wiretape.events.emission.marks import remove_marks as edits
from wiretape.events.emission.words import WARNING, failure, warning
from wiretape.events.folds.wire import SIBLING, Call

WARNED = "⚠ Connection dropped mid tool-call: write_file was cut short. Not completed; no result seen."
#: As hermes-agent 0.19.0 writes it into its text, next to "⚠ Connection dropped mid tool-call; reconnecting…".
HERMES_STALLED = (
    "⚠ Stream stalled mid tool-call (terminal); the action was not executed. Ask me to retry if you want to continue."
)


def history(*contents: Any, role: str = "assistant") -> bytes:
    return dumps({"model": "m", "messages": [{"role": role, "content": content} for content in contents], "n": 1})


def found(body: bytes, value: Any) -> list[Marks]:
    return find_marks(body, value, "messages", "tool_calls")


def cleaned(body: bytes) -> Any:
    return parse(apply(body, edits(body, found(body, parse(body)))))


@pytest.mark.parametrize(
    ("said", "rest"),
    [
        ("\n`💻 ls -la`\nHere they are.", "Here they are."),
        ("Let me look.\n`⏰ list`\n\n`🔍 web_search`\nFound it.", "Let me look.\n\nFound it."),
        ("ok\n`🖼️ files`", "ok"),
        ("  indented\n`💻 ls`\n  and more\n", "  indented\n  and more\n"),
        ("a\r\n`💻 ls`\r\nb", "a\r\nb"),
        ("`🖥 python`\nok", "ok"),
        (f"I will write.\n\n{WARNED}", "I will write."),
        ("a\n\n⚠ Stream stalled mid tool-call: a, b were cut short. Nothing was executed.", "a"),
        ("a ⚠ Malformed tool call: the arguments of a are not valid JSON. Nothing was executed.", "a"),
        ("a ⚠ Size limit reached: the answer is incomplete.", "a"),
        ("a\n\n⚠ Size limit reached: the answer is incomplete.", "a"),
        (f"I will.{WARNED}", "I will."),
        (f"{WARNED}\n\nSo I write.", "So I write."),
        (f"I.\r\n\r\n{WARNED}\r\n", "I."),
        (f"I.\n\n{WARNED}\n\n{WARNED}\n\nI try.", "I.\n\nI try."),
        (f"I.\n\n{WARNED}\n\nI try.\n\n{WARNED}", "I.\n\nI try."),
        (f"````\n```\n````\n{WARNED}", "````\n```\n````"),
        ("```\r\nx\r\n```\r\n`💻 ls`\r\nok", "```\r\nx\r\n```\r\nok"),
        ("`💻 ls`\n\n\n`⏰ list`\nok", "ok"),
        (f"I will.{WARNED}\n", "I will."),
        (f"I.\r\n\r\n{WARNED}\r\nI try.", "I.\r\n\r\n\r\nI try."),
        ("~~~ `x`\ny\n ~~~~ \n`💻 ls`\nok", "~~~ `x`\ny\n ~~~~ \nok"),
        ("Run `a`\n    ```\n`💻 ls`\nok", "Run `a`\n    ```\nok"),
        ("``` `a`\n`💻 ls`\nok", "``` `a`\nok"),
        ("It \n\n⚠ Connection dropped mid tool-call; reconnecting…\n\nIt is.", "It \n\nIt is."),
        (f"It\n\n{HERMES_STALLED}", "It"),
        (HERMES_STALLED.replace("terminal", "a, b_c, d, +2 more") + "\n\nNow.", "Now."),
    ],
)
def test_what_is_found_is_taken_out(said: str, rest: str) -> None:
    assert cleaned(history(said))["messages"][0]["content"] == rest
    parts = [{"type": "image_url"}, {"type": "text", "text": said}]
    assert cleaned(history(parts))["messages"][0]["content"][1]["text"] == rest


@pytest.mark.parametrize(
    "said",
    [
        "plain",
        "Run `ls -la` first.",
        "`→ next`",
        "see `💻 ls` in the log",
        f"a {WARNED} b",
        "```\n💻 ls\n```",
        "`💻`",
        "`✓ 12 passed`\n`✗ 1 failed`\n`⚠ flaky`",
        "`★ Insight ───`\nYes.\n`──────`",
        "```\n`💻 ls -la`\n```",
        "```sh\n`💻 ls -la`",
        "⚠ Connection dropped. Try again.",
        "⚠ careful",
        "⚠ Connection dropped mid tool-call; I try again.",
        "⚠ Stream stalled mid tool-call (terminal).",
        7,
        None,
        [7, {"type": "image_url"}],
        pytest.param("````md\n```\n`💻 ls -la`\n```\n````\n", id="a block in a block of four backticks"),
        pytest.param("~~~\n`💻 ls -la`\n~~~\n", id="a block of tildes"),
        pytest.param("~~~\n```\n`💻 ls -la`\n", id="a block of tildes that no backticks end"),
        pytest.param("````\n~~~~\n`💻 ls -la`\n", id="a block of backticks that no tildes end"),
        pytest.param("   ```\n    ```\n`💻 ls -la`\n", id="a block that no line ends which is four blanks in"),
        pytest.param("```\n``` sh\n`💻 ls -la`\n", id="a block that no line ends which says more"),
        pytest.param("```\r\n`💻 ls -la`\r\n```\r\n", id="a block in Windows' lines"),
        pytest.param(f"The log says:\n```\n\n{WARNED}\n\n```\nso retry.", id="a warning in a block"),
        pytest.param(f"The log says:\n~~~\n\n{WARNED}", id="a warning in a block to the end"),
        pytest.param(f"It said:\n```\n\n{HERMES_STALLED}\n```\nNow.", id="a note of hermes in a block"),
        pytest.param("  `💻 ls -la`\n", id="a line further in"),
        pytest.param("> `💻 ls -la`\n", id="a line that is quoted"),
        pytest.param(f'You asked what "{WARNED}" means: the stream died.', id="in quotes inside a sentence"),
        pytest.param(f'You asked what this means: "{WARNED}"', id="in quotes at the end"),
        pytest.param(f'You asked what this means: "{WARNED}', id="behind quotes that nothing closes"),
        pytest.param(f"> {WARNED}", id="in a quotation, as all of it"),
        pytest.param(f"> {WARNED}\n\nThat means...", id="in a quotation"),
        pytest.param(f"You saw:\n\n- {WARNED}", id="in a list"),
        pytest.param(f"You saw:\n\n`{WARNED}`", id="in backticks"),
        pytest.param(f"You saw:\n{WARNED}\nIt means...", id="as a line inside a paragraph"),
        pytest.param(f"You saw {WARNED}\nIt means...", id="at the end of a sentence"),
        pytest.param(f"You saw:\n\n{WARNED} It means...", id="at the beginning of a sentence"),
        pytest.param(f"You saw:\n\n    {WARNED}\n\nIt means...", id="further in"),
        pytest.param("It said ⚠ Connection dropped mid tool-call; reconnecting…", id="a note of hermes in a sentence"),
        pytest.param("Click:\n`🚀 Launch`\nand wait.", id="a button"),
        pytest.param("Labels I created:\n\n`🐛 bug`\n`✨ feature`\n`📝 docs`\n", id="a list of labels"),
        pytest.param("Labels:\n\n`🐛 bug`\n\n`📝 docs`\n", id="a list of labels with blank lines"),
        pytest.param("Labels:\n\n`📝 docs`\n`🔧 fix`\n", id="a list of labels, each with a picture of a tool"),
        pytest.param("Labels:\n\n`📝 docs`\n`none`\n", id="a list, one without a picture"),
        pytest.param("Labels:\n\n`none`\n\n`📝 docs`\n", id="a list, one without a picture before"),
        pytest.param("Labels:\n\n`📝 docs`\n  `🔧 fix`\n", id="a list, one further in"),
        pytest.param("Labels:\n\n  `🔧 fix`\n`📝 docs`\n", id="a list, the first one further in"),
        pytest.param("Labels:\n\n`🐛 bug` \n`📝 docs`\n", id="a list, one with a blank behind it"),
        pytest.param("`👨‍💻 python`\nok", id="a picture that has one of a tool in it"),
        pytest.param("`🗂️ files`\nok", id="a picture of no tool of hermes"),
        pytest.param("`💻💻 ls`\nok", id="two pictures"),
        pytest.param("`💻ls`\nok", id="no blank"),
    ],
)
def test_what_only_looks_like_it_stays(said: Any) -> None:
    body = history(said)
    assert found(body, parse(body)) == []


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(
            "⚠ Connection dropped mid tool-call: see the log. All else went fine. Nothing was executed. Also more.",
            id="no word of what became of a call",
        ),
        pytest.param(
            "⚠ Connection dropped mid tool-call: see the log. Nothing was executed.", id="the same, and nothing more"
        ),
        pytest.param("⚠ Malformed tool call: a was cut short. Nothing was executed.", id="the end of another one"),
        pytest.param("⚠ Stream stalled mid tool-call: was cut short. Nothing was executed.", id="no name"),
        pytest.param("⚠ Stream stalled mid tool-call:  was cut short. Nothing was executed.", id="a blank for a name"),
        pytest.param("⚠ Lunch mid tool-call: a was cut short. Nothing was executed.", id="a cause that is none"),
        pytest.param("⚠ Stream stalled mid tool-call: a was cut short, or b. Nothing was executed.", id="more besides"),
        pytest.param("⚠ Stream stalled mid tool-call: a\nb was cut short. Nothing was executed.", id="two lines"),
        pytest.param("⚠ Stream stalled mid tool-call: a was cut short.\nNothing was executed.", id="in two lines"),
    ],
)
def test_what_no_warning_of_ours_says_stays(said: str) -> None:
    body = history(f"I.\n\n{said}")
    assert found(body, parse(body)) == []


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_only_the_assistants_words_are_looked_at(role: str) -> None:
    body = history("`💻 ls -la`\nwhat is this?", role=role)
    assert found(body, parse(body)) == []


def test_they_are_counted_and_all_else_keeps_its_bytes() -> None:
    body = (
        b'{"model":"m", "big":12345678901234567890, "messages":[ {"role":"user","content":"`\xf0\x9f\x92\xbb x`"},'
        b'{"content":"\\n`\\ud83d\\udcbb ls`\\n\\n`\\u23f0 list`\\nhi \\u26a0 Stream stalled: the answer is '
        b'incomplete.","role":"assistant","z":1.0}]}'
    )
    (mark,) = found(body, parse(body))
    assert (mark.markers, mark.warnings, mark.rest) == (2, 1, "hi")
    assert apply(body, edits(body, [mark])) == (
        b'{"model":"m", "big":12345678901234567890, "messages":[ {"role":"user","content":"`\xf0\x9f\x92\xbb x`"},'
        b'{"content":"hi","role":"assistant","z":1.0}]}'
    )


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"\\n`\xf0\x9f\x92\xbb ls`\\nhi", id="all as it is"),
        pytest.param(b"\\n`\\ud83d\\udcbb ls`\\nhi", id="the picture in small escapes, as Python writes it"),
        pytest.param(b"\\n\\u0060\\uD83D\\uDCBB ls\\u0060\\nhi", id="all in escapes, as .NET writes it"),
        pytest.param(b"\\n\\u0060\xf0\x9f\x92\xbb ls\\u0060\\nhi", id="only the backticks in escapes"),
        pytest.param(b"\\n\\u0060\xe2\x8f\xb0 list\\u0060\\nhi", id="the same before a picture of three bytes"),
        pytest.param(b"\\n`\xe2\x8f\xb0 list`\\nhi", id="a picture of three bytes as it is"),
        pytest.param(
            b"hi\\n\\n\\u26A0 Stream stalled: the answer is incomplete.", id="a warning's sign in a large escape"
        ),
        pytest.param(
            b"hi\\n\\n\\u26a0 Stream stalled: the answer is incomplete.", id="a warning's sign in a small escape"
        ),
        pytest.param(b"hi\\n\\n\xe2\x9a\xa0 Stream stalled: the answer is incomplete.", id="a warning's sign as it is"),
    ],
)
def test_however_json_spells_it_it_is_found(said: bytes) -> None:
    body = b'{"messages":[{"role":"assistant","content":"%b"}]}' % said
    assert cleaned(body) == {"messages": [{"role": "assistant", "content": "hi"}]}


def test_who_said_nothing_else_is_counted_and_left() -> None:
    body = history("`💻 ls -la`\n", "fine")
    (mark,) = found(body, parse(body))
    assert (mark.markers, mark.rest, mark.repairable) == (1, "", False)
    assert edits(body, [mark]) == []


def test_calls_next_to_removed_text_stay() -> None:
    call = call_entry("c", "ls", "{}", index=ABSENT)
    said = {"role": "assistant", "content": "`💻 ls`", "tool_calls": [call]}
    assert cleaned(dumps({"messages": [said]})) == {"messages": [{**said, "content": None}]}
    parts = [{"type": "text", "text": "`💻 ls`"}, {"type": "text", "text": "ok"}]
    assert cleaned(history(parts))["messages"][0]["content"] == [{"type": "text", "text": "ok"}]
    alone = [{"type": "text", "text": "`💻 ls`"}, {"type": "text", "text": "`💻 cd`"}]
    assert cleaned(history(alone))["messages"][0]["content"] == alone


@pytest.mark.parametrize("asked", [None, 7, [], {}, {"messages": 7}, {"messages": [None, {"role": "assistant"}]}])
def test_a_body_of_any_shape_is_no_trouble(asked: Any) -> None:
    assert found("`💻".encode(), asked) == []


def lost(name: str, state: State, reason: str, *, damaged: bool = False) -> Call:
    """A call that came to nothing."""
    made = Call(0, 0, "c", name)
    made.state, made.reason, made.damaged = state, reason, damaged
    return made


CUT = lost("a", State.DROPPED, "truncated")
BAD = lost("a b", State.MALFORMED, "malformed_call")
TORN = lost("d", State.MALFORMED, "malformed_call", damaged=True)
BESIDE = lost("c", State.DROPPED, SIBLING)
UNNAMED = lost("", State.MALFORMED, "malformed_call")


@pytest.mark.parametrize(
    "code", ["length", "stalled", "reset", "upstream_error", "malformed_call", "internal", "crashed"]
)
@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([], id="no call"),
        pytest.param([CUT], id="one cut short"),
        pytest.param([CUT, CUT], id="two cut short"),
        pytest.param([BAD], id="one that is no JSON"),
        pytest.param([TORN], id="one that could not be read"),
        pytest.param([BAD, BESIDE], id="one that is no JSON and one beside it"),
        pytest.param([TORN, BESIDE, BESIDE], id="one that could not be read and two beside it"),
        pytest.param([BAD, TORN], id="one of both"),
        pytest.param([CUT, BAD], id="one cut short and one that is no JSON"),
        pytest.param([CUT, TORN], id="one cut short and one that could not be read"),
        pytest.param([UNNAMED], id="one without a name"),
        pytest.param([CUT, BAD, UNNAMED, UNNAMED, TORN, BESIDE], id="one of each and one more"),
    ],
)
def test_every_warning_is_recognised(calls: list[Call], code: str) -> None:
    said = warning(code, calls, Facts())
    assert "execut" not in said
    assert re.fullmatch(WARNING, said)
    (mark,) = found(history(f"I.\n\n{said}"), parse(history(f"I.\n\n{said}")))
    assert (mark.warnings, mark.rest) == (1, "I.")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param("x" * NAME_CHARS_MAX, "x" * NAME_CHARS_MAX, id="as long as a card shows it"),
        pytest.param("x" * 9_000, "x" * NAME_CHARS_MAX, id="far longer"),
        pytest.param("wr\nite", "wr ite", id="in two lines"),
        pytest.param("wr\r\nite", "wr ite", id="in two lines of Windows'"),
        pytest.param("wr\u2028ite", "wr ite", id="in two lines of Unicode's"),
        pytest.param("\n", "", id="nothing but a line break"),
    ],
)
def test_a_name_takes_one_line_of_a_warning_and_is_no_longer_than_a_card_shows_it(name: str, shown: str) -> None:
    dropped = lost(name, State.DROPPED, "truncated")
    said = warning("truncated", [dropped], Facts())
    assert said == WARNED.replace("write_file", shown or "a tool without a name")
    assert re.fullmatch(WARNING, said)
    assert failure("truncated", [dropped], [], Facts()) == {
        "message": said,
        "code": "stream_truncated",
        "dropped_tools": [{"id": "c", "name": shown}],
    }


def test_a_warning_of_many_long_names_is_known() -> None:
    said = warning("truncated", [lost("x" * NAME_CHARS_MAX, State.DROPPED, "truncated")] * 20, Facts())
    assert len(said) > 20_000
    assert re.fullmatch(WARNING, said)


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param("⚠ Connection dropped mid tool-call: ", id="beginnings of warnings"),
        pytest.param("⚠ Stream stalled mid tool-call (", id="beginnings of notes"),
        pytest.param("x was cut short, the arguments of y are not valid JSON, so z was not run either, ", id="parts"),
        pytest.param("~", id="tildes"),
        pytest.param("`", id="backticks"),
        pytest.param("`\n", id="lines of a backtick"),
        pytest.param("`💻 ls`\n\n", id="markers"),
        pytest.param("`x`\n \t", id="lines of code"),
        pytest.param("```\n", id="blocks"),
        pytest.param(" ", id="blanks"),
        pytest.param("\n", id="blank lines"),
    ],
)
def test_nothing_that_is_said_takes_long(piece: str) -> None:
    said = f"`💻 ls`\n\n⚠ Connection dropped mid tool-call: {piece * (200_000 // len(piece))}"
    body = history(said)
    began = process_time()
    found(body, parse(body))
    assert process_time() - began < 1
