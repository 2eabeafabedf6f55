"""Plays planned stories of `/v1/runs` in virtual time, and judges what every viewer got against the tapes.

    python -m tests.laws.run_laws 1000          # what is wrong, and how often each thing came up
    python -m tests.laws.run_laws 17 --first 4  # stories 4 to 20

One story is a few runs, over one store that outlives the proxy: a restart hands the records that were written to the
next one, after a kill with the ending that recovery writes. What must hold: each visit of a viewer is a part of the one
history that the tapes give, without gap or duplicate from the id it named, and nothing in it came before its record
was written; a history is complete, ordered and closed once; and no upstream request is without its attempt on a tape.
"""

import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final, cast

import trio
import trio.testing

from tests.laws.checker import transcript_of
from tests.laws.plans import FAULTS
from tests.laws.run_plans import ANSWERS, JUNK, RESUMES, Agent, Restart, Story, Viewer, Visit, planned_story
from tests.laws.runs import Upstream, refusing
from tests.laws.said import payloads, said
from tests.support.house import House, house, post
from tests.support.http import Client
from tests.support.run_clients import (
    CLOSING,
    RUNS,
    event_of,
    frames_of,
    history_of,
    names,
    number_of,
    records_of,
    wrong_with,
)
from wiretape.events.core.json_text import parse
from wiretape.events.emit import RunReader
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Reader
from wiretape.proxy.runs import live as live_module
from wiretape.proxy.store.files import mended
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Filter, StoreFullError

__all__ = ["RunStore", "Telling", "Told", "main", "play", "played", "recovered"]

STATES: Final = frozenset(
    ("started", "running", "waiting_for_tools", "waiting_for_approval", "stopping", "completed", "failed", "cancelled")
)
#: An agent that was called more often stops its run: an upstream repeats its last answer for ever.
TURNS_MAX: Final = 4
FINISHED: Final = frozenset(("completed", "failed", "cancelled"))


class RunStore(MemoryStore):
    """A store that knows the history of each run as far as it is written; each write takes its time."""

    def __init__(self, write_s: float, failing_write: int | None = None) -> None:
        super().__init__()
        #: Tapes that take no more.
        self.full: set[str] = set()
        self._failing_write = failing_write
        self._writes = 0
        #: By run.
        self.written: dict[str, list[bytes]] = {}
        self.write_s = write_s
        self._readers: dict[str, RunReader] = {}
        self._runs: dict[str, str] = {}

    async def append(self, stream: str, records: Sequence[Record], row: Any = None) -> int:
        self._writes += 1
        if self._writes == self._failing_write:
            self.full.add(stream)
            self._end_unwritten(stream)
        if stream in self.full:
            raise StoreFullError("no room")
        await trio.sleep(self.write_s)
        size = await super().append(stream, records, row)
        run = self._runs.get(stream) or records[0].keys.get("run", "")
        if run:
            self._runs[stream] = run
            reader = self._readers.setdefault(run, RunReader())
            self.written.setdefault(run, []).extend(reader.feed(*records))
        return size

    def _end_unwritten(self, stream: str) -> None:
        """Count the ending of a tape without room for it as written: recovery will write the same."""
        run = self._runs.get(stream, "")
        if run:
            ended = recovered(self._tapes[stream].records)[-1]
            self.written[run] += self._readers[run].feed(ended)

    def copied(self) -> dict[str, list[Record]]:
        """Return every tape as it is now."""
        return {stream: list(tape.records) for stream, tape in self._tapes.items() if tape.records}


async def reopened(tapes: Mapping[str, Sequence[Record]], write_s: float) -> RunStore:
    """Return the store that the next start of the proxy finds, with the endings that recovery writes."""
    store = RunStore(0.0)
    for stream, records in tapes.items():
        whole = records if records[-1].kind == "end" else recovered(records)
        await store.create(stream)
        await store.append(stream, whole)
    store.write_s = write_s
    return store


