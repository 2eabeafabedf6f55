"""URLs: what an upstream's base URL may be, and the way from a request's raw path to its route and upstream.

The raw path alone decides the route and is sent as it came (CVE-2026-48710: authentication and router saw two
different paths). What the request is, and so what is checked, is decided as the most lenient upstream may read it.
"""

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote_to_bytes

import httpx

from ..key_patterns import has_secret
from ..limits import PORT_MAX
from .model import Config, Route, Target

__all__ = [
    "Dialect",
    "Endpoint",
    "Place",
    "UrlError",
    "address_of",
    "base_of",
    "checked",
    "client_dialect",
    "is_loopback",
    "is_plain",
    "origin_of",
    "place",
    "plain_name",
    "request_target",
]

Dialect = Literal["chat", "responses", "messages", ""]
Endpoint = Literal["", "runs", "count_tokens", "response"]

#: The ends of the paths at which each dialect is spoken.
_SPOKEN: Final[Mapping[bytes, Dialect]] = MappingProxyType(
    {b"/chat/completions": "chat", b"/responses": "responses", b"/messages": "messages"}
)
_COUNT_TOKENS: Final = b"/messages/count_tokens"
_RESPONSE: Final = re.compile(rb"/responses/[^/]+")
#: OpenAI's messages of a thread are no requests to a model.
_THREADS: Final = b"/threads/"
_RUNS: Final = b"/runs"
#: Ends of its paths whose requests have a body.
_RUNS_JSON: Final = (_RUNS, b"/tool_outputs", b"/approval")
#: Ends of paths whose requests are JSON objects for a model. A page of another origin must not be able to send one.
_JSON_ENDS: Final = (
    *(*_SPOKEN, _COUNT_TOKENS, b"/completions", b"/embeddings", b"/moderations", b"/rerank"),
    *(b"/images/generations", b"/audio/speech"),
)
#: Times that a path is decoded: once by the upstream, and once by another proxy on the way.
_DECODINGS_MAX: Final = 2
_PORTS: Final = {"http": 80, "https": 443}
_VISIBLE: Final = re.compile(r"[\x21-\x5b\x5d-\x7e]+", re.ASCII)
_AUTHORITY: Final = re.compile(r"https?://([^/?#]*)", re.ASCII)
#: What a request line may contain (RFC 9112, as h11 has it), without the start of a query or a fragment.
_PATH: Final = re.compile(rb"/[\x21-\x22\x24-\x3e\x40-\x7e]*", re.ASCII)
#: `.` or `..` as a segment, in any way an upstream may read one: encoded, after another slash, with parameters.
_SLASH: Final = rb"(?:/|\\|%2[fF]|%5[cC])"
_DOTS: Final = re.compile(_SLASH + rb"(?:\.|%2[eE]){1,2}(?:" + _SLASH + rb"|;|%3[bB]|$)")
#: Where an encoded query, fragment or control character ends a path for some.
_AFTER_PATH: Final = re.compile(rb"[\x00-\x1f?#]")
#: Wiretape's own endpoints: no request may be relayed to them, with a key that the caller does not have.
_OWN: Final = b"/wiretape/"
_PREFIX: Final = re.compile(rb"(?:/([a-z0-9][a-z0-9_-]*))?/v1(?=/|$)")


class UrlError(ValueError):
    """What is wrong with a URL, without quoting it: it may contain a key."""


class Place(NamedTuple):
    """Where a request goes, and its dialect."""

    route: Route
    dialect: Dialect
    #: The raw path after /v1: empty, or it begins with a slash.
    tail: bytes
    #: Its POST requests are JSON objects.
    takes_json: bool = True
    #: Which of the endpoints it is that Wiretape answers itself, if it can.
    endpoint: Endpoint = ""


class _Base(NamedTuple):
    """The parts of an upstream's base URL."""

    origin: httpx.URL
    path: bytes
    query: bytes


