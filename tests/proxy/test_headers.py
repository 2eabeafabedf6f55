"""Header policy as tables, and masking: none of twenty secrets is taped, logged or sent back (failures.md G15)."""

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proxy.test_access import scope
from wiretape.proxy.config.model import Config, Key, Route, Secret, Target
from wiretape.proxy.http1 import Headers
from wiretape.proxy.key_patterns import masked_path
from wiretape.proxy.relay.http_responses import refused
from wiretape.proxy.security.access import Keys, Refusal, admit
from wiretape.proxy.security.headers import masked, taped_answer, taped_request, to_client, to_upstream

Pairs = list[tuple[bytes, bytes]]

PLAIN = Target(name="a", url="https://a.test/v1")
KEYED = Target(name="a", url="https://a.test/v1", key=Secret("sk-upstream-0123456789"))
AZURE = Target(name="a", url="https://a.test/v1", key=Secret("sk-upstream-0123456789"), key_header="api-key")
STRANGER = Target(name="a", url="https://a.test/v1", caller_key=False)

IDENTITY = (b"accept-encoding", b"identity")
CALLERS: Pairs = [
    (b"Authorization", b"Bearer caller"),
    (b"x-api-key", b"caller"),
    (b"api-key", b"caller"),
    (b"X-Goog-Api-Key", b"caller"),
    (b"Ocp-Apim-Subscription-Key", b"caller"),
    (b"x-amz-security-token", b"caller"),
]


@pytest.mark.parametrize("name", [b"Access-Control-Allow-Credentials", b"x-accel-redirect", b"x-sendfile"])
def test_upstream_headers_cannot_open_the_proxy_to_pages(name: bytes) -> None:
    assert to_client([(name, b"1")], changed=False) == []


KEYS: list[tuple[str, Target, bool, Pairs]] = [
    ("no key: the caller's pass", PLAIN, False, CALLERS),
    ("the target has one: it alone", KEYED, False, [(b"authorization", b"Bearer sk-upstream-0123456789")]),
    ("under Azure's name", AZURE, False, [(b"api-key", b"sk-upstream-0123456789")]),
    ("Wiretape has one: the caller's is dropped", PLAIN, True, []),
    ("both", KEYED, True, [(b"authorization", b"Bearer sk-upstream-0123456789")]),
    ("a fallback on another host: nothing", STRANGER, False, []),
]


@pytest.mark.parametrize(("target", "own_key", "expected"), [row[1:] for row in KEYS], ids=[row[0] for row in KEYS])
def test_upstream_gets_the_right_key(target: Target, own_key: bool, expected: Pairs) -> None:
    passed = to_upstream(CALLERS, target, own_key=own_key)
    assert [header for header in passed if header != IDENTITY] == expected


@pytest.mark.parametrize("named", [b"authorization", b"close, Authorization, x-api-key", b"API-KEY,host,content-type"])
def test_connection_strips_no_credential(named: bytes) -> None:
    """Otherwise a client could change the upstream's response (C18)."""
    headers = [(b"Connection", named), *CALLERS, (b"content-type", b"application/json")]
    assert to_upstream(headers, PLAIN, own_key=False) == [*headers[1:], IDENTITY]
    swapped = to_upstream(headers, KEYED, own_key=True)
    assert swapped == [headers[-1], IDENTITY, (b"authorization", b"Bearer sk-upstream-0123456789")]


def test_tape_keeps_an_allow_list_of_request_headers() -> None:
    kept = [(b"Content-Type", b"a"), (b"user-agent", b"b"), (b"X-Request-Id", b"c"), (b"x-client-request-id", b"d")]
    kept.append((b"Content-Encoding", b"gzip"))
    dropped = [*CALLERS, (b"cookie", b"x"), (b"x-stainless-lang", b"python"), (b"session-id", b"1"), (b"accept", b"*")]
    assert taped_request([*dropped, *kept]) == [[name.decode().lower(), value.decode()] for name, value in kept]


def test_tape_keeps_an_allow_list_of_response_headers() -> None:
    kept = [
        (b"content-type", b"a"),
        (b"Retry-After", b"b"),
        (b"x-request-id", b"c"),
        (b"request-id", b"c"),
        (b"openai-processing-ms", b"12"),
        (b"x-ratelimit-remaining-tokens", b"1"),
        (b"anthropic-ratelimit-requests-limit", b"2"),
    ]
    dropped = [(b"set-cookie", b"x"), (b"server", b"x"), (b"cf-ray", b"x"), (b"openai-organization", b"x")]
    assert taped_answer([*dropped, *kept]) == [[name.decode().lower(), value.decode()] for name, value in kept]


