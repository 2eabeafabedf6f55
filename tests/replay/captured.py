"""Captured responses as tapes of the proxy, in random reads."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.replay.dialects import PATHS
from tests.support.corpus import needs_corpus
from tests.support.tapes import Turn, asking, records_of
from wiretape.events.tape.record import Record


def each_protocol(test: Callable[[str], None]) -> Callable[[str], None]:
    """Run a test over the captures of each protocol, where there is a corpus."""
    protocols = pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
    return needs_corpus(pytest.mark.slow(protocols(test)))


def recorded(body: bytes, dialect: str, seed: int = 0) -> list[Record]:
    """Return a stream with this body."""
    chance = random.Random(seed)  # noqa: S311 - where a read ends is no secret
    places = {chance.randrange(1, len(body)) for _ in range(chance.randrange(40))} if len(body) > 1 else ()
    reads = [
        (chance.randrange(100_000) / 1e6, body[start:end]) for start, end in pairwise([0, *sorted(places), len(body)])
    ]
    spoken = dialect if dialect in PATHS else "messages"
    return records_of(Turn(asking("?"), reads, path=PATHS[spoken], dialect=spoken))
