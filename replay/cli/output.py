"""Write the file of a verb: whole or not at all."""

import os
from pathlib import Path
from stat import S_IMODE
from tempfile import mkstemp

from wiretape.proxy.cli.common import BAD_USAGE, FailedError

__all__ = ["refuse_folder", "write_whole"]


def refuse_folder(out: Path) -> None:
    """Raise `FailedError` if no file can be written there, before any work is done for it."""
    if out.is_dir() or not out.parent.is_dir():
        raise FailedError(f"{out}: {'is a folder' if out.is_dir() else 'its folder does not exist'}", BAD_USAGE)


def write_whole(out: Path, data: bytes) -> None:
    """Replace a file, following links and keeping permissions; write pipes and devices directly."""
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
    """Return the umask, which cannot be read without setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