MASKED: list[tuple[str, str, bytes, bytes]] = [
    ("as it is", "sk-0123456789", b'{"a":"sk-0123456789"}', b'{"a":"***"}'),
    ("as JSON may have it", "ab/cd/0123456789", rb'"ab\/cd\/0123456789"', b'"***"'),
    ("as a URL may have it", "ab/cd+0123456789", b"?k=ab%2Fcd%2B0123456789", b"?k=***"),
    ("with a quote", 'ab"cd0123456789', rb'"ab\"cd0123456789"', b'"***"'),
    ("inside base64 it is another text", "sk-0123456789", b"c2stMDEyMzQ1Njc4OQ==", b"c2stMDEyMzQ1Njc4OQ=="),
    ("a word is not a secret", "EMPTY", b"EMPTY", b"EMPTY"),
]


@pytest.mark.parametrize(("secret", "text", "expected"), [row[1:] for row in MASKED], ids=[row[0] for row in MASKED])
def test_own_keys_are_masked_and_nothing_else(secret: str, text: bytes, expected: bytes) -> None:
    assert masked(text, [Secret("not in there at all"), Secret(secret)]) == expected


PATHS: list[tuple[bytes, str]] = [
    (b"/v1/models", "/v1/models"),
    (b"/v1/a?limit=2&after=x", "/v1/a?limit=2&after=x"),
    (b"/v1/a?api-version=1&api-key=abc", "/v1/a?api-version=1&api-key=***"),
    (b"/v1/a?key=abc", "/v1/a?key=***"),
    (b"/v1/a?api_key=a&token=b;access_token=c&sig=d", "/v1/a?api_key=***&token=***;access_token=***&sig=***"),
    (b"/v1/a?X-Amz-Signature=a&X-Amz-Security-Token=b", "/v1/a?X-Amz-Signature=***&X-Amz-Security-Token=***"),
    (b"/v1/a?X-Amz-Credential=a&password=b", "/v1/a?X-Amz-Credential=***&password=***"),
    (b"/v1/a?%6bey=abc", "/v1/a?%6bey=***"),
    (b"/v1/a?k%65y=abc=def", "/v1/a?k%65y=***"),
    (b"/v1/a?key=", "/v1/a?key="),
    (b"/v1/a?keyboard=x&monkey=x", "/v1/a?keyboard=x&monkey=x"),
    (b"/v1/a?max_tokens=5", "/v1/a?max_tokens=5"),
    (b"/v1/a\r\nb?\xff", "/v1/a%0D%0Ab?%FF"),
    (b"/v1/a?b=c?key=d", "/v1/a?b=c?key=d"),
]


@pytest.mark.parametrize(("path", "expected"), PATHS, ids=[row[0].decode("latin-1") for row in PATHS])
def test_secret_parameters_are_masked(path: bytes, expected: str) -> None:
    assert masked_path(path) == expected


HEADERS = (
    "Authorization: Bearer {}",
    "X-Api-Key: {}",
    "api-key: {}",
    "Cookie: session={}",
    "Proxy-Authorization: Basic {}",
    "X-Forwarded-Access-Token: {}",
    "X-Wiretape-Key: {}",
    "X-Goog-Api-Key: {}",
    "Ocp-Apim-Subscription-Key: {}",
    "X-Amz-Security-Token: {}",
)
QUERIES = (
    "key={}",
    "api_key={}",
    "a=b&api-key={}",
    "token={}",
    "a;access_token={}",
    "sig={}",
    "X-Amz-Signature={}",
    "%6Bey={}",
    "client_secret={}",
    "Subscription-Key={}",
)
CANARIES = [(form, secrets.token_hex(24)) for form in (*HEADERS, *QUERIES)]

ROUTES = {"": Route(name="", targets=(Target(name="a", url="https://a.test/v1"),))}
CONFIG = Config(data=Path("data"), routes=ROUTES)
LOCKED = Keys((Key("a", Secret("x" * 32)),), b"salt")


def headers_with(form: str, canary: str) -> list[tuple[bytes, bytes]]:
    name, _, value = form.format(canary).partition(": ")
    return [(b"host", b"localhost"), (name.encode(), value.encode())] if value else [(b"host", b"localhost")]


def said(form: str, canary: str, mask: Callable[[bytes], str] = masked_path) -> str:
    """Return what is written down and answered for a request that contains the canary."""
    headers = headers_with(form, canary)
    query = b"" if ": " in form else form.format(canary).encode()
    parts: list[object] = [taped_request(headers), taped_answer(headers), mask(b"/v1/models?" + query)]
    for keys in (LOCKED, Keys((), b"salt")):
        parts.append(keys.caller(headers))
        for path, given in ((b"/v1/models", headers), (b"/other", [*headers, *headers[1:]])):
            admitted = admit(CONFIG, keys, scope("GET", path, query), Headers(given))
            if isinstance(admitted, Refusal):
                parts.append(refused(admitted))
    return repr(parts)


@pytest.mark.parametrize(("form", "canary"), CANARIES, ids=[form for form, _ in CANARIES])
def test_callers_secrets_are_not_written_down(form: str, canary: str) -> None:
    assert canary not in said(form, canary)


def test_search_finds_an_unmasked_canary() -> None:
    """The check fails without masking."""
    assert "canary" in said("key={}", "canary", bytes.decode)
