"""Which headers pass, either way, which ones the tape keeps, and how what must not be told is masked

End-to-end headers pass; hop-by-hop ones, cookies and what belongs to one server do not (failures.md 6.11). The tape
keeps an allow-list only (6.7).
"""

import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from ..config.model import Target
from ..limits import MASKED_CHARS_MIN
from ..upstream.exchange import Header
from .keys import CREDENTIAL_HEADERS, Secret

__all__ = [
    "KEY_PARAMETERS",
    "holds_key",
    "key_forms",
    "masked",
    "masked_path",
    "parameter_name",
    "taped_answer",
    "taped_request",
    "to_client",
    "to_upstream",
]

#: Of this connection (RFC 9110 7.6.1), and what older or other software takes for it.
_HOP: Final = frozenset(
    {
        b"connection",
        b"expect",
        b"http2-settings",
        b"keep-alive",
        b"te",
        b"trailer",
        b"trailers",
        b"transfer-encoding",
        b"upgrade",
    }
)

#: Of one server or one browser: neither side hears them from the other.
_NEVER: Final = frozenset(
    {b"cookie", b"cookie2", b"forwarded", b"host", b"server", b"set-cookie", b"set-cookie2", b"via", b"x-real-ip"}
)
_NEVER_PREFIXES: Final = (b":", b"proxy-", b"x-forwarded-", b"x-wiretape-")

#: An upstream must not open us to a browser's pages, nor tell the web server before us what to send instead.
_NEVER_TO_CLIENT: Final = (b"access-control-", b"x-accel-", b"x-sendfile", b"x-lighttpd-send-file")

#: Framing of an answer's body, where we changed the body.
_FRAMING: Final = frozenset({b"content-encoding", b"content-length"})

#: `Connection` cannot name these: with `Connection: authorization` anyone could strip what the upstream needs (C18).
_NOT_NAMED: Final = frozenset(
    {*CREDENTIAL_HEADERS, b"content-encoding", b"content-length", b"content-type", b"host", b"retry-after"}
)

_HERMES: Final = b"x-hermes-tool-progress"

#: With its coding, or nobody could say what a compressed body is.
_TAPED_REQUEST: Final = frozenset(
    {b"content-encoding", b"content-type", b"user-agent", b"x-client-request-id", b"x-request-id"}
)
_TAPED_ANSWER: Final = frozenset(
    {
        b"content-encoding",
        b"content-type",
        b"openai-processing-ms",
        b"request-id",
        b"retry-after",
        b"retry-after-ms",
        b"x-request-id",
        b"x-should-retry",
    }
)
_TAPED_ANSWER_PREFIXES: Final = (b"x-ratelimit-", b"ratelimit-", b"anthropic-ratelimit-")

#: Query parameters that are a caller's credential under some gateway; a request that has one is refused.
KEY_PARAMETERS: Final = frozenset({"access_token", "api_key", "apikey", "key", "token", "x_api_key"})

#: How a parameter ends whose value is, or may be, worth stealing; masked wherever a query is written down.
_KEY_SHAPED: Final = re.compile(
    r"(?:^|[_.])(?:key|token|secret|sig|signature|password|passwd|pwd|auth|authorization|credential|credentials|code)$"
    r"|apikey$|accesskey$|accesstoken$"
)

_MASK: Final = "***"


def to_upstream(headers: Iterable[Header], target: Target, *, own_key: bool, hermes: bool = False) -> list[Header]:
    """A request's headers for this target; its length is among them, for whoever sends the body as it came.

    With a key of Wiretape's own (`own_key`) no credential of the caller passes, under whatever name.
    """
    headers = list(headers)
    dropped = _HOP | _NEVER | _named(headers) | {b"accept-encoding"}
    if not hermes:
        dropped |= {_HERMES}
    if own_key or target.key is not None or not target.caller_key:
        dropped |= set(CREDENTIAL_HEADERS)
    passed = [header for header in headers if not _drops(header[0].lower(), dropped, _NEVER_PREFIXES)]
    passed.append((b"accept-encoding", b"identity"))
    if target.key is not None:
        passed.append(_credential(target, target.key))
    return passed


