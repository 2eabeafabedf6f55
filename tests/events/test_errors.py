"""The tree as it is drawn."""

from wiretape.events.core import errors
from wiretape.events.core.errors import LocalError, TapeError, WiretapeError


def test_the_tree_is_the_one_in_the_docstring() -> None:
    assert issubclass(LocalError, WiretapeError)
    assert issubclass(TapeError, WiretapeError)
    drawn = errors.__doc__ or ""
    assert all(name in drawn for name in errors.__all__)
