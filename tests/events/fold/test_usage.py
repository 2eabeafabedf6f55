"""The usage fold."""

from wiretape.events.core.model import AttemptStarted, TextDelta, Usage
from wiretape.events.folds.usage import UsageFold


def test_the_last_counts_are_taken_never_a_sum_and_none_is_none() -> None:
    fold = UsageFold()
    fold.apply(TextDelta(n=1, choice=0, text="x"))
    assert fold.counts is None
    fold.apply(Usage(n=2, counts={"total_tokens": 3}))
    fold.apply(Usage(n=3, counts={"total_tokens": 9}))
    assert fold.counts == {"total_tokens": 9}


def test_a_new_attempt_starts_from_nothing() -> None:
    fold = UsageFold()
    fold.apply(Usage(n=2, counts={"total_tokens": 3}))
    fold.apply(AttemptStarted(n=4))
    assert fold.counts is None
