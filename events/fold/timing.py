"""When things came: first byte, first and last content, and the longest silences, with and without progress."""

from typing import Final

from ..model import Event, ReasoningDelta, RefusalDelta, TextDelta, ToolArgumentsDelta, ToolCallStarted, ToolNameDelta

__all__ = ["Timing"]

_PROGRESS: Final = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallStarted, ToolNameDelta, ToolArgumentsDelta)


class Timing:
    """`apply` every event in order, with the time of its record (microseconds since `open`)."""

    def __init__(self) -> None:
        self.first_event_us: int | None = None
        self.first_content_us: int | None = None
        self.last_content_us: int | None = None
        #: Between two events of any kind, and between two pieces of content: life and progress.
        self.longest_silence_us = 0
        self.longest_pause_us = 0
        self._last_event_us: int | None = None

    def apply(self, event: Event, t: int) -> None:
        """The next event."""
        if self._last_event_us is None:
            self.first_event_us = t
        else:
            self.longest_silence_us = max(self.longest_silence_us, t - self._last_event_us)
        self._last_event_us = t
        if not isinstance(event, _PROGRESS):
            return
        if self.last_content_us is None:
            self.first_content_us = t
        else:
            self.longest_pause_us = max(self.longest_pause_us, t - self.last_content_us)
        self.last_content_us = t
