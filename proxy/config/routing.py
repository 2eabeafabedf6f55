"""From the raw path of a request to its route, and from there to the upstream, every byte as it came

One value decides, the raw path; nothing is decoded for it (CVE-2026-48710: authentication and router saw two paths).
"""

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import httpx

from .model import Config, Route, Target

__all__ = ["Base", "Dialect", "Place", "base_of", "is_plain", "place", "request_target", "upstream_url"]

Dialect = Literal["chat", ""]

_ENDINGS: Final[tuple[tuple[bytes, Dialect], ...]] = ((b"/chat/completions", "chat"),)

#: What a request line may hold (RFC 9112, as h11 has it), less what begins a query or a fragment.
_PATH: Final = re.compile(rb"/[\x21-\x22\x24-\x3e\x40-\x7e]*", re.ASCII)

#: `.` or `..` as a segment, in any way that an upstream may read one: encoded, behind another slash, with parameters.
_SLASH: Final = rb"(?:/|\\|%2[fF]|%5[cC])"
_DOTS: Final = re.compile(_SLASH + rb"(?:\.|%2[eE]){1,2}(?:" + _SLASH + rb"|;|%3[bB]|$)")

_PREFIX: Final = re.compile(rb"(?:/([a-z0-9][a-z0-9_-]*))?/v1(?=/|$)")


class Place(NamedTuple):
    """Where a request goes, and in whose language it speaks."""

    route: Route
    dialect: Dialect
    #: The raw path behind /v1: nothing, or it begins with a slash.
    tail: bytes


class Base(NamedTuple):
    """The parts of an upstream's base URL."""

    origin: httpx.URL
    path: bytes
    query: bytes


def is_plain(raw_path: bytes) -> bool:
    """Whether every reader of this path sees the same segments in it."""
    return _PATH.fullmatch(raw_path) is not None and _DOTS.search(raw_path) is None


def place(config: Config, raw_path: bytes) -> Place | None:
    """The route that the raw path (without its query) names; None is a 404."""
    found = _PREFIX.match(raw_path)
    if found is None or not is_plain(raw_path):
        return None
    route = config.routes.get((found[1] or b"").decode("ascii"))
    if route is None:
        return None
    tail = raw_path[found.end() :]
    return Place(route, _dialect(tail), tail)


def _dialect(tail: bytes) -> Dialect:
    for ending, dialect in _ENDINGS:
        if tail.endswith(ending):
            return dialect
    return ""


def request_target(target: Target, tail: bytes, query: bytes) -> bytes:
    """What stands in the upstream's request line: base path and tail, then base query and query, byte for byte.

    It goes into the request's extension `target`, because httpx.URL rewrites `{`, a quote and dots on its own.
    """
    base = base_of(target.url)
    joined = b"&".join(part for part in (base.query, query) if part)
    path = base.path + tail or b"/"
    return path + b"?" + joined if joined else path


def upstream_url(target: Target, tail: bytes, query: bytes) -> httpx.URL:
    """The URL that says where to connect; its path is exact where httpx can say it, and `request_target` always is."""
    exact = request_target(target, tail, query)
    return base_of(target.url).origin.copy_with(raw_path=exact)


@lru_cache(maxsize=256)
def base_of(url: str) -> Base:
    """The parts of a base URL that the configuration has accepted; the slash at its end is the tail's."""
    parsed = httpx.URL(url)
    rest = url.partition("://")[2]
    path, _, query = (rest[len(re.split(r"[/?]", rest, maxsplit=1)[0]) :]).partition("?")
    return Base(parsed.copy_with(raw_path=b"/"), path.rstrip("/").encode("ascii"), query.encode("ascii"))
