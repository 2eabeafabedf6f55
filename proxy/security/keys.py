"""Identify callers: compare the presented credential with Wiretape's keys and hash it, without keeping it.

One function extracts credentials from every header that may carry one, so that no rule can be bypassed by sending a key
under another name (CVE-2026-45339).
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..config.secrets import Key
from ..http1 import Header, Headers
from ..key_patterns import CREDENTIAL_HEADERS
from ..limits import CALLER_CHARS, SALT_BYTES

__all__ = ["LOCAL", "Keys", "credentials", "salt_of"]

#: The caller of a request without a credential, where none is required.
LOCAL: Final = "local"

_SALT_FILE: Final = "caller.salt"


class Keys:
    """Wiretape's own keys and the salt for caller hashes."""

    def __init__(self, keys: tuple[Key, ...], salt: bytes) -> None:
        self._digests = tuple(_digest(key.secret.reveal().encode("utf-8", "surrogateescape")) for key in keys)
        self._salt = salt
        #: Callers must present one of the keys; then none of their credentials is passed on.
        self.required = bool(keys)

    def caller(self, headers: Iterable[Header]) -> str | None:
        """Return a keyed hash of the caller's credential, or None if a key is required and this is not one."""
        presented = credentials(headers)
        if self._digests:
            if len(presented) != 1:
                return None
            digest, known = _digest(presented[0]), False
            for own in self._digests:  # all of them, so that the time does not depend on which one fits
                known |= hmac.compare_digest(own, digest)
            if not known:
                return None
        elif not presented:
            return LOCAL
        return hmac.new(self._salt, b"\0".join(presented), hashlib.sha256).hexdigest()[:CALLER_CHARS]


def credentials(headers: Iterable[Header]) -> list[bytes]:
    """Return the distinct credentials in the headers, without the word Bearer; other schemes keep their name."""
    found: list[bytes] = []
    for name, value in (headers if isinstance(headers, Headers) else Headers(headers)).only(CREDENTIAL_HEADERS):
        credential = value.strip()
        if name == b"authorization":
            scheme, _, rest = credential.partition(b" ")
            credential = rest.strip() if scheme.lower() == b"bearer" else credential
        if credential and credential not in found:
            found.append(credential)
    return found


def salt_of(folder: Path | None) -> bytes:
    """Return the salt kept in the data folder, creating it if needed; without a folder, one for this process."""
    if folder is None:
        return secrets.token_bytes(SALT_BYTES)
    path = folder / _SALT_FILE
    try:
        return _read_salt(path)
    except FileNotFoundError:
        return _create_salt(path)


def _read_salt(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        salt = file.read(SALT_BYTES + 1)
    if len(salt) != SALT_BYTES:
        raise OSError(f"{_SALT_FILE} in the data folder is not {SALT_BYTES} bytes long")
    return salt


def _create_salt(path: Path) -> bytes:
    """Write a temporary file and link it: a crash leaves a whole salt or none, and the first of two processes wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{_SALT_FILE}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(SALT_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(temporary)
        return _read_salt(path)
    finally:
        temporary.unlink()


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()
