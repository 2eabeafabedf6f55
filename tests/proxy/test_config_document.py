"""docs/configuration.md matches the settings, and its example loads."""

import re
from pathlib import Path

from tests.support.docs import DOCS, configuration
from wiretape.proxy.config.load import load
from wiretape.proxy.config.model import ROUTE, SERVER, TARGET

TEXT = (DOCS / "configuration.md").read_text(encoding="utf-8")


def test_document_is_up_to_date() -> None:
    assert configuration() == TEXT, "run `make docs`"


def test_every_setting_has_one_row_with_a_reason() -> None:
    settings = (*SERVER, *ROUTE, *TARGET)
    assert re.findall(r"^\| `(\w+)`", TEXT, re.MULTILINE) == [setting.name for setting in settings]
    assert all(setting.reason and setting.kind.allowed for setting in settings)


def test_no_two_settings_share_a_name_anywhere() -> None:
    settings = (*SERVER, *ROUTE, *TARGET)
    for names in ({s.name for s in settings}, {s.environment for s in settings}, {s.flag for s in settings}):
        assert len(names) == len(settings)


def test_example_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "wiretape.toml").write_text(example, encoding="utf-8")
    (tmp_path / "bob.key").write_text("b" * 43)
    (tmp_path / "bob.key").chmod(0o600)
    environ = {"HOME": "/somebody", "AZURE_OPENAI_KEY": "k", "WIRETAPE_KEY_ALICE": "a" * 43}
    config = load({}, environ, tmp_path).config
    assert list(config.routes) == ["", "azure", "hermes"]
    assert [key.name for key in config.keys] == ["alice", "bob"]
    assert len(config.routes[""].targets) == 3
