"""Secrets in a text, and text that resembles them."""

import base64
from urllib.parse import quote

import pytest

from tests.replay.canaries import CANARIES
from wiretape.replay.redaction.shapes import find

AZURE = "3f" + "9d0c" * 7 + "1a"


@pytest.mark.parametrize("vendor", sorted(CANARIES))
def test_key_of_each_vendor_is_found_in_any_place(vendor: str) -> None:
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


@pytest.mark.parametrize("vendor", sorted(CANARIES))
@pytest.mark.parametrize("around", ["_", "__", "*", "**", "~~"])
def test_key_between_signs_of_emphasis_is_found(vendor: str, around: str) -> None:
    assert CANARIES[vendor] in find(f"use {around}{CANARIES[vendor]}{around}, please")[0].secret


@pytest.mark.parametrize("before", ["\x1b[32m", "\x1b[1;32m", "\x1b[38;5;208m", "\\u001b[0m", "https://t.example/bot"])
@pytest.mark.parametrize("vendor", ["openai", "telegram", "anthropic"])
def test_text_directly_before_a_key(before: str, vendor: str) -> None:
    key = CANARIES[vendor]
    [hit] = find(f"{before}{key}\x1b[0m/sendMessage")
    assert (hit.vendor, hit.secret) == (vendor, key)


@pytest.mark.parametrize("around", ["{}", "blob={}", "https://x.example/files/{}", "data={}&x=1", "x\n{}\n"])
@pytest.mark.parametrize("text", ["{}\n", "A=1\nOPENAI_KEY={}\n", "né {}"])
def test_base64_in_any_place(around: str, text: str) -> None:
    encoded = base64.b64encode(text.format(CANARIES["openai"]).encode()).decode()
    said = around.format(encoded)
    assert any(said[hit.start : hit.end].rstrip("=") == encoded.rstrip("=") for hit in find(said))


