"""The list of repairs is whole, and no name in it is dead."""

import ast
from pathlib import Path

from wiretape.events import chat, emission
from wiretape.events.chat.repairs import REPAIRS

FOLDERS = [Path(package.__path__[0]) for package in (chat, emission)]


def test_every_name_is_in_the_code() -> None:
    """tests/support/chat.py checks in every run that no other name is used."""
    sources = [path.read_text() for folder in FOLDERS for path in folder.glob("*.py") if path.name != "repairs.py"]
    words = {
        node.value
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(REPAIRS) <= words


def test_every_sentence_says_something() -> None:
    assert all(len(said) > 10 for said in REPAIRS.values())
