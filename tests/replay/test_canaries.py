"""Keys in every place of real exchanges through the proxy: none is left in the sealed tape, the log or the errors."""

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from trio.testing import MockClock

from tests.proxy.scripted import Script
from tests.replay.canaries import CANARIES, pieces
from tests.support.house import ASKED, DONE, HEAD, House, Peer, answer, call, finish, frame, house, role, text
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.events.tape.record import encode as line_of
from wiretape.replay.check import check
from wiretape.replay.redaction.plain_text import joined_texts
from wiretape.replay.redaction.redact import findings
from wiretape.replay.seal import EXACT, seal
from wiretape.replay.sealed.files import parse
from wiretape.replay.sealed.texts import texts

KEY: Final = CANARIES
DOCS: Final = Path(__file__).parents[2] / "docs/reference/sealed-tapes.md"


def escaped(secret: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in secret)


def in_html(secret: str) -> str:
    return "".join(f"&#{ord(char)};" for char in secret)


def in_program(secret: str) -> str:
    return "".join(f"\\x{ord(char):02x}" for char in secret)


def in_lines(secret: str) -> str:
    encoded = base64.b64encode(f"{'word ' * 30}x{secret}".encode()).decode()
    return "\n".join(pieces(encoded, 76))


def twice(secret: str) -> str:
    return quote("".join(f"%{byte:02X}" for byte in secret.encode()), safe="")


#: A password that is a number, in JSON.
NUMBER: Final = 84_315_926_007

#: What a client may say of secrets in a conversation, each in a notation of its own.
NOTED: Final = (
    f"<p>{in_html(KEY['discord'])}</p>",
    f"it is b'{in_program(KEY['figma'])}'",
    f"\n{in_lines(KEY['azure'])}\n",
    f"https://x.example/?next=%2Fa%3Fb%3D{twice(KEY['docker'])}",
    "amqps://app:at@sign/canary-6@db.example:5671/x",
    'log: {"arguments":"{\\"password\\": \\"log-canary-7\\"}"}',
    "headers = [('x-api-key', 'pair-canary-8')]",
    *(f"a key of {vendor}: {KEY[vendor]}" for vendor in ("openai-project", "openai-dashes", "openai-dash-behind")),
    *(f"a key of {vendor}: {KEY[vendor]}" for vendor in ("azure-client", "discord-factor", "grafana", "slack-client")),
    *(f"{KEY[vendor]}, of {vendor}" for vendor in ("google-refresh", "supabase", "pem-encrypted", "pem-pgp")),
)


