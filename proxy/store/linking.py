"""Which call a tool result answers, and what became of each call: decided from rows of the catalogue alone

A result names its call by an id that some providers use again each turn, so it belongs to a call only if caller, id,
name and arguments are all the same. Of several such calls it is the one whose request had as many messages as stand
before the call in the history that came back; then one that nobody has answered yet; then the latest. A request that
came before, word for word, answers what it answered then, unless such a call was handed over since: a client that
retries is not one that begins anew. Of several results of one call the first counts, so a retried request says what the
first one said. The rules look at nothing but rows: a catalogue that was built anew from the tapes decides as the old
one did.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from wiretape.events.core.lifecycle import State, Trigger, step

from ..limits import ABANDONED_AFTER_S
from .catalogue_row import AnswerRow, CallRow

__all__ = ["NOTHING_RUNS", "NO_FATES", "Fate", "Key", "Link", "Running", "fates", "key_of", "link_of", "links"]

_SECOND_US: Final = 1_000_000

#: Caller, id, name and arguments: what a call and its result have in common.
Key = tuple[str, str, str, str]


class Link(NamedTuple):
    """The stream that made a call, and how long it took until its first result."""

    stream: str
    duration_ms: int


class Fate(NamedTuple):
    """What became of a call that was handed over."""

    state: State
    #: The stream whose request brought the result.
    answered_by: str = ""
    duration_ms: int | None = None


#: Where nothing is known, or nothing was handed over.
NO_FATES: Final[Mapping[str, Fate]] = MappingProxyType({})
#: Where no stream runs, or none matters.
NOTHING_RUNS: Final[Mapping[Key, Sequence[AnswerRow]]] = MappingProxyType({})


class Running:
    """The answers that streams which have not ended brought: in no catalogue yet, and a retry has to know them."""

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[str, AnswerRow]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def enter(self, rows: Iterable[AnswerRow]) -> None:
        """Those of one stream, or what is known better of them now."""
        for row in rows:
            self._by_key.setdefault(key_of(row), {})[row.stream] = row

    def leave(self, rows: Iterable[AnswerRow]) -> None:
        """The catalogue knows them, or their stream came to nothing."""
        for row in rows:
            like = self._by_key.get(key_of(row), {})
            like.pop(row.stream, None)
            if not like:
                self._by_key.pop(key_of(row), None)

    def like(self, rows: Iterable[AnswerRow]) -> dict[Key, Sequence[AnswerRow]]:
        """All that have the key of one of these, as they are now."""
        keys = {key_of(row) for row in rows}
        return {key: list(self._by_key[key].values()) for key in keys if key in self._by_key}


def key_of(row: CallRow | AnswerRow) -> Key:
    """What has to be the same."""
    return row.caller, row.call, row.name, row.arguments


def links(calls: Iterable[CallRow], answers: Iterable[AnswerRow]) -> dict[str, CallRow]:
    """The call that each answer belongs to, by the answering stream; all rows have one key."""
    by_stream = {call.stream: call for call in calls if call.state == State.RUNNING.value and call.arguments}
    found: dict[str, CallRow] = {}
    answered: set[str] = set()
    before: dict[str, tuple[AnswerRow, CallRow | None]] = {}
    for answer in sorted(answers, key=_arrival):
        if answer.made_by:
            call = by_stream.get(answer.made_by)
        elif answer.request in before:
            last, call = before[answer.request]
            call = _since(by_stream.values(), answer, last, answered) or call
        else:
            call = _chosen(by_stream.values(), answer, answered)
        if call is not None:
            found[answer.stream] = call
            answered.add(call.stream)
        if answer.request:
            before[answer.request] = answer, call
    return found


def _since(calls: Iterable[CallRow], again: AnswerRow, before: AnswerRow, answered: set[str]) -> CallRow | None:
    """What the same request may answer now because it was made after the last one: the conversation began anew."""
    new = (call for call in calls if before.arrived_us < call.handed_us and call.messages == again.after)
    return _chosen((call for call in new if call.stream not in answered), again, answered)


def _arrival(answer: AnswerRow) -> tuple[int, str]:
    return answer.arrived_us, answer.stream


def _chosen(calls: Iterable[CallRow], answer: AnswerRow, answered: set[str]) -> CallRow | None:
    def rank(call: CallRow) -> tuple[bool, bool, int, str]:
        return call.messages == answer.after, call.stream not in answered, call.handed_us, call.stream

    return max((call for call in calls if call.handed_us <= answer.arrived_us), key=rank, default=None)


def link_of(
    new: AnswerRow, calls: Iterable[CallRow], answers: Iterable[AnswerRow], running: Iterable[AnswerRow] = ()
) -> Link | None:
    """Where a result that has just come belongs; the other rows have its key, and those that are running no catalogue
    may know.
    """
    answers = {answer.stream: answer for answer in (*running, *answers, new)}.values()
    found = links(calls, answers)
    call = found.get(new.stream)
    if call is None:
        return None
    first = _first(call, answers, found)
    return Link(call.stream, _duration_ms(call, first))


def _first(call: CallRow, answers: Iterable[AnswerRow], found: Mapping[str, CallRow]) -> AnswerRow:
    return min((answer for answer in answers if found.get(answer.stream) is call), key=_arrival)


def _duration_ms(call: CallRow, answer: AnswerRow) -> int:
    return (answer.arrived_us - call.handed_us) // 1_000


def fates(
    own: Sequence[CallRow], rows: Mapping[Key, tuple[Sequence[CallRow], Sequence[AnswerRow]]], now_s: float
) -> dict[str, Fate]:
    """Of the calls of one stream that were handed over, by id; `rows` are all that have the key of one of them.

    A call that nobody has answered is abandoned when the conversation went on without it (a result of another call of
    its stream has come), or after a while; a result that comes later still counts.
    """
    fated: dict[str, Fate] = {}
    for call in own:
        if call.state == State.RUNNING.value:
            calls, answers = rows.get(key_of(call), ((), ()))
            fated[call.call] = _fate(call, calls, answers)
    went_on = any(fate.answered_by for fate in fated.values())
    for call in own:
        late = now_s * _SECOND_US - call.handed_us > ABANDONED_AFTER_S * _SECOND_US
        if call.call in fated and not fated[call.call].answered_by and (went_on or late):
            fated[call.call] = Fate(step(State.RUNNING, Trigger.UNANSWERED))
    return fated


def _fate(call: CallRow, calls: Iterable[CallRow], answers: Sequence[AnswerRow]) -> Fate:
    found = {stream: made for stream, made in links(calls, answers).items() if made.stream == call.stream}
    mine = [answer for answer in answers if answer.stream in found]
    if not mine:
        return Fate(State.RUNNING)
    first = min(mine, key=_arrival)
    state = step(State.RUNNING, Trigger.ERROR_RESULT if first.failed else Trigger.RESULT)
    return Fate(state, first.stream, _duration_ms(call, first))
