"""Size and differences of the sealed form, for docs/sealed-tapes.md: `python -m tests.support.sealed_sizes`

Five hundred words, one token a frame, with the padding that OpenAI adds; recorded anew with other ids, times, padding
and reads, and once with one other word.
"""

import difflib
import gzip
import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.events.tape.record import encode as line_of
from wiretape.events.tape.tape import Recorder
from wiretape.replay.seal import EXACT, Rules, seal

__all__ = ["Sizes", "measured"]

_WORDS: Final = 500


class Sizes(NamedTuple):
    """Of one form, in bytes and lines."""

    form: str
    size: int
    gzipped: int
    #: Lines that differ when the same is recorded again, without header and clock; and bytes of them.
    again: int
    again_bytes: int
    #: The same where one token differs; `end` and `fold` are among them.
    token: int
    token_bytes: int
    #: Lines of header and clock that differ when recorded again, and bytes of them.
    apart: int
    apart_bytes: int


def stream(seed: int, *, changed: bool = False) -> list[Record]:
    """Of a seed hangs all that differs from one recording to the next; of `changed` one word."""
    words = random.Random(5)  # noqa: S311 - no secrets here
    chance = random.Random(seed)  # noqa: S311
    base: dict[str, object] = {"id": f"chatcmpl-{chance.getrandbits(128):x}", "object": "chat.completion.chunk"}
    base |= {"created": 1_700_000_000 + seed, "model": "gpt-4.1-mini-2025-04-14", "service_tier": "default"}
    base |= {"system_fingerprint": f"fp_{chance.getrandbits(40):x}"}
    text = [" " + "".join(words.choice("etaoinshrdlu") for _ in range(words.randint(2, 9))) for _ in range(_WORDS)]
    if changed:
        text[_WORDS // 2] = " Wiretape"
    deltas: list[dict[str, str]] = [{"role": "assistant", "content": ""}, *({"content": word} for word in text)]
    ended: list[tuple[dict[str, str], str | None]] = [*((delta, None) for delta in deltas), ({}, "stop")]
    values: list[Any] = [
        {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        for delta, finish in ended
    ]
    padded = [{**base, **value, "obfuscation": "abcdefghijkmn"[: chance.randint(1, 13)]} for value in values]
    body = b"".join(b"data: %b\n\n" % dumps(value) for value in padded) + b"data: [DONE]\n\n"
    return _recorded(body, chance)


def _recorded(body: bytes, chance: random.Random) -> list[Record]:
    recorder = Recorder()
    opened = {"format": 1, "stream": f"s{chance.getrandbits(40):x}", "dialect": "chat", "created": 1_700_000_000}
    asked = (
        b'{"model":"gpt-4.1-mini","stream":true,"messages":[{"role":"user","content":"Five hundred words, please."}]}'
    )
    records = [
        recorder.record("open", 0, opened),
        recorder.record("request", 90, {"method": "POST", "path": "/v1/chat/completions"}, asked),
        *recorder.attempt(120, {"number": 1, "upstream": "upstream"}),
        recorder.record("head", 400_000, {"status": 200, "headers": [["content-type", "text/event-stream"]]}),
    ]
    t, at = 400_000, 0
    while at < len(body):
        end = at + chance.randint(140, 850)  # 335 reads, as measured
        t += chance.randint(2_000, 40_000)
        records += recorder.read(t, body[at:end])
        at = end
    return [*records, *recorder.rest(t), recorder.end(t, {"cause": "eof", "ending": "completed", "flags": []})]


def measured() -> list[Sizes]:
    """The live tape, the exact sealed one and the one that is sealed by default."""
    forms = {"live tape": None, "sealed, exact": EXACT, "sealed": Rules()}
    return [
        _sizes(form, *(_written(stream(seed, changed=changed), rules) for seed, changed in _SEEDS))
        for form, rules in forms.items()
    ]


_SEEDS: Final = ((1, False), (2, False), (1, True))


def _written(records: Sequence[Record], rules: Rules | None) -> bytes:
    return b"".join(map(line_of, records)) if rules is None else seal([records], rules)


def _sizes(form: str, first: bytes, second: bytes, changed: bytes) -> Sizes:
    again, token = _differ(_body(first), _body(second)), _differ(_body(first), _body(changed))
    apart = _differ(_apart(first), _apart(second))
    return Sizes(form, len(first), len(gzip.compress(first, 9, mtime=0)), *again, *token, *apart)


def _body(data: bytes) -> list[bytes]:
    return [line for line in data.splitlines() if not line.startswith((b'{"wiretape"', b'{"k":"clock"'))]


def _apart(data: bytes) -> list[bytes]:
    return [line for line in data.splitlines() if line.startswith((b'{"wiretape"', b'{"k":"clock"'))]


def _differ(first: Sequence[bytes], second: Sequence[bytes]) -> tuple[int, int]:
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    new = [line for tag, _, _, start, end in matcher.get_opcodes() if tag != "equal" for line in second[start:end]]
    return len(new), sum(map(len, new))


def _main() -> None:
    raw = sum(len(record.raw or b"") for record in stream(1) if record.kind == "frame")
    frames = sum(record.kind == "frame" for record in stream(1))
    print(f"{frames} frames, {raw} bytes as received")  # noqa: T201
    for sizes in measured():
        print(" | ".join(map(str, sizes)))  # noqa: T201


if __name__ == "__main__":
    _main()