def body() -> bytes:
    """Prompts, histories, tools: plain, escaped, nested, under a name."""
    arguments = json.dumps({"password": "pass-word-canary-1", "bot": KEY["telegram"]})
    calls = [{"id": "call_a", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    asked = {
        **ASKED,
        "messages": [
            {"role": "system", "content": f"Maps key {KEY['google']}, cloud {KEY['aws']}"},
            {
                "role": "user",
                "content": [{"type": "text", "text": f"see https://x.example/?a=1&token={KEY['gitlab']}"}],
            },
            {"role": "assistant", "content": None, "tool_calls": calls},
            {
                "role": "tool",
                "tool_call_id": "call_a",
                "content": f"postgres://app:data-base-canary-2@db/x {KEY['atlassian']}",
            },
            {"role": "user", "content": "ESCAPED"},
            *({"role": "user", "content": said} for said in NOTED),
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": f"uses {KEY['databricks']}"}}],
        "metadata": {
            "client_secret": "client-secret-canary-3",
            "password": NUMBER,
            "headers": [["authorization", "Token list-canary-9"], {"name": "X-Api-Key", "value": "named-canary-10"}],
        },
    }
    return dumps(asked).replace(b"ESCAPED", escaped(KEY["github"]).encode())


HEADERS: Final = (
    f"Authorization: Bearer {KEY['openai']}",
    f"Cookie: session={KEY['aws-session']}",
    f"User-Agent: agent {KEY['groq']}",
    f"X-Request-Id: {KEY['xai']}",
)

#: A connection answers once, so that each request has the next script.
CLOSE: Final = "Connection: close"
TYPE: Final = b"Type: text/event-stream\r\n"
ONCE: Final = HEAD.replace(TYPE, b"%b%b\r\n" % (TYPE, CLOSE.encode()))
ANSWER: Final = ONCE.replace(TYPE, b"%bX-Request-Id: %b\r\n" % (TYPE, KEY["pypi"].encode()))


def answered() -> Iterator[bytes]:
    """Stream text, reasoning and arguments in pieces, with keys between them."""
    yield role()
    yield from (text(piece) for piece in ["the key is ", *pieces(KEY["huggingface"], 3), " so"])
    yield from (frame({"reasoning_content": piece}) for piece in pieces(KEY["jwt"], 7))
    yield b": %b\n\n" % KEY["npm"].encode()
    yield call('{"to":"', "send")
    yield from (call(piece) for piece in pieces(KEY["sendgrid"], 5))
    yield call('","p":"' + escaped(KEY["github-fine"]) + '"}')
    yield frame({"content": ""}, x_echo={"headers": {"authorization": f"Bearer {KEY['openrouter']}"}})
    yield finish("tool_calls")
    yield DONE


def in_a_sentence(secret: str) -> list[str]:
    return ["it is ", *pieces(secret, 3), ", so"]


def in_blocks(secret: str) -> Iterator[bytes]:
    """Stream Messages: the first piece is in the frame that begins the block, the last before an index that was cut."""
    first, *others = in_a_sentence(secret)
    begun = {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": first}}
    yield b"event: content_block_start\ndata: %b\n\n" % dumps(begun)
    for piece in others[:-4]:
        delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}, "index": 1}
        yield b"event: content_block_delta\ndata: %b\n\n" % dumps(delta)
    yield b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"%b' % "".join(others[-4:]).encode()


def scripts() -> Sequence[Script]:
    wrong = dumps({"error": {"message": f"Incorrect API key provided: {KEY['openai']}", "key": KEY["anthropic"]}})
    pretty = json.dumps({"replicate": KEY["replicate"], "nested": [{"api_key": "short-canary-4"}]}, indent=1).encode()
    cut = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"%b' % KEY["perplexity"].encode()
    basic = base64.b64encode(f"user:{KEY['stripe']}".encode())
    page = b"<p>caf\xe9 %b Basic %b</p>" % (KEY["pem"].encode(), basic)
    echoed = frame({"content": "x"}, error={"message": f"upstream said {KEY['slack']}"})
    lines = b"".join(dumps({"message": {"content": said}}) + b"\n" for said in in_a_sentence(KEY["postman"]))
    array = b",\r\n".join(dumps({"parts": [{"text": said}]}) for said in in_a_sentence(KEY["jina"]))
    return (
        Peer(*answered(), head=ANSWER),
        answer(401, wrong, CLOSE),
        Peer(role(), text("a"), cut, end="fin", head=ONCE),
        answer(200, pretty, CLOSE),
        answer(200, page, CLOSE, f"X-Ratelimit-Reset: {KEY['nvidia']}", kind="text/html"),
        Peer(role(), echoed, finish(), DONE, head=ONCE),
        answer(200, lines, CLOSE, kind="application/x-ndjson"),
        answer(200, b"[%b]" % array, CLOSE),
        Peer(*in_blocks(KEY["voyage"]), head=ONCE),
        Peer(*(b"data: %b\n\n" % said.encode() for said in in_a_sentence(KEY["vault"])), head=ONCE),
    )


async def recorded(home: House) -> list[list[Record]]:
    await home.ask(body(), *HEADERS)
    await home.ask(ASKED, *HEADERS)
    await home.ask(ASKED)
    thing = quote(KEY["stripe-restricted"], safe="").replace("_", "%5F")
    path = f"/v1/things/{thing}?x={KEY['twilio']}&signature=sig-canary-5"
    await home.ask({"a": KEY["langsmith"]}, path=path)
    await home.ask({"b": 1}, path="/v1/page")
    await home.ask(ASKED)
    for path in ("/v1/lines", "/v1/array", "/v1/messages", "/v1/words"):
        await home.ask({"c": path, "stream": True}, path=path)
    await home.settled()
    return [await home.tape(stream) for stream in home.streams]


def secrets() -> list[str]:
    named = [*(f"canary-{number}" for number in range(1, 11)), str(NUMBER)]
    encoded = base64.b64encode(f"user:{KEY['stripe']}".encode()).decode()
    notes = [in_html(KEY["discord"]), in_program(KEY["figma"]), in_lines(KEY["azure"])[:76], twice(KEY["docker"])]
    return [*KEY.values(), *named, *notes, encoded, escaped(KEY["github"]), escaped(KEY["github-fine"])]


def said(tapes: Sequence[Sequence[Record]]) -> bytes:
    """All that the tapes say, pieces joined, escapes of JSON taken out."""
    lines = b"".join(line_of(record) for tape in tapes for record in tape)
    joined = [each.said.encode("utf-8", "replace") for tape in tapes for each in joined_texts(tape, texts(tape))]
    plain = b"\n".join([lines, *joined])
    decoded = plain.decode("latin-1").encode("latin-1").decode("unicode_escape", "replace")
    return plain + decoded.encode("utf-8", "replace")


def parts(secret: str) -> list[bytes]:
    """Return the secret and its parts: a third of a key is still too much."""
    size = max(8, len(secret) // 3)
    inner = [secret[at : at + size] for at in range(0, len(secret) - size + 1, size)] if len(secret) > 20 else [secret]
    return [each.encode() for each in (secret, *inner) if each.strip("-") != "BEGIN PRIVATE KEY"]


async def test_no_canary_is_left_in_seal_log_or_errors(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with house(*scripts(), check=False) as home:
        tapes = await recorded(home)
        log = dumps([list(map(str, line)) for line in home.log])
    before = said(tapes)
    placed = sum(secret.encode() in before for secret in secrets())
    assert f"finds none of {placed} secrets" in DOCS.read_text(), "the test places them where a tape holds them"
    sealed = seal(tapes)
    after = said(parse(sealed).streams) + sealed
    with pytest.raises(TapeError) as refused:
        seal(tapes, EXACT)
    live = b"".join(map(line_of, tapes[0]))
    today = datetime.now(UTC).date()
    told = "\n".join(map(str, check(tmp_path, live, today) + check(tmp_path, sealed, today)))
    everywhere = after + log + str(refused.value).encode() + told.encode() + str(findings(tapes)).encode()
    left = [secret for secret in secrets() for part in parts(secret) if part in everywhere]
    assert left == []
    assert "secret" in told
    for records in parse(sealed).streams:
        for record in records:
            if record.kind == "frame" and record.payload is not None:
                json.loads(record.payload)
