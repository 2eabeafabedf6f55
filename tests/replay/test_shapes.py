"""What is a secret in a text, and what only looks like one."""

import base64
from urllib.parse import quote

import pytest

from tests.replay.canaries import CANARIES
from wiretape.replay.shapes import SHAPES, find, is_secret_value

AZURE = "3f" + "9d0c" * 7 + "1a"


@pytest.mark.parametrize("vendor", sorted(CANARIES))
def test_a_key_of_each_vendor_is_found_wherever_it_stands(vendor: str) -> None:
    key = CANARIES[vendor]
    escaped = "".join(f"\\u{ord(char):04x}" for char in key)
    nested = escaped.replace("\\", "\\\\")
    for text in (key, f"my key is {key}, keep it", f"({key})", f'{{"a":"{key}"}}', f"x={key}&y=1"):
        [hit] = find(text)
        assert text[hit.start : hit.end] == key
        assert hit.vendor == vendor.partition("-")[0]
    for text in (
        f"a {escaped} b",
        f"a {nested} b",
        f"a {quote(key, safe='')} b",
        f"a {''.join(f'%{byte:02X}' for byte in key.encode())}",
    ):
        hits = find(text)
        assert hits, text
        assert hits[0].start <= 2, text
        assert hits[-1].end >= len(text.removesuffix(" b")), text
    if vendor != "pem":
        assert find(f"Authorization: Basic {base64.b64encode(f'user:{key}'.encode()).decode()}")
        assert find(base64.b64encode(f'{{"key":"{key}"}}'.encode()).decode())


def test_there_are_more_vendors_than_were_asked_for() -> None:
    assert len(SHAPES) >= 30


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdef0123456789abcdef", "abcdef0123456789abcdef"),
        ("postgres://app:s3cr3t-pw@db.example/x", "s3cr3t-pw"),
        ("redis://:hunter22@localhost:6379/0", "hunter22"),
        ('{"api_key": "' + AZURE + '"}', AZURE),
        (r"{\"password\": \"hunter22\"}", "hunter22"),
        ("AZURE_OPENAI_API_KEY=" + AZURE, AZURE),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYAAAAAA1234",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYAAAAAA1234",
        ),
        ("https://x.example/a?sig=abc%2F12345&x=1", "abc%2F12345"),
        ("https://h.example/v1/models?key=abcdefgh1234", "abcdefgh1234"),
    ],
)
def test_what_a_name_makes_a_secret(text: str, secret: str) -> None:
    assert [text[hit.start : hit.end] for hit in find(text)] == [secret]


@pytest.mark.parametrize(
    "text",
    [
        "1750000000",
        "chatcmpl-BWkAbcdefghijklmnopqrstuv12345",
        "call_abcdefGHIJKL0123456789mn",
        "toolu_01A09q90qw90lq917835lq9",
        "msg_013Zva2CMHLNnXjNJJKqJ2EF",
        "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b",
        "fp_44709d6fcb",
        "fc_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b",
        "123e4567-e89b-12d3-a456-426614174000",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "sk-learn and task-sk-1 and risk-assessment-of-everything-in-2024",
        "basic information about bearer tokens",
        "The password is not known. token: eleven",
        "[redacted-openai-1] Bearer [redacted-bearer-2] password=[redacted-secret-1]",
        '{"password": "***", "api_key": "<your key>", "token": "${TOKEN}"}',
        '{"type":"string","secret":"string","credentials":"same-origin"}',
        "prompt_cache_key: 123e4567-e89b-12d3-a456-426614174000",
        "next_page_token=abcdefghij0123456789abcd",
        "http://example.com:8080/a@b",
        "data:image/png;base64," + base64.b64encode(bytes(range(256))).decode(),
        "gpt-4o-mini-2024-07-18 claude-sk-3-5",
    ],
)
def test_what_is_none(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("password", "hunter22", True),
        ("x-api-key", "abcd", True),
        ("clientSecret", "abcd-efgh", True),
        ("Authorization", "Bearer a b", True),
        ("password", "The password of the user", False),
        ("token", " Hello", False),
        ("token", "abcdefghij0123456789", True),
        ("max_tokens", "abcdefghij0123456789", False),
        ("signature", "abcdefghij0123456789", False),
        ("key", "user-profile", False),
    ],
)
def test_members(name: str, value: str, *, secret: bool) -> None:
    assert is_secret_value(name, value) is secret
