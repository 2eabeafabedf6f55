"""Pictures of every page in light and dark, from streams that a real `wiretape serve` records: `make pictures`."""

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from .browser import Tab, chromium
from .stage import paced, recorded, stage, words
from .test_live import running

#: By name of the picture: the page with the stream that it is about, keys to press, and the height of the window.
PICTURES: Final = {
    "truncated": ("s/{cut}", "", 860),
    "streams": ("", "", 400),
    "text": ("s/{text}", "", 800),
    "repair": ("s/{read}?tab=repairs#n=8", "r", 760),
    "conversation": ("c/{read}", "", 360),
    "comparison": ("diff/{text}/{again}", "", 560),
    "now": ("now", "", 260),
}
_SETTLE_MS: Final = 1_200  # the repairs are read after the page shows the rest


def take(folder: Path) -> list[Path]:
    """Write NAME-light.png and NAME-dark.png for every page; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    taken: list[Path] = []
    with tempfile.TemporaryDirectory() as place, stage(Path(place) / "data") as on, chromium() as browser:
        for scheme in ("light", "dark"):
            tab = Tab(browser, on, color_scheme=scheme, device_scale_factor=2, viewport={"width": 1280, "height": 440})
            tab.open()
            tab.page.screenshot(path=folder / f"empty-{scheme}.png")
            taken.append(folder / f"empty-{scheme}.png")
            tab.context.close()
        ids = recorded(on)
        on.upstream.scripts["gpt-4o-long"] = lambda: paced(words("Nothing is decided yet. " * 30))
        for scheme in ("light", "dark"):
            tab = Tab(browser, on, color_scheme=scheme, device_scale_factor=2)
            for name, (page, keys, height) in PICTURES.items():
                tab.page.set_viewport_size({"width": 1280, "height": height})
                with running(on, "gpt-4o-long") if name == "now" else nullcontext():
                    tab.open(page.format(**ids), ready="main table" if name == "now" else None)
                    tab.page.wait_for_timeout(_SETTLE_MS)
                    for key in keys:
                        tab.page.keyboard.press(key)
                        tab.page.wait_for_timeout(_SETTLE_MS)
                    taken.append(folder / f"{name}-{scheme}.png")
                    tab.page.screenshot(path=taken[-1])
            tab.context.close()
    return taken
