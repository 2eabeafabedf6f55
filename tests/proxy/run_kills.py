"""Real kill -9 of a proxy in the middle of 50 runs: each state is right at the next start, and nothing shown is lost.

    python -m tests.proxy.run_kills 20             # figures; 1 where anything is wrong
    python -m tests.proxy.run_kills 3 torn         # the negative control: tapes lose their last records, as on no disk

One data folder is used throughout. What runs fails with the cause, what waits for tools goes on, what is over stays.
"""

import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from tests.laws.checker import transcript_of
from tests.proxy.kills import Proxy
from tests.proxy.scripted import chunk, listening, request_of
from tests.support.house import DONE, HEAD, call, finish, post, role, text
from tests.support.run_clients import RUNS, TOOLS, event_of, frames_of, names, number_of, wrong_with
from wiretape.events.emit import RunReader
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader

CALLERS: Final = 5
#: As many as one caller may have at once.
EACH: Final = 10
#: What the upstream does with a run, by its input, and how often.
KINDS: Final = ("quick", "tools", "tools", "long", "long")
STATES: Final[Mapping[str, str]] = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.waiting_for_tools": "waiting_for_tools",
}


@dataclass(slots=True)
class Begun:
    """One run, as its client knows it."""

    caller: int
    key: str
    kind: str
    run: str = ""
    #: What its viewer had when the proxy died.
    raw: bytearray = field(default_factory=bytearray)
    #: What it got after the restart.
    rest: list[bytes] = field(default_factory=list[bytes])

    @property
    def headers(self) -> list[str]:
        return [f"Authorization: Bearer sk-{self.caller}"]

    @property
    def body(self) -> dict[str, Any]:
        return {"model": "m", "input": self.kind, "user": f"u{self.key}", "tools": TOOLS}

    @property
    def frames(self) -> list[bytes]:
        answer = transcript_of(bytes(self.raw))
        return frames_of(answer.body) if answer is not None and answer.status == 200 else []


@dataclass(slots=True)
class Figures:
    """Of all kills together."""

    kills: int = 0
    runs: int = 0
    events: int = 0
    #: By the state right after the restart, and what the last tape said before it.
    states: Counter[str] = field(default_factory=Counter[str])
    requests: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])


async def upstream(figures: Figures, chance: random.Random, stream: trio.abc.Stream) -> None:
    """Answer by what the run asks for; after its tools with a text."""
    while asked := await request_of(stream):
        body = json.loads(asked.partition(b"\r\n\r\n")[2])
        figures.requests[body["user"]] += 1
        kind = next(each["content"] for each in body["messages"] if each["role"] == "user")
        pause_s = {"quick": 0.0, "tools": 0.005, "long": 0.01}[kind]
        await stream.send_all(HEAD + chunk(role()))
        for number in range(chance.choice([2, 20]) if kind != "long" else 150):
            await trio.sleep(pause_s)
            await stream.send_all(chunk(text(f"word {number} ")))
        if kind == "tools" and body["messages"][-1]["role"] != "tool":
            await stream.send_all(chunk(call('{"path":"x"}', "write_file")) + chunk(finish("tool_calls")))
        else:
            await stream.send_all(chunk(finish()))
        await stream.send_all(chunk(DONE) + b"0\r\n\r\n")


# -- clients ----------------------------------------------------------------------------------------------------------


async def _ask(port: int, sent: bytes, raw: bytearray | None = None) -> tuple[int, bytes]:
    """Return the status and body of one request; the status is 0 if the proxy died before its end."""
    raw = bytearray() if raw is None else raw
    with suppress(OSError, trio.BrokenResourceError):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(sent)
            while data := await stream.receive_some():
                raw += data
                head = transcript_of(bytes(raw[:2_048]))  # a long answer is not read again with each of its pieces
                chunked = head is not None and "transfer-encoding" in head.headers
                if chunked and not raw.endswith(b"\r\n0\r\n\r\n"):
                    continue
                if (answer := transcript_of(bytes(raw))) is not None and answer.whole:
                    break
    answer = transcript_of(bytes(raw))
    return (answer.status, answer.body) if answer is not None and answer.whole else (0, b"")


