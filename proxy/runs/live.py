"""One run in memory: as far as its tapes have been read, with its latest events for all viewers."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

import trio
from trio.lowlevel import ParkingLot

from wiretape.events.emit import RunReader
from wiretape.events.folds.run_events import CLOSED
from wiretape.events.tape.record import Record

from ..limits import WINDOW_BYTES_MAX
from .relayed import RelayedRun

__all__ = ["Live"]


class Live:
    """One run. Those that run or are watched are kept by `Runs`; all others are read when they are wanted."""

    def __init__(self, run_id: str, caller: str, route: str) -> None:
        self.run_id = run_id
        self.caller = caller
        self.route = route
        self.reader = RunReader()
        self.fold = self.reader.run
        #: The stream of the turn that runs here, and that of one that runs on another machine.
        self.running = self.elsewhere = ""
        #: The upstream's own run, of which that stream has the events.
        self.relayed: RelayedRun | None = None
        #: It was to be stopped, and why.
        self.stopped = ""
        #: Nothing more will come, as far as this process knows.
        self.over = False
        self.viewers = 0
        #: When the last viewer left or the turn began, and when an event came or a comment was due.
        self.alone_since = self.spoke_at = trio.current_time()
        #: Grows with each silence, after which every viewer gets a comment.
        self.silences = 0
        self.news = ParkingLot()
        #: What reads the turns of other machines, while viewers wait for them.
        self.watching: trio.CancelScope | None = None
        #: The tape that was read last, its next record, and whether it was read to its end.
        self.stream: str = ""
        self.whole = False
        self._next_n = 0
        #: The sequence of the first event in the window.
        self.first = 1
        self._window: deque[bytes] = deque()
        self._window_bytes = 0

    @property
    def idle(self) -> bool:
        """Whether no turn runs."""
        return not (self.running or self.elsewhere)

    @property
    def closed(self) -> bool:
        """Whether the run is over."""
        return self.fold.status in CLOSED

    @property
    def status(self) -> str:
        """The state for answers to requests that would change it."""
        return "stopping" if self.stopped and not self.closed else self.fold.status

    def last_n(self, stream: str) -> int:
        """Return the last record of a tape that was read, 0 for none."""
        return max(0, self._next_n - 1) if stream == self.stream else 0

    def read(self, stream: str, records: Sequence[Record]) -> None:
        """Read further records of a turn and wake the viewers for their events. What was read before is left out."""
        if stream != self.stream:
            if stream in self.fold.streams:
                return
            self.stream, self._next_n = stream, 0
        if records[0].n < self._next_n:
            records = [record for record in records if record.n >= self._next_n]
        if not records:
            return
        self._next_n, self.whole = records[-1].n + 1, records[-1].kind == "end"
        if self.whole:
            self.elsewhere = ""
        frames = self.reader.feed(*records)
        if not frames:
            return
        window = self._window
        window += frames
        self._window_bytes += sum(map(len, frames))
        while self._window_bytes > WINDOW_BYTES_MAX:
            self._window_bytes -= len(window.popleft())
        self.first = self.fold.sequence + 1 - len(window)
        self.spoke_at = trio.current_time()
        self.news.unpark_all()

    def since(self, sequence: int) -> bytes:
        """Return the events after this one; those up to the window's beginning are on the tapes only."""
        missing = self.fold.sequence - sequence
        if missing == 1:
            return self._window[-1]
        return b"".join(islice(self._window, len(self._window) - missing, None)) if missing > 0 else b""

    def note_silence(self) -> None:
        """Let every viewer send a comment."""
        self.silences += 1
        self.spoke_at = trio.current_time()
        self.news.unpark_all()

    def end(self) -> None:
        """Let all viewers go."""
        self.over = True
        self.news.unpark_all()
