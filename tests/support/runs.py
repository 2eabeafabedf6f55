"""Runs written by hand: the tapes of their turns, what a viewer gets of them, and a check against the schemas."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.support.chat import sse
from wiretape.events.chat.request import facts
from wiretape.events.core.json_text import as_list, as_object, dumps
from wiretape.events.emit import RunReader
from wiretape.events.folds.run import RunFold
from wiretape.events.folds.run_events import CLOSED, COMMON, event_schema
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder

RUN = "run_" + "0123456789abcdef" * 2
SECOND = 1_000_000
CLOSING = {f"run.{status}" for status in CLOSED}
#: A turn begins so many seconds after the one before.
TURN_S = 10


def turn(
    number: int,
    what: str = "start",
    body: Mapping[str, Any] | bytes | None = None,
    upstream: Sequence[Any] | None = None,
    *,
    cause: str = "eof",
    mode: str = "own",
    keys: Mapping[str, Any] | None = None,
    choices: int = 1,
    **opening: Any,
) -> list[Record]:
    """One tape of a run. `upstream` are its reads, each a millisecond after the one before, or other records as kind,
    keys and bytes; without it, nothing was asked.
    """
    recorder = Recorder()
    dialect = "chat" if mode == "own" else ""
    created = 1_700_000_000 + TURN_S * number
    opened = {"stream": f"s{number}", "dialect": dialect, "created": created, "created_us": created * SECOND}
    records = [recorder.record("open", 0, {"format": 1, "profile": "strict", "run": RUN, **opened, **opening})]
    data = body if isinstance(body, bytes) else dumps(dict(body)) if body is not None else None
    records.append(recorder.record("run", 1, {"turn": number, "what": what, "mode": mode, **(keys or {})}, data))
    t = 2
    if upstream is not None:
        asked = facts({"stream": True, "model": "m", "n": choices})
        records.append(recorder.record("request", t, {"facts": asked.to_keys()}))
        records += recorder.attempt(t, {"number": 1})
    for part in upstream or ():
        t += 1_000
        if isinstance(part, bytes):
            records += recorder.read(t, part)
        elif part[0] == "attempt":
            records += recorder.attempt(t, part[1])
        elif part[0] == "body":
            records.append(recorder.body(t, part[2]))
        else:
            records.append(recorder.record(part[0], t, *part[1:]))
    records += recorder.rest(t)
    ending = {} if dialect else {"ending": "completed" if cause == "eof" else cause}
    return [*records, recorder.end(t + 1, {"cause": cause, **ending})]


def start(*upstream: Any, body: Mapping[str, Any] | None = None, **more: Any) -> list[Record]:
    """The first turn of a run."""
    return turn(1, "start", {"model": "m", "input": "hi", **(body or {})}, upstream, **more)


def outputs(*upstream: Any, number: int = 2, **given: str | list[Any]) -> list[Record]:
    """A turn with the outputs of calls, by id; of one that failed, an `error` in a list."""
    rows: list[dict[str, Any]] = [
        {"call_id": call_id, "error": output[0]} if isinstance(output, list) else {"call_id": call_id, "output": output}
        for call_id, output in given.items()
    ]
    return turn(number, "outputs", {"tool_outputs": rows}, upstream)


def relayed(*events: Any, **more: Any) -> list[Record]:
    """A run of the upstream's own: its events, or other parts of a turn."""
    return start(*(sse(event) if isinstance(event, dict) else event for event in events), mode="relay", **more)


class Played(NamedTuple):
    """What a viewer got, and the state of the run."""

    events: list[dict[str, Any]]
    run: RunFold

    @property
    def names(self) -> list[str]:
        """The names of the events in order."""
        return [event["event"] for event in self.events]

    def of(self, name: str) -> list[dict[str, Any]]:
        """Return the events of one name, without the fields that all have."""
        return [own(event) for event in self.events if event["event"] == name]

    @property
    def last(self) -> dict[str, Any]:
        """The last event, without the fields that all have but its name."""
        return {"event": self.events[-1]["event"], **own(self.events[-1])}


def own(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event but those that all have."""
    return {key: value for key, value in event.items() if key not in COMMON}


def play(*tapes: Iterable[Record]) -> Played:
    """Return what a viewer gets of these tapes, which may hold anything: the laws of runs are checked."""
    reader, events = RunReader(), list[dict[str, Any]]()
    for record in (record for tape in tapes for record in tape):
        for frame in reader.feed(record):
            head, data, *end = frame.split(b"\n")
            event = json.loads(data.removeprefix(b"data: "))
            assert (head, end) == (b"id: %d" % event["sequence"], [b"", b""])
            assert misfit(event, event_schema(event["event"])) == ""
            assert not events or events[-1]["event"] not in CLOSING, "an event after the closing one"
            events.append(event)
    run = reader.run
    assert [event["sequence"] for event in events] == [*range(1, len(events) + 1)]
    assert [place for place, event in enumerate(events) if event["event"] == "run.started"] == [*range(len(events[:1]))]
    assert run.sequence == len(events)
    assert run.last_event == (events[-1]["event"] if events else "")
    assert (run.status in CLOSED) is (run.last_event in CLOSING)
    return Played(events, run)


_TYPES: dict[str, Any] = {"string": str, "boolean": bool, "number": (int, float), "integer": int, "array": list}


def misfit(value: Any, schema: Mapping[str, Any], at: str = "$") -> str:
    """Return the first place where a value breaks a schema of the few words that ours use, or an empty text."""
    words = {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "minimum"}
    assert words.issuperset(schema), schema
    kind = schema.get("type")
    wrong = [
        "const" in schema and value != schema["const"],
        "enum" in schema and value not in schema["enum"],
        kind in _TYPES and (not isinstance(value, _TYPES[kind]) or (kind != "boolean" and isinstance(value, bool))),
        "minimum" in schema and value < schema["minimum"],
        kind == "object" and not isinstance(value, dict),
    ]
    if any(wrong):
        return at
    places: list[str] = []
    if kind == "array":
        places += [misfit(item, schema["items"], f"{at}[{place}]") for place, item in enumerate(as_list(value))]
    if kind == "object":
        places += [f"{at}.{name} is missing" for name in schema["required"] if name not in value]
    for name, item in as_object(value).items():
        if name in schema.get("properties", {}):
            places.append(misfit(item, schema["properties"][name], f"{at}.{name}"))
        elif not schema.get("additionalProperties", True):
            places.append(f"{at}.{name} is unknown")
    return next(filter(None, places), "")
