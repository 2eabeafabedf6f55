"""Streams on the command line: shown as a table, a summary, events, or text as it arrives."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from wiretape.events.core.json_text import ABSENT, as_list, as_object, parse
from wiretape.events.core.model import (
    AttemptStarted,
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
from wiretape.events.emit import Emitter
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record

from ..config.load import DEFAULT, Row
from ..explain import CAUSES, attempt_of, sentence_of
from ..store.catalogue_row import StreamRow
from ..store.folder import LIVE, is_stream_id
from .common import escaped
from .tapes import NO_END

__all__ = [
    "ID_CHARS",
    "TextView",
    "TimedEvents",
    "console",
    "event_json",
    "event_line",
    "events_of",
    "facts_table",
    "seconds",
    "settings_table",
    "summary_view",
    "table",
    "table_of",
    "when",
]

_PREVIEW_CHARS: Final = 100
#: Of the last message of a request.
_MESSAGE_CHARS: Final = 300
#: Characters of an id in a table: 60 of its 128 bits, which every verb accepts.
ID_CHARS: Final = 12
_PIPE_WIDTH: Final = 160
#: The most characters of some columns.
_WIDTHS: Final = {"route": 12, "model": 24, "lost": 24}
_LOST: Final = ("dropped", "malformed", "failed", "abandoned", "unknown")


def console() -> Console:
    """Return a console that prints plain, whole lines into a pipe and never reads text as markup."""
    made = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)
    if not made.is_terminal:
        made.width = _PIPE_WIDTH
    return made


def events_of(records: Iterable[Record]) -> Iterator[tuple[int, Event]]:
    """Yield each event with the time of its record, which may be a few records before the one that revealed it."""
    timed = TimedEvents()
    for record in records:
        yield from timed.feed(record)


class TimedEvents:
    """The events of a tape: `feed` its records in order."""

    def __init__(self) -> None:
        self._seen: list[Event] = []
        self._times: dict[int, int] = {}
        self._emitter = Emitter(sink=self._seen.append)

    def feed(self, record: Record) -> Iterator[tuple[int, Event]]:
        """Yield the events that this record reveals, each with its time."""
        self._times[record.n] = record.t
        self._emitter.feed(record)
        for event in self._seen:
            if isinstance(event, Ended) and "ending" in record.keys:  # of a damaged tape the end knows more
                event = replace(event, ending=record.keys["ending"])  # noqa: PLW2901
            yield self._times.get(event.n, record.t), event
        self._seen.clear()


# -- tables -----------------------------------------------------------------------------------------------------------


def table(*names: str, right: Sequence[str] = (), whole: bool = False) -> Table:
    """Return a table with these columns, those on the `right` last; the cells of a `whole` one are cut, not folded."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in (*names, *right):
        width = _WIDTHS.get(name) if whole else None
        made.add_column(
            name, no_wrap=whole, justify="right" if name in right else "left", overflow="fold", max_width=width
        )
    return made


def table_of(rows: Sequence[StreamRow]) -> Table:
    """Return a table of streams."""
    names = "stream", f"when ({when(1, '%Z')})", "route", "model", "ending", "lost"
    made = table(*names, right=("in/out", "first", "took"), whole=True)
    for row in rows:
        tokens = ("-" if count is None else str(count) for count in (row.input_tokens, row.output_tokens))
        lost = dict.fromkeys(name or "a tool" for name, state in row.tools if state in ("dropped", "malformed"))
        made.add_row(
            row.stream[:ID_CHARS] if is_stream_id(row.stream) else escaped(row.stream),
            when(row.created),
            escaped(row.route) or "-",
            escaped(row.model) or "-",
            _ending(row.ending or LIVE, row.flags),
            Text(escaped(", ".join(lost)) or "-", style="bold red" if lost else ""),
            "/".join(tokens),
            seconds(row.first_content_us),
            seconds(row.duration_us),
        )
    return made


def settings_table(rows: Iterable[Row]) -> Table:
    """Return a table of settings."""
    made = table("setting", "value", "from")
    for row in rows:
        origin = Text(escaped(row.origin), style="dim" if row.origin == DEFAULT else "cyan")
        made.add_row(row.name, escaped(row.value) or "-", origin)
    return made


# -- one stream -------------------------------------------------------------------------------------------------------


