"""Machines under load on one database: clients and followers that keep every byte, and faults at random moments."""

import os
import random
import signal
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final

import psycopg
import trio

from tests.laws.checker import transcript_of
from tests.postgres.cluster import Cluster, Database
from tests.postgres.machine import Machine
from tests.proxy.scripted import chunk, request_of
from tests.support.house import DONE, HEAD, call, finish, role, text

__all__ = ["DEAD_S", "Answer", "Segment", "World", "ids_of", "upstream"]

#: `store_dead_s` of all machines.
DEAD_S: Final = 2.0
CLIENTS: Final = 3
FOLLOWERS: Final = 5
_KEYS: Final = ("sk-a", "sk-b", "sk-c")
#: How long a machine or the server is away: often not at all, sometimes longer than the others believe in it.
_AWAY_S: Final = (0.0, 0.0, 0.3, 2.5 * DEAD_S)
#: How long a follower waits for the end once all faults are over.
_FOLLOW_S: Final = 60.0


@dataclass(slots=True)
class Answer:
    """What one client got from one machine."""

    machine: str
    key: str
    raw: bytearray = field(default_factory=bytearray)

    @property
    def stream(self) -> str | None:
        """Its stream, once its head has come."""
        head, mark, _ = bytes(self.raw).partition(b"\r\n\r\n")
        answer = transcript_of(head + mark) if mark else None
        return None if answer is None else answer.headers.get("x-wiretape-stream")


@dataclass(slots=True)
class Segment:
    """What one follower got from one machine, after the event whose id it sent."""

    machine: str
    stream: str
    last_id: str
    raw: bytearray = field(default_factory=bytearray)
    #: It did not end although everything had.
    hung: bool = False


def ids_of(raw: bytes) -> list[tuple[str, bytes]]:
    """Return the whole events with an id in a response."""
    answer = transcript_of(raw)
    if answer is None or answer.status != 200:
        return []
    *blocks, _ = answer.body.split(b"\n\n")
    marked = [(block.split(b"id: ", 1)[1].split(b"\n", 1)[0].decode(), block) for block in blocks if b"id: " in block]
    return [(id_, block) for id_, block in marked if id_.replace(".", "").isdecimal()]


async def upstream(chance: random.Random, stream: trio.abc.Stream) -> None:
    """Streams of any length at any pace up to some seconds, of which some end in a call."""
    while await request_of(stream):
        pace_s, pieces = chance.choice([(0.0, 3), (0.0, 100), (0.002, 100), (0.02, 40), (0.05, 50)])
        await stream.send_all(HEAD + chunk(role()))
        for number in range(pieces):
            await trio.sleep(pace_s)
            await stream.send_all(chunk(text(f"word {number} " * chance.choice([1, 1, 30]))))
        if chance.random() < 0.5:
            await stream.send_all(chunk(call('{"path":"x"}', "write_file")) + chunk(finish("tool_calls")))
        else:
            await stream.send_all(chunk(finish()))
        await stream.send_all(chunk(DONE) + b"0\r\n\r\n")


