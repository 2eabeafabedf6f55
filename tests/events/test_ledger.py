"""The ledger: counts always, entries on demand."""

import pytest

from wiretape.events.core.model import Repaired
from wiretape.events.core.splice import Edit
from wiretape.events.emission.ledger import Ledger


def used(ledger: Ledger) -> None:
    """One of each."""
    ledger.came(3, b"data: 12345\n\n")
    ledger.spliced(3, [Edit("a", 0, 1, b"x"), Edit("b", 3, 3, b"yz")], len(b"data: "))
    ledger.added(3, "c", b"data: {}\n\n")
    ledger.flagged(3, "d")
    ledger.removed(3, "e", b"data: {}\n\n")
    ledger.replaced(4, "f", b"new")
    ledger.withheld(3, "g")


def test_the_entries_are_patches_in_order() -> None:
    entries: list[Repaired] = []
    ledger = Ledger(entries.append)
    used(ledger)
    assert [(entry.n, entry.repair, entry.at, entry.before, entry.after) for entry in entries] == [
        (3, "a", 6, b"1", b"x"),
        (3, "b", 9, b"", b"yz"),
        (3, "c", 15, b"", b"data: {}\n\n"),
        (3, "d", 0, b"", b""),
        (3, "e", 15, b"data: {}\n\n", b""),
        (4, "f", 0, b"", b"new"),
        (3, "g", 0, b"data: x23yz45\n\n", b""),
    ]
    assert ledger.whole
    assert (ledger.size(3), ledger.size(4), ledger.size(5)) == (0, 3, 0)


@pytest.mark.parametrize("whole", [True, False])
def test_the_counts_are_the_same_with_and_without_entries(whole: bool) -> None:
    ledger = Ledger(list[Repaired]().append if whole else None)
    used(ledger)
    assert ledger.counts == dict.fromkeys("abcdefg", 1)
    assert ledger.whole is whole
    if not whole:
        assert ledger.size(3) == 0


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_done_aside_counts_nowhere(whole: bool) -> None:
    entries: list[Repaired] = []
    ledger = Ledger(entries.append if whole else None)
    ledger.aside(lambda: used(ledger))
    assert (ledger.counts, entries, ledger.whole) == ({}, [], whole)
    ledger.flagged(3, "d")
    assert (ledger.counts, len(entries)) == ({"d": 1}, whole)
