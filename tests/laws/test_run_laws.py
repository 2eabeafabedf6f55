"""Seeded stories of /v1/runs: each viewer gets one complete history, and each check can fail."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.laws import run_machines
from tests.laws.run_laws import RunStore, Telling, played
from tests.support.machines import Agreement
from wiretape.events.tape.record import Record
from wiretape.proxy.runs.live import Live


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(6))
def test_seeded_stories(tens: int) -> None:
    """Sixty of the thousand that `make run-laws` plays."""
    for seed in range(10 * tens, 10 * tens + 10):
        assert played(seed).wrong == [], f"repeat it with: python -m tests.laws.run_laws 1 --first {seed}"


@pytest.mark.slow
def test_seeded_stories_on_three_machines() -> None:
    for seed in range(10):
        repeat = f"repeat it with: python -m tests.laws.run_machines 1 --first {seed}"
        assert run_machines.played(seed).wrong == [], repeat


def test_turns_that_begin_without_a_claim_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def claim(*_: Any) -> bool:
        return True

    monkeypatch.setattr(Agreement, "claim", claim)
    assert all(run_machines.played(seed).wrong for seed in (30, 97))


# -- each check can fail ----------------------------------------------------------------------------------------------


def wrong_of(seeds: Sequence[int]) -> str:
    return "\n".join(line for seed in seeds for line in played(seed).wrong)


def test_an_event_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read: Callable[..., None] = Live.read

    def forgetful(self: Any, stream: str, records: Sequence[Record]) -> None:
        read(self, stream, records)
        if len(self._window) > 3:
            self._window[-1] = b": nothing\n\n"

    monkeypatch.setattr(Live, "read", forgetful)
    assert "C22: " in wrong_of(range(8))


def test_an_event_that_is_sent_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    since: Callable[..., bytes] = Live.since

    def twice(self: Any, sequence: int) -> bytes:
        return since(self, sequence) * 2

    monkeypatch.setattr(Live, "since", twice)
    assert "C22: " in wrong_of(range(8))


def test_an_event_that_is_shown_before_it_is_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append: Callable[..., Any] = RunStore.append

    async def late(self: Any, stream: str, records: Sequence[Record], row: Any = None) -> int:
        size: int = await append(self, stream, records, row)
        for history in self.written.values():
            del history[5:]
        return size

    monkeypatch.setattr(RunStore, "append", late)
    assert "L6: " in wrong_of(range(8))


def test_a_run_that_is_started_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asking: Callable[..., Any] = Telling.ask

    async def without_key(self: Any, method: str, path: str, body: Any = b"", *_: str) -> Any:
        return await asking(self, method, path, body)

    monkeypatch.setattr(Telling, "ask", without_key)
    assert "C27: " in wrong_of(range(8))
