"""Every code block of the documents is one that a test runs, or says that it is not; inline commands exist."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.docs.blocks import (
    BY_CI,
    NOT_RUN,
    PAGES,
    Block,
    blocks_of,
    indented_blocks,
    pages_with,
    shape,
    shows,
    text_of,
)
from tests.house.tree import ROOT
from wiretape.proxy.cli.main import app
from wiretape.proxy.config.load import load
from wiretape.proxy.config.model import ROUTE, SERVER, TARGET

#: The languages that a test runs or compares on every page, and those that it knows on one page.
EVERYWHERE = {"console", "python", "toml"}
ON_PAGES = {
    "js": {"docs/guides/other-languages.md"},
    "sh": {"docs/guides/other-languages.md"},
    "json": {*pages_with("console"), "docs/reference/tape-format.md"},
    # Generated pages: tests/house/test_docs.py compares them with the code.
    "text": {*pages_with("console"), "docs/reference/commands.md"},
}
SETTINGS = {f"--{setting.name.replace('_', '-')}" for setting in (*SERVER, *ROUTE, *TARGET)}


def problems(block: Block) -> list[str]:
    """Return what is wrong with the first line of a block."""
    found: list[str] = []
    if block.language not in EVERYWHERE and block.page not in ON_PAGES.get(block.language, ()):
        found.append(f"no test runs {block.language or 'a block without a language'} here")
    allowed = block.note in ("", BY_CI) or (block.language == "console" and re.fullmatch(r"exit=[12]", block.note))
    if not allowed and not re.fullmatch(re.escape(NOT_RUN) + r"(needs|waits for) \w.*", block.note):
        found.append(f"unknown note {block.note!r}")
    if block.language == "console" and not block.text.startswith("$ "):
        found.append("begins without a command")
    if not block.runs and block.language != "console":
        found.append("only commands may be left out")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_by_a_test_or_says_that_it_is_not(page: str) -> None:
    wrong = [f"{page}:{block.line}: {each}" for block in blocks_of(page) for each in problems(block)]
    assert wrong == []
    fences = re.findall(r"^\s*(?:```|~~~)", text_of(page), re.MULTILINE)
    assert len(fences) == 2 * len(blocks_of(page)), "a fence that is not closed, not at the margin, or not of three `"
    assert [f"{page}:{line}: indented code" for line in indented_blocks(page)] == []


@pytest.mark.parametrize(
    ("first", "text", "expected"),
    [
        ("", "x\n", "no test runs a block without a language here"),
        ("ruby", "x\n", "no test runs ruby here"),
        ("console skipped", "$ x\n", "unknown note 'skipped'"),
        ("console not run: ", "$ x\n", "unknown note 'not run: '"),
        ("console exit=0", "$ x\n", "unknown note 'exit=0'"),
        ("python exit=1", "x\n", "unknown note 'exit=1'"),
        ("console", "x\n", "begins without a command"),
        ("python not run: needs x", "x\n", "only commands may be left out"),
        ("console not run: needs docker", "$ x\n", ""),
    ],
)
def test_unmarked_blocks_are_found(first: str, text: str, expected: str) -> None:
    language, _, note = first.partition(" ")
    assert problems(Block("docs/x.md", 1, language, note, text)) == ([expected] if expected else [])


def test_output_is_compared_by_shape() -> None:
    printed = 'http://127.0.0.1:43123/v1\nstream 06gvbml3fl3jdvljreupdfkj8tcfm1dc took 0.45s\n"sun" -> "rain"\n'
    assert shows(printed, 'http://127.0.0.1:8787/v1\n...\n"a" -> "b"\n')
    assert shows(printed, "stream 06gvbml3fl3j took 2s\n")
    assert not shows(printed, "stream took\n")
    assert not shows(printed, '"a" -> "b"\n...\nhttp://127.0.0.1:8787/v1\n'), "the order counts"
    assert shape("a  1.5\n b") == "a 0 b"


@pytest.mark.parametrize("page", pages_with("toml"))
def test_configuration_examples_load(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(blocks_of(page, "toml")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "wiretape.toml").write_text(block.text, encoding="utf-8")
        for file in re.findall(r'file = "([\w.]+)"', block.text):
            (folder / file).write_text("f" * 43)
            (folder / file).chmod(0o600)
        environ = {name: name * 43 for name in re.findall(r'env = "(\w+)"', block.text)}
        config = load({}, {"HOME": str(folder), **environ}, folder).config
        assert set(tomllib.loads(block.text).get("routes", {})) <= set(config.routes)


# -- commands in the text ---------------------------------------------------------------------------------------------


def inline(page: str) -> list[str]:
    """Return the inline code of a page that is a command of this project."""
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`((?:wiretape|make) [a-z][^`]*)`", re.sub(r"(?<=\S)\n(?=\S)", " ", text))


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """Return the verb that the words name, and the words after it."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, f"no verb {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_name_verbs_options_and_targets_that_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for text in inline(page):
        program, *words = text.split()
        if program == "make":
            assert {word for word in words if re.fullmatch("[a-z-]+", word)} <= targets, text
            continue
        command, rest = command_of(words)
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        if command.context_settings.get("ignore_unknown_options"):
            known |= SETTINGS
        given = {word.partition("=")[0] for word in " ".join(rest).partition(" -- ")[0].split() if word[0] == "-"}
        assert given <= known | {"-"}, text


def test_readme_is_short() -> None:
    assert len(text_of("README.md").split()) <= 700
