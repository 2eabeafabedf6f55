"""Keys in every place of real exchanges through the whole proxy: in the sealed tape, the log and the errors is none."""

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
from tests.replay.canaries import CANARIES
from tests.support.house import ASKED, DONE, HEAD, House, answer, call, finish, frame, house, role, streams, text
from wiretape.events.errors import TapeError
from wiretape.events.json_text import dumps
from wiretape.events.record import Record
from wiretape.events.record import encode as line_of
from wiretape.replay.channels import channels
from wiretape.replay.check import check
from wiretape.replay.edited import texts
from wiretape.replay.load import parse
from wiretape.replay.redact import findings
from wiretape.replay.seal import EXACT, Rules, seal

KEY: Final = CANARIES


def split(secret: str, size: int) -> list[str]:
    return [secret[at : at + size] for at in range(0, len(secret), size)]


def escaped(secret: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in secret)


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
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": f"uses {KEY['databricks']}"}}],
        "metadata": {"client_secret": "client-secret-canary-3"},
    }
    return dumps(asked).replace(b"ESCAPED", escaped(KEY["github"]).encode())


HEADERS: Final = (
    f"Authorization: Bearer {KEY['openai']}",
    f"Cookie: session={KEY['aws-session']}",
    f"User-Agent: agent {KEY['groq']}",
    f"X-Request-Id: {KEY['xai']}",
)

ANSWER: Final = HEAD.replace(
    b"Type: text/event-stream\r\n", b"Type: text/event-stream\r\nX-Request-Id: %b\r\n" % KEY["pypi"].encode()
)


def answered() -> Iterator[bytes]:
    """Text, reasoning and arguments in pieces, and what stands beside them."""
    yield role()
    yield from (text(piece) for piece in ["the key is ", *split(KEY["huggingface"], 3), " so"])
    yield from (frame({"reasoning_content": piece}) for piece in split(KEY["jwt"], 7))
    yield b": %b\n\n" % KEY["npm"].encode()
    yield call('{"to":"', "send")
    yield from (call(piece) for piece in split(KEY["sendgrid"], 5))
    yield call('","p":"' + escaped(KEY["github-fine"]) + '"}')
    yield frame({"content": ""}, x_echo={"headers": {"authorization": f"Bearer {KEY['openrouter']}"}})
    yield finish("tool_calls")
    yield DONE


def scripts() -> Sequence[Script]:
    wrong = dumps({"error": {"message": f"Incorrect API key provided: {KEY['openai']}", "key": KEY["anthropic"]}})
    pretty = json.dumps({"replicate": KEY["replicate"], "nested": [{"api_key": "short-canary-4"}]}, indent=1).encode()
    cut = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"%b' % KEY["perplexity"].encode()
    basic = base64.b64encode(f"user:{KEY['stripe']}".encode())
    page = b"<p>caf\xe9 %b Basic %b</p>" % (KEY["pem"].encode(), basic)
    return (
        streams(*answered(), head=ANSWER),
        answer(401, wrong),
        streams(role(), text("a"), cut, end=b""),
        answer(200, pretty),
        answer(200, page, f"X-Ratelimit-Reset: {KEY['nvidia']}", kind="text/html"),
        streams(role(), frame({"content": "x"}, error={"message": f"upstream said {KEY['slack']}"}), finish(), DONE),
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
    await home.settled()
    return [await home.tape(stream) for stream in home.streams]


def secrets() -> list[str]:
    named = [f"canary-{number}" for number in range(1, 6)]
    encoded = base64.b64encode(f"user:{KEY['stripe']}".encode()).decode()
    return [*KEY.values(), *named, encoded, escaped(KEY["github"]), escaped(KEY["github-fine"])]


def said(tapes: Sequence[Sequence[Record]]) -> bytes:
    """All that the tapes say, pieces joined, escapes of JSON taken out."""
    lines = b"".join(line_of(record) for tape in tapes for record in tape)
    joined = [each.said.encode("utf-8", "replace") for tape in tapes for each in channels(tape, texts(tape))]
    plain = b"\n".join([lines, *joined])
    decoded = plain.decode("latin-1").encode("latin-1").decode("unicode_escape", "replace")
    return plain + decoded.encode("utf-8", "replace")


def parts(secret: str) -> list[bytes]:
    """It and what is left of it: a third of a key is still too much."""
    size = max(8, len(secret) // 3)
    inner = [secret[at : at + size] for at in range(0, len(secret) - size + 1, size)] if len(secret) > 20 else [secret]
    return [each.encode() for each in (secret, *inner) if each.strip("-") != "BEGIN PRIVATE KEY"]


async def test_none_of_them_is_found_anywhere(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with house(*scripts(), check=False) as home:
        tapes = await recorded(home)
        log = dumps([list(map(str, line)) for line in home.log])
    before = said(tapes)
    assert sum(secret.encode() in before for secret in secrets()) >= 20, "the test places them where a tape holds them"
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


async def test_exact_keeps_them_where_the_user_says_so(autojump_clock: MockClock) -> None:
    async with house(*scripts(), check=False) as home:
        tapes = await recorded(home)
    with pytest.raises(
        TapeError,
        match=r"exact and redacted exclude each other, and there are \d+ secrets \(.*: stream 1 record 1 messages",
    ):
        seal(tapes, EXACT)
    sealed = parse(seal(tapes, Rules(exact=True, secrets_allowed=True)))
    assert sealed.streams == [[record.read() for record in records] for records in tapes]
    assert sealed.header["exact"] is True
