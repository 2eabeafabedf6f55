"""The inspector's page as files: its size, what it must not contain, and that its modules can be joined (check 5)."""

import hashlib
import re
from typing import Final

from tests.house.tree import ROOT

STATIC: Final = ROOT / "proxy/inspector/static"
OWN: Final = {each.name: each.read_text(encoding="utf-8") for each in STATIC.glob("*.*") if each.suffix != ".svg"}
#: Of our own HTML, JavaScript and CSS.
BYTES_MAX: Final = 80 * 1024
#: Ways to make markup or code of text, and addresses of other origins.
FORBIDDEN: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?:|srcdoc|\bimport\("
    r"|sourceMappingURL|EventSource|document\.cookie"
)


def test_page_is_small_and_has_no_way_to_run_text() -> None:
    assert sum(len(text.encode()) for text in OWN.values()) <= BYTES_MAX
    found = {name: FORBIDDEN.findall(text) for name, text in OWN.items()}
    assert {name: words for name, words in found.items() if words} == {}


def test_vendored_file_is_the_one_that_its_licence_file_names() -> None:
    vendored = STATIC / "vendor/preact-htm.js"
    assert hashlib.sha256(vendored.read_bytes()).hexdigest() in (STATIC / "vendor/LICENSES.txt").read_text(
        encoding="utf-8"
    )


def test_modules_can_be_joined_into_one_script() -> None:
    """The exported page has no files to import, so their top-level names may not clash."""
    names = [
        name
        for text in OWN.values()
        for line in re.findall(r"^(?:export )?(?:async )?(?:const|let|class|function\*?) (.*)", text, re.MULTILINE)
        for name in re.findall(r"^\w+|(?<=, )[A-Z_]{3,}(?= = )", line)
    ]
    assert len(names) > 100
    assert sorted({name for name in names if names.count(name) > 1}) == []
