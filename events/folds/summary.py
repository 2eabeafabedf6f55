"""What a stream resulted in: the one fold that catalogue, API, command line, log, metrics and sealed tapes share.

The fold takes records, the live state after each record and, where texts and timing are wanted, the events that the
record caused. The live path passes no events, so a steady text frame costs it one call.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from io import StringIO
from itertools import islice
from typing import Any, Final, NamedTuple

from ..core import model
from ..core.json_text import as_list, as_object, joined_surrogates
from ..core.lifecycle import State
from ..core.limits import PREVIEW_BYTES_MAX
from ..core.model import Event
from ..core.settings import DIALECTS
from ..tape.record import NO_KEYS, RECEIVED, Record, speaks
from .wire import Call, Wire

__all__ = ["Answer", "Markup", "StreamSummary", "Warned"]


class Answer(NamedTuple):
    """One of the n answers so far, as official SDKs accumulate it; its calls are in the live state."""

    choice: int
    text: str
    reasoning: str
    refusal: str
    finish: str


_SAID: Final = (model.TextDelta, model.ReasoningDelta)
#: Name, pattern, and the kinds of text where the marker is out of place. Reasoning may well contain `<think>`.
_MARKERS: Final = (
    ("leaked_think", re.compile(r"</?think>"), (model.TextDelta,)),  # Q77, Q78
    ("leaked_tool_section", re.compile(r"<\|tool_call(?:s_section)?_begin\|>|<\|open\|>tools"), _SAID),  # Q81
    ("leaked_dsml", re.compile("<[|\uff5c\u2502]{1,2}DSML"), (*_SAID, model.ToolArgumentsDelta)),  # Q82
    ("leaked_tool_call", re.compile(r"</?tool_call>|<function=\w"), _SAID),  # Q83
)
#: The longest marker is Kimi's. What may be the beginning of one is searched again with the next piece.
_MARKER_CHARS_MAX: Final = 28


class Markup:
    """A search for markup of a model's own template that leaked into readable text; `apply` every event in order.

    A server without the right parser passes such markers as text. They are reported, never removed, since a text may be
    about them; the live path does not look for them.
    """

    def __init__(self) -> None:
        #: The names of the markers found, in order of appearance.
        self.found: dict[str, None] = {}
        #: The end of each text so far, by kind, choice and call.
        self._tails: dict[tuple[type, int, int], str] = {}

    def apply(self, event: Event) -> None:
        if not isinstance(event, model.TextDelta | model.ReasoningDelta | model.ToolArgumentsDelta):
            return
        place = type(event), event.choice, event.call if isinstance(event, model.ToolArgumentsDelta) else 0
        text = self._tails.get(place, "") + event.text
        self._tails[place] = text[1 - _MARKER_CHARS_MAX :]
        if "<" in text:  # every marker begins with it
            found = (name for name, marker, kinds in _MARKERS if type(event) in kinds and marker.search(text))
            self.found.update(dict.fromkeys(found))


#: Calls named in one warning: a broken upstream can open any number of them.
_WARNED_CALLS_MAX: Final = 1_000


class Warned(NamedTuple):
    """One thing that went wrong; `calls` are the ids and names of the tool calls affected."""

    code: str
    calls: tuple[tuple[str, str], ...]


class StreamSummary:
    """A fold over the records of one tape; every prefix of a tape has a summary.

    `answers` and the times other than the first ones need events.
    """

    def __init__(self) -> None:
        #: The live state: ending, calls, token counts.
        self.wire = Wire()
        #: The keys of the `open`, `request` and `results` records.
        self.opening: Mapping[str, Any] = NO_KEYS
        self.request: Mapping[str, Any] = NO_KEYS
        #: The keys of the `run` record, if the stream is a turn of a run.
        self.turn: Mapping[str, Any] = NO_KEYS
        self.results: Mapping[str, Any] = NO_KEYS
        self.facts: Mapping[str, Any] = NO_KEYS
        self.history: list[Any] = []
        self.attempts: list[dict[str, Any]] = []
        #: The HTTP status that the client got.
        self.status: Any = None
        self.end: Record | None = None
        self.hermes = False
        self.records = 0
        #: Time of the latest record; like all times, in microseconds since `open`.
        self.t = 0
        self.longest_silence_us = 0
        self._alive_us: int | None = None
        self._markup = Markup()
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        """Forget what an earlier attempt brought: no client has seen it."""
        self.frames = self.received_bytes = 0
        #: The beginning of the body of an error response.
        self._error = b""
        self._failing = False
        self.first_frame_us: int | None = None
        self.first_content_us: int | None = None
        self.last_content_us: int | None = None
        self.longest_pause_us = 0
        #: When the client got the first call that it may run.
        self.handed_us: int | None = None
        self._said: defaultdict[int, defaultdict[type, StringIO]] = defaultdict(lambda: defaultdict(StringIO))

    def take(self, record: Record, wire: Wire, events: Iterable[Event] | None = None) -> None:
        """Add a record, the live state after it, and its events unless only the catalogue's facts are wanted."""
        kind, t = record.kind, record.t
        self.wire = wire
        self.records += 1
        self.t = t
        if kind == "frame":
            self.frames += 1
            if self.first_frame_us is None:
                self.first_frame_us = t
        else:
            self._note(kind, record)
        if kind in RECEIVED:
            self.received_bytes += len(record.raw or b"")
        if events is not None:
            if kind in ("attempt", "body") or (kind == "frame" and speaks(record, hermes=self.hermes)):
                self._hear(t)
            for event in events:
                self._take_event(event, t)
            if kind == "end":
                self._hear(t)
                self._pause(t)
        if wire.content and self.first_content_us is None:
            self.first_content_us = t
        if wire.handed_over and self.handed_us is None:
            self.handed_us = t

    def _note(self, kind: str, record: Record) -> None:
        keys = record.keys
        match kind:
            case "open":
                self.opening = keys
                self.hermes = as_object(keys.get("settings")).get("hermes") is True
            case "request":
                self.request, self.facts = keys, as_object(keys.get("facts"))
            case "run":
                self.turn = keys
            case "history":
                self.history = as_list(keys.get("marks"))
            case "results":
                self.results = keys
            case "attempt":
                attempt = {"n": record.n, "at_us": record.t, **keys}
                if "crossing" in keys:  # of which people want to know what was lost
                    attempt["lost"] = as_list(as_object(attempt.pop("crossing")).get("lost"))
                self.attempts.append(attempt)
                self._begin_attempt()
            case "head" if self.attempts:
                status = self.attempts[-1]["status"] = keys.get("status")
                self._failing = type(status) is int and status >= 400
            case "failed" if self.attempts:
                failure = {key: value for key, value in keys.items() if key != "attempt"}
                self.attempts[-1]["failure"] = {"n": record.n, "at_us": record.t, **failure}
            case "body" if self._failing:
                self._error += (record.raw or b"")[: PREVIEW_BYTES_MAX - len(self._error)]
                self.attempts[-1]["error"] = self._error.decode("utf-8", "replace")
            case "commit":
                self.status = keys.get("status")
            case "end":
                self.end = record
            case _:
                pass

    # -- events -------------------------------------------------------------------------------------------------------

    def _take_event(self, event: Event, t: int) -> None:
        self._markup.apply(event)
        if isinstance(event, model.TextPiece | model.CallPiece | model.Finish):
            said = self._said[event.choice]
            if isinstance(event, model.TextPiece):
                said[type(event)].write(event.text)
        if isinstance(event, model.TextPiece | model.CallPiece | model.AudioDelta):
            self._pause(t)
            self.last_content_us = t

    def _hear(self, t: int) -> None:
        """Note a sign of life: the upstream was asked, sent something, or is done."""
        if self._alive_us is not None:
            self.longest_silence_us = max(self.longest_silence_us, t - self._alive_us)
        self._alive_us = t

    def _pause(self, t: int) -> None:
        if self.last_content_us is not None:
            self.longest_pause_us = max(self.longest_pause_us, t - self.last_content_us)

    # -- questions ----------------------------------------------------------------------------------------------------

    @property
    def answers(self) -> list[Answer]:
        """The answer of each choice, in order."""
        return [self.answer(choice) for choice in sorted(self._said)]

    def answer(self, choice: int = 0) -> Answer:
        said: Mapping[type, StringIO] = self._said.get(choice, {})
        kinds = model.TextDelta, model.ReasoningDelta, model.RefusalDelta
        text, reasoning, refusal = (joined_surrogates(said[kind].getvalue()) if kind in said else "" for kind in kinds)
        state = self.wire.choices.get(choice)
        return Answer(choice, text, reasoning, refusal, state.finish if state is not None else "")

    @property
    def dialect(self) -> str:
        """The client's dialect; empty if Wiretape does not read it."""
        dialect = self.opening.get("dialect")
        return dialect if dialect in DIALECTS else ""

    @property
    def ending(self) -> str | None:
        """The ending that the tape states, or the computed one where it states none; None while the stream runs."""
        return self._ended()[0]

    @property
    def flags(self) -> list[str]:
        """The flags of that ending; of a running stream, the flags so far."""
        return self._ended()[1]

    def _ended(self) -> tuple[str | None, list[str]]:
        if self.end is None:
            return None, list(self.wire.all_flags())
        if isinstance(ending := self.end.keys.get("ending"), str):
            return ending, [flag for flag in as_list(self.end.keys.get("flags")) if isinstance(flag, str)]
        ended = self.wire.ended
        return (ended.ending, list(ended.flags)) if ended is not None else ("internal", [])

    @property
    def warnings(self) -> list[Warned]:
        """What a person should know: lost calls with the reason, an ending other than `completed`, flags, markup."""
        if not self.dialect:
            codes = [] if self.ending in (None, "completed") else [str(self.ending)]
            return [Warned(code, ()) for code in [*codes, *self.flags]]
        ended = self.wire.ended
        if ended is None:
            return []
        by_reason: dict[str, list[Call]] = {}
        for call in self.wire.all_calls():
            if call.state in (State.DROPPED, State.MALFORMED):
                by_reason.setdefault(call.reason, []).append(call)
        found = [
            Warned(reason, tuple((call.id, call.name) for call in islice(calls, _WARNED_CALLS_MAX)))
            for reason, calls in by_reason.items()
        ]
        if ended.ending != "completed" and ended.ending not in by_reason:
            found.append(Warned(ended.ending, ()))
        flags = [flag for flag in ended.flags if flag != "malformed_call"]
        return found + [Warned(code, ()) for code in (*flags, *self._markup.found)]

    @property
    def received(self) -> dict[str, Any]:
        """Bytes and frames of the last attempt; of an ended stream as its tape counts them, with their SHA-256."""
        if self.end is not None and "sha256" in self.end.keys:
            return {key: self.end.keys.get(key) for key in ("bytes", "frames", "sha256")}
        return {"bytes": self.received_bytes, "frames": self.frames}
