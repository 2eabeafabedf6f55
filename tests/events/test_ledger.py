"""The ledger: counts always, entries on demand."""

import pytest

from wiretape.events.core.json_text import ABSENT
from wiretape.events.core.model import Repaired
from wiretape.events.emission.edits import Edit
from wiretape.events.emission.ledger import Ledger


def used(ledger: Ledger) -> None:
    """Enter one of each."""
    ledger.edited(3, [Edit("a", ("choices", 0), "x", 1), Edit("b", (), "y", ABSENT, None)])
    ledger.frame(3, "c", None, b"data: {}\n\n")
    ledger.frame(4, "d", b"came", None)
    ledger.noted(4, "e")


def test_entries_say_what_was_and_what_is() -> None:
    entries: list[Repaired] = []
    used(Ledger(entries.append))
    assert entries == [
        Repaired(n=3, repair="a", path=("choices", 0), key="x", after=1),
        Repaired(n=3, repair="b", key="y", before=None),
        Repaired(n=3, repair="c", after=b"data: {}\n\n"),
        Repaired(n=4, repair="d", before=b"came"),
        Repaired(n=4, repair="e"),
    ]


@pytest.mark.parametrize("whole", [True, False])
def test_counts_are_the_same_with_and_without_entries(*, whole: bool) -> None:
    ledger = Ledger(list[Repaired]().append if whole else None)
    used(ledger)
    assert ledger.counts == dict.fromkeys("abcde", 1)


def test_muted_ledger_counts_nothing() -> None:
    entries: list[Repaired] = []
    ledger = Ledger(entries.append)
    ledger.muted = True
    used(ledger)
    assert (ledger.counts, entries) == ({}, [])
