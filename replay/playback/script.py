"""One scripted HTTP response as data: its chunks, their delays and the way it ends; and what turns records into one.

A recording is played as its upstream sent it, so that a client meets the upstream's faults. Where client and upstream
spoke different dialects, it is played as the client got it.

Where the proxy or the client left first, the rest is silence, because nothing says what would have come. Older tapes
without `framing` and `framed` leave the ending to a guess, as docs/reference/replay.md describes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import as_list, as_object
from wiretape.events.dialects import spoken
from wiretape.events.emit import Emitter, emit
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import Recorder, reads

from ..redaction.plain_text import headers_to_send

__all__ = [
    "EVENT_STREAM",
    "INSTANT",
    "ORIGINAL",
    "Fault",
    "Request",
    "Script",
    "Speed",
    "Splice",
    "Step",
    "answer_of",
    "as_played",
    "attempts_of",
    "cut_at",
    "event_stream",
    "head_of",
    "is_crossed",
    "json_answer",
    "script_of",
    "spliced",
    "uncrossed",
]

_Header = tuple[bytes, bytes]
#: Start and end in a body, and the bytes that replace what is between them.
Splice = tuple[int, int, bytes]

EVENT_STREAM: Final[tuple[_Header, ...]] = ((b"Content-Type", b"text/event-stream"),)
_JSON: Final[_Header] = (b"Content-Type", b"application/json")


class Fault(Enum):
    """A way to end other than the proper one."""

    #: An orderly FIN inside the body: no final chunk, or fewer bytes than promised.
    CUT = "cut"
    #: A TCP reset; a cut over a stream that is not a socket.
    RESET = "reset"
    #: Silence until the client leaves.
    STALL = "stall"
    #: Bytes that are not HTTP, then a FIN.
    GARBAGE = "garbage"


class Step(NamedTuple):
    """After a delay: one chunk, or the end."""

    delay_s: float
    what: bytes | Fault


class Request(NamedTuple):
    """One request as it was received."""

    method: bytes
    target: bytes
    headers: Sequence[_Header]
    body: bytes
    http_version: bytes = b"1.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Status, headers and steps. What follows a fault is never played; without a fault, the response ends properly.

    With a `Content-Length`, or with `closes`, the bytes go out as they are. Otherwise each step is one HTTP chunk.
    """

    status: int = 200
    headers: Sequence[_Header] = EVENT_STREAM
    steps: Sequence[Step] = ()
    #: From the request to the head, or to the fault that replaces it.
    head_delay_s: float = 0.0
    #: The end of the connection is the end of the body.
    closes: bool = False
    #: The fault that replaces the response.
    unanswered: Fault | None = None
    #: Give the client time to read each chunk by itself, as far as possible.
    apart: bool = False
    #: By the place of a step: whether it may be played yet. Until then the response is silent.
    gates: Mapping[int, Callable[[], bool]] = field(default_factory=dict[int, Callable[[], bool]])

    @property
    def body(self) -> bytes:
        return b"".join(what for _, what in self.steps if isinstance(what, bytes))

    @property
    def fault(self) -> Fault | None:
        """The fault that ends the response, or replaces it."""
        ends = (what for _, what in self.steps if isinstance(what, Fault))
        return self.unanswered or next(ends, None)

    @property
    def chunked(self) -> bool:
        return not self.closes and not self.has_length

    @property
    def has_body(self) -> bool:
        """Whether HTTP allows a body with this status (RFC 9110, 6.4.1)."""
        return self.status not in (204, 304)

    @property
    def has_length(self) -> bool:
        """Whether the head gives the length of the body."""
        return not self.has_body or any(name.lower() == b"content-length" for name, _ in self.headers)


def event_stream(pieces: Iterable[bytes], *, gap_s: float = 0.0, end: Fault | None = None) -> Script:
    """Return an event stream of these chunks, with one delay before each and before the fault."""
    steps = [Step(gap_s, piece) for piece in pieces]
    return Script(steps=[*steps, *([Step(gap_s, end)] if end else [])])