def recovered(records: Sequence[Record]) -> list[Record]:
    lines = b"".join(map(encode, records))
    with tempfile.NamedTemporaryFile(suffix=".tape") as file:
        file.write(lines)
        file.flush()
        return Reader().feed(lines + mended(Path(file.name)).end)


@dataclass(slots=True)
class Told:
    """The result of a story."""

    seed: int
    wrong: list[str] = field(default_factory=list[str])
    seen: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True)
class Seen:
    """One visit: the id from which it asked, what it got, and whether the server ended it."""

    run: str
    after: int
    raw: bytes = b""
    whole: bool = False

    @property
    def frames(self) -> list[bytes]:
        answer = transcript_of(self.raw)
        return frames_of(answer.body) if answer is not None and answer.status == 200 else []


class Telling:
    """One story while it goes on."""

    def __init__(self, story: Story, told: Told) -> None:
        self.story = story
        self.told = told
        self.upstream = Upstream([agent.replies for agent in story.agents])
        self.store = RunStore(story.write_s, story.failing_write)
        self.visits: list[Seen] = []
        #: By number of its agent.
        self.runs: dict[int, str] = {}
        self.home: House | None = None
        #: None was refused once.
        self.refused: list[bool] = [each.fault == "refused" for agent in story.agents for each in agent.replies]
        self.refusals = sum(self.refused)
        #: Attempts that ran when the proxy was killed, and may have been on their way to the tape.
        self.unwritten: int = 0
        self._up = trio.Event()
        self._known = {number: trio.Event() for number in range(len(story.agents))}

    # -- the proxy ----------------------------------------------------------------------------------------------------

    async def serve(self, over: trio.Event) -> None:
        """Run one proxy after the other over the same tapes, the last one until the story is over."""
        ids: list[str] = []
        restarts: list[Restart | None] = [*self.story.restarts, None]
        for restart in restarts:
            async with self._house(ids) as home:
                self.home = home
                self._up.set()
                with trio.move_on_after(inf if restart is None else restart.after_s):
                    await over.wait()
                if over.is_set():
                    await self._judge(home)
                    return
                assert restart is not None
                self.home, self._up = None, trio.Event()
                tapes = self.store.copied() if restart.killed else None
                if restart.killed:
                    self.unwritten += len(home.registry.live)
                    for end in home.harness.ends:
                        end.close()
            await trio.sleep(restart.down_s)
            self.told.seen["restart: kill" if restart.killed else "restart: in order"] += 1
            self.store = await reopened(self.store.copied() if tapes is None else tapes, self.story.write_s)

    @asynccontextmanager
    async def _house(self, ids: list[str]) -> AsyncGenerator[House]:
        async with house(
            self.upstream.serve,
            route=self.story.route,
            config=self.story.config,
            store=self.store,
            ids=ids,
            check=False,
        ) as home:
            refusing(home, self.refused)
            yield home

    async def _connected(self, capacity: int | None = None) -> tuple[Client, RunStore]:
        await self._up.wait()
        assert self.home is not None
        return await self.home.connect(capacity=capacity), self.store

    async def ask(self, method: str, path: str, body: Any = b"", *headers: str) -> tuple[int, dict[str, Any]]:
        """Return the answer to a request, which is sent again if the proxy goes meanwhile."""
        while True:
            client, _ = await self._connected()
            with suppress(OSError, EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
                await client.send(post(body, *headers, path=RUNS + path, method=method))
                answer = await client.response(method=method)
                client.close()
                if answer.ended in ("chunked", "length") and answer.status != 503:
                    self.told.seen[
                        f"{method} {path.rpartition('/')[2] if 'run_' in path else ''}: {answer.status}"
                    ] += 1
                    return answer.status, parse(answer.body)
            client.close()
            await trio.sleep(0.25)

    async def _at_once(self, *requests: tuple[str, Any, str]) -> list[tuple[int, dict[str, Any]]]:
        answers: list[tuple[int, dict[str, Any]]] = [(0, {})] * len(requests)

        async def one(at: int) -> None:
            path, body, header = requests[at]
            answers[at] = await self.ask("POST", path, body, *([header] if header else []))

        async with trio.open_nursery() as nursery:
            for at in range(len(requests)):
                nursery.start_soon(one, at)
        return answers

    # -- agents -------------------------------------------------------------------------------------------------------

    async def play(self, number: int, agent: Agent) -> None:
        """Start a run, answer its calls, and stop it if that was planned."""
        await trio.sleep(agent.at_s)
        key = f"Idempotency-Key: {number}"
        answers = await self._at_once(*([("", agent.body, key)] * agent.at_once))
        status, said = answers[0]
        if status != 202 or any(answer != answers[0] for answer in answers):
            if self.story.failing_write is None:
                self.told.wrong.append(f"a{number} was answered {answers}")
            self._known[number].set()
            return
        run = self.runs[number] = said["run_id"]
        self._known[number].set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answering, run, agent)
            if agent.again_s is not None:
                nursery.start_soon(self._again, number, agent, key)
            if agent.stop_s is not None:
                nursery.start_soon(self._stopping, run, agent.stop_s)

    async def _again(self, number: int, agent: Agent, key: str) -> None:
        await trio.sleep(agent.again_s or 0)
        status, said = await self.ask("POST", "", agent.body, key)
        if (status, said.get("run_id")) != (202, self.runs[number]):
            self.told.wrong.append(f"C27: a{number} was started twice: {status} {said}")

    async def _stopping(self, run: str, stop_s: float) -> None:
        await trio.sleep(stop_s)
        status, said = await self.ask("POST", f"/{run}/stop")
        if (status, said.get("status")) != (200, "stopping") and status != 409:
            self.told.wrong.append(f"stop of {run} was answered {status} {said}")

    async def _answering(self, run: str, agent: Agent) -> None:
        turns = 0
        while True:
            status, said = await self.ask("GET", f"/{run}")
            if status != 200 or said["status"] not in STATES:
                self.told.wrong.append(f"{run} is {status} {said}")
                return
            if said["status"] in FINISHED:
                return
            if said["status"] == "waiting_for_tools":
                if agent.answer == "never":
                    await self._forgotten(run)
                    return
                await trio.sleep(agent.answer_s)
                turns += 1
                if turns > TURNS_MAX:
                    await self._stopping(run, 0)
                    continue
                await self._outputs(run, [each["call_id"] for each in said["pending_calls"]], agent.answer)
            await trio.sleep(0.7)

    async def _forgotten(self, run: str) -> None:
        """Look again after it has waited too long."""
        await trio.sleep(self.story.config["runs_waiting_s"] + 1)
        _, said = await self.ask("GET", f"/{run}")
        if said["status"] != "cancelled":
            self.told.wrong.append(f"{run} is still {said['status']}")

    async def _outputs(self, run: str, pending: list[str], how: str) -> None:
        outputs = [
            {"call_id": call, "output": "ok", **({"error": True} if at else {})} for at, call in enumerate(pending)
        ]
        tries: list[tuple[int, str, list[dict[str, Any]]]] = []
        if how == "missing first":
            tries.append((400, pending[-1] if len(pending) > 1 else "tool_outputs", outputs[:-1]))
        if how == "unknown first":
            tries.append((409, "call_ghost", [*outputs, {"call_id": "call_ghost", "output": ""}]))
        if how == "twice":
            tries.append((409, pending[0], [*outputs, outputs[0]]))
        for due, named, bad in tries:
            status, said = await self.ask("POST", f"/{run}/tool_outputs", {"tool_outputs": bad})
            gone = status == 409 and "not_waiting" in str(said)
            if not gone and (status != due or named not in str(said)):
                self.told.wrong.append(f"{how} of {run} was answered {status} {said}")
        requests: list[tuple[str, Any, str]] = [(f"/{run}/tool_outputs", {"tool_outputs": outputs}, "")]
        if how == "two at once":
            requests *= 2
        if how == "stop at once":
            requests.append((f"/{run}/stop", b"", ""))
        statuses = [status for status, _ in await self._at_once(*requests)]
        if statuses.count(202) > 1 or not set(statuses) <= {200, 202, 409}:
            self.told.wrong.append(f"outputs of {run} were answered {statuses}")

    # -- viewers ------------------------------------------------------------------------------------------------------

    async def view(self, number: int, viewer: Viewer) -> None:
        """Make each visit, the last one as often as it takes to see the end."""
        await self._known[number].wait()
        run = self.runs.get(number)
        if run is None:
            return
        await trio.sleep(viewer.join_s)
        last = 0
        for visit in viewer.visits:
            resume = visit.resume
            for tries in range(100):
                seen = await self._visit(run, viewer, visit, resume, last, 0 if tries else viewer.pause_s)
                if seen is None:
                    return
                self.visits.append(seen)
                last = max([last, *map(number_of, seen.frames)])
                if visit.stay_s is not None or seen.whole:
                    break
                resume = "last"
                await trio.sleep(0.5)
            else:
                self.told.wrong.append(f"a viewer of {run} never saw its end")

    async def _visit(
        self, run: str, viewer: Viewer, visit: Visit, resume: str, last: int, pause_s: float, /
    ) -> Seen | None:
        seen, sent = self.asked(run, visit, resume, last)
        client, store = await self._connected(viewer.capacity)
        self._watch(client, store, seen)
        until_t = inf if visit.stay_s is None else trio.current_time() + visit.stay_s
        with trio.move_on_at(until_t), suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            await client.send(sent)
            while not seen.whole and await client.receive():
                await trio.sleep(pause_s)
                answer = transcript_of(seen.raw)
                stream: Any = client.stream
                seen.whole = answer is not None and answer.whole and not stream._incoming.data
        with suppress(OSError):
            {"fin": client.close, "rst": client.rst, "half": client.fin}[
                "fin" if visit.stay_s is None else visit.leave
            ]()
        answer = transcript_of(seen.raw)
        if answer is not None and answer.status not in (200, 503) and not self.unknown(run):
            self.told.wrong.append(f"a viewer of {run} was answered {answer.status} {answer.body[:200]!r}")
            return None
        seen.whole = seen.whole and answer is not None and answer.status == 200
        return seen

    def asked(self, run: str, visit: Visit, resume: str, last: int) -> tuple[Seen, bytes]:
        """Return a visit that begins, and its request."""
        named, after = _resumed(resume, last, visit.choice)
        self.told.seen[f"resume: {resume}"] += 1
        headers = [f"Last-Event-ID: {named}"] if named and not visit.query else []
        query = f"?last_event_id={named}" if named and visit.query else ""
        sent = post(b"", *headers, path=f"{RUNS}/{run}/events{query}", method="GET")
        return Seen(run, 0 if named == "+" else after), sent

    def _watch(self, client: Client, store: RunStore, seen: Seen) -> None:
        """L6: compare each frame with what is written, when the server hands it to its socket."""
        stream: Any = client.stream
        put: Callable[[bytes | memoryview], int] = stream._incoming.put
        checked = 0

        def handed(data: bytes | memoryview) -> int:
            nonlocal checked
            taken = put(data)
            seen.raw += bytes(data[:taken])
            fresh = seen.frames[checked:]
            checked += len(fresh)
            for frame in fresh:
                if not self.is_written(store, seen.run, frame):
                    self.told.wrong.append(f"L6: {seen.run} showed {frame!r} before it was written")
            return taken

        stream._incoming.put = handed

    # -- what must hold -----------------------------------------------------------------------------------------------

    def is_written(self, store: RunStore, run: str, frame: bytes, /) -> bool:
        """Whether an event may be shown now."""
        return frame in store.written.get(run, [])[number_of(frame) - 1 : number_of(frame)]

    def unknown(self, _: str, /) -> bool:
        """Whether this run may not be found now."""
        return False

    async def _judge(self, home: House, /) -> None:
        """After all agents and viewers."""
        told = self.told
        with trio.move_on_after(1_000) as waited:
            await home.settled()
        if waited.cancelled_caught:
            told.wrong.append(f"{len(home.registry.live)} streams never end")
        rows = await self.store.list(Filter(), 1_000)
        attempts = 0
        for run in sorted({row.run for row in rows if row.run}):
            tapes = [tape if tape[-1].kind == "end" else recovered(tape) for tape in await records_of(self.store, run)]
            frames = history_of(tapes)
            attempts += sum(record.kind == "attempt" for tape in tapes for record in tape)
            told.wrong += wrong_with(frames, run)
            told.wrong += _texts(frames, tapes, run)
            told.seen.update(names(frames))
            if frames != self.store.written[run]:
                told.wrong.append(f"{run}: fed at once, its tapes give another history")
            told.wrong += self._viewed(run, frames)
            await self._judge_status(run, frames, len(tapes))
        unknown = set(self.runs.values()) - self.store.written.keys()
        told.wrong += [f"{run} is lost" for run in unknown]
        calls = self.upstream.requests.total() + self.refusals - sum(self.refused)
        least = 0 if self.story.restarts or told.seen["run.cancelled"] else attempts
        if not least <= calls <= attempts + self.upstream.unanswered + self.unwritten:
            told.wrong.append(f"{calls} upstream requests for {attempts} attempts")
        with trio.move_on_after(90) as waited:
            while home.harness.open or len(home.upstream.still_open) > len(home.transport.pool):  # noqa: ASYNC110
                await trio.sleep(0.1)
        if waited.cancelled_caught:
            told.wrong.append(f"V4: {home.harness.open} clients, {len(home.upstream.still_open)} upstreams are left")
        if self.story.failing_write is None:
            told.wrong += [f"{level}: {event} {fields}" for level, event, fields in home.log if level == "error"]
        told.wrong += [f"server: {line}" for line in home.harness.log]

    def _viewed(self, run: str, frames: Sequence[bytes]) -> list[str]:
        wrong: list[str] = []
        for seen in (seen for seen in self.visits if seen.run == run):
            due, got = frames[seen.after :], seen.frames
            if got != due[: len(got)] or (seen.whole and len(got) != len(due)):
                wrong.append(f"C22: from {seen.after} of {len(frames)} a viewer of {run} got {[*map(number_of, got)]}")
            self.told.seen["visit: to the end" if seen.whole else "visit: left or cut"] += 1
        return wrong

    async def _judge_status(self, run: str, frames: Sequence[bytes], turns: int) -> None:
        status, said = await self.ask("GET", f"/{run}")
        last = event_of(frames[-1])
        due = (200, last["event"].removeprefix("run."), len(frames), last["event"], turns)
        if (status, said["status"], said["last_sequence"], said["last_event"], len(said["streams"])) != due:
            self.told.wrong.append(f"{run} is {said}, its tapes say {due}")
        for name in ("output", "usage", "error"):
            if name in last and said.get(name) != last[name]:
                self.told.wrong.append(f"{run} has {name} {said.get(name)}, its last event {last[name]}")


