"""When things came."""

from wiretape.events.fold.timing import Timing
from wiretape.events.model import ForeignFrame, ResponseStarted, TextDelta


def test_life_and_progress_are_measured_apart() -> None:
    fold = Timing()
    for event, t in (
        (ResponseStarted(n=1, id="x", model="m"), 5),
        (TextDelta(n=2, choice=0, text="a"), 10),
        (ForeignFrame(n=3, why="ping"), 400),
        (ForeignFrame(n=4, why="ping"), 700),
        (TextDelta(n=5, choice=0, text="b"), 900),
    ):
        fold.apply(event, t)
    assert (fold.first_event_us, fold.first_content_us, fold.last_content_us) == (5, 10, 900)
    assert (fold.longest_silence_us, fold.longest_pause_us) == (390, 890)
