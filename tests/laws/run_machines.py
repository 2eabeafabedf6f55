"""Plays the stories of `/v1/runs` on three machines in virtual time: each request goes to any of them

    python -m tests.laws.run_machines 1000          # what is wrong, and how often each thing came up
    python -m tests.laws.run_machines 17 --first 4  # stories 4 to 20

A restart takes one machine away, in order or as by kill -9; one that stays away for 10 s is declared dead. The store of
all machines may be away too. What must hold is what holds on one machine (`run_laws`): each visit of a viewer, on
whichever machine, is a part of one history. Only what a dead machine had not shipped is lost for the others: a history
may then be known in two lengths, and a viewer who has seen the longer one still gets the end of the other.
"""

import random
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import product
from math import inf
from typing import Any, Final

import trio

from tests.laws.run_laws import RunStore, Seen, Telling, Told, main, play, recovered
from tests.laws.run_plans import Restart, Story, planned_story
from tests.laws.runs import refusing
from tests.support.house import House, house
from tests.support.http import Client
from tests.support.machines import Log, Shipped, crashed, joined, tapes_of
from tests.support.run_clients import event_of, history_of, names, wrong_with
from wiretape.events.emit import RunReader
from wiretape.events.tape.record import Record
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import StoreFullError

NAMES: Final = ("a", "b", "c")
#: A machine that is away for so long is declared dead.
DEAD_S: Final = 10.0


class Own(Shipped, RunStore):
    """The own store of a machine, which notes what may be shown of each run from now on."""

    def __init__(self, fleet: "Fleet", name: str, *args: Any) -> None:
        super().__init__(fleet.log, name, lambda: fleet.chance.uniform(0, 0.3), *args)
        self.dead = False
        self._fleet = fleet
        self._of_stream: dict[str, tuple[str, RunReader]] = {}

    async def append(self, stream: str, records: Sequence[Record], row: Any = None) -> int:
        if self.dead:
            return await MemoryStore.append(self, stream, records, row)
        opened = records[0].keys
        if records[0].kind == "open" and opened.get("run"):
            reader = RunReader()
            for tape in self._fleet.tapes(self, opened["run"]):
                reader.feed(*(tape if tape[-1].kind == "end" else recovered(tape)))
            self._of_stream[stream] = opened["run"], reader
        run, reader = self._of_stream.get(stream, ("", RunReader()))
        try:
            size = await super().append(stream, records, row)
        except StoreFullError:
            if last := self._tapes[stream].records:
                self._fleet.shown[run].update(reader.feed(crashed(last[-1])))
            raise
        self._fleet.shown[run].update(reader.feed(*records))
        return size

    async def reopen(self, tapes: dict[str, list[Record]]) -> None:
        """Take over the tapes of the same machine, as recovery leaves them, and ship what is missing."""
        for stream, records in tapes.items():
            whole = records if records[-1].kind == "end" else recovered(records)
            await MemoryStore.create(self, stream)
            await MemoryStore.append(self, stream, whole)
            shipped = tapes_of(self._log.tapes).get(stream, [])
            self._queue.append((stream, whole[len(shipped) :], None))
        self._queue = [each for each in self._queue if each[1]]
        self._dirty.set()


