"""When things came."""

from wiretape.events.core.model import AttemptStarted, Ended, ForeignFrame, ResponseStarted, TextDelta
from wiretape.events.folds.timing import Timing


def test_life_and_progress_are_measured_apart() -> None:
    fold = Timing()
    for event, t in (
        (ResponseStarted(n=1, id="x", model="m"), 5),
        (TextDelta(n=2, choice=0, text="a"), 10),
        (ForeignFrame(n=3, why="ping"), 400),
        (ForeignFrame(n=4, why="ping"), 700),
        (TextDelta(n=5, choice=0, text="b"), 900),
    ):
        fold.alive(t)
        fold.apply(event, t)
    assert (fold.first_event_us, fold.first_content_us, fold.last_content_us) == (5, 10, 900)
    assert (fold.longest_silence_us, fold.longest_pause_us) == (390, 890)


SECOND = 1_000_000
END = Ended(n=100, ending="stalled", cause="stalled", flags=())


def test_what_says_nothing_is_life_and_no_progress_and_the_end_closes_both() -> None:
    fold = Timing()
    fold.alive(SECOND)
    fold.apply(TextDelta(n=1, choice=0, text="a"), SECOND)
    for second in range(2, 100):
        fold.alive(second * SECOND)
    assert (fold.longest_silence_us, fold.longest_pause_us) == (SECOND, 0)
    fold.apply(END, 101 * SECOND)
    assert (fold.longest_silence_us, fold.longest_pause_us) == (2 * SECOND, 100 * SECOND)


def test_an_event_is_no_life_of_its_own() -> None:
    fold = Timing()
    fold.alive(5)
    fold.apply(ForeignFrame(n=2, why="not_json"), 50)
    fold.alive(105)
    assert (fold.longest_silence_us, fold.longest_pause_us) == (100, 0)


def test_silence_counts_from_when_the_upstream_is_asked_and_what_was_no_content_has_no_pause() -> None:
    fold = Timing()
    fold.apply(AttemptStarted(n=1), 10)
    fold.apply(AttemptStarted(n=2), 40)
    fold.alive(60)
    assert fold.longest_silence_us == 30
    fold.apply(END, 100)
    assert (fold.longest_silence_us, fold.longest_pause_us) == (40, 0)


def test_an_end_alone_is_no_silence() -> None:
    fold = Timing()
    fold.apply(END, 100)
    assert (fold.longest_silence_us, fold.longest_pause_us) == (0, 0)
