"""Lifecycle frames: which tool calls and results are reported to a client, and the picture of a tool."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ..core.json_text import as_list, as_object
from ..core.lifecycle import STATUS_ON_WIRE
from ..core.limits import CALL_ID_CHARS_MAX, NAME_CHARS_MAX
from ..core.model import ToolResultSeen
from ..core.settings import Facts, Settings
from ..folds.wire import Call, Wire
from ..tape.record import Record
from .dialect import Writer
from .frames import Ledger, Out
from .words import preview

__all__ = ["Cards", "emoji_of"]

#: The first word of a name that is in this table decides: `read_file` reads, `web_search` is of the web.
_OF_WORD: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("bash", "exec", "execute", "powershell", "process", "run", "shell", "terminal"), "💻"),
        **dict.fromkeys(("cat", "open", "read", "view"), "📖"),
        **dict.fromkeys(("apply", "create", "edit", "insert", "patch", "replace", "save", "write"), "📝"),
        **dict.fromkeys(("delete", "remove", "rm"), "🧹"),
        **dict.fromkeys(("find", "glob", "grep", "lookup", "search"), "🔍"),
        **dict.fromkeys(("list", "ls", "tree"), "📂"),
        **dict.fromkeys(("browser", "crawl", "fetch", "http", "url", "web"), "🌐"),
        **dict.fromkeys(("calculator", "python", "sql", "query"), "🧮"),
        **dict.fromkeys(("image", "screenshot", "vision"), "🎨"),
        **dict.fromkeys(("calendar", "clock", "schedule", "time"), "⏰"),
        **dict.fromkeys(("memory", "note", "remember"), "🧠"),
        **dict.fromkeys(("plan", "task", "todo"), "📋"),
        **dict.fromkeys(("email", "mail", "message", "send", "slack"), "📨"),
        **dict.fromkeys(("agent", "delegate", "handoff"), "🤝"),
    }
)
_OTHER: Final = "🔧"
#: `readFile`, `read-file` and `READ_FILE` are two words each.
_WORD: Final = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def emoji_of(tool: str) -> str:
    """Return a picture for a tool by the words of its name; off by default, because a picture in a log is noise."""
    words = (word.lower() for word in _WORD.findall(tool))
    return next((_OF_WORD[word] for word in words if word in _OF_WORD), _OTHER)


class Cards:
    """The lifecycle frames of one stream, none for internal tools. The live state ensures law L7."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._on = settings.tool_events
        self._emoji = settings.emoji
        self._ledger = ledger
        #: Of the request, when its record has come.
        self.facts = Facts()
        #: Results that are reported with the next frame.
        self.due: list[ToolResultSeen] = []
        #: The results that are reported in this stream, by id.
        self.reported: dict[str, ToolResultSeen] = {}

    def take(self, record: Record, *, streams: bool) -> list[ToolResultSeen]:
        """Read a `results` record and return all of its results; those of named tools are due with the next frame."""
        seen: dict[str, ToolResultSeen] = {}
        for entry in as_list(record.keys.get("results")):
            fields = as_object(entry)
            orphan = fields.get("orphan") is True
            call_id, name, output, duration = (fields.get(key) for key in ("id", "name", "output", "duration_ms"))
            if not isinstance(call_id, str) or call_id in seen:
                continue
            result = seen[call_id] = ToolResultSeen(
                n=record.n,
                id=call_id,
                name=name if isinstance(name, str) and not orphan else "",
                failed=fields.get("failed") is True,
                output=output if isinstance(output, str) else "",
                duration_ms=duration if type(duration) is int else None,
            )
            if self._on and streams and orphan:
                self._ledger.enter(record.n, "orphan_result")
            elif self._on and streams and result.name and self._shows(record.n, result):
                self.reported[call_id] = result
        self.begin()
        return list(seen.values())

    def begin(self) -> None:
        """Start another attempt: no client has seen what was sent in the last one."""
        self.due = list(self.reported.values())

    def of_results(self, n: int, choice: int, writer: Writer) -> list[Out]:
        """Return the frames of the results that are due, once."""
        due, self.due = self.due, []
        return [writer.card(n, choice, self.of_result(result)) for result in due]

    def of_calls(self, n: int, calls: Iterable[Call], live: Wire, writer: Writer) -> list[Out]:
        """Return the frames that report running or lost calls; the upstream itself reports the calls that it runs."""
        outs: list[Out] = []
        for call in calls if self._on else ():
            status = STATUS_ON_WIRE.get(call.state)
            if status and call.name and live.ran.get(call.id, call) is call and self._shows(n, call):
                outs.append(writer.card(n, call.choice, self.of_call(call, status)))
        return outs

    def of_call(self, call: Call, status: str) -> dict[str, Any]:
        """Return the members of the frame that reports the state of a call."""
        reason, shown = call.reason if status == "dropped" else "", preview(call.arguments)
        return self._said(call.name, call.id, status, label=call.label, input=shown, reason=reason)

    def of_result(self, result: ToolResultSeen) -> dict[str, Any]:
        """Return the members of the frame that reports a result."""
        status, output = "failed" if result.failed else "completed", preview(result.output)
        return self._said(result.name, result.id, status, output=output, duration_ms=result.duration_ms)

    def _said(self, tool: str, call_id: str, status: str, label: str = "", **more: Any) -> dict[str, Any]:
        """Return the members of a lifecycle frame that are the same in every dialect."""
        more = {"label": label, "emoji": emoji_of(tool) if self._emoji else "", **more}
        present = {key: value for key, value in more.items() if value is not None and value != ""}
        return {"tool": tool[:NAME_CHARS_MAX], "toolCallId": call_id, "status": status, **present}

    def _shows(self, n: int, of: Call | ToolResultSeen) -> bool:
        """Return whether a call or a result is reported; enter in the ledger why it is not."""
        if self.facts.internal(of.name):
            self._ledger.enter(n, "internal_tool")
        elif len(of.id) > CALL_ID_CHARS_MAX:
            self._ledger.enter(n, "call_id_long")
        else:
            return True
        return False
