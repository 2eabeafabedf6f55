"""The tapes of a run, as the proxy writes them: one chat stream for each turn, begun by what the client posted."""

from collections.abc import Mapping
from typing import Any

from tests.support.tapes import Turn, asking, calls, records_of, text
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder

RUN = "run_" + "5a" * 16
_ENDED: Mapping[str, Any] = {"cause": "client_gone", "ending": "client_gone", "flags": []}
#: When the first turn begins, and what each later one adds.
CREATED_US = 1_795_000_000_250_000
_TURN_US = 2_000_000


def started(question: str = "weather?", **more: Any) -> dict[str, Any]:
    """Return the body that starts a run."""
    return {"model": "m", "input": question, **more}


def outputs(**by_call: str) -> dict[str, Any]:
    """Return the body that answers the calls of a run."""
    return {"tool_outputs": [{"call_id": call, "output": output} for call, output in by_call.items()]}


def turn_of(
    chat: Turn, what: str, body: Mapping[str, Any] | None, number: int = 1, *, run: str = RUN, **more: str
) -> list[Record]:
    """Return the tape of a turn of the model; `more` are keys of the `run` record."""
    opened, *rest = records_of(chat)
    return [*_begun(opened.keys, what, body, number, run=run, **more), *(each._replace(n=each.n + 1) for each in rest)]


def stopped(number: int, why: str = "asked", *, what: str = "stop", run: str = RUN) -> list[Record]:
    """Return the tape that ends a run which waited."""
    begun = _begun({"format": 1, "dialect": "chat"}, what, None, number, run=run, why=why)
    return [*begun, Record(2, 10, "end", _ENDED)]


def stop_at(records: list[Record], frames: int, why: str = "asked") -> list[Record]:
    """Return the tape of a turn that was stopped after so many frames."""
    kept: list[Record] = []
    for record in records:
        kept.append(record)
        if sum(each.kind == "frame" for each in kept) == frames:
            break
    at = kept[-1]
    return [
        *kept,
        Record(at.n + 1, at.t + 10, "stop", {"why": why}),
        Record(at.n + 2, at.t + 20, "end", _ENDED),
    ]


def two_turns(run: str = RUN, **more: Any) -> list[list[Record]]:
    """Return the tapes of a run that called a tool, got its output, and completed."""
    first = calls("weather?", "get_weather", '{"city"', ': "Oslo"}')
    second = Turn(asking("weather?"), text("?", "Sunny", " in Oslo").reads)
    return [
        turn_of(first, "start", started(**more), run=run),
        turn_of(second, "outputs", outputs(call_1="Sunny"), 2, run=run),
    ]


def cut(run: str = RUN) -> list[list[Record]]:
    """Return the tape of a run whose only turn was reset inside a call."""
    whole = calls("weather?", "get_weather", '{"city"', ': "Oslo"}')
    return [turn_of(whole._replace(reads=whole.reads[:2], broke="reset"), "start", started(), run=run)]


def relayed(theirs: str = "run_" + "7c" * 16) -> list[Record]:
    """Return the tape of a run that the upstream made, with an approval."""

    def frame(event: str, **members: Any) -> bytes:
        return b"data: %b\n\n" % dumps({"event": event, "run_id": theirs, "timestamp": 1.5, **members})

    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    frames = [
        frame("message.delta", delta="Hi"),
        frame("approval.request", command="rm", choices=["once", "deny"]),
        frame("approval.responded", choice="once", resolved=1),
        frame("run.completed", output="Hi", usage=usage),
    ]
    turn = Turn(started(), [(0.1, each) for each in frames], path="/v1/runs", dialect="")
    records = turn_of(turn, "start", started(), mode="relay")
    head, *answers = (at for at, each in enumerate(records) if each.kind in ("head", "frame"))
    approved = Record(0, records[answers[1]].t, "approval", {"choice": "once", "resolved": 1})
    begun, after = Record(0, 10, "upstream_run", {"run_id": theirs}), answers[1] + 1
    done = [*records[:head], begun, *records[head:after], approved, *records[after:]]
    return [each._replace(n=n) for n, each in enumerate(done)]


def _begun(
    opened: Mapping[str, Any], what: str, body: Mapping[str, Any] | None, number: int, *, run: str, **more: str
) -> list[Record]:
    created_us = CREATED_US + (number - 1) * _TURN_US
    keys = {**opened, "stream": f"{number:032x}", "created": created_us // 1_000_000, "created_us": created_us}
    recorder = Recorder()
    return [
        recorder.record("open", 0, {**keys, "run": run}),
        recorder.record(
            "run", 0, {"turn": number, "what": what, "mode": "own", **more}, None if body is None else dumps(dict(body))
        ),
    ]
