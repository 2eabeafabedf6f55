"""`wiretape ui` and `wiretape view`: the inspector of the running server, and of tapes from disk."""

import os
import re
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from wiretape.proxy.cli.common import (
    CANNOT_START,
    ConfigFile,
    DataFolder,
    FailedError,
    announce,
    one_line_errors,
    root_of,
)

__all__ = ["app"]

app = typer.Typer()

_NoOpen = Annotated[bool, typer.Option("--no-open", help="Print the address only.")]
#: What an id in a path cannot contain.
_NOT_IN_ID: Final = re.compile(r"[^A-Za-z0-9_-]+")


@app.command("ui")
def _ui(*, no_open: _NoOpen = False, data: DataFolder = None, config: ConfigFile = None) -> None:
    """Open the inspector of the running server in a browser.

    Prints its address, which holds the operator token.
    """
    from wiretape.proxy.inspector.page import running_inspector

    root = root_of(data, config)
    if (address := running_inspector(root)) is None:
        raise FailedError(f"No server runs with the data folder {root}: start `wiretape serve`", CANNOT_START)
    _open(address, no_open=no_open)


@app.command("view")
def _view(
    files: Annotated[list[str], typer.Argument(metavar="TAPE...", help="Ids, files or folders of tapes.")],
    *,
    no_open: _NoOpen = False,
    data: DataFolder = None,
    config: ConfigFile = None,
) -> None:
    """Open tapes in the inspector, read-only, until Ctrl-C.

    Live and sealed tapes, on a free port of this machine.
    """
    import trio

    from wiretape.proxy.config.model import Config, Keep
    from wiretape.proxy.inspector.page import inspector_address
    from wiretape.proxy.log import Log, stderr_fd
    from wiretape.proxy.serve import run
    from wiretape.proxy.store.memory import MemoryStore

    from ..compare.side_by_side import side_by_side
    from .reading import streams_named

    store, ids = MemoryStore(), list[str]()
    with one_line_errors():
        for _, each in streams_named(files, data, config):
            name = Path(each.name.replace(".tape", "")).name
            ids.append(_NOT_IN_ID.sub("-", name)[:100].strip("-_") or "tape")
            ids[-1] += f"-{len(ids)}" if ids.count(ids[-1]) > 1 else ""
            store.keep(ids[-1], each.records, each.damage)
    settings = Config(data=Path(), port=0, durability="none", keep=Keep(days=None, bytes=None))

    def on_ready(url: str) -> None:
        address = inspector_address(url, settings)
        if len(ids) == 1:
            address = address.replace("/#", f"/s/{ids[0]}#")
        _open(address, no_open=no_open)

    with closing(Log(stderr_fd())) as log:
        trio.run(partial(run, settings, log=log, on_ready=on_ready, compare=side_by_side, store=store))


def _open(address: str, *, no_open: bool) -> None:
    """Print the address, and open a browser where a person sits in front of one."""
    announce(f"{address}\n")
    seen = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.stdout.isatty() and seen and not no_open:
        import webbrowser

        webbrowser.open(address)
