"""Decide whether a request may enter, from its head alone: Host, Origin, framing, method, key and path.

The order matters. First what a browser page could do without knowing a key (DNS rebinding, foreign origins), then
whether this is one request and not two, then the key, and only then whether the path exists.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..config.model import Config
from ..config.urls import Place, place
from ..http1 import Header, Headers
from ..key_patterns import CREDENTIAL_HEADERS, has_credential
from .keys import Keys

__all__ = ["METHODS", "OPEN_PATHS", "OWN_PATHS", "Admission", "Refusal", "admit", "content_type_refusal"]

#: The methods that are relayed. TRACE would send the client's headers back (C25).
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

#: Open without a key: they reveal only that the server is up, and orchestrators poll them.
OPEN_PATHS: Final = (b"/wiretape/healthz", b"/wiretape/readyz")

#: Wiretape's own endpoints.
OWN_PATHS: Final = b"/wiretape/"

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


def admit(config: Config, keys: Keys, scope: Mapping[str, Any], headers: Headers) -> Admission | Refusal:
    """Return the admission of a request (an ASGI scope), or the first reason to refuse it."""
    raw_path, query = scope["raw_path"], scope["query_string"]
    refused = (
        _refuse_host(config, headers, scope["http_version"])
        or _refuse_origin(config, headers)
        or _refuse_shape(headers, query)
    )
    if refused is not None:
        return refused
    if scope["method"] not in METHODS:
        return Refusal(405, "method_not_allowed", "Method not relayed.", ((b"allow", ", ".join(METHODS).encode()),))
    if raw_path in OPEN_PATHS:
        return Admission(headers=headers, caller="", place=None)
    if query and has_credential(query):
        return Refusal(400, "key_in_query", "Keys in URLs end up in logs. Send the key as Authorization: Bearer <key>.")
    caller = keys.caller(headers)
    if caller is None:
        return Refusal(
            401,
            "invalid_api_key",
            'Missing or invalid Wiretape key (WIRETAPE_KEY). Send it as "Authorization: Bearer <key>".',
            ((b"www-authenticate", b"Bearer"),),
        )
    found = place(config, raw_path)
    if found is None and not raw_path.startswith(OWN_PATHS):
        return Refusal(404, "not_found", "No such path. Paths begin with /v1/, /ROUTE/v1/ or /wiretape/.")
    return Admission(headers=headers, caller=caller, place=found)


def content_type_refusal(headers: Headers) -> Refusal | None:
    """Return the 415 for a chat request that is not JSON: pages can send other types without a preflight (C11)."""
    if len(headers.all(b"content-type")) == 1 and headers.media_type() == b"application/json":
        return None
    return Refusal(415, "unsupported_media_type", "Send chat requests with content-type: application/json.")


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
    if bound not in _EVERYWHERE:
        return False
    # Listening on every address, any address is the bound one. What a page can point at this machine is a name.
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _refuse_origin(config: Config, headers: Headers) -> Refusal | None:
    origins = headers.all(b"origin")
    if origins:
        own = {b"%b://%b" % (scheme, host.strip()) for scheme in (b"http", b"https") for host in headers.all(b"host")}
        allowed = len(origins) == 1 and _lower(origins[0]) in {*map(_lower, own), *config.origins}
    else:
        # A page that only loads something from us, such as an image or a script, sends no Origin.
        allowed = _FOREIGN_SITES.isdisjoint(map(bytes.strip, headers.all(b"sec-fetch-site")))
    if allowed:
        return None
    return Refusal(
        403,
        "origin_not_allowed",
        "Origin not allowed. Add it to the setting `origins` (wiretape.toml or WIRETAPE_ORIGINS).",
    )


def _lower(value: bytes) -> str:
    return value.strip().decode("latin-1").lower()


def _refuse_shape(headers: Headers, query: bytes) -> Refusal | None:
    if headers.repeated(_SINGLE) or (b"content-length" in headers and b"transfer-encoding" in headers):
        return Refusal(400, "bad_headers", "A header that must be unique is repeated or contradicts another one.")
    if _QUERY.fullmatch(query) is None:
        return Refusal(400, "bad_query", "The query contains a character that is not allowed in URLs.")
    return None
