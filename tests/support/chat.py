"""Frames to a tape, and the client's bytes, events and ledger from it, in any dialect; chat frames written by hand."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wiretape.events.chat.request import facts
from wiretape.events.core.json_text import ABSENT, dumps, parse
from wiretape.events.core.model import Ended, Event, Repaired, ResponseStarted
from wiretape.events.core.settings import Profile
from wiretape.events.dialects import DIALECTS
from wiretape.events.emit import Emitter
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.events.wire.sse import parse_block

#: The names in docs/reference/repairs.md.
REPAIRS = frozenset(
    re.findall(r"^\| `(\w+)` \|", (Path(__file__).parents[2] / "docs/reference/repairs.md").read_text(), re.MULTILINE)
)
DONE = b"data: [DONE]\n\n"
HEAD: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}


def tape(
    upstream: bytes | list[bytes],
    *,
    request: dict[str, Any] | None = None,
    cause: str = "eof",
    reads: int | list[int] | None = None,
    body: bool = False,
    dialect: str = "chat",
    upstream_dialect: str = "",
    crossing: Mapping[str, Any] | None = None,
    **settings: Any,
) -> list[Record]:
    """The records of one stream. A list is read piece by piece; `reads` cuts instead at every so many bytes or at these
    places. `body` records an answer that is not a stream. With `upstream_dialect` the request was crossed.
    """
    recorder = Recorder()
    opening = {"format": 1, "stream": "s1", "dialect": dialect, "created": 7, "profile": "strict", "settings": settings}
    body_of_request = {"stream": True, "model": "m"} if request is None else request
    asked = facts(body_of_request) if dialect == "chat" else DIALECTS[dialect].facts(body_of_request)
    records = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": asked.to_keys()})]
    if upstream_dialect:
        keys = {"number": 1, "dialect": upstream_dialect, "crossing": crossing or {}}
        records += recorder.attempt(0, keys)
    for t, data in enumerate(_reads(upstream, reads), 1):
        if body:
            records.append(recorder.body(t, data))
            continue
        records += recorder.read(t, data)
        if recorder.decoder.overflow:
            cause = "limit"
            break
    if not body:
        records += recorder.rest(1 << 40)
    return [*records, recorder.end(1 << 40, {"cause": cause})]


def _reads(upstream: bytes | list[bytes], reads: int | list[int] | None) -> Iterator[bytes]:
    if isinstance(upstream, list) and reads is None:
        yield from filter(None, upstream)
        return
    data = b"".join(upstream) if isinstance(upstream, list) else upstream
    places = list(range(reads, len(data), reads)) if isinstance(reads, int) else sorted(reads or [])
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        if start < end:
            yield data[start:end]


class Run(NamedTuple):
    """Everything that comes of one tape."""

    records: list[Record]
    #: What went out on account of each record.
    frames: list[list[bytes]]
    #: Without the entries of the ledger.
    events: Sequence[Event]
    ledger: list[Repaired]
    wire: Wire

    @property
    def sent(self) -> list[bytes]:
        """Every frame that went out."""
        return [frame for frames in self.frames for frame in frames]

    @property
    def out(self) -> bytes:
        """Every byte that went out."""
        return b"".join(self.sent)

    @property
    def ended(self) -> Ended:
        """How it ended."""
        assert self.wire.ended is not None
        return self.wire.ended

    @property
    def repairs(self) -> list[str]:
        """The names of the ledger's entries, in order."""
        return [entry.repair for entry in self.ledger]

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def by_ledger(self) -> dict[int, list[Any]]:
        """What each record gives when its ledger entries are applied to the frame that came, parsed (law L8)."""
        given = {record.n: [_parsed(record.raw or b"")] for record in self.records if record.kind == "frame"}
        rests = {record.n: record.raw or b"" for record in self.records if record.kind == "rest"}
        for entry in self.ledger:
            if entry.n in rests and (entry.key is not None or entry.before is not ABSENT):  # a last frame, unended
                given.setdefault(entry.n, []).insert(0, _parsed(rests.pop(entry.n)))
            frames = given.setdefault(entry.n, [])
            if entry.key is not None:
                _apply(entry, frames[0])
            elif entry.before is not ABSENT:
                assert frames[0] == _parsed(entry.before), entry
                frames[:1] = [] if entry.after is ABSENT else [_parsed(entry.after)]
            elif entry.after is not ABSENT:
                frames.append(_parsed(entry.after))
        return given


class _Parsed(NamedTuple):
    event: bytes
    payload: Any


def _parsed(frame: bytes) -> Any:
    block = parse_block(frame, first=True)
    value = ABSENT if block.payload is None else parse(block.payload)
    return frame if value is ABSENT else _Parsed(block.event, value)