def _resumed(resume: str, last: int, choice: float) -> tuple[str, int]:
    """Return the id that is named, and the number after which everything is due."""
    match resume:
        case "last":
            return str(last) if last else "", last
        case "past":
            past = int(choice * last)
            return str(past), past
        case "future":
            future = last + 1 + int(choice * 40) if choice < 0.8 else 10**12
            return str(future), future
        case "junk":
            return JUNK[int(choice * len(JUNK))], 0
        case _:
            return "", 0


def _texts(frames: Sequence[bytes], tapes: Sequence[Sequence[Record]], run: str) -> list[str]:
    """Read the text of the upstream by the standard library alone, and compare it with all deltas."""
    due = ""
    for tape in tapes:
        begun = max((record.n for record in tape if record.kind == "attempt"), default=0)
        last = tape[begun:]
        came = [pair for record in last if record.kind == "frame" for pair in payloads(record.raw or b"")]
        whole = b"".join(record.raw or b"" for record in last if record.kind == "body")
        meant = said([("", whole.decode())] if whole else came)
        if meant.odd or meant.behind:
            return []
        due += meant.texts.get((0, "text"), "")
    events = [event_of(frame) for frame in frames]
    got = "".join(event["delta"] for event in events if event["event"] == "message.delta")
    return [] if got == due else [f"V8: {run} says {got[-80:]!r}, its tapes {due[-80:]!r}"]


