"""Twenty secrets through a request and its response: none is taped, logged or sent back (failures.md G15)."""

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proxy.test_access import scope
from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.config.secrets import Key, Secret
from wiretape.proxy.http1 import Headers
from wiretape.proxy.key_patterns import masked_path
from wiretape.proxy.relay.http_responses import refused
from wiretape.proxy.security.access import Keys, Refusal, admit
from wiretape.proxy.security.headers import taped_answer, taped_request, to_client, to_upstream

HEADERS = (
    "Authorization: Bearer {}",
    "authorization: Basic {}",
    "X-Api-Key: {}",
    "api-key: {}",
    "Cookie: session={}",
    "Set-Cookie: session={}",
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


def test_with_an_own_key_the_callers_is_not_passed_on() -> None:
    target = ROUTES[""].targets[0]
    for form, canary in CANARIES[: len(HEADERS)]:
        headers = headers_with(form, canary)
        assert canary not in repr(to_upstream(headers, target, own_key=True))
        if form.startswith(("Cookie", "Set-Cookie", "Proxy", "X-Forwarded", "X-Wiretape")):
            assert canary not in repr(to_upstream(headers, target, own_key=False))
            assert canary not in repr(to_client(headers))
