"""axe-core finds nothing on any page, in both colour schemes and all states (check 3); narrow and zoomed pages fit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from .browser import Tab
from .stage import Stage, paced, stage, words
from .test_live import running

AXE: Final = Path(__file__).with_name("node") / "node_modules/axe-core/axe.min.js"


def violations(page: Any) -> list[Any]:
    """Run axe in the page; the policy of the page allows no script from elsewhere, so it is evaluated by the driver."""
    page.evaluate(AXE.read_text() + "; 0")
    found: list[Any] = page.evaluate(
        "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
    )
    return [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found]


def places(ids: dict[str, str]) -> Iterator[str]:
    """Return every page in every state that it has."""
    yield from (
        "",
        "?q=model:none",
        f"diff/{ids['cut']}/{ids['text']}",
        f"diff/{ids['text']}/{ids['again']}",
        "now",
        f"c/{ids['read']}",
        "r/run_none",
    )
    for name in ("cut", "text", "read", "reset", "busy"):
        yield f"s/{ids[name]}"
    for tab in ("lanes", "gaps", "repairs", "request", "response"):
        yield f"s/{ids['cut']}?tab={tab}"
    for view in ("upstream", "events", "raw"):
        yield f"s/{ids['cut']}?view={view}#n=8"
    yield "s/unknown"


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing(browser: Any, on: Stage, ids: dict[str, str], scheme: str) -> None:
    tab = Tab(browser, on, color_scheme=scheme)
    found = {}
    for place in places(ids):
        page = tab.open(place)
        if place.startswith("s/"):
            tab.settle()
        if wrong := violations(page):
            found[place] = wrong
    page = tab.open(f"s/{ids['cut']}")
    page.keyboard.press("?")
    found |= {"help": wrong} if (wrong := violations(page)) else {}
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    found |= {"copy": wrong} if (wrong := violations(page)) else {}
    assert found == {}
    tab.clean()
    tab.context.close()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_on_empty_and_live_pages(browser: Any, tmp_path: Path, scheme: str) -> None:
    with stage(tmp_path / "data") as on:
        tab = Tab(browser, on, color_scheme=scheme)
        found = {"empty": violations(tab.open())}
        on.upstream.scripts["slow"] = lambda: paced(words("one two three " * 40))
        with running(on, "slow") as stream:
            for place in ("", "now", f"s/{stream}"):
                found[place] = violations(tab.open(place))
        tab.clean()
        tab.context.close()
    assert not any(found.values()), found


@pytest.mark.parametrize(("width", "height"), [(320, 640), (640, 450)], ids=["narrow", "zoomed 200 %"])
def test_page_needs_no_second_scroll_direction(
    browser: Any, on: Stage, ids: dict[str, str], width: int, height: int
) -> None:
    tab = Tab(browser, on, viewport={"width": width, "height": height})
    for place in places(ids):
        page = tab.open(place)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width, place
    tab.clean()
    tab.context.close()


def test_grid_and_slider_tell_where_they_are(tab: Tab, on: Stage, ids: dict[str, str]) -> None:
    rows = str(on.show(ids["cut"])["records"] + 1)
    page = tab.open(f"s/{ids['cut']}#n=12")
    grid = page.locator("#records")
    assert grid.get_attribute("role") == "grid"
    assert grid.get_attribute("aria-rowcount") == rows
    current = page.locator(f"#{grid.get_attribute('aria-activedescendant')}")
    assert (current.get_attribute("aria-rowindex"), current.get_attribute("aria-selected")) == ("14", "true")
    grid.focus()
    page.keyboard.press("End")
    page.wait_for_selector(f"#records [aria-selected=true][aria-rowindex='{rows}']")
