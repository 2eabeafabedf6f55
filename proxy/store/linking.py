"""Which call a tool result answers, and what became of each call, decided from catalogue rows alone.

A result names its call by an id that some providers reuse in every turn, so it belongs to a call only if caller, id,
name and arguments are all equal. Of several such calls it is the one whose request had as many messages as precede the
call in the returned history; then one without an answer; then the latest. A request that came before, word for word,
answers what it answered then, unless such a call was handed over since: a retry is not a new conversation. Of several
results of one call the first counts, so a retried request gets the answer that the first one got. The rules use nothing
but rows: a catalogue rebuilt from the tapes decides as the old one did.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from wiretape.events.core.lifecycle import State, Trigger, step

from ..limits import ABANDONED_AFTER_S
from .catalogue_row import AnswerRow, CallRow

__all__ = [
    "NO_FATES",
    "Alike",
    "Fate",
    "Key",
    "Link",
    "Running",
    "fates",
    "find_calls",
    "key_of",
    "links",
]

_SECOND_US: Final = 1_000_000

#: Caller, id, name and arguments: what a call and its result have in common.
Key = tuple[str, str, str, str]
#: All calls and all results with one key.
Alike = tuple[list[CallRow], list[AnswerRow]]


class Link(NamedTuple):
    """The stream that made a call, and the time until its first result."""

    stream: str
    duration_ms: int


class Fate(NamedTuple):
    """What became of a call that was handed over."""

    state: State
    #: The stream whose request brought the result.
    answered_by: str = ""
    duration_ms: int | None = None


NO_FATES: Final[Mapping[str, Fate]] = MappingProxyType({})


class Running:
    """The results that running streams brought: no catalogue has them yet, and a retry has to find them."""

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[str, AnswerRow]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def enter(self, rows: Iterable[AnswerRow]) -> None:
        """Add or update the results of one stream."""
        for row in rows:
            self._by_key.setdefault(key_of(row), {})[row.stream] = row

    def leave(self, rows: Iterable[AnswerRow]) -> None:
        """Remove results: the catalogue has them, or their stream failed."""
        for row in rows:
            alike = self._by_key.get(key_of(row), {})
            alike.pop(row.stream, None)
            if not alike:
                self._by_key.pop(key_of(row), None)

    def like(self, rows: Iterable[AnswerRow]) -> dict[Key, Sequence[AnswerRow]]:
        """Return all results that have the key of one of these, as they are now."""
        keys = {key_of(row) for row in rows}
        return {key: list(self._by_key[key].values()) for key in keys if key in self._by_key}


def key_of(row: CallRow | AnswerRow) -> Key:
    """Return what has to be equal."""
    return row.caller, row.call, row.name, row.arguments


def links(calls: Iterable[CallRow], answers: Iterable[AnswerRow]) -> dict[str, CallRow]:
    """Return the call that each result belongs to, by the stream that brought it; all rows have one key."""
    by_stream = {call.stream: call for call in calls if call.state == State.RUNNING.value and call.arguments}
    found: dict[str, CallRow] = {}
    answered: set[str] = set()
    before: dict[str, tuple[AnswerRow, CallRow | None]] = {}
    for answer in sorted(answers, key=_arrival):
        if answer.made_by:
            call = by_stream.get(answer.made_by)
        elif answer.request in before:
            # The same request again: a retry, unless a call was handed over since that nothing has answered.
            last, call = before[answer.request]
            new = [
                each
                for each in by_stream.values()
                if last.arrived_us < each.handed_us and each.messages == answer.after and each.stream not in answered
            ]
            call = _best(new, answer, answered) or call
        else:
            call = _best(by_stream.values(), answer, answered)
        if call is not None:
            found[answer.stream] = call
            answered.add(call.stream)
        if answer.request:
            before[answer.request] = answer, call
    return found


def _arrival(answer: AnswerRow) -> tuple[int, str]:
    return answer.arrived_us, answer.stream


def _best(calls: Iterable[CallRow], answer: AnswerRow, answered: set[str]) -> CallRow | None:
    def rank(call: CallRow) -> tuple[bool, bool, int, str]:
        return call.messages == answer.after, call.stream not in answered, call.handed_us, call.stream

    return max((call for call in calls if call.handed_us <= answer.arrived_us), key=rank, default=None)


def find_calls(
    alike: Callable[[Key], Alike], answers: Iterable[AnswerRow], running: Mapping[Key, Sequence[AnswerRow]]
) -> list[Link | None]:
    """Return where each of these new results belongs, given all rows and the results of running streams."""
    found: list[Link | None] = []
    for new in answers:
        calls, known = alike(key_of(new))
        brought = {answer.stream: answer for answer in (*running.get(key_of(new), ()), *known, new)}.values()
        made = links(calls, brought)
        call = made.get(new.stream)
        if call is None:
            found.append(None)
        else:
            first = min((answer for answer in brought if made.get(answer.stream) is call), key=_arrival)
            found.append(Link(call.stream, _duration_ms(call, first)))
    return found


def _duration_ms(call: CallRow, answer: AnswerRow) -> int:
    return (answer.arrived_us - call.handed_us) // 1_000


def fates(
    own: Sequence[CallRow], rows: Mapping[Key, tuple[Sequence[CallRow], Sequence[AnswerRow]]], now_s: float
) -> dict[str, Fate]:
    """Return the fates of the calls that one stream handed over, by id; `rows` are all that have one of their keys.

    A call without an answer is abandoned when the conversation went on without it (a result of another call of its
    stream has come), or after a while. A result that comes later still counts.
    """
    fated: dict[str, Fate] = {}
    handed = [call for call in own if call.state == State.RUNNING.value]
    for call in handed:
        calls, answers = rows.get(key_of(call), ((), ()))
        made = links(calls, answers)
        mine = [answer for answer in answers if answer.stream in made and made[answer.stream].stream == call.stream]
        first = min(mine, key=_arrival, default=None)
        if first is None:
            fated[call.call] = Fate(State.RUNNING)
        else:
            state = step(State.RUNNING, Trigger.ERROR_RESULT if first.failed else Trigger.RESULT)
            fated[call.call] = Fate(state, first.stream, _duration_ms(call, first))
    went_on = any(fate.answered_by for fate in fated.values())
    for call in handed:
        late = now_s * _SECOND_US - call.handed_us > ABANDONED_AFTER_S * _SECOND_US
        if not fated[call.call].answered_by and (went_on or late):
            fated[call.call] = Fate(step(State.RUNNING, Trigger.UNANSWERED))
    return fated
