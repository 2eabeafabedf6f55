"""Streams as a person reads them in a terminal: a table of rows, a summary, events, and a text while it comes"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from wiretape.events.core.model import (
    Ended,
    Event,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolProgress,
    UpstreamError,
)
from wiretape.events.emission.emit import Emitter
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record

from ..config.layers import DEFAULT
from ..config.show import Row
from ..store.catalogue_row import StreamRow
from ..store.folder import LIVE

__all__ = [
    "ID_CHARS",
    "Saying",
    "console",
    "event_json",
    "event_line",
    "events_of",
    "row_json",
    "settings_table",
    "summary_view",
    "table_of",
]

#: What a terminal must not be told by a model: everything that moves a cursor, and what turns text around.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_PREVIEW_CHARS: Final = 100
#: Of an id in a table: 60 of its 128 bits, which every verb takes for the whole.
ID_CHARS: Final = 12
_WIDTH_UNKNOWN: Final = 160
_GOOD: Final = "completed"


def console(*, stderr: bool = False) -> Console:
    """Plain where it is no terminal; nothing in a text is taken for markup."""
    said = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)
    if not said.is_terminal:
        said.width = _WIDTH_UNKNOWN  # whoever reads a pipe wants whole lines
    return said


def events_of(records: Iterable[Record]) -> Iterator[tuple[int, Event]]:
    """Each event, and when its record came: that may be a few records before the one that told it."""
    seen: list[Event] = []
    times: dict[int, int] = {}
    emitter = Emitter(sink=seen.append)
    for record in records:
        times[record.n] = record.t
        emitter.feed(record)
        for event in seen:
            yield times.get(event.n, record.t), event
        seen.clear()


# -- many streams -----------------------------------------------------------------------------------------------------


def row_json(row: StreamRow) -> dict[str, Any]:
    """One row of `ls --json`."""
    said = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    said["id"] = said.pop("stream")
    return {"id": said.pop("id"), "live": not row.ending, **said, "ending": row.ending or None, "usage": None} | (
        {} if row.usage is None else {"usage": row.usage}
    )


def table_of(rows: Sequence[StreamRow]) -> Table:
    """One line a stream."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("stream", no_wrap=True)
    table.add_column("when", no_wrap=True)
    table.add_column("route", no_wrap=True, max_width=12)
    table.add_column("model", no_wrap=True, max_width=24)
    table.add_column("ending", no_wrap=True)
    table.add_column("in/out", justify="right", no_wrap=True)
    table.add_column("first", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.stream[:ID_CHARS],
            _when(row.created)[5:] or "-",
            _clean(row.route) or "-",
            _clean(row.model) or "-",
            _ending(row.ending or LIVE, row.flags),
            f"{_count(row.input_tokens)}/{_count(row.output_tokens)}",
            _seconds(row.first_content_us),
            _seconds(row.duration_us),
        )
    return table


