"""The value of the `tape` fixture: where to send requests, what was sent and received, and what is wrong with it.

Either a recording answers, without any network, or a real proxy asks a live upstream, and its tapes become the
recording after the test has passed.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock
from typing import Any, Final, Literal

import pytest

from wiretape.events.core.errors import TapeError
from wiretape.events.core.model import Event
from wiretape.events.tape.record import Record
from wiretape.proxy.config.model import Route, Target

from ..cli.clients import base_urls
from ..cli.output import write_whole
from ..compare.bytes import ending_of
from ..compare.compare import compare, verdict
from ..compare.shape import compare_shapes
from ..compare.verify import age_of
from ..faults.faults import FaultError, Faults
from ..faults.prefixes import Prefix, Unit, prefixes_of
from ..matching.compared_request import Prepare, blank, prepare_of, request_of
from ..matching.key import key_of
from ..matching.match import Deck
from ..playback.script import Request, Script
from ..playback.transport import TapeTransport
from ..redaction.user_rules import Detector, Redaction
from ..seal import Rules, seal
from ..sealed.load import Recording, parse
from ..serving.answers import Answers
from ..serving.outcome import Fold, Outcome
from ..serving.playback import Playback, Sent
from .plan import Named, Plan, named_faults
from .thread import Proxy, Streams, Thread, stripped

__all__ = ["Tape", "paired"]

#: The most differences that a report shows.
_DIFFERENCES_MAX: Final = 20


class Tape:
    """The `tape` fixture."""

    def __init__(
        self,
        plan: Plan,
        id_: str,
        thread: Thread,
        recordings: Sequence[Recording],
        obstacle: str,
        detector: Detector | None = None,
    ) -> None:
        self.plan = plan
        #: Why the test cannot run at all, or an empty text.
        self.obstacle = obstacle or _aged(plan, recordings)
        #: Notes for the end of the run that fail nothing.
        self.notes: list[str] = []
        #: The fixtures that depend on the tape, and whether one of them may send requests in its teardown.
        self.dependents: set[str] = {"tape"}
        self.asked_later = False
        #: What was wrong after the teardown of those fixtures.
        self.late = ""
        self._passed = False
        #: What was recorded and its note, until the test has ended.
        self._unkept: tuple[bytes, str] | None = None
        self._id = id_
        self._thread = thread
        self._origin = ""
        self._proxy: Proxy | None = None
        #: A test may ask from several threads at once, and must get one server or proxy.
        self._starting = Lock()
        self._recordings = recordings
        self._rules = Rules(redaction=Redaction(detector=detector))
        self._recorded = [records for recording in recordings for records in recording.streams]
        self._faults = list(plan.faults)
        self._prefix, self._end = plan.prefix, plan.end
        #: What was wrong with an earlier turn of `prefixes`.
        self._prefix_problem = ""
        self._playback = None if plan.live else self._started()

    def _started(self) -> Playback:
        plan = self.plan
        return Playback(Answers(self._deck(), self._all_faults(), speed=plan.speed, ids=plan.ids), self._recorded)

    def _all_faults(self) -> Faults:
        cut = [] if self._prefix is None else [self._prefix.fault(self._end)]
        return Faults.of([*self._faults, *cut])

    def _deck(self) -> Deck:
        """Return the streams to replay. Each file is a conversation; streams are named by file if there are several."""
        plan, names, conversations, prepares = self.plan, list[str](), list[int](), list[Prepare]()
        for at, (file, recording) in enumerate(zip(plan.files, self._recordings, strict=False)):
            named = f"{file.name}, " if len(plan.files) > 1 else ""
            names += [f"{named}stream {number}" for number in range(1, len(recording.streams) + 1)]
            conversations += [at] * len(recording.streams)
            prepares += [prepare_of(recording.header)] * len(recording.streams)
        return Deck(
            self._recorded,
            plan.how,
            repeat=plan.repeat,
            names=names,
            conversations=conversations,
            prepares=prepares,
            record=plan.record_command,
        )

    # -- where to send requests ---------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        """The base URL for clients that append `/v1` themselves, such as Anthropic's."""
        self._check()
        if self.plan.live:
            return self._live().url
        with self._starting:
            self._origin = self._origin or self._thread.serve(self._id, self._choose)
        return self._origin

    @property
    def url(self) -> str:
        """The base URL, with `/v1`."""
        return f"{self.root}/v1"

    @property
    def env(self) -> dict[str, str]:
        """Environment variables for a child process: base URLs, and dummy keys."""
        route = Route(name="", targets=(Target(name="tape", url=self.url),))
        keys = {name: "tape" for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY") if not self.plan.live}
        return {**base_urls(self.root, {"": route}), **keys}

    @cached_property
    def transport(self) -> Any:
        """An asynchronous transport for httpx or httpx2 under trio. It ignores the host of a URL."""
        self._check()
        return TapeTransport(self._live().url if self.plan.live else lambda request: self._choose(stripped(request)))

    def _check(self) -> None:
        if self.obstacle:
            pytest.fail(self.obstacle, pytrace=False)

    def _choose(self, request: Request) -> Script:
        assert self._playback is not None, "a live upstream answers for itself"
        return self._playback.choose(request)

    # -- faults -------------------------------------------------------------------------------------------------------

    def fault(self, *texts: str, **named: Named) -> None:
        """Apply faults (docs/replay.md) to later responses: `tape.fault("cut@tool:write_file")`, or with keywords
        `tape.fault(cut_after="tool:write_file", attempts=[503, "reset", "ok"], slow=0.2)`.
        """
        if self.plan.live:
            pytest.fail(f"--tape={self.plan.mode} asks a live upstream, which takes no faults", pytrace=False)
        try:
            Faults.of(added := [*texts, *named_faults(named)])
        except FaultError as error:
            pytest.fail(f"tape.fault: {error}", pytrace=False)
        self._faults += added
        assert self._playback is not None, "nothing is live"
        responses = self._playback.responses
        responses.faults = self._all_faults().after(responses.faults)

    def rechunk(self, size: int | Literal["frame", "all"]) -> None:
        """Deliver later responses in pieces of this many bytes, one per frame, or as a whole."""
        self.fault(f"rechunk={size}")

    def prefixes(self, unit: Unit = "frames", *, end: str = "cut") -> Iterator[Prefix | None]:
        """Yield each place where a stream can be cut, and at last None for the whole tape.

        Each turn replays the tape from its first stream. While a tape is recorded there is only one turn.
        """
        if self.plan.live:
            yield None
            return
        for prefix in (*prefixes_of(self._recorded, unit), None):
            if self._playback is not None and (self._playback.misses or self._playback.broken):
                break  # reported at the end; other turns would add nothing
            self._prefix, self._end = prefix, end
            self._playback = self._started()
            yield prefix
            if problem := self._uncut():
                self._prefix_problem = problem
                break

    @property
    def prefix(self) -> Prefix | None:
        """Where the stream is cut now, or None."""
        return self._prefix

    # -- requests and responses ---------------------------------------------------------------------------------------

    @property
    def sent(self) -> Sequence[Sent]:
        """Every request so far."""
        if self._playback is not None:
            return self._playback.sent
        return [Sent.of(request_of(records)) for records in self._live().streams()]

    @property
    def answers(self) -> Sequence[Outcome]:
        """Every response so far as the client received it, faults included."""
        if self._playback is not None:
            return self._playback.answers
        return [Outcome(records) for records in self._live().streams()]

    @property
    def _last(self) -> Outcome:
        """The last response; before the first request, the last one on the tape."""
        answers = self.answers
        if answers:
            return answers[-1]
        if not self._recorded:
            raise TapeError("no request yet, and no recording")
        return Outcome(self._recorded[-1])

    @property
    def fold(self) -> Fold:
        """The result of the last response: text, calls, finish reason, ending, warnings."""
        return self._last.fold

    @property
    def events(self) -> Sequence[Event]:
        """The events of the last response."""
        return self._last.events

    @property
    def timing(self) -> Sequence[tuple[float, int]]:
        """The reads of the last response: seconds since the request, and size in bytes."""
        return self._last.timing

    # -- how it ended -------------------------------------------------------------------------------------------------

    def problem(self) -> str:
        """Return why a test fails that passed by itself, or an empty text.

        If a teardown may still send requests, `close` looks for what is missing.
        """
        return self._wrong() if self.asked_later else self._judged()

    def passed(self) -> None:
        """Note that the test itself has passed."""
        self._passed = True

    def _judged(self) -> str:
        """Judge all requests, now that no more will come."""
        playback = self._playback
        if playback is None:
            return self._taken()
        if problem := self._wrong() or self._uncut():
            return problem
        if self._prefix is None and playback.responses.faults.unapplied:
            return f"no response had a place for {', '.join(playback.responses.faults.unapplied)}"
        if playback.unused and not (self.plan.partly or self.plan.repeat or playback.changed):
            return f"{len(playback.unused)} of {len(playback.streams)} recorded streams were not asked for"
        self.notes += [f"{self.plan.nodeid}: {each}" for each in playback.loose]
        return ""

    def _wrong(self) -> str:
        """Return what no further request can mend."""
        playback = self._playback
        if playback is None:
            return ""
        if playback.broken is not None:
            return f"the tape cannot be played: {playback.broken!r}"
        return "a request is not on the tape" if playback.misses else self._prefix_problem

    def _uncut(self) -> str:
        """Return a problem if the stream that this run cuts was never requested."""
        playback, prefix = self._playback, self._prefix
        if (
            playback is None
            or prefix is None
            or playback.misses
            or prefix.stream in playback.responses.faults.requested
        ):
            return ""
        return f"{prefix} cuts stream {prefix.stream + 1}, which was not asked for, so this run tested nothing"

    def report(self) -> str:
        """Describe the requests, what answered them, how they ended, and what is left."""
        files = ", ".join(str(file) for file in self.plan.files)
        lines = [f"{files} (--tape={self.plan.mode})"]
        if self._playback is not None:
            lines += self._playback.lines
            for miss in self._playback.misses:
                lines += ["", *miss.lines(), ""]
            lines += [f"not asked for: {sent}" for sent in self._playback.unused]
        return "\n".join(lines)

    def keep(self) -> str:
        """Write the recording after the whole test has passed; return a problem of its teardown or of the file."""
        if self.late or self._unkept is None or not self._passed:
            return self.late
        (sealed, note), file = self._unkept, self.plan.files[0]
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, sealed)
        except OSError as error:
            return f"{file} cannot be written: {error.strerror or error}"
        self.notes.append(note)
        return ""

    def taken_notes(self) -> list[str]:
        """Return the notes since the last call."""
        taken, self.notes = self.notes, []
        return taken

    def close(self) -> None:
        """Judge requests from teardowns if the test has passed, and stop serving it."""
        try:
            if self._passed:
                self.late = self._judged() if self.asked_later else self._wrong()
        finally:
            if self._proxy is not None:
                self._proxy.stop()
            if self._origin:
                self._thread.forget(self._id)

    # -- live ---------------------------------------------------------------------------------------------------------

    def _live(self) -> Proxy:
        with self._starting:
            if self._proxy is None:
                self._proxy = self._thread.record(self.plan.upstream)
        return self._proxy

    def _taken(self) -> str:
        """Prepare the recorded streams to become the tape, or compare them with it; return a problem."""
        streams = self._live().stop()
        if self.plan.mode == "off":
            return ""
        if not streams:
            return "no request reached the upstream, so nothing was recorded"
        self.notes += [f"{self.plan.nodeid}: {each}" for each in _stopped(streams, self._thread.settle_s)]
        sealed = seal(streams, self._rules)
        both = paired(self._recorded, parse(sealed).streams)
        differences = list(compare_shapes(*both) if self.plan.mode == "verify" else compare(*both))
        lines = "\n".join(f"  {difference.line()}" for difference in differences[:_DIFFERENCES_MAX])
        if self.plan.keeps:
            changed = f":\n{lines}" if self._recorded and differences else ""
            same = ", same content as before" if self._recorded and not differences else ""
            note = f"recorded {self.plan.files[0]} ({len(streams)} stream{'s' * (len(streams) > 1)}){same}{changed}"
            self._unkept = sealed, note
            return ""
        if verdict(differences) > 1:
            return f"the upstream has drifted from {self.plan.files[0]}:\n{lines}"
        if differences:
            self.notes.append(f"{self.plan.files[0]}: the upstream differs without breaking anything:\n{lines}")
        return ""


