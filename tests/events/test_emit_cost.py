"""What one more frame costs does not depend on how many came before it: neither time nor memory.

The figures themselves are the business of `make bench`. The bounds here are wide, so that a busy machine passes and
only what grows with the stream does not: quadratic work would show fifteenfold, a kept frame 230 bytes for each.
"""

from collections.abc import Callable

import pytest

from tests.bench.core import Stream, live
from tests.bench.frames import PER_READ, ROLE, reads, stream
from tests.bench.measure import held, seconds

pytestmark = pytest.mark.slow

KINDS = pytest.mark.parametrize("extra", [b"", ROLE], ids=["plain frames", "frames with one repair"])

SHORT, LONG = 2_000, 30_000
GROWTH_MAX = 3.0
HELD_BYTES_MAX = 16_384


def cost(each: list[bytes], frames: int, repeats: int) -> float:
    """Of one frame, the fastest of several runs: load on the machine only adds."""
    return min(seconds(lambda: live(stream(each, frames))) for _ in range(repeats)) / frames


@KINDS
def test_a_frame_of_a_long_stream_costs_what_one_of_a_short_stream_does(extra: bytes) -> None:
    each = reads(extra)
    assert cost(each, LONG, 2) < GROWTH_MAX * cost(each, SHORT, 5)


@KINDS
def test_a_stream_holds_no_more_after_many_frames_than_after_few(extra: bytes) -> None:
    each = reads(extra)

    def begin() -> Callable[[int], object]:
        live_stream = Stream()
        return lambda n: live_stream.read(n + 1, each[n % len(each)])

    memory = held(begin, SHORT // PER_READ, LONG // PER_READ)
    assert memory.late - memory.early < HELD_BYTES_MAX
