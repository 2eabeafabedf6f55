"""Captured responses as tapes of the proxy, in random reads."""

import random
from itertools import pairwise

from tests.replay.dialects import PATHS
from tests.support.tapes import Turn, asking, records_of
from wiretape.events.tape.record import Record


def recorded(body: bytes, dialect: str, seed: int = 0) -> list[Record]:
    """Return a stream with this body."""
    chance = random.Random(seed)  # noqa: S311 - where a read ends is no secret
    places = {chance.randrange(1, len(body)) for _ in range(chance.randrange(40))} if len(body) > 1 else ()
    reads = [
        (chance.randrange(100_000) / 1e6, body[start:end]) for start, end in pairwise([0, *sorted(places), len(body)])
    ]
    path = PATHS.get(dialect, PATHS["messages"])
    return records_of(Turn(asking("?"), reads, path=path, dialect="chat" if dialect == "chat" else ""))
