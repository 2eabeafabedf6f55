"""Who may ask what: Host, Origin, method, credential and place of a request, before anything of its body is read

The order is part of it: first what a page in a browser could do without knowing a key (DNS rebinding, other origins),
then whether this is one request and not two, then the key, and only then what there is behind it.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final

from ..config.model import Config
from ..config.routing import place
from ..relay.http_responses import Answer, error
from ..upstream.exchange import Header
from .headers import KEY_PARAMETERS, parameter_name
from .keys import CREDENTIAL_HEADERS, Keys

__all__ = ["METHODS", "OPEN_PATHS", "content_type_refusal", "refusal"]

#: What is relayed; TRACE would send a caller's headers back (C25).
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

#: Say nothing but that we are here; asked by what starts and stops us.
OPEN_PATHS: Final = (b"/wiretape/healthz", b"/wiretape/readyz")

_OWN: Final = b"/wiretape/"
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - asked about, not listened on
_HOST: Final = re.compile(
    r"([a-z0-9_](?:[a-z0-9._-]{0,252}[a-z0-9_])?|\[[0-9a-f:.]{2,45}\])\.?(?::[0-9]{1,5})?", re.ASCII
)
#: Of each there is at most one, or two readers of this request could take it for two (C12).
_SINGLE: Final = frozenset(
    {*CREDENTIAL_HEADERS, b"host", b"origin", b"content-length", b"content-type", b"transfer-encoding"}
)
#: What a browser says of a request that a page of somebody else made; `same-site` is another port of this machine.
_ELSEWHERE: Final = frozenset({b"cross-site", b"same-site"})
_QUERY: Final = re.compile(rb"[\x21\x22\x24-\x7e]*")
_JSON: Final = b"application/json"


def refusal(
    config: Config,
    keys: Keys,
    method: str,
    raw_path: bytes,
    query: bytes,
    headers: Iterable[Header],
    *,
    http_version: str = "1.1",
) -> Answer | None:
    """The answer to a request that goes no further; None lets it pass."""
    lower = [(name.lower(), value.strip()) for name, value in headers]
    return (
        _host(config, lower, http_version)
        or _origin(config, lower)
        or _shape(lower, query)
        or _method(method)
        or _key(keys, raw_path, query, lower)
        or _place(config, raw_path)
    )


def content_type_refusal(headers: Iterable[Header]) -> Answer | None:
    """The 415 for a chat request that is not JSON: what a page may send unasked is never called JSON (C11)."""
    media = _values([(name.lower(), value) for name, value in headers], b"content-type")
    if len(media) == 1 and media[0].partition(b";")[0].strip().lower() == _JSON:
        return None
    return _refused(415, "A chat request has content-type: application/json", "unsupported_media_type")


def _host(config: Config, headers: Sequence[Header], http_version: str) -> Answer | None:
    hosts = _values(headers, b"host")
    if len(hosts) > 1 or (not hosts and http_version != "1.0"):
        return _refused(400, "A request has exactly one Host header", "bad_host")
    if not hosts or _is_ours(config, hosts[0].decode("latin-1").lower()):
        return None
    return _refused(
        421,
        "This server is not called by that name: add it to the setting `hosts` (wiretape.toml or WIRETAPE_HOSTS)",
        "host_not_allowed",
    )


def _is_ours(config: Config, given: str) -> bool:
    found = _HOST.fullmatch(given)
    if found is None:
        return False
    name, bound = found[1], config.host.lower()
    if name in _LOCAL_HOSTS or name in config.hosts or name.strip("[]") == bound.strip("[]"):
        return True
    # Listening everywhere, every address is the bound one; what a page can point at this machine is a name.
    return bound in _EVERYWHERE and _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _origin(config: Config, headers: Sequence[Header]) -> Answer | None:
    origins = [value.decode("latin-1").lower() for value in _values(headers, b"origin")]
    if origins:
        hosts = [value.decode("latin-1").lower() for value in _values(headers, b"host")]
        own = {f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts}
        return None if len(origins) == 1 and origins[0] in own.union(config.origins) else _foreign()
    # A page that only loads something from us (an image, a script) says no Origin.
    return _foreign() if _ELSEWHERE.intersection(_values(headers, b"sec-fetch-site")) else None


def _foreign() -> Answer:
    return _refused(
        403,
        "Pages of other origins may not call this server: add the origin to the setting `origins` (wiretape.toml or "
        "WIRETAPE_ORIGINS)",
        "origin_not_allowed",
    )


def _shape(headers: Sequence[Header], query: bytes) -> Answer | None:
    names = [name for name, _ in headers]
    single = [name for name in names if name in _SINGLE]
    if len(single) != len(set(single)) or {b"content-length", b"transfer-encoding"} <= set(single):
        return _refused(400, "A header that says what a request is stands in it twice", "bad_headers")
    if _QUERY.fullmatch(query) is None:
        return _refused(400, "The query holds a character that no URL may hold", "bad_query")
    return None


def _method(method: str) -> Answer | None:
    if method in METHODS:
        return None
    return _refused(405, "This method is not relayed", "method_not_allowed", (b"allow", ", ".join(METHODS).encode()))


def _key(keys: Keys, raw_path: bytes, query: bytes, headers: Sequence[Header]) -> Answer | None:
    if raw_path in OPEN_PATHS:
        return None
    if any(parameter_name(part) in KEY_PARAMETERS for part in re.split(rb"[&;]", query) if part):
        return _refused(400, "A key in a URL is read by everybody: send it as Authorization: Bearer", "key_in_query")
    if keys.caller(headers) is not None:
        return None
    return _refused(
        401,
        "This server takes one of its own keys (WIRETAPE_KEY), as Authorization: Bearer",
        "invalid_api_key",
        (b"www-authenticate", b"Bearer"),
    )


def _place(config: Config, raw_path: bytes) -> Answer | None:
    if raw_path.startswith(_OWN) or place(config, raw_path) is not None:
        return None
    return _refused(
        404, "There is nothing here: paths begin with /v1/, with /ROUTE/v1/ or with /wiretape/", "not_found"
    )


def _values(headers: Sequence[Header], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _refused(status: int, message: str, code: str, *headers: Header) -> Answer:
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    return error(status, message, type=kind, code=code, headers=headers)