def to_client(headers: Iterable[Header], *, changed: bool = True) -> list[Header]:
    """An answer's headers for the client; without framing, unless its body passes unchanged."""
    headers = list(headers)
    dropped = _HOP | _NEVER | _named(headers)
    if changed:
        dropped |= _FRAMING
    prefixes = _NEVER_PREFIXES + _NEVER_TO_CLIENT
    return [header for header in headers if not _drops(header[0].lower(), dropped, prefixes)]


def taped_request(headers: Iterable[Header], secrets: Iterable[Secret] = ()) -> list[list[str]]:
    """What the tape keeps of a request's headers, in their order."""
    return _taped(headers, _TAPED_REQUEST, (), secrets)


def taped_answer(headers: Iterable[Header], secrets: Iterable[Secret] = ()) -> list[list[str]]:
    """What the tape keeps of an answer's headers, in their order."""
    return _taped(headers, _TAPED_ANSWER, _TAPED_ANSWER_PREFIXES, secrets)


def masked(text: bytes, secrets: Iterable[Secret]) -> bytes:
    """The text without our keys, in whatever way JSON or a URL may hold them; all else byte for byte."""
    for form in key_forms(secrets):
        text = text.replace(form, _MASK.encode())
    return text


def key_forms(secrets: Iterable[Secret]) -> tuple[bytes, ...]:
    """Every way in which JSON or a URL may hold one of our keys; none of a word that is too short for a key."""
    forms: dict[str, None] = {}
    for secret in secrets:
        value = secret.reveal()
        if len(value) >= MASKED_CHARS_MIN:
            quoted = json.dumps(value)[1:-1]
            forms |= dict.fromkeys((value, quoted, quoted.replace("/", "\\/"), quote(value), quote(value, safe="")))
    return tuple(form.encode("utf-8", "surrogateescape") for form in forms)


def masked_path(raw_path_and_query: bytes) -> str:
    """Path and query for a record or a log line: one line of ASCII, values of key-shaped parameters masked."""
    path, mark, query = raw_path_and_query.partition(b"?")
    parts = re.split(rb"([&;])", query)
    shown = path + mark + b"".join(_masked_parameter(part) for part in parts)
    return "".join(chr(byte) if 0x21 <= byte <= 0x7E else f"%{byte:02X}" for byte in shown)


def holds_key(query: bytes) -> bool:
    """Whether a query has a parameter whose value must not be written down."""
    return any(_KEY_SHAPED.search(parameter_name(part)) for part in re.split(rb"[&;]", query))


def parameter_name(part: bytes) -> str:
    """The name in `name=value` as an upstream would read it, in one spelling."""
    name = unquote_to_bytes(part.partition(b"=")[0].replace(b"+", b" "))
    return name.decode("ascii", "replace").strip().lower().replace("-", "_")


def _masked_parameter(part: bytes) -> bytes:
    name, equals, value = part.partition(b"=")
    if value and _KEY_SHAPED.search(parameter_name(part)):
        return name + equals + _MASK.encode()
    return part


def _named(headers: list[Header]) -> set[bytes]:
    """What `Connection` names, which is of this connection too."""
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    return named - _NOT_NAMED


def _drops(name: bytes, dropped: frozenset[bytes] | set[bytes], prefixes: tuple[bytes, ...]) -> bool:
    return name in dropped or name.startswith(prefixes)


def _credential(target: Target, key: Secret) -> Header:
    value = key.reveal().encode("ascii")
    if target.key_header == "authorization":
        return b"authorization", b"Bearer " + value
    return target.key_header.encode("ascii"), value


def _taped(
    headers: Iterable[Header], names: frozenset[bytes], prefixes: tuple[bytes, ...], secrets: Iterable[Secret]
) -> list[list[str]]:
    secrets = tuple(secrets)
    kept: list[list[str]] = []
    for name, value in headers:
        lower = name.lower()
        if lower in names or (prefixes and lower.startswith(prefixes)):
            kept.append([lower.decode("latin-1"), masked(value, secrets).decode("latin-1")])
    return kept