def _canonical(frame: Any) -> str:
    """Compare integers beyond 64 bits as floats: orjson reads them so, the standard library does not."""
    value = json.loads(json.dumps(frame, default=repr), parse_int=lambda text: (int if len(text) < 19 else float)(text))
    return json.dumps(value, sort_keys=True)


def _apply(entry: Repaired, frame: _Parsed) -> None:
    container: Any = frame.payload
    for step in entry.path:
        container = container[step]
    if isinstance(entry.key, int):
        assert container.pop(entry.key) == entry.before, entry
        return
    assert container.get(entry.key, ABSENT) == entry.before, entry
    if entry.after is ABSENT:
        del container[entry.key]
    else:
        container[entry.key] = parse(dumps(entry.after))


def run(records: Iterable[Record], profile: Profile | None = None) -> Run:
    """Emit with the whole ledger, see that L8 holds, and see that the fast way without a ledger sends the same."""
    records = list(records)
    seen: list[Event] = []
    emitter = Emitter(profile, seen.append)
    frames = [emitter.feed(record) for record in records]
    ledger = [event for event in seen if isinstance(event, Repaired)]
    events = [event for event in seen if not isinstance(event, Repaired)]
    result = Run(records, frames, events, ledger, emitter.wire)
    if profile != "transparent":
        check_ledger(result)
    assert len(result.of(ResponseStarted)) <= 1 + [record.kind for record in records].count("attempt")
    live = Emitter(profile)
    sent = [live.feed(record) for record in records[:-1]]
    foretold = live.ending(str(records[-1].keys.get("cause")))
    assert [*sent, live.feed(records[-1])] == frames
    if live.wire.ended is not None:  # what the live path writes into `end` is what every replay finds
        assert foretold == (live.wire.ended.ending, live.wire.ended.flags)
    assert live.ledger.counts == emitter.ledger.counts == Counter(entry.repair for entry in ledger)
    return result


def check_ledger(result: Run) -> None:
    """L8: the entries explain every frame, and a frame without one passes as the object that came."""
    assert set(result.repairs) <= REPAIRS, set(result.repairs) - REPAIRS
    explained = [frame for given in result.by_ledger().values() for frame in given]
    sent = list(map(_parsed, result.sent))
    assert sorted(map(_canonical, explained)) == sorted(map(_canonical, sent))
    changed = {entry.n for entry in result.ledger if entry.key is not None or entry.before is not ABSENT}
    objects = {id(frame) for frame in result.sent}
    frames = [record for record in result.records if record.kind == "frame"]
    passed = {id(record.raw) for record in frames if record.n not in changed}
    assert {id(record.raw) for record in frames} & objects == passed, changed


# -- frames -----------------------------------------------------------------------------------------------------------


def sse(value: Any) -> bytes:
    """The canonical frame of a payload: JSON text, or a value."""
    return b"data: %b\n\n" % (value if isinstance(value, bytes) else dumps(value))


def frame(delta: Any, reason: str | None = None, index: int = 0, **extra: Any) -> bytes:
    """A canonical frame of one choice; `extra` are members of the chunk."""
    return sse({**HEAD, "choices": [{"index": index, "delta": delta, "finish_reason": reason}], **extra})


def chunk(choice: Any, **extra: Any) -> bytes:
    """A frame of one choice as given."""
    return sse({**HEAD, "choices": [choice], **extra})


def text(content: Any, *, role: bool = False, index: int = 0) -> bytes:
    """A piece of text."""
    return frame({"role": "assistant", "content": content} if role else {"content": content}, None, index)


def call(*, role: bool = False, choice: int = 0, **entry: Any) -> bytes:
    """A frame with one entry of `tool_calls`; the members `name` and `arguments` go into its function."""
    function = {key: entry.pop(key) for key in ("name", "arguments") if key in entry}
    return tool_calls({**entry, "function": function} if function else entry, role=role, index=choice)


def begin(
    call_id: Any, name: Any, arguments: Any = "", index: Any = 0, *, role: bool = False, choice: int = 0, **more: Any
) -> bytes:
    """The start of a call; `more` are members of its entry."""
    return tool_calls(call_entry(call_id, name, arguments, index, **more), role=role, index=choice)


def call_entry(call_id: Any, name: Any, arguments: Any = "", index: Any = 0, **more: Any) -> dict[str, Any]:
    """One entry of `tool_calls`; its index may be ABSENT."""
    place = {} if index is ABSENT else {"index": index}
    return {**place, "id": call_id, "type": "function", **more, "function": {"name": name, "arguments": arguments}}


def tool_calls(*entries: Any, reason: str | None = None, role: bool = False, index: int = 0, **extra: Any) -> bytes:
    """A frame with these entries of `tool_calls`."""
    return frame({**({"role": "assistant"} if role else {}), "tool_calls": list(entries)}, reason, index, **extra)


def finish(reason: str | None = "stop", index: int = 0) -> bytes:
    """The finish of one choice."""
    return frame({}, reason, index)
