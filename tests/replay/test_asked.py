"""What the user asks to be gone: which paths are none."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.replay.made import live, stream
from wiretape.proxy.cli.main import app
from wiretape.replay.redaction.user_rules import is_path, matches, pattern_of

PATHS = (
    "user",
    "$.user",
    "messages[*].content",
    "$['messages'][0]",
    '["a"].b',
    "*",
    "*.token",
    "choices[*].delta.tool_calls[*].function.arguments",
    "[*].text",
    "a.[0]",
)
NONE = (
    "",
    "$",
    "$.",
    ".",
    "messages[",
    "messages[]",
    "messages]",
    "a..b",
    "a.",
    "messages[*",
    "a[*]b",
    "[[0]]",
)


@pytest.mark.parametrize("path", PATHS)
def test_what_is_a_path(path: str) -> None:
    assert is_path(path)
    assert pattern_of(path)
    assert all(pattern_of(path))


@pytest.mark.parametrize("path", NONE)
def test_what_is_no_path_is_a_wrong_option(path: str, tmp_path: Path) -> None:
    """Seen: the empty one replaced every value, and `messages[` was taken for a name."""
    assert not is_path(path)
    tape, out = tmp_path / "a.tape", tmp_path / "out.tape"
    tape.write_bytes(live(stream()))
    asked = CliRunner().invoke(app, ["seal", str(tape), "-o", str(out), f"--redact-path={path}"])
    assert "is no path" in str(asked.exception)
    assert getattr(asked.exception, "code", None) == 2
    assert not out.exists()


def test_a_path_goes_to_what_it_names() -> None:
    assert matches(pattern_of("$['messages'][0]"), ("messages", 0, "content"))
    assert matches(pattern_of("*.token"), ("a", "token"))
    assert not matches(pattern_of("a.b"), ("a",))
