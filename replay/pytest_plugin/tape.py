"""The value of the `tape` fixture: where to send requests, what was sent and received, and what is wrong with it.

Either a recording answers, without any network, or a real proxy asks a live upstream, and its tapes become the
recording after the test has passed.
"""

import os
import re
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock, current_thread
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import pytest

from wiretape.events.core.errors import TapeError
from wiretape.events.core.model import Event
from wiretape.events.tape.record import Record
from wiretape.proxy.config.model import Route, Target

from ..cli.recording import base_urls, unproxied
from ..compare.compare import compare, ending_of, verdict
from ..compare.verify import compare_shapes
from ..faults.cutting import Prefix, Unit, prefixes_of
from ..faults.faults import Faults
from ..faults.places import FaultError
from ..matching.match import ComparedRequest, blank, request_of
from ..playback.script import Request, Script
from ..playback.transport import TapeTransport
from ..redaction.user_rules import Detector, Redaction
from ..seal import Rules, seal
from ..sealed.files import Recording, age_of, parse, write_whole
from ..serving.serving import Fold, Outcome, Sent, Serving, deck_of
from .plan import Named, Plan, named_faults
from .thread import THREAD, Proxy, Streams, Thread, stripped

__all__ = ["Tape", "paired"]

#: The most differences that a report shows.
_DIFFERENCES_MAX: Final = 20
_LOCAL: Final = re.compile(r"localhost|(?:::ffff:)?127\.[0-9.]+|0\.0\.0\.0|::1?", re.IGNORECASE)


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
        self.obstacle = obstacle or _age_problem(plan, recordings)
        #: Notes for the end of the run that fail nothing.
        self.notes: list[str] = []
        #: The fixtures that depend on the tape, and whether one of them may send requests in its teardown.
        self.dependents: set[str] = {"tape"}
        self.asked_later = False
        #: What was wrong after the teardown of those fixtures.
        self.late_problem = ""
        #: The connection that the test was refused, if any (`--tape-env`).
        self.blocked = ""
        self._id = id_
        self._thread = thread
        self._origin = ""
        self._proxy: Proxy | None = None
        #: A test may ask from several threads at once, and must get one proxy.
        self._starting = Lock()
        self._recordings = recordings
        self._recorded = [records for recording in recordings for records in recording.streams]
        self._rules = Rules(redaction=Redaction(detector=detector))
        #: A new recording and its note, until the test has ended.
        self._unkept: tuple[bytes, str] | None = None
        self._faults = list(plan.faults)
        #: Where the stream is cut now, or None.
        self.prefix = plan.prefix
        self._end = plan.end
        self._playback = None if plan.live else self._started()

    def _started(self) -> Serving:
        """Return a playback of the tape from its first stream. Streams are named by file if there are several."""
        plan = self.plan
        names = [file.name if len(plan.files) > 1 else "" for file in plan.files]
        named = zip(names, self._recordings, strict=False)
        deck = deck_of(named, plan.how, repeat=plan.repeat, record=plan.record_command)
        return Serving(deck, self._all_faults(), speed=plan.speed)

    def _all_faults(self) -> Faults:
        cut = [] if self.prefix is None else [self.prefix.fault(self._end)]
        return Faults.of([*self._faults, *cut])

    # -- where to send requests ---------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        """The base URL for clients that append `/v1` themselves, such as Anthropic's."""
        self._check()
        if self.plan.live:
            return self._live().url
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

    @contextmanager
    def isolated(self) -> Generator[None]:
        """Lead clients here by the environment, and refuse connections to other machines that do not record."""
        getaddrinfo = socket.getaddrinfo
        upstream = urlsplit(self.plan.upstream).hostname if self.plan.live else None

        def check(host: Any, port: Any) -> None:
            name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
            if not (_LOCAL.fullmatch(name) or name == upstream or current_thread().name == THREAD):
                reached = f"{self.plan.nodeid} tried to reach {name}:{port}, and --tape-env allows this machine only"
                why = "made before the test, or reads another variable: pass base_url=tape.url"
                self.blocked = f"{reached}. Its client was {why}"
                pytest.fail(self.blocked)

        def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
            def here(sock: socket.socket, *arguments: Any) -> Any:  # the last one is the address
                if sock.family in (socket.AF_INET, socket.AF_INET6):
                    check(*arguments[-1][:2])
                return call(sock, *arguments)

            return here

        def resolve_here(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
            check(host, port)
            return getaddrinfo(host, port, *rest, **named)

        with pytest.MonkeyPatch.context() as patch:
            for variable, value in {**unproxied(os.environ), **self.env}.items() - os.environ.items():
                patch.setenv(variable, value)
            for name in ("connect", "connect_ex", "sendto"):
                patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
            patch.setattr(socket, "getaddrinfo", resolve_here)
            yield

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

    def _live(self) -> Proxy:
        with self._starting:
            if self._proxy is None:
                self._proxy = self._thread.record(self.plan.upstream)
        return self._proxy

    # -- faults -------------------------------------------------------------------------------------------------------

    def fault(self, *texts: str, **named: Named) -> None:
        """Apply faults (docs/reference/replay.md) to later responses: `tape.fault("cut@tool:write_file")`, or with
        keywords `tape.fault(cut_after="tool:write_file", attempts=[503, "reset", "ok"], slow=0.2)`.
        """
        if self._playback is None:
            pytest.fail(f"--tape={self.plan.mode} asks a live upstream, which takes no faults", pytrace=False)
        try:
            Faults.of(added := [*texts, *named_faults(named)])
        except FaultError as error:
            pytest.fail(f"tape.fault: {error}", pytrace=False)
        self._faults += added
        self._playback.faults = self._all_faults().after(self._playback.faults)

    def rechunk(self, size: int | Literal["frame", "all"]) -> None:
        """Deliver later responses in pieces of this many bytes, one per frame, or as a whole."""
        self.fault(f"rechunk={size}")

    def prefixes(self, unit: Unit = "frames", *, end: str = "cut") -> Iterator[Prefix | None]:
        """Yield each place where a stream can be cut, and at last None for the whole tape.

        Each turn replays the tape from its first stream. While a tape is recorded there is only one turn.
        """
        if self._playback is None:
            yield None
            return
        for prefix in (*prefixes_of(self._recorded, unit), None):
            if self._playback.misses or self._playback.broken:
                break  # reported at the end; other turns would add nothing
            self.prefix, self._end = prefix, end
            self._playback = self._started()
            yield prefix
            if prefix is not None and (problem := self._untested()):
                pytest.fail(problem, pytrace=False)

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
        answers = self.answers or [Outcome(records) for records in self._recorded[-1:]]
        if not answers:
            raise TapeError("no request yet, and no recording")
        return answers[-1]

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

    def problem(self, *, more: bool) -> str:
        """Return why a test fails that passed by itself, or an empty text.

        If `more` requests may come, only what they cannot mend is a problem.
        """
        playback = self._playback
        if self.blocked:
            return self.blocked
        if playback is None:
            return "" if more else self._end_recording()
        if playback.broken is not None:
            return f"the tape cannot be played: {playback.broken!r}"
        if playback.misses:
            return "a request is not on the tape"
        if more:
            return ""
        if problem := self._untested():
            return problem
        if playback.unused and not (self.plan.partly or self.plan.repeat or playback.changed):
            return f"{len(playback.unused)} of {playback.deck.streams} recorded streams were not asked for"
        self.notes += [f"{self.plan.nodeid}: {each}" for each in playback.loose]
        return ""

    def _untested(self) -> str:
        """Return a problem if the stream that this run cuts was not requested, or no response had place for a fault."""
        playback, prefix = self._playback, self.prefix
        if playback is None:
            return ""
        if prefix is None:
            why = "no response had a place for" if playback.faults.requested else "no request came to test"
            return f"{why} {', '.join(playback.faults.unapplied)}" if playback.faults.unapplied else ""
        if playback.misses or prefix.stream in playback.faults.requested:
            return ""
        return f"{prefix} cuts stream {prefix.stream + 1}, which was not asked for, so this run tested nothing"

    def _end_recording(self) -> str:
        """Prepare the recorded streams to become the tape, or compare them with it; return a problem."""
        plan, file, streams = self.plan, self.plan.files[0], self._live().stop()
        if plan.mode == "off":
            return ""
        if not streams:
            return "no request reached the upstream, so nothing was recorded"
        self.notes += [
            f"{plan.nodeid}: stream {number} still ran {self._thread.settle_s:g} s after the test and is recorded up "
            "to there; read the response to its end to record the whole stream"
            for number, records in enumerate(streams, 1)
            if ending_of(records) == "shutdown"
        ]
        sealed = seal(streams, self._rules)
        both = paired(self._recorded, parse(sealed).streams)
        differences = list(compare_shapes(*both) if plan.mode == "verify" else compare(*both))
        lines = "".join(f"\n  {difference.line()}" for difference in differences[:_DIFFERENCES_MAX])
        if plan.keeps:
            note = f"recorded {file} ({len(streams)} stream{'s' * (len(streams) > 1)})"
            if self._recorded:
                note += f":{lines}" if differences else ", same content as before"
            self._unkept = sealed, note
        elif verdict(differences) > 1:
            return f"the upstream has drifted from {file}:{lines}"
        elif differences:
            self.notes.append(f"{file}: the upstream differs without breaking anything:{lines}")
        return ""

    def keep(self) -> str:
        """Write the recording of a test that has passed with its teardown; return why it cannot be written."""
        if self._unkept is None:
            return ""
        (sealed, note), file = self._unkept, self.plan.files[0]
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, sealed)
        except OSError as error:
            return f"{file} cannot be written: {error.strerror or error}"
        self.notes.append(note)
        return ""

    def report(self) -> str:
        """Describe the requests, what answered them, how they ended, and what is left."""
        files = ", ".join(str(file) for file in self.plan.files)
        lines = [f"{files} (--tape={self.plan.mode})"]
        if self._playback is not None:
            lines += self._playback.lines
            for miss in self._playback.misses:
                lines += ["", *miss.lines(), ""]
            lines += [f"not asked for: {sent}" for sent in self._playback.unused]
            lines += filter(None, [self._untested()])
        return "\n".join(lines)

    def close(self) -> None:
        """Stop serving."""
        if self._proxy is not None:
            self._proxy.stop()
        if self._origin:
            self._thread.forget(self._id)


def _age_problem(plan: Plan, recordings: Sequence[Recording]) -> str:
    if plan.live:
        return ""
    for file, recording in zip(plan.files, recordings, strict=False):
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
    left = [(_key(records), records) for records in b]

    def partner_of(key: str) -> Sequence[Record] | None:
        at = next((at for at, (other, _) in enumerate(left) if other == key), None)
        return None if at is None else left.pop(at)[1]

    equal = [partner_of(_key(records)) for records in a]
    partners = [each if each is not None else left.pop(0)[1] if left else None for each in equal]
    pairs = sorted(zip(a, partners, strict=True), key=lambda pair: pair[1] is None)  # those without a partner last
    others = [*(other for _, other in pairs if other is not None), *(records for _, records in left)]
    return [records for records, _ in pairs], others


def _key(records: Sequence[Record]) -> str:
    return ComparedRequest.recorded(records, blank).key
