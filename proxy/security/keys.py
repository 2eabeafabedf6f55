"""Credentials: secrets that show themselves to nobody, and who a caller is, told without keeping what he presented

One extractor for every spelling, so that no rule can be passed by under another name (CVE-2026-45339).
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from ..limits import CALLER_CHARS, SALT_BYTES
from ..upstream.exchange import Header

__all__ = ["CREDENTIAL_HEADERS", "LOCAL", "Key", "Keys", "Secret", "credentials", "salt_of"]

#: Where clients put a key: OpenAI and nearly all; Anthropic; Azure, and its gateway; Google; Amazon, beside the first.
CREDENTIAL_HEADERS: Final = (
    b"authorization",
    b"x-api-key",
    b"api-key",
    b"ocp-apim-subscription-key",
    b"x-goog-api-key",
    b"x-amz-security-token",
)

#: The caller who presented nothing, where nothing is asked for.
LOCAL: Final = "local"

_MASK: Final = "Secret(***)"
_SALT_FILE: Final = "caller.salt"


class Secret:
    """A credential: only `reveal` says it; printing, formatting, copying into JSON or a pickle does not."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The credential itself, for the one header that it belongs into."""
        return self._value

    def __repr__(self) -> str:
        return _MASK

    def __format__(self, spec: str) -> str:
        return format(_MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_digest(self._value), _digest(other._value))

    def __hash__(self) -> int:
        return hash(_digest(self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled or copied")


class Key(NamedTuple):
    """One of Wiretape's own keys, by the name that its owner gave it."""

    name: str
    secret: Secret


class Keys:
    """Who calls; constant in time over all keys, whichever of them fits."""

    def __init__(self, keys: tuple[Key, ...], salt: bytes) -> None:
        self._digests = tuple(_digest(key.secret.reveal()) for key in keys)
        self._salt = salt

    @property
    def required(self) -> bool:
        """Whether Wiretape has keys of its own; then no credential of a caller is passed on."""
        return bool(self._digests)

    def caller(self, headers: Iterable[Header]) -> str | None:
        """A keyed hash of what the caller presented; None where a key is due and this is none of them."""
        presented = credentials(headers)
        if self._digests:
            if len(presented) != 1 or not self._known(presented[0]):
                return None
        elif not presented:
            return LOCAL
        return hmac.new(self._salt, b"\0".join(presented), hashlib.sha256).hexdigest()[:CALLER_CHARS]

    def _known(self, presented: bytes) -> bool:
        digest = hashlib.sha256(presented).digest()
        known = False
        for own in self._digests:
            known |= hmac.compare_digest(own, digest)
        return known


def credentials(headers: Iterable[Header]) -> list[bytes]:
    """What the headers present, each once, without the word Bearer; another scheme counts with its name."""
    found: list[bytes] = []
    for name, value in headers:
        lower = name.lower()
        if lower not in CREDENTIAL_HEADERS:
            continue
        credential = value.strip()
        if lower == b"authorization":
            scheme, _, rest = credential.partition(b" ")
            credential = rest.strip() if scheme.lower() == b"bearer" else credential
        if credential and credential not in found:
            found.append(credential)
    return found


def salt_of(folder: Path | None) -> bytes:
    """What makes the hashes of this installation its own; without a folder, of this process."""
    if folder is None:
        return secrets.token_bytes(SALT_BYTES)
    path = folder / _SALT_FILE
    try:
        return _salt_in(path)
    except FileNotFoundError:
        return _new_salt(path)


def _salt_in(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        salt = file.read(SALT_BYTES + 1)
    if len(salt) != SALT_BYTES:
        raise OSError(f"{_SALT_FILE} in the data folder is not {SALT_BYTES} bytes long")
    return salt


def _new_salt(path: Path) -> bytes:
    """Written aside and linked: a crash leaves a whole one or none, and of two processes the first one counts."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(f"{_SALT_FILE}.{secrets.token_hex(8)}")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(SALT_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(aside)
        return _salt_in(path)
    finally:
        aside.unlink()


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()
