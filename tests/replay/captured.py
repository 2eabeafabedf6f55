"""Captured responses as tapes of the proxy, in random reads."""

import random

from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder


def recorded(body: bytes, dialect: str, seed: int = 0) -> list[Record]:
    """Return a stream with this body."""
    chance = random.Random(seed)  # noqa: S311 - where a read ends is no secret
    recorder = Recorder()
    chat = dialect == "chat"
    path = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}.get(dialect, "/v1/messages")
    opened = {"format": 1, "stream": "s", "created": 1, "dialect": "chat" if chat else "", "profile": "strict"}
    asked = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"?"}]}'
    records = [
        recorder.record("open", 0, opened),
        recorder.record("request", 40, {"method": "POST", "path": path, "headers": []}, asked),
        recorder.record("attempt", 90, {"number": 1, "upstream": "upstream"}),
        recorder.record("head", 2_000, {"status": 200, "headers": [["content-type", "text/event-stream"]]}),
    ]
    places = sorted({chance.randrange(1, len(body)) for _ in range(chance.randrange(40))}) if len(body) > 1 else []
    t = 2_000
    for start, end in zip([0, *places], [*places, len(body)], strict=True):
        t += chance.randrange(100_000)
        records += recorder.read(t, body[start:end])
        if not start:
            records.append(recorder.record("commit", t, {"status": 200}))
    return [*records, *recorder.rest(t + 5), recorder.end(t + 5, {"cause": "eof", "ending": "completed", "flags": []})]
