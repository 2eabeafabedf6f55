"""Debian's Chromium through Playwright, and what every test wants to know of a page."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from .stage import Stage

ROOT: Final = Path(__file__).parents[2]
CHROMIUM: Final = "/usr/bin/chromium"
FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
_WAIT_MS: Final = 10_000
#: Collects what the policy refused. Runs before the page does.
_WATCH: Final = """window.violations = []; window.hacked = [];
addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective + event.blockedURI));"""


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser."""
    sys.path += [str(each) for each in (ROOT / ".cache/real/ui/lib").glob("python*/site-packages")]
    playwright: Any = import_module("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Tab:
    """One page with the operator's token; remembers errors and requests."""

    def __init__(self, browser: Any, on: Stage, *, token: str | None = None, **settings: Any) -> None:
        self.on = on
        self.context: Any = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        self.context.add_init_script(_WATCH)
        self.page: Any = self.context.new_page()
        self.page.set_default_timeout(_WAIT_MS)
        #: Exceptions of the page, and its requests.
        self.errors: list[str] = []
        self.requests: list[Any] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request))  # noqa: PLW0108 - Playwright takes no built-in
        self.token = on.token if token is None else token

    def open(self, place: str = "", *, ready: str | None = None) -> Any:
        """Open a page of the inspector as `wiretape ui` does, and wait until it shows its content."""
        address, mark, fragment = place.partition("#")
        token = f"token={self.token}" if self.token else ""
        self.page.goto("about:blank")
        self.page.goto(f"{self.on.ui}{address}#{token}")
        self.page.wait_for_selector(ready or _READY[re.split("[/?]", address)[0]])
        if mark:
            self.page.evaluate("hash => { location.hash = hash }", fragment)
        return self.page

    def settle(self, most_s: float = 10) -> None:
        """Wait until the repairs are read."""
        self.page.wait_for_load_state("networkidle", timeout=1_000 * most_s)

    def clean(self) -> None:
        """Fail if the page threw an exception, was refused something, or asked another origin."""
        assert self.errors == []
        assert self.page.evaluate("() => [violations, hacked]") == [[], []]
        assert {each.url.split("/wiretape/")[0] for each in self.requests} <= {self.on.base, "about:blank"}


#: By page: an element that is there once the page has its data.
_READY: Final[Mapping[str, str]] = {
    "": "#streams, .empty, main > p",
    "s": "#records .rows [role=row], [role=alert]",
    "c": "ol li, [role=alert]",
    "r": "ol li, main p",
    "diff": "main .notice",
    "now": "main table, main p:not([role=status])",
}


def number_of(page: Any, name: str) -> int | None:
    """Return the exact value of a number that the page shows."""
    value = page.locator(f"[data-name='{name}']").first.get_attribute("value")
    return None if value is None else int(value)
