"""Documents match the code: what is generated is current, and everything that users can meet is in the reference."""

import ast
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.docs.blocks import PAGES, text_of
from tests.docs.pictures import DRAWN, PICTURES
from tests.house.tree import ROOT, present
from tests.support.docs import DOCS, DOCUMENTS, read
from wiretape.events.tape.record import Record, decode
from wiretape.proxy.cli import common
from wiretape.proxy.limits import KEY_CHARS_MIN
from wiretape.proxy.store.query import FILTERS
from wiretape.replay.formats.table import FORMATS

#: The parts of the documents for users: each page of them is in the menu of the site.
FOR_USERS = ("start", "guides", "concepts", "reference")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_generated_parts_are_current(name: str) -> None:
    assert read(name) == DOCUMENTS[name](read(name)), "run `make docs`"


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_pictures_are_current(name: str) -> None:
    assert (PICTURES / name).read_text(encoding="utf-8") == DRAWN[name](), "run `make pictures`"


def test_what_is_written_by_hand_is_current() -> None:
    _, _, last = read("reference/formats.md").rpartition("\n## ")
    assert re.findall(r"^\| `(\w+)` \|", last, re.MULTILINE) == list(FORMATS)
    assert f"A key has at least {KEY_CHARS_MIN} characters" in read("reference/configuration.md")


def test_example_line_in_tape_md_is_a_valid_record() -> None:
    (line,) = re.findall(r"^```json\n(\{.*\})$", read("reference/tape-format.md"), re.MULTILINE)
    record = decode(line.encode())
    assert isinstance(record, Record)
    assert (record.n, record.t, record.kind) == (2, 81_234, "frame")


def test_every_exit_code_is_documented() -> None:
    codes = {getattr(common, name) for name in ("FOUND_WRONG", "BAD_USAGE", "CANNOT_START", "INTERRUPTED")}
    written = re.findall(r"^\| (\d+) \|", read("reference/commands.md"), re.MULTILINE)
    assert set(map(int, written)) == {0, *codes}


def error_codes() -> Iterator[str]:
    """Yield the code of each error: a word next to a status, in a call or a tuple."""
    for place in present():
        if not (place.startswith("proxy/") and place.endswith(".py")):
            continue
        for node in ast.walk(ast.parse(text_of(place))):
            values: list[ast.expr] = []
            if isinstance(node, ast.Call):
                values = [*node.args, *(each.value for each in node.keywords if each.arg == "code")]
            elif isinstance(node, ast.Tuple):
                values = node.elts
            said = [value.value for value in values if isinstance(value, ast.Constant)]
            if any(type(each) is int and 400 <= each < 600 for each in said):
                yield from (each for each in said if isinstance(each, str) and re.fullmatch("[a-z]+(_[a-z]+)*", each))


def test_every_error_code_is_documented() -> None:
    codes = set(error_codes())
    assert {"invalid_json", "bad_host", "runs_max"} <= codes
    assert {code for code in codes if f"`{code}`" not in read("reference/endings.md")} == set()


def test_every_filter_is_documented() -> None:
    guide = read("guides/inspector.md")
    assert {name for name in (*FILTERS, "live") if f"`{name}:" not in guide} == set()


def test_every_span_attribute_is_documented() -> None:
    source = "".join(text_of(place) for place in present() if re.fullmatch(r"proxy/telemetry/\w+\.py", place))
    names = set(re.findall(r'"((?:gen_ai|wiretape|server|error|http|url|service)\.[a-z_.]+)"', source))
    assert len(names) > 20
    assert {name for name in names if f"`{name}`" not in read("reference/spans.md")} == set()


# -- links and the menu -----------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    broken: list[str] = []
    for link in re.findall(r'\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"', text):
        place, _, anchor = "".join(link).partition("#")
        if re.match(r"[a-z]+:", place):
            continue
        target = (ROOT / page).parent / place if place else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append("".join(link))
    assert broken == []


def test_every_page_for_users_is_in_the_menu() -> None:
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    listed = set(re.findall(r"[\w/-]+\.md", str(menu)))
    pages = {page.relative_to(DOCS).as_posix() for part in FOR_USERS for page in (DOCS / part).rglob("*.md")}
    assert {page for page in listed if not (DOCS / page).is_file() and not (ROOT / page).is_file()} == set()
    assert pages - listed == set()
