"""The file that a verb writes: whole or not at all, and one line where it cannot be"""

import os
from pathlib import Path
from stat import S_IMODE
from tempfile import mkstemp

from wiretape.proxy.cli.common import BAD_USAGE, FailedError

__all__ = ["refuse_folder", "write_whole"]


def refuse_folder(out: Path) -> None:
    """Before any work is done for it."""
    if out.is_dir() or not out.parent.is_dir():
        raise FailedError(f"{out}: {'a folder' if out.is_dir() else 'there is no such folder'}", BAD_USAGE)


def write_whole(out: Path, data: bytes) -> None:
    """Into what is no regular file, a pipe or a device, as it goes; a link stays one, and so do permissions."""
    target = out.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    mode = target.stat().st_mode if target.exists() else None
    handle, name = mkstemp(prefix=".", suffix=".new", dir=target.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        unfinished.chmod(S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _umask() -> int:
    """Nothing tells it without setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