# -- playing ----------------------------------------------------------------------------------------------------------


@contextmanager
def _window(story: Story) -> Generator[None]:
    """Keep so few events for viewers that these short runs go beyond."""
    module: Any = live_module
    kept, module.WINDOW_BYTES_MAX = module.WINDOW_BYTES_MAX, story.window_bytes
    try:
        yield
    finally:
        module.WINDOW_BYTES_MAX = kept


async def _play(telling: Telling) -> None:
    with trio.fail_after(40_000), _window(telling.story):
        over, story = trio.Event(), telling.story
        async with trio.open_nursery() as nursery:
            nursery.start_soon(telling.serve, over)
            async with trio.open_nursery() as clients:
                for number, agent in enumerate(story.agents):
                    clients.start_soon(telling.play, number, agent)
                    for viewer in agent.viewers:
                        clients.start_soon(telling.view, number, viewer)
            over.set()


def play(story: Story, telling: Callable[[Story, Told], Telling] = Telling) -> Told:
    """Tell one story. Its order of tasks is a function of the seed (as in runs.py)."""
    core: Any = sys.modules["trio._core._run"]
    kept = core._r, core._ALLOW_DETERMINISTIC_SCHEDULING
    core._r, core._ALLOW_DETERMINISTIC_SCHEDULING = random.Random(story.seed), True  # noqa: S311
    told = Told(story.seed)
    for agent in story.agents:
        told.seen.update(f"fault: {reply.fault}" for reply in agent.replies)
        told.seen[f"answer: {agent.answer}"] += 1
    try:
        trio.run(_play, telling(story, told), clock=trio.testing.MockClock(autojump_threshold=0))
    except Exception as error:  # noqa: BLE001 - it is reported with its seed
        told.wrong.append(f"the story failed: {_deepest(error)!r}")
    finally:
        core._r, core._ALLOW_DETERMINISTIC_SCHEDULING = kept
    return told


