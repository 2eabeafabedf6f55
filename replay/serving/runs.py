"""Recorded runs: what their clients sent becomes exchanges of its own, and their events come from the tapes.

Where a run waited for its client, its replayed event stream waits until the client has sent that again.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final
from urllib.parse import parse_qsl

from wiretape.events.core.json_text import as_object, dumps, parse
from wiretape.events.emit import RunReader
from wiretape.events.folds.run_events import CLOSED
from wiretape.events.tape.record import Record
from wiretape.proxy.http1 import Headers
from wiretape.proxy.runs.api import run_json

from ..matching.match import Deck, Row, Taken
from ..playback.script import Fault, Request, Script, Speed, Step, as_played, json_answer
from ..seal import began

__all__ = ["Runs", "call_rows"]

#: As the proxy makes ids, and as sealing renames them; a tape may come from a stranger.
_ID: Final = re.compile(r"run_[0-9a-f]{1,32}")
_SEQUENCE: Final = re.compile(r"[0-9]{1,15}")
_VIEW: Final = re.compile(r".*?/v1/runs/([^/?]+)(/events)?(?:\?(.*))?")
#: Other words for a choice.
_CHOICES: Final = {"allow": "once", "approve": "once", "approved": "once"}


def call_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield a row for everything that clients sent to the runs among these streams."""
    runs: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        run = row.records[0].keys.get("run")
        if isinstance(run, str) and _ID.fullmatch(run):
            runs.setdefault((row.conversation, run), []).append(row)
    for mine in runs.values():
        mine.sort(key=lambda row: _turn(row.records))
        tapes, number = [row.records for row in mine], 0
        for row in mine:
            for record in row.records:
                if (exchange := _exchange(row.records[0], record)) is not None:
                    number += 1
                    prepare = row.prepare if record.kind == "run" else _choice
                    yield row._replace(records=exchange, prepare=prepare, call=number, run=tapes)


def _turn(records: Sequence[Record]) -> int:
    turns = (record.keys.get("turn") for record in records if record.kind == "run")
    return next((turn for turn in turns if type(turn) is int), 0)


def _exchange(opened: Record, record: Record) -> list[Record] | None:
    """Return what the client sent that led to this record, with its answer; None for records with another cause."""
    run, route, body = opened.keys["run"], opened.keys.get("route"), record.raw
    base = f"/{route}/v1/runs" if isinstance(route, str) and route else "/v1/runs"
    path, status, answer = f"{base}/{run}", 200, {"run_id": run}
    match record.kind, record.keys.get("what"), record.keys.get("why"):
        case "run", "start", _:
            path, status, answer = base, 202, {**answer, "status": "started"}
        case "run", "outputs", _:
            path, status, answer = f"{path}/tool_outputs", 202, {**answer, "status": "running"}
        case ("run", "stop", "asked") | ("stop", _, "asked"):
            path, answer = f"{path}/stop", {**answer, "status": "stopping"}
        case "approval", _, _:
            path, body = f"{path}/approval", dumps({"choice": record.keys.get("choice")})
            answer = {"object": "hermes.run.approval_response", **answer, **record.keys}
        case _:
            return None
    asked = _asked(opened, "POST", path, record._replace(raw=body, payload=body))
    return as_played(asked, json_answer(dumps(answer), status))


def _asked(opened: Record, method: str, path: str, body: Record) -> list[Record]:
    """Return the tape of an exchange up to its answer."""
    return [
        opened._replace(keys={**opened.keys, "dialect": ""}),
        body._replace(n=1, kind="request", keys={"method": method, "path": path, "headers": []}),
        Record(2, body.t, "attempt", {"number": 1, "upstream": "recorded"}),
    ]


def _choice(request: Request) -> Request:
    """Keep of a request to stop, or to approve, only the choice, which has several names."""
    said = as_object(parse(request.body) if request.body else None).get("choice")
    return request._replace(body=dumps({"choice": _CHOICES.get(said, said)}) if isinstance(said, str) else b"")


class _Run:
    """A run that a client of the replay has started."""

    def __init__(self, row: Row, place: int) -> None:
        self.tapes = row.run
        #: The place in the deck of its first tape.
        self.place = place
        #: How many of the recorded calls the client has made.
        self.calls = 0

    def records(self) -> Iterator[tuple[int, int, Record]]:
        """Yield each record, its time in microseconds since 1970, and the number of calls that led to it."""
        calls = 0
        for records in self.tapes:
            sent = [record for record in records if _exchange(records[0], record) is not None]
            calls += any(record.kind == "run" for record in sent)  # which its `open` depends on, too
            for record in records:
                calls += record.kind != "run" and record in sent
                yield calls, began(records) + record.t, record

    def events(self, after: int, speed: Speed) -> Script:
        """Return the events after this number; each call that has yet to be made holds up what it led to."""
        reader, steps, gates = RunReader(), list[Step](), dict[int, Callable[[], bool]]()
        last_us, number, seen = began(self.tapes[0]), 1, 0
        for calls, at_us, record in self.records():
            if calls > number:
                number, last_us = calls, at_us
                gates[len(steps)] = partial(self._has, calls)
            for frame in reader.feed(record):
                seen += 1
                if seen > after:
                    steps.append(Step(speed.delay(at_us - last_us), frame))
                last_us = at_us
        silence = [] if reader.run.status in CLOSED else [Step(0.0, Fault.STALL)]
        return Script(steps=[*steps, *silence], gates=gates)

    def _has(self, calls: int) -> bool:
        return self.calls >= calls

    def state(self) -> Script:
        """Return the state that the calls made so far have led to."""
        reader = RunReader()
        for calls, _, record in self.records():
            if calls <= self.calls:
                reader.feed(record)
        return json_answer(dumps(run_json(reader.run)))


class Runs:
    """The runs of a replay."""

    def __init__(self, deck: Deck, speed: Speed) -> None:
        self._deck = deck
        self._speed = speed
        self._started: dict[str, _Run] = {}

    def called(self, row: Row) -> None:
        """Go on with a run after its client has called; calling `POST /v1/runs` again starts it over."""
        run_id = row.records[0].keys["run"]
        if row.call == 1 or run_id not in self._started:
            place = next(at for at, each in enumerate(self._deck.rows) if each.records is row.run[0])
            self._started[run_id] = _Run(row, place)
        run = self._started[run_id]
        run.calls = max(run.calls, row.call)

    def view(self, request: Request) -> tuple[Taken, Script] | None:
        """Return the state or the events of a run that was started, if the request asks for that."""
        found = _VIEW.fullmatch(request.target.decode("latin-1")) if request.method == b"GET" else None
        run = self._started.get(found[1]) if found else None
        if found is None or run is None:
            return None
        opened = run.tapes[0][0]
        taken = Taken(place=run.place, records=_asked(opened, "GET", found[0], Record(1, 0, "request")))
        if not found[2]:
            return taken, run.state()
        given = dict(parse_qsl(found[3] or "")).get("last_event_id", "")
        last = Headers(request.headers).get(b"last-event-id").decode("latin-1") or given
        return taken, run.events(int(last) if _SEQUENCE.fullmatch(last) else 0, self._speed)
