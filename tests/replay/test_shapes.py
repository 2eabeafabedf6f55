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
    if not vendor.startswith("pem"):
        assert find(f"Authorization: Basic {base64.b64encode(f'user:{key}'.encode()).decode()}")
        assert find(base64.b64encode(f'{{"key":"{key}"}}'.encode()).decode())


@pytest.mark.parametrize("before", ["\x1b[32m", "\x1b[1;32m", "\x1b[38;5;208m", "\\u001b[0m", "https://t.example/bot"])
@pytest.mark.parametrize("vendor", ["openai", "telegram", "anthropic"])
def test_what_may_stand_right_before_a_key(before: str, vendor: str) -> None:
    key = CANARIES[vendor]
    [hit] = find(f"{before}{key}\x1b[0m/sendMessage")
    assert (hit.vendor, hit.secret) == (vendor, key)


def _lines(text: str) -> str:
    return "\n".join(text[at : at + 76] for at in range(0, len(text), 76))


@pytest.mark.parametrize("around", ["{}", "blob={}", "https://x.example/files/{}", "data={}&x=1", "x\n{}\n"])
@pytest.mark.parametrize("text", ["{}\n", "A=1\nOPENAI_KEY={}\n", "né {}"])
def test_base64_wherever_it_stands(around: str, text: str) -> None:
    encoded = base64.b64encode(text.format(CANARIES["openai"]).encode()).decode()
    said = around.format(encoded)
    assert any(said[hit.start : hit.end].rstrip("=") == encoded.rstrip("=") for hit in find(said))


def test_base64_in_lines() -> None:
    encoded = _lines(base64.b64encode(("x" * 50 + " " + CANARIES["anthropic"] + "y").encode()).decode())
    [hit] = find(f"x {encoded} y")
    assert encoded == f"x {encoded} y"[hit.start : hit.end]


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
        ("DB_PASSWORD=Tr0ub4dor-3x\nX=1", "Tr0ub4dor-3x"),
        ("DB_PASSWORD=correcthorsebatterystaple\nX=1", "correcthorsebatterystaple"),
        ("db:\n  password: hunter2hunter2hunter\n", "hunter2hunter2hunter"),
        ("client_secret = 'abcdefgh-jklm'", "abcdefgh-jklm"),
        ("password=hunter2-xyzzy&user=bob", "hunter2-xyzzy"),
        ("password=correcthorse&user=bob", "correcthorse"),
        ("grant_type=refresh_token&refresh_token=rt-0123456789abc&x=1", "rt-0123456789abc"),
        ("/x?client_secret=s3cr3tS3cr3t", "s3cr3tS3cr3t"),
        ('--b\r\nContent-Disposition: form-data; name="api_key"\r\n\r\nMyS3cretKey-x\r\n--b--', "MyS3cretKey-x"),
        ("curl -H 'x-api-key: abcd1234efgh5678' https://x", "abcd1234efgh5678"),
        ("Cookie: sessionid=deadbeefcafe0123", "sessionid=deadbeefcafe0123"),
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
        '{"tool_token": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}',
        "sess-123e4567e89b12d3a456426614174000",
        '{"key":"uploads/2024/05/13/file-name-001.png"}',
        "hf_AutoModelForCausalLMWithValue",
        "fw_updateConfigurationTable1",
        "sk-model-2024_0513_long_context_window",
        '{"cookie":"chocolate","authorization":"granted","api_key":"query"}',
        "secret = 'process.env.SECRET'",
        "password=password, api_key=api_key, client_secret=self.client_secret, token=get_token()",
        "API_KEY=${API_KEY} PASSWORD=<password> api_key=os.environ['API_KEY'] password: true, secret=********",
        "password: required, at least 8 characters",
        'export ANTHROPIC_AUTH_TOKEN="sk-dodo-YOUR_KEY"',
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
        ("password", "correct horse battery staple", True),
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