def _deepest(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def played(seed: int) -> Told:
    """Return the result of the story of this number."""
    return play(planned_story(seed))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _least(count: int) -> dict[str, int]:
    """Return how often each thing must have come up in so many stories, so that nothing was forgotten."""
    rows = {"fault": FAULTS, "answer": ANSWERS, "resume": RESUMES, "restart": ("kill", "in order")}
    found = {f"{name}: {each}": count // 50 for name, row in rows.items() for each in row}
    return {**found, **dict.fromkeys([*CLOSING, "run.waiting_for_tools", "tool.completed"], count // 10)}


def main(played: Callable[[int], Told] = played) -> int:
    """Tell stories by their numbers; return 1 where anything is wrong."""
    count = int(sys.argv[1])
    first = int(sys.argv[3]) if sys.argv[2:3] == ["--first"] else 0
    seen: Counter[str] = Counter()
    failed = 0
    with ProcessPoolExecutor() as processes:
        for told in processes.map(played, range(first, first + count), chunksize=10):
            seen += told.seen
            failed += bool(told.wrong)
            for what in told.wrong[:3]:
                _say(f"seed {told.seed}: {what}")
    for name, times in sorted(seen.items()):
        _say(f"{times:8,} {name}")
    missing = [name for name, least in _least(count).items() if seen[name] < least]
    _say(f"{count} stories: {failed} failed; too seldom: {', '.join(missing) or 'nothing'}")
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
