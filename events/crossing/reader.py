"""Read a stream of one dialect as if the upstream had sent it in another one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..core import model
from ..core.lifecycle import CUT_FINISHES
from ..core.model import Event
from ..emission.dialect import Context, Dialect, Reader, Step
from ..emission.frames import Out
from ..folds.wire import Wire
from ..tape.record import Record
from .composing import CROSSED
from .serial import ChoiceEvent, Serial

__all__ = ["CrossedReader"]

_NO_MESSAGE: Final = "The upstream failed and did not say why."


class CrossedReader(Reader):
    """The upstream's reader and the client's composer, with a live state of the upstream's answer between them."""

    def __init__(self, theirs: Dialect, ours: Dialect, context: Context) -> None:
        self._theirs = theirs
        self._context = context
        self._live = Wire()
        tools = frozenset(context.crossing.get("tools", ())) or context.facts.tools
        facts = replace(context.facts, usage=True, choices=1, tools=tools)
        self._reader = theirs.reader(context._replace(facts=facts, live=self._live))
        self._composer = ours.composer(context)
        self._serial = Serial(context)
        #: The choice that crosses: the first that says something.
        self._choice: int | None = None
        #: The client's writer need not see each frame of a text.
        self._plain = context.settings.on_partial == "error"
        self._last_n = 0
        #: When the last frame came, in seconds since 1970.
        self._last_at: int | None = None
        #: The composer has ended the answer.
        self._closed = False
        #: What the ledger has as lost.
        self._lost: set[str] = set()

    def frame(self, record: Record) -> Sequence[Step]:
        n, self._last_at = record.n, self._context.created + record.t // 1_000_000
        steps = self._reader.frame(record)
        crossed = self._crossed(n, steps)
        if self._plain and len(crossed) == len(steps) == 1 and steps[0].plain:
            return [crossed[0]._replace(plain=True)]
        return crossed

    @property
    def room(self) -> int:
        return min(self._reader.room, self._composer.room)

    def repeated(self, text: str) -> None:
        self._reader.repeated(text)
        self._composer.repeated(text)

    def rest(self, n: int, data: bytes) -> Sequence[Step]:
        return self._crossed(n, self._reader.rest(n, data))

    def body(self, n: int, data: bytes) -> Sequence[Step]:
        steps = self._crossed(n, self._reader.body(n, data))
        return steps + self._close(n) if self._live.finished else steps

    def flush(self) -> Sequence[Step]:
        """Return what waited, and the end of an answer that lacks nothing but its terminator."""
        n = self._last_n
        steps = self._crossed(n, self._reader.flush())
        if self._live.finished and not self._closed and self._live.error is None:
            steps += [Step(n, (model.ForeignFrame(n=n, why="no_done"),)), *self._close(n)]
        return [*steps, *self._unshown(n)]

    def opening(self, n: int) -> Sequence[Step]:
        return self._composer.open(n)

    def _crossed(self, n: int, steps: Sequence[Step]) -> list[Step]:
        """Return the steps in the client's dialect."""
        self._last_n = n
        crossed: list[Step] = []
        for step in steps:
            made = self._step(step)
            crossed += made
            if step.out is not None and step.out.came is not None:  # the first of our frames replaces it
                first = next((one.out for one in made if one.out is not None), None)
                if first is not None:
                    first.came = step.out.came
                else:
                    self._context.ledger.frame(step.n, CROSSED, step.out.came, None)
        self._context.live.overflow |= self._live.overflow
        return crossed

    def _step(self, step: Step) -> list[Step]:
        n, live = step.n, self._live
        passed: list[ChoiceEvent] = []
        #: What means the same in every dialect.
        kept: list[Event] = []
        for event in step.events:
            if isinstance(event, model.Terminator):
                return [*self._composed(step, passed, kept), *self._terminated(step)]
            if isinstance(event, model.UpstreamError):
                error = event if event.message else replace(event, message=_NO_MESSAGE)
                live.apply(error)
                before = [*self._composed(step, passed, kept), *self._composer.open(n), *self._unshown(n)]
                return [*before, self._composer.fail(n, error)._replace(delivers=step.delivers)]
            if not isinstance(event, ChoiceEvent):
                kept.append(event)
                if isinstance(event, model.ToolProgress):
                    self._lose(n, "lost_hosted_tool")
            elif self._is_ours(n, event.choice):
                passed += self._of_choice(n, event)
            else:
                continue
            live.apply(event)
        for index in step.choices:
            if self._is_ours(n, index):
                live.choice(index)
        return self._composed(step, passed, kept)

    def _is_ours(self, n: int, choice: int) -> bool:
        """Return whether this choice crosses: the first that is mentioned."""
        self._choice = choice if self._choice is None else self._choice
        if choice != self._choice:
            self._lose(n, "lost_choice")
        return choice == self._choice

    def _of_choice(self, n: int, event: ChoiceEvent) -> list[ChoiceEvent]:
        events: list[ChoiceEvent] = []
        if isinstance(event, model.HandedOver):  # the composer says when
            return events
        if isinstance(event, model.AudioDelta):
            self._lose(n, "lost_audio")
        if isinstance(event, model.Finish):
            for complete in self._live.completed_by(event):
                events.append(complete)
                self._live.apply(complete)
        events.append(event)
        return [replace(one, choice=0) for one in events] if self._choice else events

    def _composed(self, step: Step, events: Sequence[ChoiceEvent], kept: Sequence[Event]) -> list[Step]:
        """Return the composer's steps, after those events that mean the same in every dialect."""
        n = step.n
        steps = [Step(n, kept, delivers=step.delivers and not events)] if kept else []
        started = [event for event in kept if isinstance(event, model.ResponseStarted)]
        ordered = self._serial.order(n, events)
        if any(isinstance(event, model.Finish) and event.reason in CUT_FINISHES for event in ordered):
            steps += self._unshown(n)
        return [*steps, *self._composer.compose(n, (*started, *ordered))]

    def _unshown(self, n: int) -> Sequence[Step]:
        """Return the calls that were cut before the client saw them: the end of the answer names them."""
        return self._composer.lose(n, self._serial.lose(n))

    def _lose(self, n: int, what: str) -> None:
        """Enter a loss in the ledger, once."""
        if what not in self._lost:
            self._lost.add(what)
            self._context.ledger.enter(n, what)

    def _terminated(self, step: Step) -> list[Step]:
        steps = [made for supplied in self._reader.supply(step.n) for made in self._step(supplied)]
        self._live.apply(model.Terminator(n=step.n))
        if self._live.finished:
            return steps + self._close(step.n)
        cut = Step(step.n, (model.Terminator(n=step.n),), Out(step.n, raw=b""))
        return [*steps, *self._unshown(step.n), cut]

    def _close(self, n: int) -> list[Step]:
        if self._closed:
            return []
        self._closed = True
        self._context.live.flags.update(self._live.flags)
        counts = None if self._live.usage is None else self._theirs.counts(self._live.usage)
        steps = list[Step]()
        if counts is None or counts.input is None or counts.output is None:
            self._lose(n, "usage_unknown")
            steps.append(Step(n, (model.ForeignFrame(n=n, why="usage_unknown"),)))
        return [*steps, *self._composer.close(n, counts, self._last_at)]
