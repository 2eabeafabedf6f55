"""Header policy: which headers pass in each direction, which ones the tape keeps, and how secrets are masked.

End-to-end headers pass. Hop-by-hop ones, cookies and what belongs to one server do not (failures.md 6.11). The tape
keeps an allow-list only (6.7).
"""

import json
from collections.abc import Collection, Iterable
from typing import Final, Protocol
from urllib.parse import quote

from ..config.model import Secret, Target
from ..http1 import Header, Headers
from ..key_patterns import CREDENTIAL_HEADERS, MASK
from ..limits import MASKED_CHARS_MIN
from .access import credentials

__all__ = [
    "HOP_BY_HOP",
    "TAPED_ANSWER",
    "TAPED_ANSWER_PREFIXES",
    "TAPED_REQUEST",
    "Spoken",
    "crossed_headers",
    "key_forms",
    "masked",
    "taped_answer",
    "taped_request",
    "to_client",
    "to_upstream",
]

#: Headers of one connection (RFC 9110 7.6.1 and older or other software's).
HOP_BY_HOP: Final = frozenset(
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

#: Headers of one server or one browser: they never pass, in either direction.
_NEVER: Final = frozenset(
    {b"cookie", b"cookie2", b"forwarded", b"host", b"server", b"set-cookie", b"set-cookie2", b"via", b"x-real-ip"}
)
_NEVER_PREFIXES: Final = (b":", b"proxy-", b"x-forwarded-", b"x-wiretape-")

#: The caller's trace context: only an upstream with `trace` gets one, in which ours is the parent.
_NOT_OURS: Final = frozenset({b"traceparent"})
_TRACING: Final = _NOT_OURS | {b"baggage", b"tracestate"}

#: An upstream must not open us to browser pages, nor instruct the web server in front of us; the trace is ours.
_NEVER_TO_CLIENT: Final = (b"traceresponse", b"access-control-", b"x-accel-", b"x-sendfile", b"x-lighttpd-send-file")

#: Framing of a response body that we changed.
_FRAMING: Final = frozenset({b"content-encoding", b"content-length"})

#: Headers that `Connection` cannot name: with `Connection: authorization` a client could strip what is needed (C18).
_NOT_NAMED: Final = frozenset(
    {*CREDENTIAL_HEADERS, b"content-encoding", b"content-length", b"content-type", b"host", b"retry-after"}
)

_HERMES: Final = b"x-hermes-tool-progress"

#: The encoding is kept because a compressed body cannot be read without it.
TAPED_REQUEST: Final = frozenset(
    {b"content-encoding", b"content-type", b"user-agent", b"x-client-request-id", b"x-request-id"}
)
TAPED_ANSWER: Final = frozenset(
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
TAPED_ANSWER_PREFIXES: Final = (b"x-ratelimit-", b"ratelimit-", b"anthropic-ratelimit-")


class Spoken(Protocol):
    """What a dialect says of the headers of its requests."""

    @property
    def own_headers(self) -> tuple[bytes, ...]:
        """The beginnings of the names of its own, which mean nothing to others."""
        ...

    @property
    def needed_headers(self) -> tuple[Header, ...]:
        """Those that every request needs."""
        ...

    @property
    def key_header(self) -> bytes:
        """Where the key is."""
        ...


def to_upstream(
    headers: Iterable[Header], target: Target, *, own_key: bool, hermes: bool = False, stale: Collection[bytes] = ()
) -> list[Header]:
    """Return the request headers for an upstream, without those that are `stale`.

    With a key of Wiretape's own (`own_key`) no credential of the caller passes. `content-length` passes, for bodies
    that are sent as they came.
    """
    headers = headers if isinstance(headers, Headers) else Headers(headers)
    dropped = {*HOP_BY_HOP, *_NEVER, *_named_by_connection(headers), b"accept-encoding", *stale}
    dropped.update(_NOT_OURS if target.trace else _TRACING)
    if not hermes:
        dropped.add(_HERMES)
    if own_key or target.key is not None or not target.caller_key:
        dropped.update(CREDENTIAL_HEADERS)
    passed = headers.without(dropped, _NEVER_PREFIXES)
    passed.append((b"accept-encoding", b"identity"))
    if target.key is not None:
        prefix = b"Bearer " if target.key_header == "authorization" else b""
        passed.append((target.key_header.encode("ascii"), prefix + target.key.reveal().encode("ascii")))
    return passed


def crossed_headers(headers: Headers, theirs: Spoken, ours: Spoken) -> Headers:
    """Return a client's headers for an upstream of another dialect: without those of its own, with the key moved."""
    found = credentials(headers)
    passed = headers.without(CREDENTIAL_HEADERS, theirs.own_headers)
    if found:
        bearer = ours.key_header == b"authorization" and b" " not in found[0]
        name = b"authorization" if b" " in found[0] else ours.key_header
        passed.append((name, b"Bearer " + found[0] if bearer else found[0]))
    given = {name.lower() for name, _ in passed}
    return Headers([*passed, *(header for header in ours.needed_headers if header[0] not in given)])


def to_client(headers: Iterable[Header], *, changed: bool = True) -> list[Header]:
    """Return the response headers for the client, without framing unless the body passes unchanged."""
    headers = headers if isinstance(headers, Headers) else Headers(headers)
    dropped = {*HOP_BY_HOP, *_NEVER, *_named_by_connection(headers), *(_FRAMING if changed else ())}
    return headers.without(dropped, _NEVER_PREFIXES + _NEVER_TO_CLIENT)


def _named_by_connection(headers: Headers) -> set[bytes]:
    options = b",".join(headers.all(b"connection")).lower().split(b",")
    return set(map(bytes.strip, options)) - _NOT_NAMED


def taped_request(headers: Iterable[Header], secrets: Iterable[Secret] = ()) -> list[list[str]]:
    """Return the request headers that the tape keeps, in their order, with our keys masked."""
    kept = (headers if isinstance(headers, Headers) else Headers(headers)).only(TAPED_REQUEST)
    return [[name.decode("latin-1"), masked(value, secrets).decode("latin-1")] for name, value in kept]


def taped_answer(headers: Iterable[Header]) -> list[list[str]]:
    """Return the response headers that the tape keeps, in their order."""
    kept = (headers if isinstance(headers, Headers) else Headers(headers)).only(TAPED_ANSWER, TAPED_ANSWER_PREFIXES)
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in kept]


def masked(text: bytes, secrets: Iterable[Secret]) -> bytes:
    """Mask our keys in a text, in every way JSON or a URL may write them; all else byte for byte."""
    for form in key_forms(secrets):
        text = text.replace(form, MASK.encode())
    return text


def key_forms(secrets: Iterable[Secret]) -> tuple[bytes, ...]:
    """Return every way in which JSON or a URL may write one of our keys, skipping words too short to be a key."""
    forms: dict[str, None] = {}
    for secret in secrets:
        value = secret.reveal()
        if len(value) >= MASKED_CHARS_MIN:
            quoted = json.dumps(value)[1:-1]
            forms |= dict.fromkeys((value, quoted, quoted.replace("/", "\\/"), quote(value), quote(value, safe="")))
    return tuple([form.encode("utf-8", "surrogateescape") for form in forms]) if forms else ()