def json_answer(body: bytes, status: int = 200) -> Script:
    headers = (_JSON, (b"Content-Length", b"%d" % len(body)))
    return Script(status=status, headers=headers, steps=[Step(0, body)] if body else ())


def spliced(script: Script, splices: Sequence[Splice]) -> Script:
    """Replace parts of the body, given in order. New bytes arrive with the chunk in which the old ones began."""
    waiting = list(reversed(splices))
    steps: list[Step] = []
    at = done = 0  # the start of this chunk, and the end of the last splice
    for step in script.steps:
        if isinstance(step.what, Fault):
            steps.append(step)
            break
        after, parts = at + len(step.what), list[bytes]()
        while waiting and waiting[-1][0] < after:
            start, end, new = waiting.pop()
            parts += [step.what[max(0, done - at) : start - at], new]
            done = end
        parts.append(step.what[max(0, done - at) :])
        steps.append(Step(step.delay_s, b"".join(parts)))
        at = after
    return _with_length(replace(script, steps=steps))


def cut_at(script: Script, kept: int, tail: bytes = b"", fault: Fault | None = None) -> Script:
    """End after so many bytes. The tail arrives with the chunk from which it is; nothing is waited for after it."""
    cut = spliced(script, [(kept, len(script.body), tail)])
    steps = [step for step in cut.steps if not isinstance(step.what, Fault)]
    while steps and not steps[-1].what:
        steps.pop()
    gates = {number: gate for number, gate in script.gates.items() if number < len(steps)}
    return _with_length(replace(script, steps=[*steps, *([Step(0.0, fault)] if fault else [])], gates=gates))


def _with_length(script: Script) -> Script:
    """Promise the length of the body, or more if a fault ends it."""
    headers, size = [*script.headers], len(script.body)
    for at, (name, value) in enumerate(script.headers):
        if name.lower() == b"content-length":
            promised = size if script.fault is None else max(int(value) if value.isdigit() else 0, size + 1)
            headers[at] = name, b"%d" % promised
    return replace(script, headers=headers)


# -- the script of a recorded stream -----------------------------------------------------------------------------------

_SECOND_US: Final = 1_000_000
#: They would open the replay to pages of others, or set cookies for this machine.
_FOR_BROWSERS: Final = (b"access-control-", b"set-cookie")
#: By `broke`, or by the ending of a failed attempt: how the connection broke.
_BROKE: Final[Mapping[str, Fault | None]] = MappingProxyType(
    {"closed": None, "truncated": Fault.CUT, "reset": Fault.RESET, "protocol": Fault.GARBAGE}
)
#: By the cause of `end`, for tapes that do not record how the body ended.
_CAUSES: Final[Mapping[str, Fault | None]] = MappingProxyType(
    {**_BROKE, "framed": None, "status": None, "upstream_error": None, "eof": Fault.CUT}
)

#: Endings of which a client need not hear.
_UNTOLD: Final = frozenset({None, "client_gone", "shutdown", "crashed", "internal"})

