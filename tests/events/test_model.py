"""The closed lists: events, bounds and repairs. Each is whole, and no name in it is dead."""

import ast
import dataclasses
from pathlib import Path
from typing import get_args

import pytest

from tests.support.chat import REPAIRS
from wiretape.events import chat, crossing, emission, messages, responses
from wiretape.events.core import limits, model
from wiretape.events.core.model import Event


def test_every_event_is_a_frozen_slotted_value_with_the_number_of_its_record_first() -> None:
    for kind in get_args(Event):
        fields = dataclasses.fields(kind)
        assert fields[0].name == "n"
        assert all(field.kw_only for field in fields)
        assert kind.__dataclass_params__.frozen
        assert "__dict__" not in dir(kind(**{field.name: 0 for field in fields}))


def test_the_union_is_closed() -> None:
    classes = {name for name in model.__all__ if dataclasses.is_dataclass(getattr(model, name))}
    assert classes == {kind.__name__ for kind in get_args(Event)}


FOLDERS = [Path(package.__path__[0]) for package in (chat, crossing, emission, messages, responses)]


def test_every_repair_in_the_docs_is_in_the_code() -> None:
    """tests/support/chat.py checks in every run that no other name is used."""
    sources = [path.read_text() for folder in FOLDERS for path in folder.glob("*.py")]
    words = {
        node.value
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert words >= REPAIRS


TESTS = Path(__file__).parent


@pytest.mark.parametrize("name", [name for name in vars(limits) if name.isupper()])
def test_a_bound_is_a_number_and_is_tested(name: str) -> None:
    assert isinstance(getattr(limits, name), int)
    assert name.endswith(("_MAX", "_MIN", "_BYTES"))
    lowered = name.lower()
    tests = [path.read_text() for path in TESTS.rglob("test_*.py") if path.name != "test_model.py"]
    assert any(name in text or lowered in text for text in tests)