def settings_table(rows: Iterable[Row]) -> Table:
    """One line a setting."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("setting", "value", "from"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(row.name, row.value or "-", Text(row.origin, style="dim" if row.origin == DEFAULT else "cyan"))
    return table


# -- one stream -------------------------------------------------------------------------------------------------------


def summary_view(said: Mapping[str, Any], without_end: str = LIVE) -> RenderableType:
    """The JSON of `summary.py`, made with `whole`, and what the stream is called if it has no ending."""
    parts: list[RenderableType] = [_facts(said, without_end)]
    parts += [Text(f"⚠ {line}", style="bold red") for line in _warnings(said)]
    if said["tools"]:
        parts += [Text(), _tools(said["tools"])]
    answers: list[dict[str, Any]] = said["message"]["answers"] if said["message"] else []
    for answer in answers:
        for name in ("reasoning", "text", "refusal"):
            if answer[name]:
                which = f"{name} of answer {answer['index']}" if answer["index"] else name
                parts += [Text(), Text(which, style="bold"), Text(_clean(answer[name]))]
    return Group(*parts)


def _facts(said: Mapping[str, Any], without_end: str) -> Table:
    timing, received = said["timing"], said["received"]
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    dialect = said["dialect"] or "no dialect"
    rows: list[tuple[str, str | Text]] = [
        ("stream", said["id"]),
        ("when", _when(said["created"] or 0)),
        ("asked", f"{_clean(str(said['model'] or '-'))}, {dialect}, profile {said['profile']}"),
        ("ending", _ending(said["ending"] or without_end, said["flags"])),
    ]
    rows += [(f"attempt {number}", _attempt(keys)) for number, keys in enumerate(said["attempts"], 1)]
    first, pause = _seconds(timing["first_content_us"]), _seconds(timing["longest_pause_us"])
    rows += [
        ("timing", f"first content {first}, longest pause {pause}, whole {_seconds(timing['duration_us'])}"),
        ("received", f"{received['bytes']} bytes in {received['frames']} frames"),
    ]
    if said["usage"]:
        rows.append(
            ("usage", ", ".join(f"{name} {count}" for name, count in said["usage"].items() if type(count) is int))
        )
    if said["repairs"]:
        rows.append(("repairs", ", ".join(f"{name} {count}x" for name, count in said["repairs"].items())))
    rows += [("damage", f"byte {damage['at']}: {damage['reason']}") for damage in said["damage"]]
    for name, value in rows:
        table.add_row(name, value)
    return table


def _attempt(keys: Mapping[str, Any]) -> str:
    known = {
        name: keys[name] for name in ("upstream", "url", "status", "ending", "message") if keys.get(name) is not None
    }
    return _clean(", ".join(f"{name} {value}" for name, value in known.items())) or "-"


def _warnings(said: Mapping[str, Any]) -> Iterator[str]:
    for warning in said["warnings"]:
        names = ", ".join(
            _clean(f"{call['name'] or 'a tool without a name'} ({call['id']})") for call in warning["calls"]
        )
        yield f"{warning['code']}: {names} was cut short, nothing was executed" if names else warning["code"]


def _tools(calls: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("tool", "call", "state", "took", "answered by", "arguments"):
        table.add_column(name, overflow="fold")
    for call in calls:
        state = f"{call['state']} ({call['reason']})" if call["reason"] else call["state"]
        lost = call["state"] in ("dropped", "malformed", "failed", "abandoned")
        told = Text(state, style="red" if lost else "green")
        took = "-" if call["duration_ms"] is None else f"{call['duration_ms'] / 1e3:.2f}s"
        by = (call["answered_by"] or "-")[:ID_CHARS]
        table.add_row(_clean(call["name"]), _clean(call["id"]), told, took, by, _clean(call["arguments"]))
    return table


# -- one event --------------------------------------------------------------------------------------------------------


def event_json(t: int, event: Event) -> dict[str, Any]:
    """One line of `--json`."""
    said = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    named = {name: _as_text(value) for name, value in said.items() if name != "n"}
    return {"n": event.n, "t": t, "event": _word(event), **named}


def event_line(t: int, event: Event) -> str:
    """One line for a person."""
    fields = [field.name for field in dataclasses.fields(event) if field.name != "n"]
    said = " ".join(f"{name}={_short(getattr(event, name))}" for name in fields)
    return _clean(f"{event.n:>6} {t / 1e6:>10.3f}s  {_word(event):<24}{said}")


class Saying:
    """`say` gives what an event adds to a text that is read while it comes."""

    def __init__(self) -> None:
        self._wire = Wire()
        self._kind: type[Event] | None = None

    def say(self, event: Event) -> str:
        """The next piece."""
        self._wire.apply(event)
        match event:
            case TextDelta() | ReasoningDelta() | RefusalDelta():
                return self._turn(event, f"[{_word(event).split('_')[0]}] ") + _clean(event.text)
            case ToolCallStarted():
                return self._turn(event, f"[tool] {_clean(event.name)} ", again=True)
            case ToolArgumentsDelta():
                return _clean(event.text)
            case ToolProgress():
                return self._turn(event, f"[tool] {_clean(event.name)} {_clean(event.status)}", again=True)
            case UpstreamError():
                return self._turn(event, f"[error] {_clean(event.message)}")
            case Ended():
                lost = [call.name for call in self._wire.all_calls() if call.state.value in ("dropped", "malformed")]
                names = f" (lost: {_clean(', '.join(lost))})" if lost else ""
                return self._turn(event, f"[{event.ending}]{names}") + "\n"
            case _:
                return ""

    def _turn(self, event: Event, head: str, *, again: bool = False) -> str:
        """A line of its own where something else begins."""
        before, self._kind = self._kind, type(event)
        if before is type(event) and not again:
            return ""
        return ("" if before is None else "\n") + ("" if head == "[text] " else head)


# -- words ------------------------------------------------------------------------------------------------------------


def _word(event: Event) -> str:
    """The class in lower case: tool_call_started."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", type(event).__name__).lower()


def _clean(text: str) -> str:
    return _CONTROLS.sub("\ufffd", text).encode("utf-8", "replace").decode()


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= _PREVIEW_CHARS else said[: _PREVIEW_CHARS - 1] + "…"


def _as_text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _ending(ending: str, flags: Sequence[str]) -> Text:
    said = ", ".join([ending, *(flag.replace("_", " ") for flag in flags)])
    return Text(_clean(said), style={_GOOD: "green", LIVE: "cyan"}.get(ending, "bold red"))


def _when(created: int) -> str:
    return datetime.fromtimestamp(created, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S") if created else "-"


def _seconds(us: int | None) -> str:
    return "-" if us is None else f"{us / 1e6:.2f}s"


def _count(tokens: int | None) -> str:
    return "-" if tokens is None else str(tokens)
