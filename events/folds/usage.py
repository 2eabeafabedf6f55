"""What the answer cost: the last token counts that the upstream gave, never a sum and never an estimate."""

from typing import Any

from ..core.model import AttemptStarted, Event, Usage

__all__ = ["UsageFold"]


class UsageFold:
    """`apply` every event in order."""

    def __init__(self) -> None:
        #: As the upstream wrote them; None where it gave none.
        self.counts: dict[str, Any] | None = None

    def apply(self, event: Event) -> None:
        """The next event."""
        if isinstance(event, Usage):
            self.counts = event.counts
        elif isinstance(event, AttemptStarted):
            self.counts = None
