"""Secrets from the environment or from a file that only its owner can read; nowhere else"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..limits import KEY_FILE_BYTES_MAX
from ..security.keys import Secret
from .model import ConfigError

__all__ = ["from_environment", "from_file"]

#: What a header can carry without being quoted: visible ASCII.
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+", re.ASCII)


def from_environment(where: str, name: str, environ: Mapping[str, str]) -> Secret:
    """The variable's value; `where` names the setting. Not even the variable is named: it may be the key, misplaced."""
    value = environ.get(name, "").strip()
    if not value:
        raise ConfigError(f"{where}: the environment variable that it names is not set")
    return _secret(where, value)


def from_file(where: str, path: Path) -> Secret:
    """The file's one line. A link is followed: mounted secrets are links, and what counts is who can read the file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise ConfigError(f"{where}: the file that it names cannot be opened: {exc.strerror}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{where}: what it names is not a file")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise ConfigError(f"{where}: the file that it names is open to others (mode {mode:04o}): chmod 600 it")
        content = os.read(handle, KEY_FILE_BYTES_MAX + 1)
    finally:
        os.close(handle)
    if len(content) > KEY_FILE_BYTES_MAX:
        raise ConfigError(f"{where}: the file that it names is longer than {KEY_FILE_BYTES_MAX} bytes")
    return _secret(where, content.decode("latin-1").strip())


def _secret(where: str, value: str) -> Secret:
    if not _VISIBLE.fullmatch(value):
        raise ConfigError(f"{where}: a key is one line of visible ASCII without spaces")
    return Secret(value)