#: By the way a response ends: its cause and ending in the `end` record, and what broke the connection.
_ENDS: Final[Mapping[Fault | None, tuple[str, str, str]]] = MappingProxyType(
    {
        None: ("framed", "completed", ""),
        Fault.CUT: ("eof", "truncated", "truncated"),
        Fault.RESET: ("reset", "reset", "reset"),
        Fault.STALL: ("stalled", "stalled", ""),
        Fault.GARBAGE: ("protocol", "protocol", "protocol"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How recorded delays are played: first bounded, then divided."""

    times: float = inf
    gap_s_max: float = inf

    def delay(self, recorded_us: int) -> float:
        return 0.0 if self.times == inf else min(recorded_us / _SECOND_US, self.gap_s_max) / self.times

    @staticmethod
    def of(text: str, gap_s_max: float = inf) -> "Speed":
        """Parse `instant`, `original` or a factor; raise ValueError."""
        times = {"instant": inf, "original": 1.0}.get(text) or float(text)
        if not times > 0 or gap_s_max < 0 or (times == inf and text != "instant"):
            raise ValueError("a speed is a positive finite number, and a gap is not negative")
        return Speed(times=times, gap_s_max=gap_s_max)


INSTANT: Final = Speed()
ORIGINAL: Final = Speed(times=1)


def attempts_of(records: Sequence[Record]) -> list[Sequence[Record]]:
    """Return the records of each attempt; all records if there is no attempt."""
    starts = [at for at, record in enumerate(records) if record.kind == "attempt"]
    ends = [*starts[1:], len(records)] if starts else []
    return [records[start:end] for start, end in zip(starts, ends, strict=True)] or [records]


def _keys_of(records: Sequence[Record], kind: str) -> Mapping[str, Any]:
    """Return the keys of the first record of a kind, or no keys."""
    return next((record.keys for record in records if record.kind == kind), NO_KEYS)


def head_of(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the keys of the last attempt's head; empty if none came."""
    return _keys_of(attempts_of(records)[-1], "head")


def script_of(records: Sequence[Record], *, speed: Speed = INSTANT, all_headers: bool = True) -> Script:
    """Return what the upstream sent in the last attempt; `all_headers` includes those that browsers obey."""
    if is_crossed(records):
        return _crossed(records, speed)
    attempt = attempts_of(records)[-1]
    began = attempt[0].t
    head = next((record for record in attempt if record.kind == "head"), None)
    end = next((record for record in attempt if record.kind in ("failed", "end")), None)
    keys = end.keys if end is not None else NO_KEYS
    if head is None:  # a listening server can only reset what was refused
        ending = str(keys.get("ending", ""))
        fault = Fault.RESET if ending == "refused" else _BROKE.get(ending, Fault.STALL)
        delay_s = speed.delay(end.t - began) if end is not None and fault is not Fault.STALL else 0.0
        return Script(head_delay_s=delay_s, unanswered=fault)
    status, framing, length = (head.keys.get(name) for name in ("status", "framing", "length"))
    assert isinstance(status, int), "a tape is refused without one"
    fault = _fault(keys)
    steps: list[Step] = []
    last = head.t
    for t, data in reads(attempt):
        steps.append(Step(speed.delay(t - last), data))
        last = t
    delay_s = speed.delay(end.t - last) if end is not None and fault is not Fault.STALL else 0.0
    if fault is not None or delay_s:
        steps.append(Step(delay_s, fault or b""))
    headers = headers_to_send(head.keys)
    if not all_headers:
        headers = [header for header in headers if not header[0].lower().startswith(_FOR_BROWSERS)]
    closes, head_delay_s = framing == "close", speed.delay(head.t - began)
    script = Script(status=status, headers=headers, steps=steps, head_delay_s=head_delay_s, closes=closes)
    if framing != "length" or type(length) is not int:
        return script
    script = replace(script, headers=[*headers, (b"content-length", b"%d" % length)])
    # A decoded or redacted body has another length, except that of a HEAD request.
    return script if _keys_of(records, "request").get("method") == "HEAD" else _with_length(script)


def is_crossed(records: Sequence[Record]) -> bool:
    """Report whether the upstream that answered spoke another dialect than the client."""
    if not records:
        return False
    client, upstream = (spoken(one.keys.get("dialect")) for one in (records[0], attempts_of(records)[-1][0]))
    return bool(client and upstream) and client != upstream


def answer_of(records: Sequence[Record]) -> bytes:
    """Return the bytes of the answer as `script_of` plays them."""
    attempt = attempts_of(records)[-1]
    return emit(records) if is_crossed(records) else b"".join(data for _, data in reads(attempt))


def uncrossed(records: Sequence[Record]) -> Sequence[Record]:
    """Return a tape on which the upstream sent what the client got, if they spoke different dialects."""
    return as_played(records, script_of(records, speed=ORIGINAL)) if is_crossed(records) else records


def _crossed(records: Sequence[Record], speed: Speed) -> Script:
    """Return what the client got. After an ending that it was not sent, the rest is silence."""
    committed = _keys_of(records, "commit").get("status", head_of(records).get("status"))
    status = committed if type(committed) is int and 200 <= committed <= 999 else None
    streams = as_object(_keys_of(records, "request").get("facts")).get("stream") is True
    keys = records[-1].keys if records[-1].kind == "end" else NO_KEYS
    told = keys.get("answer") == "whole" or keys.get("ending") not in _UNTOLD
    emitter, sent = Emitter(), list[tuple[int, bytes]]()
    for record in records:
        said = b"".join(emitter.feed(record))
        if said and (told or record.kind != "end"):
            sent.append((record.t, said))
    if status is None or not sent:
        return Script(unanswered=Fault.STALL)
    began = sent[0][0]
    times = [began, *(t for t, _ in sent)]
    steps = [Step(speed.delay(t - last), data) for last, (t, data) in zip(times, sent, strict=False)]
    steps += [] if told else [Step(0.0, Fault.STALL)]
    headers = EVENT_STREAM if streams and status < 300 else (_JSON,)
    head_delay_s = speed.delay(began - attempts_of(records)[-1][0].t)
    return Script(status=status, headers=headers, steps=steps, head_delay_s=head_delay_s)


def _fault(end: Mapping[str, Any]) -> Fault | None:
    """Return how the body broke; None if it ended properly, silence if the proxy did not wait for its end."""
    framed = end.get("framed")
    if isinstance(framed, bool):
        return None if framed else _BROKE.get(str(end.get("broke")), Fault.STALL)
    if end.get("ending") == "completed" or "unframed" in as_list(end.get("flags")):
        return None
    return _CAUSES.get(str(end.get("cause", end.get("ending"))), Fault.STALL)


# -- the tape of a script that was played ------------------------------------------------------------------------------


def as_played(records: Sequence[Record], script: Script) -> list[Record]:
    """Return the tape of a script that was played for the request of these records."""
    asked = next((at for at, record in enumerate(records) if record.kind == "attempt"), len(records))
    attempt = attempts_of(records)[-1][0]
    recorder = Recorder()
    played = [recorder.record(record.kind, record.t, record.keys, record.raw) for record in records[:asked]]
    keys = {name: value for name, value in attempt.keys.items() if name not in ("dialect", "crossing")}
    played += recorder.attempt(attempt.t, keys)
    t = attempt.t + round(script.head_delay_s * _SECOND_US)
    fault = script.unanswered
    if fault is None:
        t, fault = _play(script, recorder, t, played)
    played += recorder.rest(t)
    cause, ending, broke = _ENDS[fault]
    flags: Sequence[str] = ()
    if spoken(records[0].keys.get("dialect")):
        cause = "eof" if cause == "framed" else cause  # the end of HTTP is not the end of such a stream
        emitter = Emitter()
        for record in played:
            emitter.feed(record)
        ending, flags = emitter.ending(cause)
    end: dict[str, object] = {"cause": cause, "ending": ending, "flags": list(flags)}
    if script.unanswered is None:
        closed = fault is None and script.closes
        end["framed"] = fault is None and not closed
        end |= {"broke": "closed"} if closed else {"broke": broke} if broke else {}
    return [*played, recorder.end(t, end)]


def _play(script: Script, recorder: Recorder, t: int, played: list[Record]) -> tuple[int, Fault | None]:
    """Record head and body; return when the response ended, and with which fault."""
    headers = [[name.decode("latin-1").lower(), value.decode("latin-1")] for name, value in script.headers]
    lengths = [int(value) for name, value in headers if name == "content-length"]
    framing: dict[str, object] = {"framing": "close" if script.closes else "chunked"}
    if lengths:
        framing = {"framing": "length", "length": lengths[-1]}
    headers = [header for header in headers if header[0] != "content-length"]
    played.append(recorder.record("head", t, {"status": script.status, "headers": headers, **framing}))
    streams = any(name == "content-type" and value.startswith("text/event-stream") for name, value in headers)
    for delay_s, what in script.steps:
        t += round(delay_s * _SECOND_US)
        if isinstance(what, Fault):
            return t, what
        if what:
            played += recorder.read(t, what) if streams else [recorder.body(t, what)]
    return t, None
