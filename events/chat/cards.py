"""The frames about tool calls that we add: of each call what its client may know, of internal tools nothing"""

from collections.abc import Callable, Iterable, Mapping

from ..core.lifecycle import STATUS_ON_WIRE
from ..core.limits import CALL_ID_CHARS_MAX
from ..core.model import ToolResultSeen
from ..core.settings import Settings
from ..emission.ledger import Ledger
from ..emission.outbox import Outbox
from ..folds.wire import Call
from . import write

__all__ = ["Cards"]


class Cards:
    """Of one stream; who calls it has seen to law L7. An envelope is asked for where there is a frame, and not kept."""

    def __init__(self, settings: Settings, ledger: Ledger, outbox: Outbox) -> None:
        self._settings = settings
        self._ledger = ledger
        self._outbox = outbox

    def of_calls(
        self, n: int, calls: Iterable[Call], ran: Mapping[str, Call], envelope: Callable[[], write.Envelope]
    ) -> None:
        """That they run, or are lost; of what the upstream ran itself, `ran`, it has told."""
        if not self._settings.tool_events:
            return
        for call in calls:
            status = STATUS_ON_WIRE.get(call.state)
            if status is None or not call.name or ran.get(call.id, call) is not call:
                continue
            if call.internal:
                self._ledger.flagged(n, "internal_tool")
            elif len(call.id) > CALL_ID_CHARS_MAX:
                self._ledger.flagged(n, "call_id_long")
            else:
                frame = write.lifecycle_of_call(envelope(), call, status, emoji=self._settings.emoji)
                self._outbox.add(n, "lifecycle", frame)

    def of_results(self, n: int, results: Iterable[ToolResultSeen], envelope: Callable[[], write.Envelope]) -> None:
        """How calls of the turn before came out."""
        for result in results:
            self._outbox.add(n, "lifecycle", write.lifecycle_of_result(envelope(), result, emoji=self._settings.emoji))
