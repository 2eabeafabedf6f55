"""What a test has of its tape: where to send requests, what it sent, what it was told, and what is wrong with that

One of two things stands behind it: a recording that answers, without any network, or a real proxy before a live
upstream, whose tapes become the recording when the test has passed.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal

import pytest

from wiretape.events.core.errors import TapeError
from wiretape.events.core.model import Event
from wiretape.events.tape.record import Record
from wiretape.proxy.config.model import Route, Target

from ..cli.base_urls import base_urls
from ..compare.bytes import ending_of
from ..compare.compare import compare, verdict
from ..compare.shape import compare_shapes
from ..faults.faults import FaultError, Faults
from ..faults.prefixes import Prefix, Unit, prefixes_of
from ..matching.compared_request import Prepare, blank, prepare_of, request_of
from ..matching.key import key_of
from ..matching.match import Deck, How
from ..playback.outcome import Fold, Told
from ..playback.playback import Playback, Sent
from ..playback.player import INSTANT, Speed
from ..playback.script import Request, Script
from ..playback.serving import Ids
from ..playback.transport import TapeTransport
from ..seal import seal
from ..sealed.load import Recording, parse
from .thread import Proxy, Thread, stripped

__all__ = ["Mode", "Named", "Plan", "Tape", "named_faults", "paired"]

#: Of those that a person is shown.
_DIFFERENCES_MAX: Final = 20

_Streams = Sequence[Sequence[Record]]
Named = str | float | Sequence[str | int]
Mode = Literal["replay", "once", "rewrite", "verify", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the marker, the options and the settings of the project come to, for one test."""

    nodeid: str
    #: In order; the first is the one that is recorded.
    files: tuple[Path, ...]
    mode: Mode
    #: An upstream is asked.
    live: bool
    upstream: str = ""
    speed: Speed = INSTANT
    how: How = "key"
    repeat: bool = False
    ids: Ids = "recorded"
    #: Streams may be left over.
    partly: bool = False
    age_days_max: float = inf
    prefix: Prefix | None = None
    #: How a prefix ends: a word of faults.py.
    end: str = "cut"
    faults: tuple[str, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether what the upstream says becomes the tape."""
        return self.live and self.mode in ("once", "rewrite")

    @property
    def record_command(self) -> str:
        """What records this tape anew."""
        upstream = self.upstream or "https://api.example.com/v1"
        return f"pytest {shlex.quote(self.nodeid)} --tape=rewrite --tape-upstream {shlex.quote(upstream)}"

    def obstacle(self) -> str:
        """Why it cannot be done, in words for a person; empty where it can."""
        if self.live and not self.upstream:
            why = f"there is no tape {self.files[0]}" if self.mode == "once" else f"--tape={self.mode} asks an upstream"
            return f"{why}, and no --tape-upstream is given\nto record it: {self.record_command}"
        if self.keeps and len(self.files) > 1:
            return "a test with several tapes cannot record them: which stream belongs to which is nowhere said"
        missing = [file for file in self.files if not file.exists()]
        if missing and (not self.live or self.mode == "verify"):
            return f"there is no tape {missing[0]}\nto record it: {self.record_command}"
        return ""


class Tape:
    """The `tape` fixture."""

    def __init__(self, plan: Plan, id_: str, thread: Thread, recordings: Sequence[Recording], obstacle: str) -> None:
        self.plan = plan
        #: Why the test cannot run at all; empty where it can.
        self.obstacle = obstacle or _aged(plan, recordings)
        #: What came of it that is no fault, for the end of the run.
        self.notes: list[str] = []
        #: Fixtures that stand on it, which are torn down before it is; and whether their teardown may ask something.
        self.standing: set[str] = {"tape"}
        self.asked_later = False
        #: The test itself has passed.
        self._passed = False
        #: What was wrong with it when everything that stands on it was torn down.
        self.late = ""
        #: What it recorded, until the test has ended wholly; and what is said of it then.
        self._unkept: tuple[bytes, str] | None = None
        self._id = id_
        self._thread = thread
        self._origin = ""
        self._proxy: Proxy | None = None
        #: What a test's own threads ask for the first time all at once is one, or streams would be lost.
        self._starting = Lock()
        self._recordings = recordings
        self._recorded = [records for recording in recordings for records in recording.streams]
        self._faults = list(plan.faults)
        self._prefix, self._end = plan.prefix, plan.end
        #: Of a turn of `prefixes` that is over.
        self._prefix_problem = ""
        self._playback = None if plan.live else self._begun()

    def _begun(self) -> Playback:
        cut = [] if self._prefix is None else [self._prefix.fault(self._end)]
        faults, plan = Faults.of([*self._faults, *cut]), self.plan
        return Playback(self._deck(), self._recorded, speed=plan.speed, faults=faults, ids=plan.ids)

    def _deck(self) -> Deck:
        """Each file is a conversation of its own, and called so where there are several."""
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
        """For clients that append `/v1` themselves, such as Anthropic's."""
        self._check()
        if self.plan.live:
            return self._live().url
        with self._starting:
            self._origin = self._origin or self._thread.serve(self._id, self._choose)
        return self._origin

    @property
    def url(self) -> str:
        """For all others: the base URL, with `/v1`."""
        return f"{self.root}/v1"

    @property
    def env(self) -> dict[str, str]:
        """For a child process: the variables in which clients look for their base URL, and keys that open nothing."""
        route = Route(name="", targets=(Target(name="tape", url=self.url),))
        keys = {name: "tape" for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY") if not self.plan.live}
        return {**base_urls(self.root, {"": route}), **keys}

    @cached_property
    def transport(self) -> Any:
        """An asynchronous transport for clients of httpx or httpx2 under trio: any base URL leads to the tape."""
        self._check()
        return TapeTransport(self._live().url if self.plan.live else lambda request: self._choose(stripped(request)))

    def _check(self) -> None:
        if self.obstacle:
            pytest.fail(self.obstacle, pytrace=False)

    def _choose(self, request: Request) -> Script:
        assert self._playback is not None, "a live upstream answers for itself"
        return self._playback.choose(request)

    # -- what is laid over it -----------------------------------------------------------------------------------------

    def fault(self, *texts: str, **named: Named) -> None:
        """Lay a fault over the answers from now on, as docs/replay.md has them: `tape.fault("cut@tool:write_file")`,
        or in words of Python: `tape.fault(cut_after="tool:write_file", attempts=[503, "reset", "ok"], slow=0.2)`.
        """
        if self.plan.live:
            pytest.fail(f"--tape={self.plan.mode} asks a live upstream, which no fault can be laid over", pytrace=False)
        try:
            Faults.of(added := [*texts, *named_faults(named)])
        except FaultError as error:
            pytest.fail(f"tape.fault: {error}", pytrace=False)
        self._faults += added
        assert self._playback is not None, "nothing is live"
        self._playback.faults = self._begun().faults.after(self._playback.faults)

    def rechunk(self, size: int | Literal["frame", "all"]) -> None:
        """Give the answers in other pieces: of so many bytes each, one a frame, or all in one."""
        self.fault(f"rechunk={size}")

    def prefixes(self, unit: Unit = "frames", *, end: str = "cut") -> Iterator[Prefix | None]:
        """One turn of a loop for each place where a stream can be cut, and a last one with all of it (None).

        The requests of a turn are answered anew, from the first stream on. While a tape is recorded there is but one.
        """
        if self.plan.live:  # a recording is made of all of it
            yield None
            return
        for prefix in (*prefixes_of(self._recorded, unit), None):
            if self._playback is not None and (self._playback.misses or self._playback.broken):
                break  # it is told of at the end, and the other turns would say no more
            self._prefix, self._end = prefix, end
            self._playback = self._begun()
            yield prefix
            if problem := self._uncut():
                self._prefix_problem = problem
                break

    @property
    def prefix(self) -> Prefix | None:
        """Where its stream is cut now; None where it is not."""
        return self._prefix

    # -- what was sent and told ---------------------------------------------------------------------------------------

    @property
    def sent(self) -> Sequence[Sent]:
        """Every request so far, as the client sent it now."""
        if self._playback is not None:
            return self._playback.sent
        return [Sent.of(request_of(records)) for records in self._live().streams()]

    @property
    def answers(self) -> Sequence[Told]:
        """Every answer so far, as the client was told it: with the faults that were laid over it."""
        if self._playback is not None:
            return self._playback.answers
        return [Told(records) for records in self._live().streams()]

    @property
    def told(self) -> Told:
        """The last answer; before any, the last one on the tape."""
        answers = self.answers
        if answers:
            return answers[-1]
        if not self._recorded:
            raise TapeError("nothing was asked yet, and nothing is recorded")
        return Told(self._recorded[-1])

    @property
    def fold(self) -> Fold:
        """What the last answer comes to."""
        return self.told.fold

    @property
    def events(self) -> Sequence[Event]:
        """The events of the last answer."""
        return self.told.events

    @property
    def timing(self) -> Sequence[tuple[float, int]]:
        """The reads of the last answer: when each came, in seconds since the request, and how many bytes it was."""
        return self.told.timing

    # -- how it ended -------------------------------------------------------------------------------------------------

    def problem(self) -> str:
        """What fails a test that passed by itself; empty where nothing does. Where a teardown may still ask for the
        rest, that is looked at when it has (`close`). What was recorded waits for `keep`.
        """
        return self._wrong() if self.asked_later else self._judged()

    def passed(self) -> None:
        """The test itself has, and `problem` was empty."""
        self._passed = True

    def _judged(self) -> str:
        """Of all that was asked."""
        playback = self._playback
        if playback is None:
            return self._taken()
        if problem := self._wrong() or self._uncut():
            return problem
        if self._prefix is None and playback.faults.unapplied:
            return f"no answer had a place for {', '.join(playback.faults.unapplied)}"
        if playback.unused and not (self.plan.partly or self.plan.repeat or playback.changed):
            return f"{len(playback.unused)} of {len(playback.streams)} recorded streams were not asked for"
        self.notes += [f"{self.plan.nodeid}: {each}" for each in playback.loose]
        return ""

    def _wrong(self) -> str:
        """What no further request can mend."""
        playback = self._playback
        if playback is None:
            return ""
        if playback.broken is not None:
            return f"the tape cannot be played: {playback.broken!r}"
        return "it asked for what is not on its tape" if playback.misses else self._prefix_problem

    def _uncut(self) -> str:
        """A run that is to see one stream cut has shown nothing where it never asked for it."""
        playback, prefix = self._playback, self._prefix
        if playback is None or prefix is None or playback.misses or prefix.stream in playback.faults.asked:
            return ""
        return f"{prefix} cuts stream {prefix.stream + 1}, which was not asked for: this run has shown nothing"

    def report(self) -> str:
        """What was asked, what answered, how it ended, and what is left."""
        files = ", ".join(str(file) for file in self.plan.files)
        lines = [f"{files} (--tape={self.plan.mode})"]
        if self._playback is not None:
            lines += self._playback.lines
            for miss in self._playback.misses:
                lines += ["", *miss.lines(), ""]
            lines += [f"not asked for: {sent}" for sent in self._playback.unused]
        return "\n".join(lines)

    def keep(self) -> str:
        """The test has ended, and all that it had set up with it: what it recorded becomes the tape. Why that cannot
        be, where it cannot; and what else was wrong when its fixtures were torn down.
        """
        if self.late or self._unkept is None or not self._passed:
            return self.late
        (sealed, note), file = self._unkept, self.plan.files[0]
        try:
            _write(file, sealed)
        except OSError as error:
            return f"{file} cannot be written: {error.strerror or error}"
        self.notes.append(note)
        return ""

    def taken_notes(self) -> list[str]:
        """Those since the last time."""
        taken, self.notes = self.notes, []
        return taken

    def close(self) -> None:
        """What stands on it is torn down: of a test that passed, that is looked at which its teardown may have asked.
        Nothing of it is served any more.
        """
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
        """The test has passed: its streams are to become the tape, or are compared with it."""
        streams = self._live().stop()
        if self.plan.mode == "off":
            return ""
        if not streams:
            return "nothing was asked of the upstream, so there is nothing to keep"
        self.notes += [f"{self.plan.nodeid}: {each}" for each in _stopped(streams, self._thread.settle_s)]
        sealed = seal(streams)
        both = paired(self._recorded, parse(sealed).streams)
        differences = list(compare_shapes(*both) if self.plan.mode == "verify" else compare(*both))
        told = "\n".join(f"  {difference.line()}" for difference in differences[:_DIFFERENCES_MAX])
        if self.plan.keeps:
            changed = f":\n{told}" if self._recorded and differences else ""
            same = ", which says what it said before" if self._recorded and not differences else ""
            note = f"recorded {self.plan.files[0]} ({len(streams)} stream{'s' * (len(streams) > 1)}){same}{changed}"
            self._unkept = sealed, note
            return ""
        if verdict(differences) > 1:
            return f"the upstream has drifted from {self.plan.files[0]}:\n{told}"
        if differences:
            self.notes.append(f"{self.plan.files[0]}: the upstream differs where it breaks nothing:\n{told}")
        return ""


def _stopped(streams: _Streams, settle_s: float) -> list[str]:
    """Those that were not waited for."""
    stopped = [number for number, records in enumerate(streams, 1) if ending_of(records) == "shutdown"]
    return [
        f"stream {number} still ran {settle_s:g} s after the test, and is taped up to there; "
        "a test that reads its answer to the end tapes all of it"
        for number in stopped
    ]


def _aged(plan: Plan, recordings: Sequence[Recording]) -> str:
    if plan.live:
        return ""
    for file, recording in zip(plan.files, recordings, strict=True):
        day, own_max = recording.header.get("recorded"), recording.header.get("max_age_days")
        age_days = (datetime.now(UTC).date() - date.fromisoformat(day)).days if isinstance(day, str) else 0
        days_max = min(plan.age_days_max, own_max if isinstance(own_max, int) else inf)
        if age_days > days_max:
            return (
                f"{file} was recorded {age_days} days ago, and {days_max:g} are allowed\n"
                f"to record it: {plan.record_command}"
            )
    return ""


def paired(a: _Streams, b: _Streams) -> tuple[_Streams, _Streams]:
    """Each stream beside the one that was asked the same, in the order of `a`; what has none such, by its place: whose
    threads ask at once asks in another order each time.
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


def _write(file: Path, sealed: bytes) -> None:
    """Whole, or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.new")
    unfinished.write_bytes(sealed)
    unfinished.replace(file)


def named_faults(named: Mapping[str, Named]) -> list[str]:
    """From words of Python: `cut_after="text"` and `stall_at=3` to a fault at a place, others to one with a value."""
    return [_named(name, value) for name, value in named.items()]


def _named(name: str, value: Named) -> str:
    kind, place, _ = name.partition("_")
    if place:
        return f"{kind}@{f'frame:{value}' if isinstance(value, int) else value}"
    return f"{kind}={value if isinstance(value, str | int | float) else ','.join(map(str, value))}"
