"""Plays the seeded stories of `/v1/runs` on two real proxies that share one real PostgreSQL

    python -m tests.postgres.run_stories 100            # what is wrong, and how often each thing came up
    python -m tests.postgres.run_stories 20 --first 40  # stories 40 to 59
    python -m tests.postgres.run_stories 100 --kills    # a machine is killed now and then, and comes back
    python -m tests.postgres.run_stories 100 --outages  # so is the database

Each request, each visit of a viewer and each output of a tool goes to either proxy. A story takes as many tenths of its
seconds, and a dozen of them go on at once. What must hold: every visit is a part of the one history that both machines
give, with gapless numbers and one end; nothing was asked of the upstream that is not on a tape; outputs continue a run
once. With kills, what a dead machine had not sent to the database is known there only (`tests.laws.run_machines`).
"""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import trio

from tests.laws.checker import transcript_of
from tests.laws.run_laws import Seen, Telling, Told
from tests.laws.run_machines import is_part
from tests.laws.run_plans import Story, Viewer, Visit, planned_story
from tests.laws.runs import Upstream
from tests.postgres.cluster import PASSWORD, Cluster, Database, temporary_cluster
from tests.postgres.conftest import migrate
from tests.postgres.machine import Machine, exchange
from tests.proxy.run_kills import tapes_in
from tests.proxy.scripted import listening, reset
from tests.support.house import post
from tests.support.run_clients import RUNS, frames_of, names, number_of, wrong_with
from wiretape.events.core.json_text import parse

#: A story's seconds that go by in one.
PACE: Final = 10.0
AT_ONCE: Final = 12
DEAD_S: Final = 2.0
#: What the stories choose by themselves is the same for all of them here.
SETTINGS: Final[Mapping[str, Any]] = {
    "runs_max": 1_000,
    "runs_waiting_s": 8,
    "idle_s": 3,
    "first_byte_s": 3,
    "finish_grace_s": 0.2,
    "store_dead_s": DEAD_S,
}


