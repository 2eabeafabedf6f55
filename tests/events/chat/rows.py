"""The form of the table that covers the dialect catalogue: what came, what goes out, events and ledger.

Every stream in these tables is written by us and synthetic; none is a capture.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.chat import HEAD, Run, run, sse, tape
from wiretape.events.core.json_text import joined_surrogates
from wiretape.events.core.model import ReasoningDelta, RefusalDelta, TextDelta
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record

ASKED_FOR_USAGE: dict[str, Any] = {"stream": True, "model": "m", "stream_options": {"include_usage": True}}

#: Name, number of the frame that came (from 0, the end after the last), and the path and key of the member: empty for
#: whole frames and notes, and shortened by `SHORT`.
Entry = tuple[str, int, str]
SHORT = {"choices.0.delta.tool_calls.0.": "call.", "choices.0.delta.": "delta.", "choices.0.": "choice."}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case. `sent` names the frames that go out: a number is that frame of `came`, as the very object.

    Without `sent`, every frame passes.
    """

    #: `Q15 and a sentence`.
    id: str
    came: list[bytes]
    sent: Sequence[bytes | int] | None = None
    ledger: list[Entry] = field(default_factory=list[Entry])
    text: str = ""
    thought: str = ""
    #: Id, name, arguments, state at the end.
    calls: list[tuple[str, str, str, str]] = field(default_factory=list[tuple[str, str, str, str]])
    #: Without one: `tool_calls` where there are calls, else `stop`.
    finish: tuple[str, ...] | None = None
    usage: dict[str, Any] | None = None
    ending: str = "completed"
    flags: tuple[str, ...] = ()
    request: dict[str, Any] | None = None
    cause: str = "eof"
    body: bool = False
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    def tape(self, reads: int | None = None) -> list[Record]:
        """The records; lifecycle frames are off unless the case is about them."""
        settings: dict[str, Any] = {"tool_events": False, **self.settings}
        return tape(self.came, request=self.request, cause=self.cause, reads=reads, body=self.body, **settings)


def check(row: Row) -> None:
    """Everything that a case says, and law L1 on top."""
    result = run(row.tape())
    sent = range(len(row.came)) if row.sent is None else row.sent
    assert result.sent == [row.came[frame] if isinstance(frame, int) else frame for frame in sent]
    frames = [record for record in result.records if record.kind == "frame"]
    objects = {id(frame) for frame in result.sent}
    assert all(id(frames[frame].raw) in objects for frame in sent if isinstance(frame, int))
    assert entries(result) == row.ledger
    usual = ("tool_calls",) if row.calls else ("stop",)
    finished = usual if row.finish is None else row.finish
    assert meaning(result) == (row.text, row.thought, row.calls, finished, row.usage)
    assert (result.ended.ending, result.ended.flags) == (row.ending, row.flags)
    assert emit(row.tape(reads=1)) == result.out
    assert emit(row.tape(reads=7)) == result.out


def entries(result: Run) -> list[Entry]:
    """The ledger in the form of a row."""
    found: list[Entry] = []
    for entry in result.ledger:
        path = "" if entry.key is None else ".".join(map(str, (*entry.path, entry.key)))
        long = next((prefix for prefix in SHORT if path.startswith(prefix)), "")
        found.append((entry.repair, entry.n - 2, SHORT.get(long, "") + path.removeprefix(long)))
    return found


def meaning(result: Run) -> tuple[str, str, list[tuple[str, str, str, str]], tuple[str, ...], dict[str, Any] | None]:
    """What the events say, in the fields of a row."""
    calls = [(call.id, call.name, call.arguments, call.state.value) for call in result.wire.calls()]
    return (
        text_of(result, TextDelta) + text_of(result, RefusalDelta),
        text_of(result, ReasoningDelta),
        calls,
        tuple(choice.finish for _, choice in sorted(result.wire.choices.items())),
        result.wire.usage,
    )


def text_of(result: Run, kind: type[TextDelta] | type[ReasoningDelta] | type[RefusalDelta]) -> str:
    """All text of one kind."""
    return joined_surrogates("".join(event.text for event in result.events if isinstance(event, kind)))


def after(frame: bytes, *changes: tuple[bytes, bytes]) -> bytes:
    """The frame with each first part replaced, once and at the first place."""
    for before, new in changes:
        assert before in frame
        frame = frame.replace(before, new, 1)
    return frame


def usage(**counts: int) -> bytes:
    """A usage-only chunk."""
    return sse({**HEAD, "choices": [], "usage": counts})


def tools(*names: str, **members: Any) -> dict[str, Any]:
    """A request with these tools."""
    return {
        "stream": True,
        "model": "m",
        "tools": [{"type": "function", "function": {"name": name}} for name in names],
        **members,
    }


def dropped(call_id: str, name: str, arguments: str, why: str) -> bytes:
    """The lifecycle frame of a call that is given up."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {}, "finish_reason": None}]
    told = {"tool": name, "toolCallId": call_id, "status": "dropped", "input": arguments, "reason": why}
    return b"event: hermes.tool.progress\n" + sse({**HEAD, "choices": choices, **told})


def error(message: str, kind: str, code: str, *calls: tuple[str, str]) -> bytes:
    """The frame that ends a stream which must not be taken for whole."""
    tools_lost = [{"id": call_id, "name": name} for call_id, name in calls]
    return sse({"error": {"message": message, "type": kind, "code": code, "dropped_tools": tools_lost}})


def malformed(call_id: str, name: str) -> bytes:
    """The same for one call that is not JSON."""
    fault = f"the arguments of {name} are not valid JSON" if name else "a call has no name"
    message = f"⚠ Malformed tool call: {fault}."
    return error(f"{message} Not completed; no result seen.", "malformed_call", "malformed_call", (call_id, name))