async def _run(port: int, begun: Begun) -> None:
    """Start it and watch it."""
    key = f"Idempotency-Key: {begun.key}"
    status, body = await _ask(port, post(begun.body, key, *begun.headers, path=RUNS))
    if status:
        assert status == 202, body
        begun.run = json.loads(body)["run_id"]
        await _ask(port, _get(begun, "/events"), begun.raw)


def _get(begun: Begun, what: str = "", *headers: str) -> bytes:
    return post(b"", *headers, *begun.headers, path=f"{RUNS}/{begun.run}{what}", method="GET")


async def _killed(proxy: Proxy, chance: random.Random, number: int, each: int) -> list[Begun]:
    """Return all runs and what their viewers had when it died."""
    keys = [(caller, f"{number}-{caller}-{at}") for caller in range(CALLERS) for at in range(each)]
    all_runs = [Begun(caller, key, chance.choice(KINDS)) for caller, key in keys]
    watched = chance.randrange(len(all_runs))
    async with trio.open_nursery() as nursery:
        for begun in all_runs:
            nursery.start_soon(_run, proxy.port, begun)
        with trio.move_on_after(10):
            while sum(bool(begun.raw) for begun in all_runs) < watched:  # noqa: ASYNC110
                await trio.sleep(0.002)
        await trio.sleep(chance.random() * 0.6)  # a kill has no better moment than a random one
        proxy.kill()
        await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
    return all_runs


# -- tapes ------------------------------------------------------------------------------------------------------------


def tapes_in(data: Path) -> dict[str, list[list[Record]]]:
    """Return the tapes of each run in order, as they are on disk (first those in live/, which move)."""
    contents: dict[str, bytes] = {}
    for place in ("live/*.tape", "*/*.tape"):
        for path in data.glob(place):
            with suppress(FileNotFoundError):
                contents[path.stem] = path.read_bytes()
    found: defaultdict[str, list[list[Record]]] = defaultdict(list)
    for tape in (Reader().feed(content) for content in contents.values()):
        if tape and tape[0].keys.get("run"):
            found[tape[0].keys["run"]].append(tape)
    for tapes in found.values():
        tapes.sort(key=lambda tape: (tape[0].keys["created_us"], tape[0].keys["stream"]))
    return found


def _history(tapes: Sequence[Sequence[Record]]) -> list[bytes]:
    reader = RunReader()
    return [frame for tape in tapes for frame in reader.feed(*tape)]


# -- what must hold ---------------------------------------------------------------------------------------------------


def _due(before: Sequence[Sequence[Record]], after: Sequence[Sequence[Record]]) -> tuple[str, str]:
    """Return the state of a run right after the restart by its tapes: how it was found, and what it must be now."""
    if before[-1][-1].kind == "end":
        return "over" if names(_history(before))[-1] != "run.waiting_for_tools" else "waiting", names(_history(before))[
            -1
        ]
    ending = after[-1][-1].keys["ending"]
    calls = names(_history(after))[-1] == "run.waiting_for_tools"
    return "running", "run.failed" if ending == "crashed" else "run.waiting_for_tools" if calls else "run.completed"


async def _judge(
    proxy: Proxy, data: Path, before: Mapping[str, list[list[Record]]], runs: list[Begun], figures: Figures
) -> None:
    """Right after the restart, before any other request."""
    after = tapes_in(data)
    for begun in (each for each in runs if each.run):
        figures.runs += 1
        if begun.run not in before:
            figures.wrong.append(f"{begun.run} was answered with 202 and is not on any tape")
            continue
        found, due = _due(before[begun.run], after[begun.run])
        status, body = await _ask(proxy.port, _get(begun))
        said = json.loads(body)
        figures.states[f"{found}, then {said.get('status')}"] += 1
        frames = _history(after[begun.run])
        if (status, said["status"], said["last_event"]) != (200, STATES[due], due):
            figures.wrong.append(f"{begun.run} ({found}) is {status} {said}, and {due} is due")
        if due == "run.failed" and found == "running" and event_of(frames[-1])["code"] != "crashed":
            figures.wrong.append(f"{begun.run} failed as {event_of(frames[-1])}")
        figures.wrong += wrong_with(frames, begun.run, ended=due != "run.waiting_for_tools")
        got = begun.frames
        figures.events += len(got)
        if got != frames[: len(got)]:
            figures.wrong.append(f"{begun.run}: {len(got)} events were shown, and not all are on its tapes")
    async with trio.open_nursery() as nursery:
        for begun in runs:
            nursery.start_soon(_continued, proxy.port, begun, figures)
    whole = tapes_in(data)
    for begun in runs:
        _judge_whole(begun, whole[begun.run], figures)


