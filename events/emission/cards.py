"""Lifecycle frames: which tool calls and results are reported to a client."""

from collections.abc import Iterable

from ..core.json_text import as_list, as_object
from ..core.lifecycle import STATUS_ON_WIRE
from ..core.limits import CALL_ID_CHARS_MAX
from ..core.model import ToolResultSeen
from ..core.settings import Settings
from ..folds.wire import Call, Wire
from ..tape.record import Record
from .dialect import Writer
from .frames import Out
from .ledger import Ledger

__all__ = ["Cards"]


class Cards:
    """The lifecycle frames of one stream, none for internal tools. The live state has seen to law L7."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._on = settings.tool_events
        self._ledger = ledger
        self._results: list[ToolResultSeen] = []
        self._due = False
        #: The ids whose results are reported in this stream.
        self.answered: set[str] = set()

    def take(self, record: Record, *, streams: bool) -> list[ToolResultSeen]:
        """Read a `results` record and return all of its results; those of named tools are due with the next frame."""
        given = as_list(record.keys.get("results"))
        seen = _results(given, record.n)
        if self._on and streams:
            named = [result for result in seen if result.name and not result.internal]
            self._results = [result for result in named if len(result.id) <= CALL_ID_CHARS_MAX]
            self.answered.update(result.id for result in self._results)
            orphans = sum(as_object(entry).get("orphan") is True for entry in given)
            internal = sum(result.internal for result in seen)
            untold = {"call_id_long": len(named) - len(self._results), "internal_tool": internal}
            for repair, count in {**untold, "orphan_result": orphans}.items():
                for _ in range(count):
                    self._ledger.noted(record.n, repair)
        self._due = True
        return seen

    @property
    def waiting(self) -> bool:
        """Whether results are to be reported with the next frame."""
        return self._due and bool(self._results)

    def begin(self) -> None:
        """Start another attempt: no client has seen what was sent in the last one."""
        self._due = True

    def of_results(self, n: int, writer: Writer) -> list[Out]:
        """Return the frames of the results that are due, once."""
        due, self._due = self._due, False
        return [writer.result_card(n, result) for result in self._results] if due else []

    def of_calls(self, n: int, calls: Iterable[Call], live: Wire, writer: Writer) -> list[Out]:
        """Return the frames that say that calls run or are lost; the upstream itself reports the calls that it runs."""
        outs: list[Out] = []
        for call in calls if self._on else ():
            status = STATUS_ON_WIRE.get(call.state)
            if status is None or not call.name or live.ran.get(call.id, call) is not call:
                continue
            if call.internal:
                self._ledger.noted(n, "internal_tool")
            elif len(call.id) > CALL_ID_CHARS_MAX:
                self._ledger.noted(n, "call_id_long")
            else:
                outs.append(writer.call_card(n, call, status))
        return outs


def _results(given: list[object], n: int) -> list[ToolResultSeen]:
    """Return the results of a `results` record, each id once."""
    seen: dict[str, ToolResultSeen] = {}
    for entry in given:
        fields = as_object(entry)
        call_id, name, output, duration = (fields.get(key) for key in ("id", "name", "output", "duration_ms"))
        if isinstance(call_id, str) and call_id not in seen:
            seen[call_id] = ToolResultSeen(
                n=n,
                id=call_id,
                name=name if isinstance(name, str) and fields.get("orphan") is not True else "",
                failed=fields.get("failed") is True,
                output=output if isinstance(output, str) else "",
                duration_ms=duration if type(duration) is int else None,
            )
    return list(seen.values())
