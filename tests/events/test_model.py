"""The union that everybody reads first."""

import dataclasses
from typing import get_args

from wiretape.events.core import model
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
