"""How the search for secrets grows with a text that repeats one piece: `python -m tests.bench.search_growth`

Prints each piece for which four times the text takes more than eight times the CPU time, and each for which twice the
text takes a pattern more than 2.2 times the steps, and fails on any.
"""

import re
import time
from typing import Final

from tests.replay.canaries import CANARIES
from tests.replay.test_search_growth import patterns, steps_of
from wiretape.replay.redaction.shapes import find

_PIECES: Final = (
    "-eyJaaaaaaaaa", "eyJaaaaaaaa.", "sk-", "sk-a-", "sk--", "sk-p_", "pa-", "pa-_", "fw_a", ".-----B",
    "-----BEGIN PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----\nA: b\n", "password=", "password: ", '"password":"',
    "'password':\"", "cookie:", "cookie: a=", "bearer ", "Basic ", "a://", "a://b:", "a://b:c@", "a://b:c/", ":a@",
    'name="password"\n', '["x-api-key","', '"name":"password","value":"', "{{", "<", "your-", '{"a":"', "[[",
    "\\", "\\u0073", "%25", "%5C", "&amp;", "&#", "=", "a", "A", "0", "-", "_", "key", "token-", "/",
    "curl ", "curl -u ", 'curl -u "a:', "curl -u a:b\\", "mysql ", 'mysql -p"', "sshpass -p", "password='a1''",
    "curl -u 'a:bcd ", "sshpass -p 'a1 ", "curl -u a:b\\\\", 'password="a1\\"', "--password ", "authorization:",
    "cookie: a=b; c", "X-Api-Key: ", "docker login ", "password = ", "A_", "x-a-", "a" * 64 + "\n", '"a" : \'', " ",
    "\n", "MAAAAAAAAAAAAAAAAAAAAAAA.", "JQQJ9", "aJQQJ9", "x\x1b[32m",
)  # fmt: skip


def _spent_s(text: str) -> float:
    began = time.process_time()
    find(text)
    return time.process_time() - began


def grows_evenly(piece: str, before: str = "", after: str = "") -> bool:
    """Try four times: a neighbour only ever adds to the time."""
    small, large = (before + (piece * (size // len(piece) + 1))[:size] + after for size in (4_000, 16_000))
    return any(_spent_s(large) < 8 * max(_spent_s(small), 0.000_5) for _ in range(4))


def _steps_grow_evenly(name: str, pattern: "re.Pattern[str]", piece: str, size: int) -> bool:
    small, large = (steps_of(name, pattern, (piece * chars)[:chars]) for chars in (size, 2 * size))
    return large <= 2.2 * small + 100


def _main() -> None:
    beginnings = (
        key[:size] + between for key in CANARIES.values() for size in (4, 9, 20, 30) for between in ("", "-", '"')
    )
    wrong = [
        piece
        for piece in (*_PIECES, *beginnings)
        if not (grows_evenly(piece) and grows_evenly(piece, "password sk-", "!"))
    ]
    # A part of at most 512 characters only stops growing beyond that, so a doubt is looked at again there.
    wrong += [
        f"{name}: {piece}"
        for name, pattern in patterns().items()
        for piece in _PIECES
        if not any(_steps_grow_evenly(name, pattern, piece, size) for size in (500, 4_000))
    ]
    for piece in wrong:
        print(repr(piece))
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    _main()
