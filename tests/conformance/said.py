"""What a reader made of one stream, in one form for our own folds and for every SDK, and where two of them differ."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.chat import tape
from wiretape.events.core.model import Ended
from wiretape.events.emit import Emitter, summarise
from wiretape.events.folds import summary
from wiretape.events.folds.wire import Wire

#: Nothing is known of the request of a captured stream: how many choices it asked for is open, and so are its tools.
_REQUEST: Final[dict[str, Any]] = {"stream": True, "n": None}

_REFUSED: Final = {"length": "LengthFinishReasonError", "content_filter": "ContentFilterFinishReasonError"}

_REPEATED: Final = re.compile(r"(.{2,}?)\1+", re.DOTALL)


@dataclass(slots=True)
class Answer:
    """One choice."""

    role: str | None = None
    text: str = ""
    #: None where the reader does not offer it.
    reasoning: str | None = ""
    refusal: str = ""
    #: Id, name and arguments of each.
    calls: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    #: Name and arguments of the `function_call` of old.
    legacy: tuple[str, str] | None = None
    types: set[str | None] = field(default_factory=set[str | None])
    finish: str = ""

    @property
    def repeated(self) -> list[str]:
        """Ids and names that are one word twice or more: what an SDK makes of one that is sent again."""
        return [word for call in self.calls for word in call[:2] if _REPEATED.fullmatch(word)]


#: Our folds ignore a choice that was opened and stayed empty.
_SILENT: Final = Answer(role="assistant")


@dataclass(slots=True)
class Reading:
    """What an SDK made of a stream; each error is the name of an exception, or empty."""

    answers: dict[int, Answer] = field(default_factory=dict[int, Answer])
    #: The last token counts that any chunk had.
    usage: dict[str, Any] | None = None
    #: While it iterated over the chunks.
    stream_error: str = ""
    #: While its helper accumulated them.
    helper_error: str = ""
    #: In the plain loop over `chunk.choices[0].delta.content`.
    loop_error: str = ""
    #: When asked for the whole answer.
    final_error: str = ""


@dataclass(slots=True, kw_only=True)
class Truth:
    """What our folds hold of a stream, and the bytes that go out for it."""

    sent: bytes
    answers: dict[int, Answer]
    usage: dict[str, Any] | None
    asked_for_usage: bool
    ended: Ended
    #: Choices whose finish is withheld, because it would hand over a malformed call.
    without_finish: frozenset[int]

    @property
    def error_due(self) -> str:
        """Why an error frame must end the stream, or nothing."""
        if "malformed_call" in self.ended.flags:
            return "malformed_call"
        return "" if self.ended.ending == "completed" else self.ended.ending

    @property
    def final_error_due(self) -> str:
        """What the SDK's helper raises instead of the whole answer, because of a finish that is the upstream's own."""
        finishes = [answer.finish for _, answer in sorted(self.answers.items())]
        return next((_REFUSED[finish] for finish in finishes if finish in _REFUSED), "")


def truth(upstream: bytes, *, usage: bool = False, request: dict[str, Any] | None = None, **settings: Any) -> Truth:
    """From the upstream's bytes; `usage` says whether the request asked for a usage chunk."""
    asked = (_REQUEST if request is None else request) | {"stream_options": {"include_usage": usage}}
    records = tape(upstream, request=asked, **settings)
    emitter = Emitter()
    sent = b"".join(frame for record in records for frame in emitter.feed(record))
    assert emitter.wire.ended is not None, "every stream has an ending"
    return Truth(
        sent=sent,
        answers={each.choice: _answer(each, emitter.wire) for each in summarise(records).answers},
        usage=emitter.wire.usage,
        asked_for_usage=usage,
        ended=emitter.wire.ended,
        without_finish=frozenset(call.choice for call in emitter.wire.calls() if call.reason == "malformed"),
    )


def _answer(said: summary.Answer, wire: Wire) -> Answer:
    by_number = sorted(wire.choices[said.choice].calls.items())
    # A call that never got a name is never shown (Q17).
    calls = [(call.id, call.name, call.arguments) for _, call in by_number if call.name]
    legacy = next((call[1:] for call in calls if call[0] == f"function_call_{said.choice}"), None)
    return Answer(
        role="assistant",
        text=said.text,
        reasoning=said.reasoning,
        refusal=said.refusal,
        calls=[] if legacy else calls,
        legacy=legacy,
        types={"function"} if calls and not legacy else set(),
        finish=said.finish,
    )


def differences(reading: Reading, truth: Truth, *, helper: bool = True) -> list[str]:
    """What an SDK says of our bytes that is not so. Nothing is excused but what the design names.

    `helper` is whether this reading had one, which refuses a whole answer that its upstream calls incomplete.
    """
    return list(_differences(reading, truth, truth.final_error_due if helper else ""))


def _differences(reading: Reading, truth: Truth, final: str) -> Iterable[str]:
    if bool(reading.stream_error) != bool(truth.error_due):
        yield f"iterating: {reading.stream_error or 'no error'}, although {truth.error_due or 'nothing'} is due"
    elif reading.stream_error not in ("", "APIError"):
        yield f"iterating: {reading.stream_error} instead of the SDK's own error"
    if reading.helper_error:
        yield f"the helper: {reading.helper_error}"
    if reading.loop_error and not truth.asked_for_usage:
        yield f"the plain loop: {reading.loop_error}"
    if reading.final_error != final and not truth.error_due:
        yield f"the whole answer: {reading.final_error or 'no error'}, due is {final or 'none'}"
    if truth.asked_for_usage and (reading.usage or None) != truth.usage:
        yield f"usage: {reading.usage} instead of {truth.usage}"
    answers = {index for index, said in reading.answers.items() if index in truth.answers or said != _SILENT}
    if answers != truth.answers.keys():
        yield f"choices: {sorted(answers)} instead of {sorted(truth.answers)}"
    for index in reading.answers.keys() & truth.answers.keys():
        yield from _of_answer(index, reading.answers[index], truth)


def _of_answer(index: int, said: Answer, truth: Truth) -> Iterable[str]:
    due = truth.answers[index]
    if said.repeated:
        yield f"choice {index}: doubled {said.repeated}"
    for name in ("role", "text", "reasoning", "refusal", "calls", "legacy", "types"):
        read, true = getattr(said, name), getattr(due, name)
        if read != true and not (name == "reasoning" and read is None):
            yield f"choice {index}: {name} {read!r:.80} instead of {true!r:.80}"
    if said.finish != ("" if index in truth.without_finish else due.finish):
        yield f"choice {index}: finish {said.finish!r} instead of {due.finish!r}"