def summary_view(summary: Mapping[str, Any], request: Record | None = None) -> RenderableType:
    """Render the JSON of a summary made with `whole`, and the request if it is given."""
    timing, received = summary["timing"], summary["received"]
    how = f"{summary['dialect']}, profile {summary['profile']}" if summary["dialect"] else "relayed as it came"
    asked = [f"{summary['model'] or '-'}, {how}", *(_asked(request) if request is not None else ())]
    ending = _ending(summary["ending"] or (LIVE if summary["live"] else NO_END), summary["flags"])
    lost = any(call["state"] in ("dropped", "malformed") for call in summary["tools"])
    if (lost or summary["ending"] != "completed") and (sentence := sentence_of(summary)):
        ending.append(f"\n{escaped(sentence)}", style="not bold default")
    first, pause, whole = (seconds(timing[name]) for name in ("first_content_us", "longest_pause_us", "duration_us"))
    rows: list[tuple[str, str | Text]] = [
        ("stream", summary["id"]),
        ("when", when(summary["created"] or 0, "%Y-%m-%d %H:%M:%S %Z")),
        ("requested", "\n".join(asked)),
        ("ending", ending),
    ]
    if (cause := summary["cause"]) not in (None, "eof", summary["ending"]) and summary["ending"] != "completed":
        rows.append(("cause", CAUSES.get(cause, str(cause))))
    if error := summary["error"]:
        rows.append(("error", ": ".join(filter(None, (error["code"], error["message"])))))
    rows += [
        *((f"attempt {number}", attempt_of(keys)) for number, keys in enumerate(summary["attempts"], 1)),
        ("timing", f"first content {first}, longest pause {pause}, whole {whole}"),
        ("received", f"{received['bytes']} bytes in {received['frames']} frames"),
    ]
    if usage := summary["usage"]:
        rows.append(("usage", ", ".join(f"{name} {count}" for name, count in usage.items() if type(count) is int)))
    if repairs := summary["repairs"]:
        rows.append(("repairs", ", ".join(f"{name} {count}x" for name, count in repairs.items())))
    rows += [("damage", f"byte {damage['at']}: {damage['reason']}") for damage in summary["damage"]]
    parts: list[RenderableType] = [facts_table(rows)]
    for warning in summary["warnings"]:
        calls = ", ".join(f"{call['name'] or 'a tool'} ({call['id'] or '-'})" for call in warning["calls"])
        parts.append(Text(escaped(f"⚠ {warning['code']}{calls and ': '}{calls}"), style="bold red"))
    if summary["tools"]:
        parts += [Text(), _tools(summary["tools"])]
    for answer in summary["message"]["answers"] if summary["message"] else ():
        for name in ("reasoning", "text", "refusal"):
            if answer[name]:
                title = f"{name} of answer {answer['index']}" if answer["index"] else name
                parts += [Text(), Text(title, style="bold"), Text(escaped(answer[name]))]
    return Group(*parts)


