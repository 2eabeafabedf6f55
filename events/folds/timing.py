"""When things came: first byte, first and last content, and the longest silences, with and without progress."""

from typing import Final

from ..core.model import (
    AttemptStarted,
    Ended,
    Event,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
)

__all__ = ["Timing"]

_PROGRESS: Final = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallStarted, ToolNameDelta, ToolArgumentsDelta)


class Timing:
    """`apply` every event in order, with the time of its record (microseconds since `open`); tell it of signs of life.

    What is no content has no event, or none at its time, so of life the caller says: `alive`.
    """

    def __init__(self) -> None:
        self.first_event_us: int | None = None
        self.first_content_us: int | None = None
        self.last_content_us: int | None = None
        #: Between two signs of life, and between two pieces of content; the end ends both.
        self.longest_silence_us = 0
        self.longest_pause_us = 0
        self._last_life_us: int | None = None

    def alive(self, t: int) -> None:
        """The upstream was asked, said something, or was done with."""
        if self._last_life_us is not None:
            self.longest_silence_us = max(self.longest_silence_us, t - self._last_life_us)
        self._last_life_us = t

    def apply(self, event: Event, t: int) -> None:
        """The next event."""
        if self.first_event_us is None:
            self.first_event_us = t
        if isinstance(event, AttemptStarted | Ended):
            self.alive(t)
        progress = isinstance(event, _PROGRESS)
        if self.last_content_us is not None and (progress or isinstance(event, Ended)):
            self.longest_pause_us = max(self.longest_pause_us, t - self.last_content_us)
        if not progress:
            return
        if self.first_content_us is None:
            self.first_content_us = t
        self.last_content_us = t
