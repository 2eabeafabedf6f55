"""The frames that are timed: one more piece of text, as most frames are, and the same with one thing to repair."""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Final

#: As captured content frames are on average; what is spliced out comes on top.
FRAME_BYTES: Final = 230
PER_READ: Final = 50

#: On every chunk of many upstreams; a strict client must see it once.
ROLE: Final = b'"role":"assistant",'

#: Different frames; then they come again.
ROUND: Final = 1_000
_HEAD: Final = (
    b'{"id":"chatcmpl-AbCdEfGh","object":"chat.completion.chunk","created":1728365454,'
    b'"model":"gpt-4o","system_fingerprint":"fp_01234567","choices":[{"index":0,"delta":{'
)
_TAIL: Final = b'"},"logprobs":null,"finish_reason":null}]}'


def payloads(extra: bytes = b"") -> list[bytes]:
    """Of the frames of one round, no two alike."""
    padding = FRAME_BYTES - len(b'data: \n\n"content":"00000') - len(_HEAD) - len(_TAIL)
    assert padding >= 0
    return [_HEAD + extra + b'"content":"%05d%b' % (n, b"x" * padding) + _TAIL for n in range(ROUND)]


def reads(extra: bytes = b"", per_read: int = PER_READ) -> list[bytes]:
    """The frames of one round as the network gives them."""
    frames = [b"data: %b\n\n" % payload for payload in payloads(extra)]
    return [b"".join(frames[at : at + per_read]) for at in range(0, len(frames), per_read)]


def stream(each: Sequence[bytes], frames: int) -> Iterator[bytes]:
    """The reads of one stream: its role first, then round after round until so many frames have come."""
    yield b"data: %b\n\n" % payloads(ROLE)[0]
    yield from islice(cycle(each), frames * len(each) // ROUND)
