"""Decide whether a request may enter, from its head alone: Host, Origin, framing, method, key and path.

The order matters. First what a browser page could do without knowing a key (DNS rebinding, foreign origins), then
whether this is one request and not two, then the key, and only then whether the path exists.

One function extracts credentials from every header that may carry one, so that no rule can be bypassed by sending a key
under another name (CVE-2026-45339). They are compared and hashed, never kept.
"""

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from ..config.model import Config, Key
from ..config.urls import Place, place
from ..http1 import Header, Headers
from ..key_patterns import CREDENTIAL_HEADERS, has_credential
from ..limits import CALLER_CHARS, PREFLIGHT_S, SALT_BYTES

__all__ = [
    "LOCAL",
    "METHODS",
    "OPEN_PATHS",
    "OPERATOR",
    "OWN_PATHS",
    "PAGE_HEADERS",
    "PAGE_PATH",
    "SALT_FILE",
    "Admission",
    "Keys",
    "Refusal",
    "admit",
    "content_type_refusal",
    "cors_headers",
    "credentials",
    "operator_token",
    "page_refusal",
    "preflight",
    "salt_of",
    "write_whole",
]

#: The methods that are relayed. TRACE would send the client's headers back (C25).
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

#: Open without a key: they reveal only that the server is up, and orchestrators poll them.
OPEN_PATHS: Final = (b"/wiretape/healthz", b"/wiretape/readyz")

#: Wiretape's own endpoints.
OWN_PATHS: Final = b"/wiretape/"

#: The inspector's page, which holds no data and is public, and the headers of everything there.
PAGE_PATH: Final = b"/wiretape/ui"
PAGE_HEADERS: Final = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
            b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
            b"trusted-types 'none'"
        ),
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - compared, not listened on
_HOST: Final = re.compile(
    r"([a-z0-9_](?:[a-z0-9._-]{0,252}[a-z0-9_])?|\[[0-9a-f:.]{2,45}\])\.?(?::[0-9]{1,5})?", re.ASCII
)
#: A request that repeats one of these could be read as two different requests (C12).
_SINGLE: Final = frozenset(
    {*CREDENTIAL_HEADERS, b"host", b"origin", b"content-length", b"content-type", b"transfer-encoding"}
)
#: How a browser marks requests made by a foreign page; `same-site` is another port of this machine.
_FOREIGN_SITES: Final = frozenset({b"cross-site", b"same-site"})
_QUERY: Final = re.compile(rb"[\x21\x22\x24-\x7e]*")

#: The caller of a request without a credential, where none is required.
LOCAL: Final = "local"

#: The answer depends on the origin, so a cache must not give a page what another client got.
_VARY: Final = (b"vary", b"Origin")
#: What a page may read beyond what CORS always permits: our ids, and what clients need for retries and reports.
_EXPOSED: Final = (
    b"access-control-expose-headers",
    b", ".join(
        (
            *(b"X-Wiretape-Stream", b"X-Wiretape-Lost", b"X-Wiretape-Estimated"),
            *(b"X-Request-Id", b"Retry-After", b"Retry-After-Ms", b"X-Should-Retry"),
        )
    ),
)

#: The caller who presents the operator token: sees the streams of all callers. No hash has an asterisk.
OPERATOR: Final = "*"

