"""How credentials look: the headers, query parameters and fields that hold one, and the shapes of known keys."""

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

__all__ = [
    "CREDENTIAL_HEADERS",
    "MASK",
    "has_credential",
    "has_secret",
    "is_secret_name",
    "mask_keys",
    "mask_parameters",
    "masked_path",
]

MASK: Final = "***"

#: Where clients send a key: OpenAI and most others; Anthropic; Azure and its gateway; Google; Amazon.
CREDENTIAL_HEADERS: Final = (
    b"authorization",
    b"x-api-key",
    b"api-key",
    b"ocp-apim-subscription-key",
    b"x-goog-api-key",
    b"x-amz-security-token",
)

#: Query parameters that carry the caller's credential at some gateway. A request with one is refused.
_CREDENTIAL_PARAMETERS: Final = frozenset({"access_token", "api_key", "apikey", "key", "token", "x_api_key"})

#: Query parameters whose value may be a secret. They are masked wherever a query is written down.
_SECRET_PARAMETER: Final = re.compile(
    r"(?:^|[_.])(?:key|token|secret|sig|signature|password|passwd|pwd|auth|authorization|credential|credentials|code)$"
    r"|apikey$|accesskey$|accesstoken$"
)

#: Log fields that hold a credential or the value of a header.
_SECRET_FIELD: Final = re.compile(
    r"authorization|(?:api|subscription).?key|security.?token|secret|password|cookie|credential|^headers?$",
    re.IGNORECASE,
)

#: Keys in free text, such as the error message of an upstream. All alternatives match in linear time. Stars may be part
#: of a key because a secret of the configuration may already be masked inside it.
_KEY: Final = re.compile(
    r"(?i:\b(?:bearer|basic)\s+)[^\s\"',;]+"
    r"|(?i:(?<![a-z])(?:api[-_]?key|key|token|secret|signature|sig|password)=)[^\s&\"']+"
    r"|\b(?:sk|pk|rk|gsk|xai|hf|wt|wiretape_operator)[-_][A-Za-z0-9_*-]{12,}|\bAIza[A-Za-z0-9_*-]{12,}"
    r"|(?<=://)[^/\s@]{1,256}@"
)
#: What a line of ASCII cannot show.
_INVISIBLE: Final = re.compile(rb"[^\x21-\x7e]")


def has_credential(query: bytes) -> bool:
    """Return whether a query has a parameter that sends the caller's credential."""
    return bool(query) and any(_name(part) in _CREDENTIAL_PARAMETERS for part in re.split(rb"[&;]", query))


def has_secret(query: bytes) -> bool:
    """Return whether a query has a parameter whose value must not be written down."""
    return any(_SECRET_PARAMETER.search(_name(part)) for part in re.split(rb"[&;]", query))


def mask_parameters(query: bytes) -> bytes:
    """Return the query with the values of secret parameters masked; all else byte for byte."""
    parts = re.split(rb"([&;])", query)
    for at, part in enumerate(parts):
        name, equals, value = part.partition(b"=")
        if value and _SECRET_PARAMETER.search(_name(part)):
            parts[at] = name + equals + MASK.encode()
    return b"".join(parts)


def masked_path(raw_path_and_query: bytes) -> str:
    """Return path and query as one line of ASCII for a record or a log line, with secret parameters masked."""
    path, mark, query = raw_path_and_query.partition(b"?")
    shown = path + mark + mask_parameters(query) if query else path + mark
    return _INVISIBLE.sub(lambda found: b"%%%02X" % ord(found[0]), shown).decode("ascii")


def _name(part: bytes) -> str:
    """Return the name in `name=value` as an upstream would read it, in one spelling."""
    name = unquote_to_bytes(part.partition(b"=")[0].replace(b"+", b" "))
    return name.decode("ascii", "replace").strip().lower().replace("-", "_")


@lru_cache(maxsize=256)
def is_secret_name(name: str) -> bool:
    """Return whether a log field of this name must be masked."""
    return _SECRET_FIELD.search(name) is not None


def mask_keys(text: str) -> str:
    """Mask everything in a text that looks like a key."""
    if text.isalnum() and "AIza" not in text:  # all other shapes contain a space or punctuation
        return text
    return _KEY.sub(MASK, text)
