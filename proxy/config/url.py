"""What the base URL of an upstream may be: parsed by the one parser that also connects (CVE-2026-45400)"""

import ipaddress
import re
from typing import Final

import httpx

from ..key_patterns import has_secret
from ..limits import PORT_MAX
from .routing import base_of, is_plain

__all__ = ["UrlError", "checked", "is_loopback", "origin_of", "plain_name"]

_VISIBLE: Final = re.compile(r"[\x21-\x5b\x5d-\x7e]+", re.ASCII)
_AUTHORITY: Final = re.compile(r"https?://([^/?#]*)", re.ASCII)
_NO_URL: Final = f"is no URL with a host and a port from 1 to {PORT_MAX}"
_OWN_TAIL: Final = "/chat/completions"
_PORTS: Final = {"http": 80, "https": 443}


class UrlError(ValueError):
    """What is wrong, without the URL: it may hold a key."""


def checked(url: str, *, allow_plain_http: bool) -> str:
    """The URL itself; raises UrlError."""
    authority = _AUTHORITY.match(url)
    if authority is None or not _VISIBLE.fullmatch(url):
        raise UrlError("must begin with https:// (or http://) and be ASCII without spaces or backslashes")
    if "@" in authority[1]:
        raise UrlError("must not hold a user or password; name the key's variable in key_env")
    if "#" in url:
        raise UrlError("must not hold a fragment (#)")
    try:
        base, parsed = base_of(url), httpx.URL(url)
        host = parsed.host
    except (httpx.InvalidURL, UnicodeError):  # the second where a label of the host is no Punycode
        raise UrlError(_NO_URL) from None
    if not host or not (parsed.port is None or 1 <= parsed.port <= PORT_MAX):
        raise UrlError(_NO_URL)
    if not is_plain(base.path + b"/"):
        raise UrlError("must not hold . or .. in its path")
    if base.path.endswith(_OWN_TAIL.encode()):
        raise UrlError(f"is a base URL, which ends before {_OWN_TAIL}")
    if has_secret(base.query):
        raise UrlError("must not hold a key in its query; name the key's variable in key_env")
    if parsed.scheme == "http" and not is_loopback(host) and not allow_plain_http:
        raise UrlError("must begin with https://, or say allow_plain_http = true beside it")
    return url


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own and no other machine's."""
    host = host.strip("[]").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port, for comparing."""
    parsed = httpx.URL(url)
    return parsed.scheme, parsed.host, parsed.port or _PORTS[parsed.scheme]


def plain_name(url: str) -> str:
    """What an upstream is called in records and logs: host and path; never its query."""
    base = base_of(url)
    return base.origin.netloc.decode("ascii") + base.path.decode("ascii")
