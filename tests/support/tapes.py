"""Sealed tapes of a few lines, as a recorder makes them: requests, timed reads and endings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import chat
from wiretape.events.core.json_text import dumps
from wiretape.events.core.settings import Facts
from wiretape.events.dialects import DIALECTS
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.replay.seal import seal

CHAT = "/v1/chat/completions"


class Turn(NamedTuple):
    """A request, and the reads of its answer with the pause before each."""

    body: Mapping[str, Any]
    reads: Sequence[tuple[float, bytes]]
    #: `broke` of the `end` record; empty if the answer ended properly.
    broke: str = ""
    path: str = CHAT
    dialect: str = "chat"
    status: int = 200
    kind: str = "text/event-stream"


def asking(question: str = "hi", **more: Any) -> dict[str, Any]:
    """Return the body of a request."""
    return {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}], **more}


def text(question: str, *pieces: str, gap_s: float = 0.0) -> Turn:
    """Return a turn with an answer in text."""
    frames = [*map(chat.text, pieces), chat.finish(), chat.DONE]
    return Turn(asking(question), [(gap_s, frame) for frame in frames])


def calls(question: str, name: str, *arguments: str) -> Turn:
    """Return a turn with an answer that calls one tool."""
    frames = [chat.call(role=True, index=0, id="call_1", type="function", name=name, arguments="")]
    frames += [chat.call(index=0, arguments=piece) for piece in arguments]
    frames += [chat.finish("tool_calls"), chat.DONE]
    return Turn(asking(question), [(0.0, frame) for frame in frames])


def exchange(path: str, body: Mapping[str, Any], answer: bytes, *, kind: str = "application/json") -> Turn:
    """Return a turn without a dialect, with an answer in one read."""
    return Turn(body, [(0.0, answer)], path=path, dialect="", kind=kind)


def records_of(turn: Turn) -> list[Record]:
    """Return the live tape of a turn."""
    recorder, emitter, t = Recorder(), Emitter(), 1_000
    opened = {"format": 1, "stream": "s" * 32, "dialect": turn.dialect, "profile": "transparent"}
    records = [recorder.record("open", 0, {**opened, "created": 1_700_000_000})]
    facts = Facts(model=str(turn.body.get("model")), stream=turn.body.get("stream") is True).to_keys()
    headers = [["content-type", "application/json"]]
    keys = {"method": "POST", "path": turn.path, "headers": headers, "facts": facts}
    records.append(recorder.record("request", 0, keys, dumps(dict(turn.body))))
    records += recorder.attempt(0, {"number": 1, "upstream": "live"})
    head = {"status": turn.status, "headers": [["content-type", turn.kind]], "framing": "chunked"}
    records.append(recorder.record("head", t, head))
    for gap_s, data in turn.reads:
        t += int(gap_s * 1_000_000)
        streams = turn.kind == "text/event-stream"
        records += recorder.read(t, data) if streams else [recorder.body(t, data)]
    records += recorder.rest(t)
    for record in records:
        emitter.feed(record)
    cause = {"": "eof", "truncated": "eof"}.get(turn.broke, turn.broke)
    ending, flags = emitter.ending(cause) if turn.dialect in DIALECTS else (turn.broke or "completed", ())
    framed: dict[str, Any] = {"framed": False, "broke": turn.broke} if turn.broke else {"framed": True}
    return [*records, recorder.end(t, {"cause": cause, "ending": ending, "flags": list(flags), **framed})]


def conversation(*turns: Turn) -> bytes:
    """Return the sealed tape of some turns."""
    return seal([records_of(turn) for turn in turns])


def write(file: Path, sealed: bytes) -> None:
    """Write a tape, and make its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(sealed)
