"""One browser for all tests; for each module a stage with recorded streams."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .browser import Tab, chromium
from .stage import Stage, recorded, stage


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("ui") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def ids(on: Stage) -> dict[str, str]:
    return recorded(on)


@pytest.fixture
def tab(browser: Any, on: Stage) -> Iterator[Tab]:
    opened = Tab(browser, on, permissions=["clipboard-read", "clipboard-write"])
    yield opened
    opened.clean()
    opened.context.close()


@pytest.fixture
def empty(browser: Any, tmp_path: Path) -> Iterator[Tab]:
    """A tab in front of a proxy without streams."""
    with stage(tmp_path / "data") as running:
        opened = Tab(browser, running)
        yield opened
        opened.clean()
        opened.context.close()