def _stopped(streams: Streams, settle_s: float) -> list[str]:
    """Return a note for each stream that still ran."""
    stopped = [number for number, records in enumerate(streams, 1) if ending_of(records) == "shutdown"]
    return [
        f"stream {number} still ran {settle_s:g} s after the test and is recorded up to there; "
        "read the response to its end to record the whole stream"
        for number in stopped
    ]


def _aged(plan: Plan, recordings: Sequence[Recording]) -> str:
    if plan.live:
        return ""
    for file, recording in zip(plan.files, recordings, strict=True):
        age = age_of(recording.header, datetime.now(UTC).date())
        days_max = plan.age_days_max if age.limit_days is None else min(plan.age_days_max, age.limit_days)
        if age.days is not None and age.days > days_max:
            allowed = f"{file} was recorded {age.days} days ago, and {days_max:g} are allowed"
            return f"{allowed}\nto record it: {plan.record_command}"
    return ""


def paired(a: Streams, b: Streams) -> tuple[Streams, Streams]:
    """Pair streams with equal requests, in the order of `a`, and the rest by position.

    Threads that send requests at once change the order from run to run.
    """
    waiting: dict[str, list[int]] = {}
    for at, records in enumerate(b):
        waiting.setdefault(_key(records), []).append(at)
    found = [waiting[key].pop(0) if waiting.get(key) else None for key in map(_key, a)]
    left = [at for at in range(len(b)) if at not in found]
    pairs = [at if at is not None else left.pop(0) if left else None for at in found]
    alone = [records for records, at in zip(a, pairs, strict=True) if at is None]
    together = [(records, b[at]) for records, at in zip(a, pairs, strict=True) if at is not None]
    return [*(one for one, _ in together), *alone], [*(other for _, other in together), *(b[at] for at in left)]


def _key(records: Sequence[Record]) -> str:
    request = blank(request_of(records))
    return key_of(request.method.decode("latin-1"), request.target.decode("latin-1"), request.body)