def facts_table(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """Return names with their values, without those that have none."""
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in rows:
        if value:
            facts.add_row(name, escaped(value) if isinstance(value, str) else value)
    return facts


def _asked(request: Record) -> Iterator[str]:
    """Yield where a request went, the last message, and the tools that it offered."""
    yield f"{request.keys.get('method')} {request.keys.get('path')}"
    body = as_object(parse(request.raw or b""))
    said: Any = body.get("messages") or body.get("input") or body.get("prompt")
    last: Any = [said, *as_list(said)][-1]
    message = as_object(last)
    content: Any = message.get("content", message.get("output")) if message else last
    parts = map(as_object, as_list(content))
    texts = (
        [content] if isinstance(content, str) else [str(part.get("text", f"[{part.get('type')}]")) for part in parts]
    )
    if text := " ".join(" ".join(texts).split()):
        shown = text if len(text) <= _MESSAGE_CHARS else text[: _MESSAGE_CHARS - 1] + "…"
        yield f"{message.get('role') or message.get('type') or 'user'}: {shown}"
    tools = as_object(request.keys.get("facts")).get("tools")
    if tools := ", ".join(map(str, as_list(tools))):
        yield f"tools: {tools}"


def _known(call: Mapping[str, Any]) -> str:
    """Return what is known of a call, and no more: a client may run what it should not."""
    state, reason = str(call["state"]), f" ({call['reason']})" if call["reason"] else ""
    if state == "unknown":
        return "the tape is damaged here"
    if call["run_by"] == "upstream":
        return "end not reported" + reason if state == "dropped" else f"{state} at the upstream"
    if state in ("dropped", "malformed"):
        by = (call["answered_by"] or "")[:ID_CHARS]
        return f"not completed{reason}; " + (
            f"executed by the client (result in stream {by})" if by else "no result seen"
        )
    return {"running": "handed over; no result seen", "abandoned": "abandoned; no result seen"}.get(state, state)


def _tools(calls: Sequence[Mapping[str, Any]]) -> Table:
    made = table("tool", "call", "state", "took", "answered by", "arguments")
    for call in calls:
        made.add_row(
            escaped(call["name"]),
            escaped(call["id"]),
            Text(escaped(_known(call)), style="red" if call["state"] in _LOST else "green"),
            "-" if call["duration_ms"] is None else f"{call['duration_ms'] / 1e3:.2f}s",
            (call["answered_by"] or "-")[:ID_CHARS],
            escaped(call["arguments"]),
        )
    return made


# -- events -----------------------------------------------------------------------------------------------------------


def event_json(t: int, event: Event) -> dict[str, Any]:
    """Return one line of `--events --json`."""
    members = {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value for name, value in _members(event)
    }
    return {"n": event.n, "t": t, "event": _word(event), **members}


def event_line(t: int, event: Event) -> str:
    """Return one line of `--events`."""
    members = " ".join(f"{name}={_short(value)}" for name, value in _members(event))
    return f"{event.n:>6} {t / 1e6:>10.3f}s  {_word(event):<24}{members}"


def _members(event: Event) -> Iterator[tuple[str, Any]]:
    """Yield an event's members; what a repair added has no `before`, what it removed no `after`."""
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name != "n" and value is not ABSENT:
            yield field.name, value


class TextView:
    """A stream as text that is read while it arrives; `add` returns what an event adds to it."""

    def __init__(self) -> None:
        self._wire = Wire()
        self._kind: type[Event] | None = None

    def add(self, event: Event) -> str:
        """Return the next piece."""
        if isinstance(event, AttemptStarted):
            self._wire = Wire()
        self._wire.apply(event)
        match event:
            case TextDelta() | ReasoningDelta() | RefusalDelta():
                return self._turn(event, f"[{_word(event).split('_')[0]}] ") + escaped(event.text)
            case ToolCallStarted():
                return self._turn(event, f"[tool] {escaped(event.name)} ", always=True)
            case ToolArgumentsDelta():
                return escaped(event.text)
            case ToolProgress():
                return self._turn(event, f"[tool] {escaped(event.name)} {escaped(event.status)}", always=True)
            case UpstreamError():
                return self._turn(event, f"[error] {escaped(event.message)}")
            case Ended():
                lost = [call.name for call in self._wire.all_calls() if call.state.value in ("dropped", "malformed")]
                names = f" (lost: {escaped(', '.join(lost))})" if lost else ""
                return self._turn(event, f"[{event.ending}]{names}") + "\n"
            case _:
                return ""

    def _turn(self, event: Event, head: str, *, always: bool = False) -> str:
        """Begin a new line where another kind of event begins."""
        before, self._kind = self._kind, type(event)
        if before is type(event) and not always:
            return ""
        return ("" if before is None else "\n") + ("" if head == "[text] " else head)


def _word(event: Event) -> str:
    """Return the name of the class in snake case: tool_call_started."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", type(event).__name__).lower()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _PREVIEW_CHARS else text[: _PREVIEW_CHARS - 1] + "…"


def _ending(ending: str, flags: Sequence[str]) -> Text:
    words = ", ".join([ending, *(flag.replace("_", " ") for flag in flags)])
    return Text(escaped(words), style={"completed": "green", LIVE: "cyan"}.get(ending, "bold red"))


def when(created: int, form: str = "%m-%d %H:%M:%S") -> str:
    """Return a time of this machine's zone; `%Z` names the zone."""
    return datetime.fromtimestamp(created, UTC).astimezone().strftime(form) if created else "-"


def seconds(us: int | None) -> str:
    return "-" if us is None else f"{us / 1e6:.2f}s"