async def _continued(port: int, begun: Begun, figures: Figures) -> None:
    """Ask for the same run again, give it its tools, and read the rest of its events."""
    key, known = f"Idempotency-Key: {begun.key}", begun.run
    status, body = await _ask(port, post(begun.body, key, *begun.headers, path=RUNS))
    begun.run = json.loads(body)["run_id"]
    if status != 202 or known not in ("", begun.run):
        figures.wrong.append(f"{known} was started again: {status} {body!r}")
    raw, last = bytearray(), max(map(number_of, begun.frames), default=0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask, port, _get(begun, "/events", f"Last-Event-ID: {last}"), raw)
        state = await _settled(port, begun)
        if state["status"] == "waiting_for_tools":
            outputs = [{"call_id": each["call_id"], "output": "ok"} for each in state["pending_calls"]]
            path = f"{RUNS}/{begun.run}/tool_outputs"
            said = await _ask(port, post({"tool_outputs": outputs}, *begun.headers, path=path))
            if said[0] != 202:
                figures.wrong.append(f"outputs of {begun.run}: {said}")
            state = await _settled(port, begun)
            if state["status"] != "completed":
                figures.wrong.append(f"{begun.run} had its tools and is {state}")
    answer = transcript_of(bytes(raw))
    begun.rest = frames_of(answer.body) if answer is not None and answer.whole else []


def _judge_whole(begun: Begun, tapes: Sequence[Sequence[Record]], figures: Figures) -> None:
    """At the very end of a run."""
    due = _history(tapes)
    if [*begun.frames, *begun.rest] != due:
        figures.wrong.append(f"{begun.run}: its viewer was cut, resumed, and has another history than its tapes")
    attempts = sum(record.kind == "attempt" for tape in tapes for record in tape)
    if figures.requests[f"u{begun.key}"] > attempts:
        figures.wrong.append(f"{begun.run}: {figures.requests[f'u{begun.key}']} requests for {attempts} attempts")
    figures.wrong += wrong_with(due, begun.run)


async def _settled(port: int, begun: Begun) -> dict[str, Any]:
    """Return the state of a run that neither starts nor runs any more."""
    while True:
        _, body = await _ask(port, _get(begun))
        state: dict[str, Any] = json.loads(body)
        if state["status"] not in ("started", "running"):
            return state
        await trio.sleep(0.05)


def _tear(data: Path) -> None:
    for path in data.glob("live/*.tape"):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-5] or lines[:1]))


def _cleared(data: Path) -> None:
    for path in data.glob("*/*.tape"):  # the next kill has its own
        path.unlink()


async def killed(kills: int, data: Path, *, each: int = EACH, torn: bool = False, seed: int = 0) -> Figures:
    """Kill so many processes, one after the other."""
    chance = random.Random(seed)  # noqa: S311 - a seed, so that a failure can be repeated
    figures = Figures()
    async with listening(partial(upstream, figures, chance)) as (port, _):
        url = f"http://127.0.0.1:{port}/v1"
        proxy = Proxy(url, data)
        while figures.kills < kills:
            runs = await _killed(proxy, chance, figures.kills, each)
            figures.kills += 1
            if torn:
                _tear(data)
            before = tapes_in(data)
            proxy = Proxy(url, data)
            await _judge(proxy, data, before, runs, figures)
            _cleared(data)
        proxy.end()
    return figures


def main() -> int:
    """Figures."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        figures = trio.run(partial(killed, int(sys.argv[1]), Path(folder), torn="torn" in sys.argv))
    lines = [
        *figures.wrong[:10],
        f"{figures.kills} kills in the middle of {CALLERS * EACH} runs, {time.perf_counter() - began:.0f} s",
        *(f"{times:8,} {state}" for state, times in sorted(figures.states.items())),
        f"{figures.runs} runs, {figures.events} events that were shown: {len(figures.wrong)} faults",
    ]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