def paced(value: Any) -> Any:
    """Return a plan whose seconds are shorter."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            each.name: member / PACE if each.name.endswith("_s") and member is not None else paced(member)
            for each in fields(cast("Any", value))
            for member in [getattr(value, each.name)]
        }
        return replace(cast("Any", value), **changed)
    whole: Any = value
    return [paced(each) for each in whole] if isinstance(value, list) else value


class Pair:
    """The two proxies, some of which may be away."""

    def __init__(self, database: Database, folder: Path, port: int, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)  # noqa: S311 - a seed, so that a failure can be repeated
        self.machines = [Machine(name, folder, database, port) for name in ("a", "b")]
        self.kills = self.outages = 0
        for machine in self.machines:
            machine.environment |= {f"WIRETAPE_{name.upper()}": str(value) for name, value in SETTINGS.items()}

    async def start(self) -> None:
        """Start those that do not run."""
        for machine in self.machines:
            if machine.process is None:
                await machine.start()

    async def stop(self) -> None:
        """Stop both."""
        for machine in self.machines:
            await machine.stop()

    async def kill(self) -> None:
        """Kill one now and then; it comes back before or after it is declared dead."""
        while True:
            await trio.sleep(self.chance.uniform(0.3, 3))
            machine = self.chance.choice(self.machines)
            machine.kill()
            self.kills += 1
            await trio.sleep(self.chance.choice([0, 0.5, 3 * DEAD_S]))
            await machine.start()

    async def lose(self, cluster: Cluster) -> None:
        """Kill the database now and then; it comes back."""
        while True:
            await trio.sleep(self.chance.uniform(3, 9))
            await trio.to_thread.run_sync(cluster.kill)
            self.outages += 1
            with trio.CancelScope(shield=True):
                await trio.sleep(self.chance.choice([0, 0.5, 3 * DEAD_S]))
                await trio.to_thread.run_sync(cluster.start)

    @property
    def hiding(self) -> Sequence[int]:
        """What is answered, too, if a run may be known to a machine that is away or could not ship it yet."""
        return [404] if self.kills or self.outages else []

    def any(self) -> Machine:
        """Return one of those that run."""
        return self.chance.choice([machine for machine in self.machines if machine.process is not None])


class RealTelling(Telling):
    """One story on the pair; its agents have numbers from `first` on, of all stories together."""

    def __init__(self, story: Story, told: Told, pair: Pair, upstream: Upstream, first: int) -> None:
        super().__init__(story, told)
        self._pair = pair
        self.upstream = upstream
        self._first = first
        self._known = {first + number: trio.Event() for number in range(len(story.agents))}

    async def tell(self) -> None:
        """Play it to its end, and judge it."""
        async with trio.open_nursery() as clients:
            for number, agent in enumerate(self.story.agents, self._first):
                clients.start_soon(self.play, number, agent)
                for viewer in agent.viewers:
                    clients.start_soon(self.view, number, viewer)

    async def ask(self, method: str, path: str, body: Any = b"", *headers: str) -> tuple[int, dict[str, Any]]:
        """Return the answer of either machine to a request, which is sent again if that one goes meanwhile."""
        while True:
            got = bytearray()
            sent = post(body, *headers, path=RUNS + path, method=method)
            with trio.move_on_after(60):
                await exchange(self._pair.any().port, sent, got)
            answer = transcript_of(bytes(got))
            if answer is not None and answer.whole and answer.status not in (503, *self._pair.hiding):
                self.told.seen[
                    f"{method} {path.rpartition('/')[2] if path.count('/') > 1 else ''}: {answer.status}"
                ] += 1
                return answer.status, parse(answer.body)
            await trio.sleep(0.25)

    async def _visit(self, run: str, _: Viewer, visit: Visit, resume: str, last: int, pause_s: float, /) -> Seen | None:
        seen, sent = self.asked(run, visit, resume, last)
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", self._pair.any().port)
        except OSError:
            return seen
        async with stream:
            with trio.move_on_after(120 if visit.stay_s is None else visit.stay_s):
                await _read(stream, sent, pause_s, seen)
            if visit.leave == "rst" and visit.stay_s is not None:
                reset(stream)
        answer = transcript_of(seen.raw)
        if answer is not None and answer.status not in (200, 503, *self._pair.hiding):
            self.told.wrong.append(f"a viewer of {run} was answered {answer.status} {answer.body[:200]!r}")
            return None
        seen.whole = answer is not None and answer.whole and answer.status == 200
        return seen

    async def judge(self) -> None:
        """Compare what viewers got with what both machines show at the end."""
        told = self.told
        if self._pair.kills:  # outputs that are sent again after a cut may answer the turn after, with its same ids
            told.wrong = [what for what in told.wrong if "were answered [202, 202]" not in what]
        for number, run in self.runs.items():
            histories = [await self._history(machine, run) for machine in self._pair.machines]
            for frames in histories:
                told.wrong += wrong_with(frames, run)
            told.seen.update(names(histories[0]))
            if any(frames != histories[0] for frames in histories):
                told.seen["a history of two lengths"] += 1
                told.wrong += [f"{run} has two histories"] if not self._pair.kills else []
            for seen in (seen for seen in self.visits if seen.run == run):
                if not any(is_part(seen, frames) for frames in histories):
                    got = [*map(number_of, seen.frames)]
                    told.wrong.append(f"C22: from {seen.after} of {len(histories[0])} a viewer of {run} got {got}")
                told.seen["visit: to the end" if seen.whole else "visit: left or cut"] += 1
            attempts = sum(
                record.kind == "attempt"
                for machine in self._pair.machines
                for tape in tapes_in(machine.data).get(run, [])
                for record in tape
            )
            if self.upstream.requests[number] > attempts + self.upstream.unanswered:
                told.wrong.append(f"{run}: {self.upstream.requests[number]} requests for {attempts} attempts")

    async def _history(self, machine: Machine, run: str) -> list[bytes]:
        with trio.fail_after(60):
            while True:
                answer = await machine.get(f"{RUNS}/{run}/events")
                if answer is not None and answer.whole and answer.status == 200:
                    return frames_of(answer.body)
                await trio.sleep(0.25)


async def _read(stream: trio.SocketStream, sent: bytes, pause_s: float, into: Seen) -> None:
    with suppress(OSError, trio.BrokenResourceError):
        await stream.send_all(sent)
        while not into.raw.endswith(b"\r\n0\r\n\r\n") and (data := await stream.receive_some()):
            into.raw += data
            await trio.sleep(pause_s)


async def told_all(
    seeds: Sequence[int], database: Database, folder: Path, *, kills: bool = False, lost: Cluster | None = None
) -> tuple[list[Told], Pair]:
    """Play the stories of these numbers."""
    stories = [paced(planned_story(seed)) for seed in seeds]
    upstream, first = Upstream([agent.replies for story in stories for agent in story.agents]), 0
    places, results = trio.CapacityLimiter(AT_ONCE), list[Told]()
    async with listening(upstream.serve) as (port, _):
        pair = Pair(database, folder, port, seeds[0])
        try:
            await pair.start()
            tellings: list[RealTelling] = []
            async with trio.open_nursery() as chaos:
                if kills:
                    chaos.start_soon(pair.kill)
                if lost is not None:
                    chaos.start_soon(pair.lose, lost)
                async with trio.open_nursery() as nursery:
                    for story in stories:
                        results.append(Told(story.seed))
                        tellings.append(RealTelling(_numbered(story, first), results[-1], pair, upstream, first))
                        nursery.start_soon(_tell, tellings[-1], places)
                        first += len(story.agents)
                chaos.cancel_scope.cancel()
            await pair.start()
            for telling in tellings:
                await telling.judge()
        finally:
            with trio.CancelScope(shield=True):
                await pair.stop()
    return results, pair


def _numbered(story: Story, first: int) -> Story:
    """Let the upstream tell the agents of all stories apart, and no two stories share a conversation."""
    agents = [
        replace(agent, body={**agent.body, "user": f"a{number}"} | _session(agent.body, story.seed))
        for number, agent in enumerate(story.agents, first)
    ]
    return replace(story, agents=agents, config=SETTINGS)


def _session(body: Mapping[str, Any], seed: int) -> dict[str, str]:
    return {"session_id": f"{body['session_id']} of {seed}"} if "session_id" in body else {}


async def _tell(telling: RealTelling, places: trio.CapacityLimiter) -> None:
    async with places:
        await telling.tell()


def main() -> int:
    """Figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stories", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--outages", action="store_true")
    given = parser.parse_args()
    seen: Counter[str] = Counter()
    seeds = range(given.first, given.first + given.stories)
    with temporary_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        os.environ["PGPASSWORD"] = PASSWORD
        database = cluster.create("stories")
        migrate(database)
        lost = cluster if given.outages else None
        results, pair = trio.run(partial(told_all, seeds, database, Path(folder), kills=given.kills, lost=lost))
    for told in results:
        seen += told.seen
        for what in told.wrong[:3]:
            sys.stdout.write(f"seed {told.seed}: {what}\n")
    sys.stdout.writelines(f"{times:8,} {name}\n" for name, times in sorted(seen.items()))
    failed = sum(bool(told.wrong) for told in results)
    sys.stdout.write(
        f"{len(results)} stories on two machines, {pair.kills} kills, {pair.outages} outages: {failed} failed\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