def checked(url: str, *, allow_plain_http: bool) -> str:
    """Return a base URL, or raise `UrlError`. httpx parses it here and when it connects (CVE-2026-45400)."""
    authority = _AUTHORITY.match(url)
    if authority is None or not _VISIBLE.fullmatch(url):
        raise UrlError("must begin with https:// (or http://) and be ASCII without spaces or backslashes")
    if "@" in authority[1]:
        raise UrlError("must not contain a user or password; name the key's variable in key_env")
    if "#" in url:
        raise UrlError("must not contain a fragment (#)")
    try:
        base, parsed = base_of(url), httpx.URL(url)
        host = parsed.host  # raises UnicodeError if a label is not Punycode
    except (httpx.InvalidURL, UnicodeError):
        host, base, parsed = "", None, httpx.URL()
    if base is None or not host or not (parsed.port is None or 1 <= parsed.port <= PORT_MAX):
        raise UrlError(f"must be a URL with a host and a port from 1 to {PORT_MAX}")
    if not is_plain(base.path + b"/"):
        raise UrlError("must not contain . or .. in its path")
    if (base.path + b"/").startswith(_OWN):
        raise UrlError("must not begin with /wiretape/ in its path: that is no upstream")
    if spoken := next((end for end in _SPOKEN if base.path.endswith(end)), None):
        raise UrlError(f"must be a base URL, which ends before {spoken.decode()}")
    if has_secret(base.query):
        raise UrlError("must not contain a key in its query; name the key's variable in key_env")
    if parsed.scheme == "http" and not is_loopback(host) and not allow_plain_http:
        raise UrlError("must begin with https://, unless allow_plain_http = true")
    return url


def is_loopback(host: str) -> bool:
    """Return whether a name or address belongs to this machine and no other."""
    host = host.strip("[]").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of(host: str, port: int) -> str:
    """Return the URL at which this machine reaches a server that listens there: no one connects to 0.0.0.0 or ::."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))  # noqa: S104 - not listened on
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port, for comparing."""
    parsed = httpx.URL(url)
    return parsed.scheme, parsed.host, parsed.port or _PORTS[parsed.scheme]


def plain_name(url: str) -> str:
    """Return an upstream's name for records and logs: host and path, never its query."""
    base = base_of(url)
    return base.origin.netloc.decode("ascii") + base.path.decode("ascii")


def is_plain(raw_path: bytes) -> bool:
    """Return whether every reader of this path sees the same segments in it."""
    return _PATH.fullmatch(raw_path) is not None and _DOTS.search(raw_path) is None


def place(config: Config, raw_path: bytes) -> Place | None:
    """Return the route that a raw path (without its query) names, or None for a 404."""
    found = _PREFIX.match(raw_path)
    if found is None or not is_plain(raw_path):
        return None
    route = config.routes.get((found[1] or b"").decode("ascii"))
    if route is None:
        return None
    tail = raw_path[found.end() :]
    if tail.startswith(_OWN):  # an upstream without a base path may be this server
        return None
    if dialect := _SPOKEN.get(tail):
        return Place(route, dialect, tail)
    if tail == _RUNS or tail.startswith(_RUNS + b"/"):
        return Place(route, "", tail, takes_json=tail.endswith(_RUNS_JSON), endpoint="runs")
    plain = _as_read(tail)
    endpoint: Endpoint = "count_tokens" if plain == _COUNT_TOKENS else "response" if _RESPONSE.fullmatch(tail) else ""
    return Place(route, _spoken(plain), tail, plain.endswith(_JSON_ENDS), endpoint)


def client_dialect(raw_path: bytes) -> Dialect:
    """Return the dialect in which a client of this path reads an error, whether the path exists or not."""
    plain = _as_read(raw_path)
    return "messages" if plain.endswith(_COUNT_TOKENS) else _spoken(plain)


def _spoken(plain: bytes) -> Dialect:
    for end, dialect in _SPOKEN.items():
        if plain.endswith(end) and not (dialect == "messages" and _THREADS in plain):
            return dialect
    return ""


def _as_read(tail: bytes) -> bytes:
    """Return a path as the most lenient upstream may read it, to compare with: it is sent as it came."""
    for _ in range(_DECODINGS_MAX):
        tail = _AFTER_PATH.split(unquote_to_bytes(tail), maxsplit=1)[0]
    segments = (segment.partition(b";")[0].strip() for segment in re.split(rb"[/\\]", tail.lower()))
    return b"".join(b"/" + segment for segment in segments if segment)


def request_target(target: Target, tail: bytes, query: bytes) -> bytes:
    """Return the path and query of the upstream's request line, byte for byte: base path and tail, then both queries.

    httpx.URL would rewrite `{`, quotes and dots.
    """
    base = base_of(target.url)
    joined = b"&".join(filter(None, (base.query, query)))
    path = base.path + tail or b"/"
    return path + b"?" + joined if joined else path


@lru_cache(maxsize=256)
def base_of(url: str) -> _Base:
    """Return the parts of a base URL. A slash at its end belongs to the tail."""
    parsed = httpx.URL(url)
    rest = url.partition("://")[2]
    path, _, query = (rest[len(re.split(r"[/?]", rest, maxsplit=1)[0]) :]).partition("?")
    return _Base(parsed.copy_with(raw_path=b"/"), path.rstrip("/").encode("ascii"), query.encode("ascii"))