class Fleet(Telling):
    """One story on several machines."""

    def __init__(self, story: Story, told: Told) -> None:
        super().__init__(story, told)
        self.chance = random.Random(story.seed)  # noqa: S311 - the seed is the point
        self.log = Log()
        #: By run: the events that may be shown.
        self.shown: defaultdict[str, set[bytes]] = defaultdict(set)
        self.owns = {name: Own(self, name, story.write_s, story.failing_write) for name in NAMES}
        self.homes: dict[str, House] = {}
        self._ids: list[str] = []
        self._ended = 0

    # -- the machines -------------------------------------------------------------------------------------------------

    async def serve(self, over: trio.Event) -> None:
        """Run all machines until the story is over."""
        restarts: defaultdict[str, list[Restart]] = defaultdict(list)
        for restart in self.story.restarts:
            restarts[self.chance.choice(NAMES)].append(restart)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._be_away, over)
            for name in NAMES:
                nursery.start_soon(self._serve_one, name, restarts[name], over)

    async def _be_away(self, over: trio.Event) -> None:
        for _ in range(self.chance.choice([0, 0, 1, 2])):
            await trio.sleep(self.chance.uniform(0, 20))
            self.log.tapes.why = "away" if not over.is_set() else ""
            await trio.sleep(self.chance.uniform(0.1, 8))
            self.log.tapes.why = ""
            self.told.seen["the store was away"] += 1

    async def _serve_one(self, name: str, restarts: Sequence[Restart], over: trio.Event) -> None:
        for restart in [*restarts, None]:
            own, tapes = self.owns[name], dict[str, list[Record]]()
            async with trio.open_nursery() as shipping:
                shipping.start_soon(own.ship)
                async with self._home(name, own) as home:
                    with trio.move_on_after(inf if restart is None else restart.after_s):
                        await over.wait()
                    if over.is_set():
                        await self._end(home)
                    del self.homes[name], self.log.machines[name]
                    if restart is not None and restart.killed:
                        shipping.cancel_scope.cancel()
                        own.dead, tapes = True, own.copied()
                        self.unwritten += len(home.registry.live)
                        for end in home.harness.ends:
                            end.close()
                if not own.dead:
                    await own.flush()
                    tapes = own.copied()
                shipping.cancel_scope.cancel()
            if over.is_set() or restart is None:
                return
            await self._down(name, restart, tapes)

    async def _down(self, name: str, restart: Restart, tapes: dict[str, list[Record]]) -> None:
        self.told.seen["restart: kill" if restart.killed else "restart: in order"] += 1
        await trio.sleep(min(restart.down_s, DEAD_S))
        if restart.down_s > DEAD_S:
            self.told.seen["buried"] += bool(await self.log.bury(name))
            self.note_all()
            await trio.sleep(restart.down_s - DEAD_S)
        own = self.owns[name] = Own(self, name, self.story.write_s)
        await own.reopen(tapes)
        self.note_all()

    @asynccontextmanager
    async def _home(self, name: str, own: Own) -> AsyncGenerator[House]:
        story = self.story
        async with house(
            self.upstream.serve,
            route=story.route,
            config=story.config,
            store=joined(self.log, name, own),
            ids=self._ids,
            check=False,
        ) as home:
            refusing(home, self.refused)
            shared: Any = home.store.shared
            self.homes[name], self.log.machines[name] = home, shared
            yield home

    async def _connected(self, capacity: int | None = None) -> tuple[Client, RunStore]:
        while not self.homes:  # noqa: ASYNC110
            await trio.sleep(0.1)
        name = self.chance.choice([*self.homes])
        return await self.homes[name].connect(capacity=capacity), self.owns[name]

    async def ask(self, method: str, path: str, body: Any = b"", *headers: str) -> tuple[int, dict[str, Any]]:
        """Return the answer of any machine; one more time if it may not know the run now."""
        while True:
            status, said = await super().ask(method, path, body, *headers)
            if status != 404 or not self.unknown(path.partition("/")[2].partition("/")[0]):
                return status, said
            await trio.sleep(0.5)

    # -- histories ----------------------------------------------------------------------------------------------------

    def tapes(self, own: MemoryStore | None, run: str) -> list[list[Record]]:
        """Return the tapes of a run as one machine reads them, or as the log has them."""
        return [*self._choices(own, run), []][0]

    def _choices(self, own: MemoryStore | None, run: str) -> list[list[list[Record]]]:
        """Return all ways to read a run whose turn may have begun twice, the one that counts first."""
        stores = [self.log.tapes, *([own] if own else [])]
        found = {stream: records for store in stores for stream, records in tapes_of(store).items() if records}
        turns: defaultdict[int, list[list[Record]]] = defaultdict(list)
        for stream in sorted(found, reverse=True):
            turn = next((record.keys["turn"] for record in found[stream] if record.kind == "run"), 0)
            if found[stream][0].keys.get("run") == run and turn:
                turns[turn].append(found[stream])
        return [[*choice] for choice in product(*(turns[turn] for turn in sorted(turns)))]

    def histories(self, run: str) -> list[list[bytes]]:
        """Return every history that a viewer may have seen, that of the log first."""
        return [
            history_of(tapes if tapes[-1][-1].kind == "end" else [*tapes[:-1], recovered(tapes[-1])])
            for own in (None, *self.owns.values())
            for tapes in self._choices(own, run)
            if tapes
        ]

    def note_all(self) -> None:
        """Note the endings that machines get from others."""
        tapes = [records for store in (self.log.tapes, *self.owns.values()) for records in tapes_of(store).values()]
        for run in {records[0].keys.get("run", "") for records in tapes if records} - {""}:
            for frames in self.histories(run):
                self.shown[run].update(frames)

    # -- what must hold -----------------------------------------------------------------------------------------------

    def is_written(self, _: RunStore, run: str, frame: bytes, /) -> bool:
        return frame in self.shown[run] or any(frame in frames for frames in self.histories(run))

    def unknown(self, run: str, /) -> bool:
        """It was on a machine that died before others knew the turn."""
        return len(self.homes) < len(NAMES) or not self.tapes(None, run)

    async def _end(self, home: House) -> None:
        """Wait for all machines; the last one judges."""
        with trio.move_on_after(1_000) as waited:
            await home.settled()
        if waited.cancelled_caught:
            self.told.wrong.append(f"{len(home.registry.live)} streams never end")
        self._ended += 1
        while self._ended < len(NAMES) or len(self.homes) < len(NAMES):  # noqa: ASYNC110
            await trio.sleep(0.1)
        await trio.sleep(1)
        if home is self.homes.get(NAMES[0]):
            await self._judge(home)
            self._ended += 1
        while self._ended <= len(NAMES):  # noqa: ASYNC110
            await trio.sleep(0.1)

    async def _judge(self, _: House, /) -> None:
        told, runs = self.told, set[str]()
        attempts = 0
        for own in self.owns.values():
            for records in own.copied().values():
                attempts += sum(record.kind == "attempt" for record in records)
                runs.add(records[0].keys["run"])
        for run in sorted(runs):
            frames, *others = self.histories(run)
            told.wrong += wrong_with(frames, run)
            told.seen.update(names(frames))
            self._judge_visits(run, [frames, *others])
            if all(other == frames for other in others):
                await self._judge_status(run, frames, len(self.tapes(None, run)))
            else:
                told.seen["a history of two lengths"] += 1
        told.wrong += [f"{run} is lost" for run in set(self.runs.values()) - runs]
        calls = self.upstream.requests.total() + self.refusals - sum(self.refused)
        least = 0 if self.story.restarts or told.seen["run.cancelled"] else attempts
        if not least <= calls <= attempts + self.upstream.unanswered + self.unwritten:
            told.wrong.append(f"{calls} upstream requests for {attempts} attempts")
        for each in self.homes.values():
            with trio.move_on_after(90) as waited:
                while each.harness.open or len(each.upstream.still_open) > len(each.transport.pool):  # noqa: ASYNC110
                    await trio.sleep(0.1)
            if waited.cancelled_caught:
                told.wrong.append(f"V4: {each.harness.open} clients, {len(each.upstream.still_open)} upstreams left")
            if self.story.failing_write is None:
                told.wrong += [f"{level}: {event} {fields}" for level, event, fields in each.log if level == "error"]
            told.wrong += [f"server: {line}" for line in each.harness.log]

    def _judge_visits(self, run: str, histories: Sequence[Sequence[bytes]]) -> None:
        for seen in (seen for seen in self.visits if seen.run == run):
            if not any(is_part(seen, frames) for frames in histories):
                said = [event_of(frame)["event"] for frame in seen.frames]
                self.told.wrong.append(f"C22: from {seen.after} of {len(histories[0])} a viewer of {run} got {said}")
            self.told.seen["visit: to the end" if seen.whole else "visit: left or cut"] += 1


def is_part(seen: Seen, frames: Sequence[bytes]) -> bool:
    """Return whether a visit showed a part of a history, from the event after the one it named."""
    due, got = list(frames[seen.after :]), seen.frames
    if seen.after > len(frames):  # it was on a machine that died, or the id is invented
        return got in ([], [frames[-1]])
    return got == due[: len(got)] and (not seen.whole or len(got) == len(due))


def played(seed: int) -> Told:
    """Return the result of the story of this number."""
    return play(planned_story(seed), Fleet)


if __name__ == "__main__":
    sys.exit(main(played))
