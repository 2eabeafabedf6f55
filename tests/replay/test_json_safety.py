"""Arguments that were JSON stay JSON after redaction, in any pieces."""

import json
from typing import Any, Final

import pytest

from tests.replay.canaries import pieces
from tests.replay.test_redact import arguments, tape
from wiretape.events.tape.record import Record
from wiretape.replay.redaction.redact import findings, redact
from wiretape.replay.redaction.user_rules import Redaction

#: Commands by their password, which has a quote in it as a shell writes it.
COMMANDS: Final = {
    'export DB_PASSWORD="S3cr\\"et!pw9"': 'S3cr\\"et!pw9',
    'password="a\\"b7cdefgh" x': 'a\\"b7cdefgh',
}


def joined(records: list[Record]) -> str:
    calls = [record.value["choices"][0]["delta"]["tool_calls"] for record in records if record.kind == "frame"]
    return "".join(call[0]["function"]["arguments"] for call in calls)


def redacted(*parts: str, redaction: Redaction | None = None) -> str:
    """What is left of them, and what holds of all that is left."""
    [done] = redact([tape(*arguments(*parts))], redaction)
    assert redact([done], redaction) == [done], "idempotent"
    assert findings([done], redaction) == []
    return joined(done)


@pytest.mark.parametrize("chars", [1000, 5, 1])
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_password_with_a_quote_is_replaced_completely(command: str, chars: int) -> None:
    """Seen: `\\"` lost its backslash to the placeholder, so no reader could parse it, and `er22` stayed."""
    said = json.dumps({"cmd": command, "n": 1})
    expected = command.replace(COMMANDS[command], "[redacted-secret-1]")
    assert json.loads(redacted(*pieces(said, chars))) == {"cmd": expected, "n": 1}


@pytest.mark.parametrize("chars", [1, 2, 3])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("password", ["\\ü😀😀", "x\\ü7abcd", "😀😀😀7", "a\\😀7\\"])
def test_brace_after_a_password_of_any_characters_stays(password: str, *, ascii_only: bool, chars: int) -> None:
    """Seen: a frame wrote 😀 as two escapes, and the closing brace was taken for the end of the password."""
    said = json.dumps({"password": password, "n": 1}, ensure_ascii=ascii_only)
    for first in range(chars):
        calls: list[Any] = [
            {"index": 0, "id": "c", "function": {"name": "f", "arguments": piece}}
            for piece in filter(None, [said[:first], *pieces(said[first:], chars)])
        ]
        chunks: list[Any] = [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in calls]
        [done] = redact([tape(*(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks))])
        assert json.loads(joined(done)) == {"password": "[redacted-secret-1]", "n": 1}


@pytest.mark.parametrize("chars", [1000, 4])
def test_arguments_in_pieces_under_a_path_are_one_placeholder(chars: int) -> None:
    path = "choices[*].delta.tool_calls[*].function.arguments"
    said = redacted(*pieces('{"a": "some words"}', chars), redaction=Redaction(paths=(path,)))
    assert json.loads(said) == {"redacted": "[redacted-path-1]"}
