"""A dialect that is nothing like chat, to show that the engine knows no dialect.

Every frame is numbered without gaps. Items open one at a time: text, or a call that is handed over when its item ends.
The closing frame repeats the whole text.
"""

# ruff: noqa: ARG002 - the protocol passes more than a toy needs

from collections.abc import Sequence

from wiretape.events.core import model
from wiretape.events.core.json_text import as_object
from wiretape.events.core.lifecycle import State
from wiretape.events.emission.dialect import Context, Held, Split, Step
from wiretape.events.emission.frames import Edit, Out, Styles
from wiretape.events.folds.wire import Call
from wiretape.events.tape.record import Record


class Toy:
    """The dialect."""

    def reader(self, context: Context) -> "ToyReader":
        return ToyReader()

    def writer(self, context: Context) -> "ToyWriter":
        return ToyWriter(context)


class ToyReader:
    """Reads `text`, `call`, `arguments`, `ready`, `failed` and `done`."""

    def __init__(self) -> None:
        self._calls = 0

    def frame(self, record: Record) -> list[Step]:
        value, n = as_object(record.read().value), record.n
        word = str(value.get("say"))
        events: list[model.Event] = []
        match value.get("type"):
            case "text":
                events = [model.TextDelta(n=n, choice=0, text=word)]
            case "call":
                events = [model.ToolCallStarted(n=n, choice=0, call=self._calls, id=word, name=word)]
            case "arguments":
                events = [model.ToolArgumentsDelta(n=n, choice=0, call=self._calls, text=word)]
            case "ready":
                key = {"n": n, "choice": 0, "call": self._calls}
                events = [model.ToolArgumentsComplete(**key), model.HandedOver(**key)]
                self._calls += 1
            case "failed":
                events = [model.UpstreamError(n=n, message=word, code="toy")]
            case "done":
                events = [model.Finish(n=n, choice=0, reason="stop"), model.Terminator(n=n)]
            case _:
                pass
        out = Out(n, value, payload=record.payload, came=record.raw)
        return [Step(n, events, out, delivers=bool(events), choices=(0,))]

    def rest(self, n: int, data: bytes) -> list[Step]:
        return []

    body = rest

    def flush(self) -> list[Step]:
        return []

    def supply(self, n: int) -> list[Step]:
        return []


class ToyWriter:
    """Numbers every frame when it is sent, and keeps the text for the last one."""

    def __init__(self, context: Context) -> None:
        self._live, self._ledger, self._styles = context.live, context.ledger, Styles()
        self._number, self._text = 0, ""

    def write(self, step: Step) -> Out | None:
        self._text += "".join(event.text for event in step.events if isinstance(event, model.TextDelta))
        return step.out

    def split(self, out: Out) -> Split:
        calls = list(self._live.choice(0).calls.values())
        if out.value["type"] in ("call", "arguments") and calls[-1].state is not State.RUNNING:
            return Split(None, [Held(0, calls[-1].number, out)], delivers=False)
        return Split(out, (), delivers=True)

    def withhold_finish(self, out: Out, choices: set[int]) -> None:
        out.edit([Edit("claim", (), "finish", False)] if choices else [])

    def call_card(self, n: int, call: Call, status: str) -> Out:
        return Out(n, {"type": "card", "id": call.id, "status": status}, repair="lifecycle")

    def result_card(self, n: int, choice: int, result: model.ToolResultSeen) -> Out:
        return Out(n, {"type": "result", "id": result.id}, repair="lifecycle")

    def warning(self, n: int, code: str, lost: Sequence[Call]) -> list[Out]:
        return [Out(n, {"type": "text", "say": f"{code}: {[call.name for call in lost]}"}, repair="warning_text")]

    def introduce(self, out: Out) -> list[Out]:
        return []

    def tail(self) -> list[Out]:
        return []

    def close(self, n: int, code: str, lost: Sequence[Call], finished: set[int]) -> list[Out]:
        return [Out(n, {"type": "failed", "say": code}, repair="error_frame")]

    def done(self, n: int) -> Out:
        return Out(n, {"type": "done"}, repair="done_supplied")

    def encode(self, out: Out) -> bytes:
        out.edit([Edit("number", (), "number", self._number)])
        if out.value["type"] == "done":
            out.edit([Edit("whole", (), "text", self._text)])
        self._number += 1
        return out.encode(self._styles, self._ledger)
