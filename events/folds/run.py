"""What a run resulted in so far: the one fold over its tapes, its turns, that gives its state and its events.

In mode `own` each turn is a chat stream that we asked for; in mode `relay` one tape holds the events of an upstream
that has runs itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from io import StringIO
from itertools import count
from typing import Any

from ..core import model
from ..core.json_text import ABSENT, Halves, as_list, as_number, as_object, as_text, parse
from ..core.lifecycle import CUT_FINISHES, State
from ..core.settings import Facts, Settings
from ..tape.record import NO_KEYS, Record
from .run_events import CLOSED, COMMON, REASONS, failure, phrase, warning
from .summary import StreamSummary, Warned
from .wire import Call, Choice, Wire, tokens

__all__ = ["RunFold"]


class RunFold:
    """A fold over the records of all tapes of a run; every prefix has a state. One event closes it, the last one."""

    def __init__(self) -> None:
        self.run_id = self.session = self.model = self.last_event = self.error = ""
        self.mode, self.status = "own", "started"
        self.turn = self.sequence = 0
        self.metadata: dict[str, Any] = {}
        #: The ids of the tapes.
        self.streams: list[str] = []
        #: Microseconds since 1970: of the first tape, and of the latest event.
        self.created_us = self.updated_us = 0
        #: The calls that wait for outputs, by id: `call_id`, `tool` and `arguments` of each.
        self.pending: dict[str, dict[str, str]] = {}
        #: The token counts of all turns together; None if the upstream did not count one of them.
        self.usage: dict[str, int] | None = None
        #: By the event of its pieces: the text of the latest turn, and the reasoning since the last text or call.
        self._texts: defaultdict[str, StringIO] = defaultdict(StringIO)
        #: Tools that run, at the client or at the upstream, by id: name and start.
        self._running: dict[str, tuple[str, int]] = {}
        self._new_ids = (f"call_{self.run_id[-8:]}_{number}" for number in count(1))
        self._with_arguments = False
        self._why_stopped = ""
        self._open(NO_KEYS)

    @property
    def output(self) -> str:
        """The text of the answer; of an own run, that of its last turn."""
        return self._texts["message.delta"].getvalue()

    def take(self, record: Record, wire: Wire, events: Iterable[model.Event]) -> list[dict[str, Any]]:
        """Add a record, the live state of its tape after it and its events; return the events of the run."""
        self._caused: list[dict[str, Any]] = []
        if record.kind == "open":
            self.streams.append(as_text(record.keys.get("stream")))
            self._open(record.keys)
        if self.status in CLOSED:
            return []
        self._now_us = self._opened_us + record.t
        self._tape.take(record, wire)
        self._note(record)
        for event in events:
            self._hear(event, record, wire)
        if record.kind == "end" and self.status != "waiting_for_tools":  # a tape that crashed at once changes nothing
            self._end(wire, wire.choices.get(0, Choice()))
        return self._caused

    def _open(self, keys: Mapping[str, Any]) -> None:
        self._tape, self._halves, self._ending = StreamSummary(), Halves(), "internal"
        self._held = Settings.of(keys).held
        self._opened_us = int(as_number(keys.get("created_us")))
        if len(self.streams) == 1:
            self.run_id, self.session = as_text(keys.get("run")), as_text(keys.get("session"))
            self.created_us = self.updated_us = self._opened_us

    def _note(self, record: Record) -> None:
        kind, keys, body = record.kind, record.keys, dict[str, Any]()
        if kind in ("run", "recovered"):
            value = record.read().value  # parsed by a thread where it is large and was read from a file
            body = as_object(parse(record.raw or b"") if value is ABSENT else value)
        self.turn += kind == "run"
        match kind, keys.get("what"):
            case "run", "start" if not self.sequence:
                self.mode = "relay" if keys.get("mode") == "relay" else "own"
                self.model, self.metadata = as_text(body.get("model")), as_object(body.get("metadata"))
                self._with_arguments = body.get("stream_tool_arguments") is True
                self._start()
            case "run", "outputs":
                self.status = "running"
                self._texts.clear()
                for output in map(as_object, as_list(body.get("tool_outputs"))):
                    if call := self.pending.pop(as_text(output.get("call_id")), None):
                        self._end_tool(call["call_id"], call["tool"], output.get("error"))
                self.pending.clear()
            case ("run", "stop" | "expired") | ("stop", _):
                self.status = "stopping"
                self._why_stopped = why if (why := keys.get("why")) in REASONS else "asked"
            case "attempt" | "upstream_run", _ if self.status == "started":
                self.status = "running"
            case "frame", _ if self.mode == "relay":
                self._relay(as_object(record.read().value))
            case "recovered", _:
                self._relay({**body, "event": f"run.{body.get('status')}"}, recovered=True)
            case _:
                pass

    def _hear(self, event: model.Event, record: Record, wire: Wire) -> None:
        match event:
            case model.TextDelta() | model.RefusalDelta() if event.choice == 0:
                self._end_reasoning()
                self._delta("message.delta", event.text)
            case model.ReasoningDelta() if event.choice == 0:
                self._delta("reasoning.delta", event.text)
            case model.ToolCallStarted() if event.choice == 0:
                self._end_reasoning()
            case model.ToolArgumentsDelta() if event.choice == 0 and not (self._held or wire.overflow):
                self._arguments(wire.choices[0].calls[event.call], event.text)
            case model.Finish() | model.HandedOver() if event.choice == 0:
                self._end_reasoning()
                for call in wire.choices[0].calls.values():
                    if call.state is State.RUNNING and as_text(call.id) not in self.pending:
                        self._hand_over(call)
            case model.ToolProgress() if not Facts.of(self._tape.request).internal(event.name):
                if event.status == "running":
                    self._start_tool(event.id, event.name, as_object(record.read().value).get("label"))
                else:
                    self._end_tool(event.id, event.name, event.status == "failed")
            case model.Ended():
                self._ending = event.ending
            case _:
                pass

    def _relay(self, value: dict[str, Any], **more: Any) -> None:
        """Take an event of an upstream's own run; it has no ids of calls, and ends them in order for each tool."""
        if self.status == "waiting_for_approval" and value.get("event") in ("approval.responded", "message.delta"):
            self.status = "running"
        match value:
            case {"event": "message.delta" | "reasoning.delta" as name, "delta": str(delta)}:
                self._delta(name, delta)
            case {"event": "reasoning.available", "text": str(text)}:
                self._texts.pop("reasoning.delta", None)
                self._say("reasoning.available", text=as_text(text))
            case {"event": "tool.started", "tool": str(tool)}:
                self._start_tool(next(self._new_ids), tool, value.get("preview"))
            case {"event": "tool.completed", "tool": str(tool)}:
                first = next((call_id for call_id, (name, _) in self._running.items() if name == tool), None)
                self._end_tool(first or next(self._new_ids), tool, value.get("error"), value.get("duration"))
            case {"event": "approval.request"}:
                self.status = self.status if self._why_stopped else "waiting_for_approval"
                self._say("approval.request", **{key: one for key, one in value.items() if key not in COMMON})
            case {"event": "approval.responded", "choice": str(choice)}:
                resolved = value.get("resolved")
                known = type(resolved) is int and resolved >= 0
                self._say("approval.responded", choice=as_text(choice), resolved=resolved if known else ABSENT)
            case {"event": "run.completed"}:
                self._count(as_object(value.get("usage")))
                self._texts["message.delta"] = StringIO(as_text(value.get("output")))
                self._close("completed", output=self.output, usage=self.usage or ABSENT, **more)
            case {"event": "run.failed"}:
                error = phrase("upstream_error", said=value.get("error"))
                self._close("failed", error=error, code="upstream_error", output=self.output or ABSENT, **more)
            case {"event": "run.cancelled"}:
                self._close("cancelled", reason=self._why_stopped or "upstream", **more)
            case _:
                pass

    def _end(self, wire: Wire, choice: Choice) -> None:
        """End a turn: the run waits for the outputs of its calls, or is over."""
        self._end_reasoning()
        self._delta("message.delta", "", last=True)
        if self._tape.attempts:
            self._count(wire.usage or {})
        if self._why_stopped:
            self._close("cancelled", reason=self._why_stopped)
            return
        lost = [call for call in choice.calls.values() if call.reason or call.damaged]
        cut = [Warned(choice.finish, ())] if choice.finish in CUT_FINISHES and not lost else []
        for code, calls in (*self._tape.warnings, *cut):
            if code != self._ending:
                self._say("run.warning", **warning(code, calls))
        code = self._ending
        if code == "completed" and self.mode == "relay":  # without its closing event
            code = "truncated"
        elif code == "completed" and lost and (not self.pending or "malformed_call" in wire.all_flags()):
            code = lost[0].reason if lost[0].reason in CUT_FINISHES else "malformed_call"
        if code != "completed":
            self._close("failed", error=failure(code, self._tape, lost), code=code, output=self.output or ABSENT)
        elif self.pending:
            self.status = "waiting_for_tools"
            self._say("run.waiting_for_tools", calls=[*self.pending.values()])
        else:
            self._close("completed", output=self.output, usage=self.usage or ABSENT)

    def _say(self, event: str, /, **fields: Any) -> None:
        """Report an event; its fields that are ABSENT are left out."""
        if not self.sequence and event != "run.started":
            self._start()
        self.sequence += 1
        self.last_event, self.updated_us = event, self._now_us
        common = {"event": event, "run_id": self.run_id, "timestamp": self._now_us / 1e6, "sequence": self.sequence}
        self._caused.append(common | {name: value for name, value in fields.items() if value is not ABSENT})

    def _start(self) -> None:
        self._say("run.started", model=self.model, session_id=self.session or ABSENT)

    def _delta(self, name: str, piece: str, *, last: bool = False) -> None:
        if text := self._halves.join(name, piece, last=last):
            self._texts[name].write(text)
            self._say(name, delta=text)

    def _end_reasoning(self) -> None:
        if "reasoning.delta" in self._texts:
            self._delta("reasoning.delta", "", last=True)
            self._say("reasoning.available", text=self._texts.pop("reasoning.delta").getvalue())

    def _hand_over(self, call: Call) -> None:
        call_id, tool = as_text(call.id), as_text(call.name)
        self.pending[call_id] = {"call_id": call_id, "tool": tool, "arguments": call.arguments}
        self._arguments(call, call.arguments if self._held else "", last=True)
        self._start_tool(call_id, tool, call.label)

    def _arguments(self, call: Call, piece: str, *, last: bool = False) -> None:
        delta = self._halves.join(str(call.number), piece, last=last)
        if delta and self._with_arguments:
            self._say("tool.arguments.delta", tool=as_text(call.name), call_id=as_text(call.id), delta=delta)

    def _start_tool(self, call_id: str, tool: str, preview: Any) -> None:
        self._running[call_id] = tool, self._now_us
        self._say("tool.started", tool=as_text(tool), call_id=as_text(call_id), preview=as_text(preview))

    def _end_tool(self, call_id: str, tool: str, error: Any, duration: Any = None) -> None:
        _, started_us = self._running.pop(call_id, (tool, self._now_us))
        seconds = round(as_number(duration, max(0, self._now_us - started_us) / 1e6), 3)
        self._say("tool.completed", tool=as_text(tool), call_id=as_text(call_id), duration=seconds, error=bool(error))

    def _count(self, counts: Mapping[str, Any]) -> None:
        """Add the token counts of a turn."""
        added = tokens(counts)
        before = self.usage if self.turn > 1 else dict.fromkeys(added or (), 0)
        self.usage = {name: before[name] + number for name, number in added.items()} if added and before else None

    def _close(self, status: str, **fields: Any) -> None:
        self.status, self.error = status, fields.get("error", "")
        self.pending.clear()
        self._say(f"run.{status}", **fields)
