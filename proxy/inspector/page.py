"""The inspector's page: its files, read from the installed package, and its address.

The page holds no data and is public. Its files have a hash of all of them in their path, so browsers may keep them.
"""

import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from ..config.model import Config
from ..security.access import PAGE_PATH, operator_token
from ..store.folder import holder

__all__ = ["ADDRESS_FILE", "files", "inspector_address", "running_inspector", "served"]

#: Where the server of a data folder writes its address.
ADDRESS_FILE: Final = "address"


@cache
def files() -> dict[str, bytes]:
    """Return every file of the page by its path."""

    def inside(folder: Traversable, before: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for each in folder.iterdir():
            name = before + each.name
            found |= inside(each, f"{name}/") if each.is_dir() else {name: each.read_bytes()}
        return found

    return inside(resources.files("wiretape.proxy.inspector") / "static", "")


@cache
def served() -> dict[str, bytes]:
    """Return the files by their path below `/wiretape/ui/`; index.html, which names them, by the empty one."""
    together = b"".join(name.encode() + data for name, data in sorted(files().items()))
    prefix = f"static/{hashlib.sha256(together).hexdigest()[:12]}/"
    index = files()["index.html"].replace(b"/wiretape/ui/static/", f"/wiretape/ui/{prefix}".encode())
    return {"": index, **{prefix + name: data for name, data in files().items()}}


def inspector_address(url: str, config: Config) -> str:
    """Return the inspector's address, with the operator token in the fragment, which browsers send to no server."""
    return _with_token(url, None if config.durability == "none" else config.data)


def running_inspector(folder: Path) -> str | None:
    """Return the address of the inspector of the server that holds a data folder; None if none does."""
    if holder(folder) is None or not (folder / ADDRESS_FILE).is_file():
        return None
    return _with_token((folder / ADDRESS_FILE).read_text(encoding="ascii"), folder)


def _with_token(url: str, folder: Path | None) -> str:
    return f"{url}{PAGE_PATH.decode()}/#token={operator_token(folder)}"
