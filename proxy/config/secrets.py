"""Secrets: a value that does not print itself, read from the environment or from a file only its owner can read."""

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from ..limits import KEY_FILE_BYTES_MAX

__all__ = ["Key", "Secret", "SecretError", "from_environment", "from_file"]

#: What a header can carry without quoting: visible ASCII.
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+", re.ASCII)
_MASK: Final = "Secret(***)"


class SecretError(ValueError):
    """What is wrong with a secret, naming neither it nor its source: a key may have been put in the wrong place."""


class Secret:
    """A credential that only `reveal` shows; printing, formatting, JSON and pickling do not."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the credential, for the one header it belongs in."""
        return self._value

    def __repr__(self) -> str:
        return _MASK

    def __format__(self, spec: str) -> str:
        return format(_MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._digest(), other._digest())

    def __hash__(self) -> int:
        return hash(self._digest())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled or copied")

    def _digest(self) -> bytes:
        return hashlib.sha256(self._value.encode("utf-8", "surrogateescape")).digest()


class Key(NamedTuple):
    """One of Wiretape's own keys and the name its owner gave it."""

    name: str
    secret: Secret


def from_environment(variable: str, environ: Mapping[str, str]) -> Secret:
    """Return the secret in a variable."""
    value = environ.get(variable, "").strip()
    if not value:
        raise SecretError("the environment variable that it names is not set")
    return _checked(value)


def from_file(path: Path) -> Secret:
    """Return the secret in a file. Links are followed, as mounted secrets are links; the file's mode counts."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretError(f"cannot open the file that it names: {error.strerror}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise SecretError("what it names is not a file")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise SecretError(f"the file that it names is open to others (mode {mode:04o}); run chmod 600 on it")
        content = os.read(handle, KEY_FILE_BYTES_MAX + 1)
    finally:
        os.close(handle)
    if len(content) > KEY_FILE_BYTES_MAX:
        raise SecretError(f"the file that it names is longer than {KEY_FILE_BYTES_MAX} bytes")
    return _checked(content.decode("latin-1").strip())


def _checked(value: str) -> Secret:
    if not _VISIBLE.fullmatch(value):
        raise SecretError("a key must be one line of visible ASCII without spaces")
    return Secret(value)
