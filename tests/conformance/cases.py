"""Which streams are emitted how: every captured stream whole and cut, the modes taking turns."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

from tests.laws.variants import frame_ends
from tests.support.corpus import Stream

from .emitted import SETTINGS, Emitted, emitted

__all__ = ["made"]

#: Longer streams are not cut: what their first frames showed would only be shown again.
_CUT_BYTES_MAX = 100_000


def made(number: int, stream: Stream, upstream: str, client: str, *, cuts: int) -> Iterator[tuple[str, Emitted]]:
    """Yield one stream as it is emitted whole and cut at seeded places, each with a name for a message."""
    chance = random.Random(f"{stream.id} {client}")  # noqa: S311 - a seeded cut, not a secret
    places = list(_places(stream.body, chance, cuts)) if len(stream.body) <= _CUT_BYTES_MAX else []
    for turn, cut in enumerate([None, *places]):
        settings: Mapping[str, Any] = SETTINGS[(number + 5 * turn) % len(SETTINGS)]
        name = f"{stream.id} from {upstream} to {client}, cut at {cut}, {settings}"
        yield name, emitted(stream, upstream, client, cut=cut, **settings)


def _places(body: bytes, chance: random.Random, cuts: int) -> Iterator[int]:
    """Yield places between frames, and one in four inside of one."""
    ends = list(frame_ends(body))
    for _ in range(cuts if ends else 0):
        yield chance.randrange(len(body)) if chance.random() < 0.25 else chance.choice(ends)