@pytest.mark.parametrize(
    "data",
    [
        b"caf\xe9 OPENAI_KEY=%b \xff and more",
        b"\x1b[32mkey is %b\x1b[0m",
        b"\x00\x01\x02%b\x00",
        b"\x89PNG\r\n\x1a\n\x00\x00" + bytes(range(128, 256)) + b"tEXt %b\x00" + bytes(range(200, 256)),
    ],
)
def test_base64_of_bytes_with_a_key_in_them(data: bytes) -> None:
    said = f"x {base64.b64encode(data % CANARIES['openai'].encode()).decode()} y"
    [hit] = find(said)
    assert said[hit.start : hit.end].rstrip("=") == said[2:-2].rstrip("=")


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
        ('headers = [["x-api-key", "abcd-efgh-1"], ["accept", "a1b2c3d4"]]', "abcd-efgh-1"),
        ("req.headers = [('Authorization', 'token hunter22xyz')]", "token hunter22xyz"),
        ('{"name": "Authorization", "value": "hunter22xyz"}', "hunter22xyz"),
        ("postgres://app:p@ss-w0rd@db.example/x", "p@ss-w0rd"),
        ("postgres://app:p/ss#w0rd@db.example:5432/x", "p/ss#w0rd"),
        ("amqps://u:a/b@c?d@localhost", "a/b@c?d"),
        ("redis://:12345678@localhost:6379/0", "12345678"),
        ("password: 12345678\n", "12345678"),
        ('{"password": 12345678}', "12345678"),
        ("DB_PASSWORD = 12345678", "12345678"),
        ('log: {"arguments":"{\\"password\\": \\"hunter22\\"}"}', "hunter22"),
        ('log: {"a":"{\\"b\\":\\"{\\\\\\"password\\\\\\":\\\\\\"hunter22\\\\\\"}\\"}"}', "hunter22"),
        ("https://discord.com/api/webhooks/123456789012345678/" + "aB3_" * 17, None),
        ("key: abcdefgh-0123456789abcdefghij", "abcdefgh-0123456789abcdefghij"),
        ("Authorization: token " + "ab12" * 10, "ab12" * 10),
        ("authorization: hunter22xyz", "hunter22xyz"),
        ('DB_PASSWORD="p@ss w0rd 1"', "p@ss w0rd 1"),
        ('DB_PASSWORD="p@ss;w0rd(1"', "p@ss;w0rd(1"),
        ('password: "hunter22xyz and more"', "hunter22xyz and more"),
        ('{"password":"My Secret Pass!"}', "My Secret Pass!"),
        ("X-Api-Key: abcdefghijkl", "abcdefghijkl"),
        ("Cookie: a=b; sid=deadbeefcafe0123", "a=b; sid=deadbeefcafe0123"),
        ('{"Cookie":"a=1; sid=hunter22xyz0123"}', "a=1; sid=hunter22xyz0123"),
        ("DB_PASS=hunter22xyz", "hunter22xyz"),
        ("HF_TOKEN=hunter22xyz", "hunter22xyz"),
        ("GITHUB_PAT=hunter22xyz", "hunter22xyz"),
        ("SECRET_KEY_BASE=" + "01ab" * 10, "01ab" * 10),
        ('{"user":"bob","pass":"hunter22xyz"}', "hunter22xyz"),
        ("Server=x;Uid=bob;Pwd=hunter22xyz;", "hunter22xyz"),
        ("https://hunter22xyzhunter22xyz@github.com/a/b.git", "hunter22xyzhunter22xyz"),
        ("psql --password hunter22xyz", "hunter22xyz"),
        ('["psql","--password","hunter22xyz"]', "hunter22xyz"),
    ],
)
def test_values_of_secret_names(text: str, secret: str) -> None:
    assert [text[hit.start : hit.end] for hit in find(text)] == [secret or text[8:]]


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
        '{"required": ["x-api-key", "authorization"], "enum": ["password", "secret"]}',
        'expose = ["Authorization", "Content-Type"]; order = ["cookie", "session id"]; add("Set-Cookie", "foo=bar")',
        '{"name": "password", "value": "string"} {"key": "token", "value": "count"}',
        "image: docker://registry.example:5000/team/app@sha256",
        "ssh://git@host.example:2222/team/app@v1.2",
        "see http://localhost:8000/@user/with@sign and https://x.example:443/?mail=a@b.example",
        "password: 8 characters; max_password_length: 1234; password_reset_at: 1750000000",
        "com.example.abcdef.ImportantClassNameWithManyCharacters",
        "http://localhost:${PORT}/x@y http://host:port/a@b.example http://h:%s/c@d http://h:$PORT/e@f http://h:{port}/g@h",
        "PWD=/srv/bob/projects/x1",
        "OLDPWD=/tmp/abc_2024/foo-bar-baz",
        '{"pwd":"/srv/bob/projects/wiretape-2024"}',
        '{"pwd":"C:\\\\projects\\\\x1"}',
        "PWD=C:/projects/x1-2024-and-more",
        '{"Key":"data/year=2024/part-00000.snappy.parquet"}',
        '{"key":"terraform/prod/network1.tfstate"}',
        '{"key":"2024-01-01T00:00:00.000Z"}',
        '{"key":"user:12345:session:profile"}',
        "key: linux-node18-modules-v1-abc",
        "key: 0cc175b9c0f1b6a831c399e269772661",
        '{"auth":"https://example.com/a/b/c123"}',
        "token: 86f7e437faa5a7fce15d1ddcb9eaeaea377667b8",
        "password: z.string().min(8)",
        'api_key=kwargs.get("k1"), api_key=os.Getenv("K1"), secret=viper.GetString("a1"), secret_key=load_key2()',
        "password: String::from(pw1)",
        "password=args.password1, password: req.body.password1, password=opts.pw1, {password:e.target.value1}",
        "&amp;amp; 100%25 \\\\\\\\ \\x41 &#65;",
        "--password string --token TOKEN --api-key <key> curl -u user: https://x; mysql -p db",
        'password: "must have 8 characters", {"password":"Forgot your password?"} password = get_password(1)',
        "<password>string</password> <apiKey>${KEY1}</apiKey> MAX_TOKEN=abc1234",
        'login with your password below. {"kty":"EC","x":"abcdefghijklmnopqrstuvwxyz"} https://alice@h.example/',
        "a file begins with `-----BEGIN PRIVATE KEY-----` and a paragraph; then `-----END PRIVATE KEY-----`.",
        "-----BEGIN PRIVATE KEY----- marks the beginning of the file",
        'api_key="lm-studio" api_key="not-needed" API_KEY="test-key" api_key="fake-key-123" api_key="test_key_1"',
        '{"password":"incorrect","secret":"disabled","apiKey":"apiKeyAuth","authorization":"Authorization"}',
        "private_key=/etc/ssh/id_rsa2 secret=/run/secrets/db_pass1 api_key: env:OPENAI_KEY_1",
        "private_key: ./keys/server.key, private_key=../certs/my-server2.pem",
        "secret: arn:aws:secretsmanager:us-east-1:123456789012:secret:x-AbCdEf",
        '{"progressToken":"abcdefghij-0123456789x","cancellationToken":"abcdefghij0123456789x"}',
        "pagination_token=abcdefghijklmnop1234567 resume_token=abcdefghijklmnop1234567",
        '{"pass":"12 passed"} authorization: required, pass=compass PWD="/srv/a b/1" password: "#{ENV1}"',
    ],
)
def test_no_secret_in_similar_text(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "run --token=hunter22xyz",
        'run(["x", "--password", "hunter22xyz"])',
        'curl -H "Authorization:Bearer hunter22xyz"',
        "X-Vault-Token: hunter22xyz",
        "com.mycompany.myservice.integration.payment.stripe.api-key: hunter22xyz",
        'DB_PASSWORD="abcd1234efgh5678ijkl\n',
        "token: abcd1234efgh5678ijkl!",
        "{'pwd': '12345678'}",
        "-DGITHUB_TOKEN=hunter22xyz",
        "env.GITHUB_PAT=hunter22xyz",
        "Cookie: a=1; consent; sid=hunter22xyz",
        '{"API Key": "hunter22xyz"}',
        "password=letters&x=1",
        "https://abcdef0123456789abcdef@host.example/x",
    ],
)
def test_value_is_found_by_its_name_or_place(text: str) -> None:
    assert find(text)
