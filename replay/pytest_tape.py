"""What a test has of its tape: where to send requests, what it sent, what it was told, and what is wrong with that

One of two things stands behind it: a recording that answers, without any network, or a real proxy before a live
upstream, whose tapes become the recording when the test has passed.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from wiretape.events.errors import TapeError
from wiretape.events.model import Event
from wiretape.proxy.config import Route, Target

from .base_urls import base_urls
from .compare import compare, verdict
from .load import Recording, parse
from .match import How, asked_of
from .playback import Overlay, Playback, Sent
from .player import INSTANT, Speed
from .prefixes import Prefix, cut_at
from .pytest_thread import Proxy, Thread, stripped
from .script import Fault, Script
from .seal import seal
from .told import Fold, Told
from .transport import TapeTransport

__all__ = ["Mode", "Plan", "Tape", "speed_of"]

#: Of those that a person is shown.
_DIFFERENCES_MAX: Final = 20

Mode = Literal["replay", "once", "rewrite", "verify", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the marker, the options and the settings of the project come to, for one test."""

    nodeid: str
    #: In order; the first is the one that is recorded.
    files: tuple[Path, ...]
    mode: Mode
    upstream: str = ""
    speed: Speed = INSTANT
    how: How = "key"
    repeat: bool = False
    #: Streams may be left over.
    partly: bool = False
    prefix: Prefix | None = None
    prefix_end: Fault | None = Fault.CUT

    @property
    def live(self) -> bool:
        """Whether an upstream is asked."""
        if self.mode == "once":
            return not self.files[0].exists()
        return self.mode in ("rewrite", "verify", "off")

    @property
    def keeps(self) -> bool:
        """Whether what it says becomes the tape."""
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
            return f"{why}, and no --tape-upstream is given\nRecord it: {self.record_command}"
        if self.keeps and len(self.files) > 1:
            return "a test with several tapes cannot record them: which stream belongs to which is nowhere said"
        missing = [file for file in self.files if not file.exists()]
        if missing and (not self.live or self.mode == "verify"):
            return f"there is no tape {missing[0]}\nRecord it: {self.record_command}"
        return ""


class Tape:
    """The `tape` fixture."""

    def __init__(self, plan: Plan, id_: str, thread: Thread, recordings: Sequence[Recording]) -> None:
        self.plan = plan
        #: What the test and its outcome are told at the end; a line each.
        self.notes: list[str] = []
        self._id = id_
        self._thread = thread
        self._origin = ""
        self._proxy: Proxy | None = None
        self._recorded = [records for recording in recordings for records in recording.streams]
        self._playback: Playback | None = None
        if not plan.live:
            self._playback = Playback(self._recorded, how=plan.how, repeat=plan.repeat, speed=plan.speed)
            if plan.prefix is not None:
                self._playback.overlays.append(_prefix(plan.prefix, plan.prefix_end))

    # -- where to send requests ---------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        """For clients that append `/v1` themselves, such as Anthropic's."""
        if not self._origin:
            if self._playback is not None:
                self._origin = self._thread.serve(self._id, self._playback.choose)
            else:
                self._origin = self._live().url
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
        if self._playback is not None:
            choose = self._playback.choose
            return TapeTransport(lambda request: choose(stripped(request)))
        return TapeTransport(self._live().url)

    # -- what was sent and told ---------------------------------------------------------------------------------------

    @property
    def sent(self) -> Sequence[Sent]:
        """Every request so far, as the client sent it now."""
        if self._playback is not None:
            return self._playback.sent
        return [Sent.of(asked_of(records)) for records in self._live().streams()]

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

    @property
    def prefix(self) -> Prefix | None:
        """Where this run of the test cuts its tape; None in the run with all of it."""
        return self.plan.prefix

    # -- how it ended -------------------------------------------------------------------------------------------------

    def problem(self) -> str:
        """What fails a test that passed by itself; empty where nothing does."""
        playback = self._playback
        if playback is None:
            return self._taken()
        if playback.broken is not None:
            return f"the tape cannot be played: {playback.broken!r}"
        if playback.misses:
            return "it asked for what is not on its tape"
        if playback.unused and not (self.plan.partly or self.plan.repeat or playback.overlays):
            return f"{len(playback.unused)} of {len(playback.streams)} recorded streams were not asked for"
        return ""

    def report(self) -> str:
        """What was asked, what answered, how it ended, and what is left."""
        files = ", ".join(str(file) for file in self.plan.files)
        lines = [f"{files} (--tape={self.plan.mode})"]
        if self._playback is not None:
            for number, (sent, line) in enumerate(zip(self._playback.sent, self._playback.lines, strict=False), 1):
                lines.append(f"{number}. {sent} -> {line}")
            for miss in self._playback.misses:
                lines += ["", miss.to_json()["error"]["message"]]
            lines += [f"not asked for: {sent}" for sent in self._playback.unused]
        return "\n".join([*lines, f"record it anew: {self.plan.record_command}"])

    def close(self) -> None:
        """Nothing of it is served any more."""
        if self._proxy is not None:
            self._proxy.stop()
        elif self._origin:
            self._thread.forget(self._id)

    # -- live ---------------------------------------------------------------------------------------------------------

    def _live(self) -> Proxy:
        if self._proxy is None:
            self._proxy = self._thread.record(self.plan.upstream)
        return self._proxy

    def _taken(self) -> str:
        """The test has passed: its streams become the tape, or are compared with it."""
        streams = self._live().stop()
        if self.plan.mode == "off":
            return ""
        if not streams:
            return "nothing was asked of the upstream, so there is nothing to keep"
        sealed = seal(streams)
        differences = list(
            compare(self._recorded, parse(sealed).streams, "shape" if self.plan.mode == "verify" else "fold")
        )
        told = "\n".join(f"  {difference.line()}" for difference in differences[:_DIFFERENCES_MAX])
        if self.plan.keeps:
            _write(self.plan.files[0], sealed)
            changed = f":\n{told}" if self._recorded and differences else ""
            same = ", which says what it said before" if self._recorded and not differences else ""
            self.notes.append(f"recorded {self.plan.files[0]} ({len(streams)} streams){same}{changed}")
            return ""
        if verdict(differences) > 1:
            return f"the upstream has drifted from {self.plan.files[0]}:\n{told}"
        if differences:
            self.notes.append(f"{self.plan.files[0]}: the upstream differs where it breaks nothing:\n{told}")
        return ""


def _prefix(prefix: Prefix, end: Fault | None) -> Overlay:
    def overlay(script: Script, place: int, answer: int) -> Script:
        del answer
        return cut_at(script, prefix.bytes, end) if place == prefix.stream else script

    return overlay


def _write(file: Path, sealed: bytes) -> None:
    """Whole, or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.new")
    unfinished.write_bytes(sealed)
    unfinished.replace(file)


def speed_of(said: str | float | None) -> Speed:
    """From what a user writes: `instant`, `original`, or a factor."""
    if said in (None, "", "instant"):
        return INSTANT
    return Speed(times=1.0 if said == "original" else float(said))