class World:
    """Everything that runs, and what its clients got in this round."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        upstream_port: int,
        seed: int,
        program: Sequence[str] = ("-m", "wiretape"),
    ) -> None:
        options = "--store-dead-s", str(DEAD_S), "--keepalive-s", "0.5", "--log-format", "json"
        self.database = database
        self.cluster: Cluster = database.cluster
        self.chance = random.Random(seed)  # noqa: S311 - a seed, so that a failure can be repeated
        self.machines = [
            Machine(f"m{number}", folder, database, upstream_port, *options, *more, program=program)
            for number, more in enumerate([(), (), ("--workers", "2")])
        ]
        self.answers: list[Answer] = []
        self.segments: list[Segment] = []
        #: Machines that another one may have declared dead in this round.
        self.interrupted: set[str] = set()
        #: Starts that failed, in all rounds.
        self.wrong: list[str] = []
        #: What was done how often, in all rounds.
        self.done: Counter[str] = Counter()
        self._known: deque[Answer] = deque(maxlen=20)
        self._kills_due = 0
        self._stopping = False
        #: Followers that wait for the end.
        self._patient: list[trio.CancelScope] = []

    async def start(self) -> None:
        """Start every machine."""
        for machine in self.machines:
            machine.spawn()
        for machine in self.machines:
            await machine.ready()

    async def stop(self) -> None:
        """Stop every machine."""
        for machine in self.machines:
            await machine.stop()

    @property
    def kills(self) -> int:
        """How many processes were killed so far."""
        return sum(times for what, times in self.done.items() if what.startswith("kill"))

    async def round(self, kills: int) -> None:
        """Serve clients while so many kills and other faults happen; leave all machines and the server running.

        One machine, the calm one, meets no fault but those of the server.
        """
        self.answers, self.segments, self.interrupted = [], [], set()
        self._kills_due, self._stopping, self._patient = self.kills + kills, False, []
        calm = self.chance.choice(self.machines)
        async with trio.open_nursery() as nursery:
            for machine in self.machines:
                for _ in range(CLIENTS):
                    nursery.start_soon(self._client, machine)
            for _ in range(FOLLOWERS):
                nursery.start_soon(self._follower)
            async with trio.open_nursery() as faults:
                for machine in self.machines:
                    if machine is not calm:
                        faults.start_soon(self._trouble, machine)
                faults.start_soon(self._server_trouble)
                faults.start_soon(self._cancels)
            self._stopping = True
            for scope in self._patient:
                scope.deadline = trio.current_time() + _FOLLOW_S

    # -- clients ------------------------------------------------------------------------------------------------------

    async def _client(self, machine: Machine) -> None:
        """Send one request after the other and keep every byte."""
        while not self._stopping:
            answer = Answer(machine.name, self.chance.choice(_KEYS))
            self.answers.append(answer)
            self._known.append(answer)
            await machine.ask(answer.raw, f"Authorization: Bearer {answer.key}")
            if not answer.raw:  # the machine is down
                await trio.sleep(0.05)

    async def _follower(self) -> None:
        """Follow a recent stream on any machine, leave or lose the connection, go on after the last id elsewhere."""
        while not self._stopping:
            answer = self.chance.choice(self._known) if self._known else None
            stream = answer.stream if answer is not None else None
            if answer is None or stream is None:
                await trio.sleep(0.02)
                continue
            last_id, whole = "", False
            for _ in range(6):
                segment = Segment(self.chance.choice(self.machines).name, stream, last_id)
                self.segments.append(segment)
                whole = await self._followed(segment, answer.key, self.chance.choice([0.1, 0.5, inf, inf]))
                last_id = next((id_ for id_, _ in reversed(ids_of(bytes(segment.raw)))), last_id)
                if whole:
                    break
                await trio.sleep(0.05)

    async def _followed(self, segment: Segment, key: str, patience_s: float) -> bool:
        machine = self.machine(segment.machine)
        after = [f"Last-Event-ID: {segment.last_id}"] if segment.last_id else []
        with trio.move_on_after(patience_s) as scope:
            if patience_s == inf:
                self._patient.append(scope)
                scope.deadline = trio.current_time() + _FOLLOW_S if self._stopping else inf
            path = f"/wiretape/streams/{segment.stream}/events"
            answer = await machine.get(path, f"Authorization: Bearer {key}", *after, got=segment.raw)
            return answer is not None and answer.whole and answer.status == 200
        segment.hung = patience_s == inf and scope.cancelled_caught
        return False

    def machine(self, name: str) -> Machine:
        """Return the machine of this name."""
        return next(machine for machine in self.machines if machine.name == name)

    # -- faults -------------------------------------------------------------------------------------------------------

    async def _trouble(self, machine: Machine) -> None:
        """Kill or pause one machine again and again."""
        while self.kills < self._kills_due:
            await trio.sleep(self.chance.random())
            away_s = self.chance.choice(_AWAY_S)
            self.interrupted.add(machine.name)
            if self.chance.random() < 0.25:
                self.done["paused a proxy"] += 1
                machine.pause()
                await trio.sleep(away_s)
                machine.resume()
                continue
            if (workers := machine.workers) and self.chance.random() < 0.7:
                self.done["killed a worker"] += 1
                with suppress(ProcessLookupError):
                    os.kill(self.chance.choice(workers), signal.SIGKILL)
                continue
            self.done["killed a proxy"] += 1
            machine.kill()
            await trio.sleep(away_s)
            machine.spawn()
            try:
                await machine.ready()
            except AssertionError as error:
                self.wrong.append(str(error))
                machine.kill()
                await machine.start()

    async def _server_trouble(self) -> None:
        """Kill, stop or pause the database server, or kill one of its backends, again and again."""
        while self.kills < self._kills_due:
            await trio.sleep(self.chance.random())
            away_s = self.chance.choice(_AWAY_S)
            match self.chance.choice(["kill", "kill", "stop", "pause", "backend", "backend"]):
                case "kill":
                    self.done["killed the server"] += 1
                    self.cluster.kill()
                    await self._server_back(away_s)
                case "stop":
                    self.done["stopped the server"] += 1
                    self.cluster.stop(self.chance.choice([signal.SIGINT, signal.SIGQUIT]))
                    await self._server_back(away_s)
                case "pause":
                    self.done["paused the server"] += 1
                    self.cluster.pause()
                    await trio.sleep(away_s)
                    self.cluster.resume()
                case _:
                    pids = await trio.to_thread.run_sync(self._backends)
                    if pids:
                        self.done["killed a backend"] += 1
                        with suppress(ProcessLookupError):
                            os.kill(self.chance.choice(pids), signal.SIGKILL)
                        await trio.to_thread.run_sync(self.cluster.wait)

    async def _server_back(self, away_s: float) -> None:
        await trio.sleep(away_s)
        self.cluster.spawn()
        await trio.to_thread.run_sync(self.cluster.wait)

    def _backends(self) -> list[int]:
        try:
            return self.database.backends()
        except psycopg.Error:
            return []

    async def _cancels(self) -> None:
        """Cancel or end the statement of a random backend, at any moment."""
        while self.kills < self._kills_due:
            await trio.sleep(0.1 * self.chance.random())
            how = self.chance.choice(["pg_cancel_backend", "pg_cancel_backend", "pg_terminate_backend"])
            for query in await trio.to_thread.run_sync(self._cancelled, how):
                self.done[
                    f"{how} of {'a shipping' if 'pack' in query or 'block' in query else 'another'} statement"
                ] += 1

    def _cancelled(self, how: str) -> list[str]:
        which = "state <> 'idle' AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        order = "ORDER BY query NOT LIKE '%pack%', random() LIMIT 1"
        try:
            rows = self.database.sql(f"SELECT query, {how}(pid) FROM pg_stat_activity WHERE {which} {order}")  # noqa: S608
        except psycopg.Error:
            return []
        return [query for query, _ in rows]
