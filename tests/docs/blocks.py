"""The fenced code blocks of the documents, and what is compared of an output.

The word after the fence is the language; further words mark what is special about a block:

    ```console                          commands after `$ `, each followed by what it prints; all exit with 0
    ```console exit=2                   all of these commands exit with 2
    ```console run by .ci/run           `make` commands that are too slow for this suite
    ```console not run: needs docker    cannot run here, for this reason
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.house.tree import ROOT, present
from wiretape.events.core.json_text import as_list, as_object

PAGES = [
    place
    for place in present()
    if place.endswith(".md") and (place.startswith("docs/") or place in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))
]
NOT_RUN = "not run: "
BY_CI = "run by .ci/run"

_FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its page, its language, the rest of the line of its fence, and its text."""

    page: str
    line: int
    language: str
    note: str
    text: str

    @property
    def runs(self) -> bool:
        """Whether a test of this suite runs the block."""
        return not self.note.startswith(NOT_RUN) and self.note != BY_CI

    @property
    def exit_code(self) -> int:
        """The exit code of each of its commands."""
        return int(self.note.removeprefix("exit=") or 0) if self.runs else 0

    @property
    def file(self) -> str:
        """The name of the Python file whose text this is, or nothing."""
        named = re.match(r"# (\w+\.py)\n", self.text) if self.language == "python" else None
        return named[1] if named else ""

    def commands(self) -> list[tuple[str, str]]:
        """Return each command of a console block with its printed output."""
        return _COMMAND.findall(self.text)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str, language: str = "") -> list[Block]:
    """Return the fenced blocks of a page, of one language or of all."""
    text = text_of(page)
    found = (
        Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2], match[3])
        for match in _FENCE.finditer(text)
    )
    return [block for block in found if language in ("", block.language)]


def pages_with(language: str) -> list[str]:
    """Return the pages with a block of a language that runs here."""
    return [page for page in PAGES if any(block.runs for block in blocks_of(page, language))]


def indented_blocks(page: str) -> Iterator[int]:
    """Yield the first line of each block of code that is indented instead of fenced."""
    lines = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text_of(page)).split("\n")
    for number, (before, line) in enumerate(zip(["", *lines], lines, strict=False), 1):
        if line.startswith("    ") and not before.strip():
            yield number


def shape(text: str) -> str:
    """Return a text with one word for each value that differs from run to run."""
    text = re.sub(r'"[^"\n]*"', '""', text)
    text = re.sub(r"\b(?:[0-9a-f]{16,64}|0[0-9a-z]{11,31})\b", "ID", text)
    return " ".join(re.sub(r"\d+(?:\.\d+)?", "0", text).split())


def values_of(text: str) -> list[Any]:
    """Return the JSON values of a text, on one line each or one in all; `...` leaves something out."""
    text = re.sub(r",?\.\.\.(?=[\]}])", "", text)
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def like(documented: Any, printed: Any) -> bool:
    """Return whether a printed value has the members of the documented one, with values of the same types."""
    if documented is None or printed is None:
        return True
    if type(documented) is not type(printed):
        return False
    members, first = as_object(documented), as_list(documented)[:1]
    printed_members, elements = as_object(printed), as_list(printed)
    return (
        members.get("k") == printed_members.get("k")
        and all(name in printed_members and like(value, printed_members[name]) for name, value in members.items())
        and all(any(like(value, each) for each in elements) for value in first)
    )


def shows(printed: str, documented: str) -> bool:
    """Return whether the printed text has the shape of the documented one, whose lines `...` leave something out."""
    whole, at = shape(printed), 0
    for part in re.split(r"^\.\.\.$", documented, flags=re.MULTILINE):
        at = whole.find(shape(part), at)
        if at < 0:
            return False
        at += len(shape(part))
    return True