SALT_FILE: Final = "caller.salt"
_TOKEN_FILE: Final = "operator.token"  # noqa: S105 - its name
#: Any credential that begins with it is an operator token, or a wrong one, and never a provider's key.
_TOKEN_PREFIX: Final = b"wiretape_operator_"
#: The token of a process, until its data folder has another one.
_OWN_TOKEN: Final = _TOKEN_PREFIX.decode() + secrets.token_urlsafe(SALT_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A request that may enter: what access found out, so that nothing is determined twice."""

    headers: Headers
    #: A keyed hash of the caller's credential; empty for the paths that are open to all.
    caller: str
    #: The route and dialect; None for Wiretape's own endpoints.
    place: Place | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that may not enter, and the error to answer it with."""

    status: int
    code: str
    message: str
    headers: tuple[Header, ...] = ()


class Keys:
    """Wiretape's own keys and the salt for caller hashes."""

    def __init__(self, keys: tuple[Key, ...], salt: bytes, operator: str = "") -> None:
        """`operator` is the operator token, or empty."""
        self._operator = _digest(operator.encode()) if operator else b""
        self._digests = tuple(_digest(key.secret.reveal().encode("utf-8", "surrogateescape")) for key in keys)
        self._salt = salt
        #: Callers must present one of the keys; then none of their credentials is passed on.
        self.required = bool(keys)

    def caller(self, headers: Iterable[Header]) -> str | None:
        """Return a keyed hash of the caller's credential, or None if a key is required and this is not one."""
        presented = credentials(headers)
        for credential in presented:
            if credential.startswith(_TOKEN_PREFIX):
                right = hmac.compare_digest(self._operator, _digest(credential))
                return OPERATOR if right and len(presented) == 1 else None
        if self._digests:
            if len(presented) != 1:
                return None
            digest, known = _digest(presented[0]), False
            for each in self._digests:  # all of them, so that the time does not depend on which one fits
                known |= hmac.compare_digest(each, digest)
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


def admit(config: Config, keys: Keys, scope: Mapping[str, Any], headers: Headers) -> Admission | Refusal:
    """Return the admission of a request (an ASGI scope), or the first reason to refuse it."""
    raw_path, query = scope["raw_path"], scope["query_string"]
    refused = page_refusal(config, headers, scope["http_version"]) or _refuse_shape(headers, query)
    if refused is not None:
        return refused
    if scope["method"] not in METHODS:
        return Refusal(405, "method_not_allowed", "Method not relayed.", ((b"allow", ", ".join(METHODS).encode()),))
    if raw_path in OPEN_PATHS or raw_path == PAGE_PATH or raw_path.startswith(PAGE_PATH + b"/"):
        return Admission(headers=headers, caller="", place=None)
    if query and has_credential(query):
        return Refusal(400, "key_in_query", "Keys in URLs end up in logs. Send the key as Authorization: Bearer <key>.")
    own = raw_path.startswith(OWN_PATHS)
    # The operator token goes to no upstream, wherever it is, and onto no tape.
    leaks = not own and _TOKEN_PREFIX in b"\n".join(
        [raw_path, query, *map(itemgetter(1), scope.get("headers", headers))]
    )
    caller = None if leaks else keys.caller(headers)
    if caller is None:
        return Refusal(
            401,
            "invalid_api_key",
            'Missing or invalid Wiretape key (WIRETAPE_KEY). Send it as "Authorization: Bearer <key>" or "x-api-key".',
            ((b"www-authenticate", b"Bearer"),),
        )
    found = place(config, raw_path)
    if found is None and not own:
        return Refusal(404, "not_found", "No such path. Paths begin with /v1/, /ROUTE/v1/ or /wiretape/.")
    return Admission(headers=headers, caller=caller, place=found)


def cors_headers(config: Config, headers: Headers) -> tuple[Header, ...]:
    """Return the headers for the answer to a request: with them a page of an origin in `cors_origins` may read it."""
    origin = headers.get(b"origin")
    if _lower(origin) not in config.cors_origins:
        return (_VARY,)
    return (_VARY, (b"access-control-allow-origin", origin.strip()), _EXPOSED)


def preflight(config: Config, method: str, headers: Headers) -> tuple[Header, ...]:
    """Return the headers that permit what a page of an origin in `cors_origins` asks for; none for other requests.

    The page may send any header: its origin is trusted as a program on this machine is.
    """
    asks = method == "OPTIONS" and b"access-control-request-method" in headers
    if not asks or _lower(headers.get(b"origin")) not in config.cors_origins:
        return ()
    return (
        (b"access-control-allow-methods", ", ".join(METHODS).encode()),
        (b"access-control-allow-headers", headers.get(b"access-control-request-headers")),
        (b"access-control-max-age", b"%d" % PREFLIGHT_S),
    )


def content_type_refusal(headers: Headers) -> Refusal | None:
    """Return the 415 for a request that is not JSON: pages can send other types without a preflight (C11)."""
    if headers.media_type() == b"application/json":  # a repeated one was refused
        return None
    return Refusal(415, "unsupported_media_type", "Send this request with content-type: application/json.")


def page_refusal(config: Config, headers: Headers, http_version: str) -> Refusal | None:
    """Return the refusal of a request that a browser page could make without a key."""
    return _refuse_host(config, headers, http_version) or _refuse_origin(config, headers)


def _refuse_host(config: Config, headers: Headers, http_version: str) -> Refusal | None:
    hosts = headers.all(b"host")
    if len(hosts) > 1 or (not hosts and http_version != "1.0"):
        return Refusal(400, "bad_host", "A request must have exactly one Host header.")
    if not hosts or _is_own_host(config, _lower(hosts[0])):
        return None
    return Refusal(
        421, "host_not_allowed", "Host not allowed. Add it to the setting `hosts` (wiretape.toml or WIRETAPE_HOSTS)."
    )


def _is_own_host(config: Config, given: str) -> bool:
    found = _HOST.fullmatch(given)
    if found is None:
        return False
    name, bound = found[1], config.host.lower()
    if name in _LOCAL_HOSTS or name in config.hosts or name.strip("[]") == bound.strip("[]"):
        return True
    if bound in _EVERYWHERE:  # any address is the bound one: what a page can point at this machine is a name
        with suppress(ValueError):
            ipaddress.ip_address(name.strip("[]"))
            return True
    return False


def _refuse_origin(config: Config, headers: Headers) -> Refusal | None:
    origins = headers.all(b"origin")
    if origins:
        own = {b"%b://%b" % (scheme, host.strip()) for scheme in (b"http", b"https") for host in headers.all(b"host")}
        named = (*config.origins, *config.cors_origins)
        allowed = len(origins) == 1 and _lower(origins[0]) in {*map(_lower, own), *named}
    else:
        # A page that only loads something from us, such as an image or a script, sends no Origin.
        allowed = _FOREIGN_SITES.isdisjoint(map(bytes.strip, headers.all(b"sec-fetch-site")))
    if allowed:
        return None
    return Refusal(
        403,
        "origin_not_allowed",
        "Origin not allowed. Add it to the setting `cors_origins` (WIRETAPE_CORS_ORIGINS) for a web page, or to "
        "`origins` (WIRETAPE_ORIGINS) for an application.",
    )


def _lower(value: bytes) -> str:
    return value.strip().decode("latin-1").lower()


def _refuse_shape(headers: Headers, query: bytes) -> Refusal | None:
    if headers.repeated(_SINGLE) or (b"content-length" in headers and b"transfer-encoding" in headers):
        return Refusal(400, "bad_headers", "A header that must be unique is repeated or contradicts another one.")
    if _QUERY.fullmatch(query) is None:
        return Refusal(400, "bad_query", "The query contains a character that is not allowed in URLs.")
    return None


def salt_of(folder: Path | None) -> bytes:
    """Return the salt kept in the data folder, creating it if needed; without a folder, one for this process."""
    salt = _kept(folder, SALT_FILE, secrets.token_bytes(SALT_BYTES))
    if len(salt) != SALT_BYTES:
        raise OSError(f"{SALT_FILE} in the data folder is not {SALT_BYTES} bytes long")
    return salt


def operator_token(folder: Path | None) -> str:
    """Return the operator token kept in the data folder, creating it if needed; without a folder, one for this process.

    It gives nothing away: a reader of the folder can read every tape.
    """
    token = _OWN_TOKEN
    with suppress(OSError):  # a full disk keeps no server from starting: the token is this process's then
        token = _kept(folder, _TOKEN_FILE, token.encode()).decode("ascii", "replace").strip()
    if len(token) < len(_OWN_TOKEN) or not token.startswith(_TOKEN_PREFIX.decode()):
        raise OSError(f"{_TOKEN_FILE} in the data folder is not a token: remove it to get another one")
    return token


def _kept(folder: Path | None, name: str, fresh: bytes) -> bytes:
    """Return the first bytes of a file of the data folder; of a new one what is `fresh`."""
    if folder is None:
        return fresh
    path = folder / name
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        write_whole(path, fresh)
        return fresh
    with os.fdopen(handle, "rb") as file:
        return file.read(4 * SALT_BYTES)


def write_whole(path: Path, content: bytes) -> None:
    """Rename a file that is complete: a crash leaves a whole one or none. One process at a time holds the folder."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()
