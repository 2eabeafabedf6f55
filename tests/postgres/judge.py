"""What must hold when all faults are over: nothing lost or doubled, one ending, the same tape on every machine."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import psycopg
import trio

from tests.house.tree import ROOT
from tests.laws.checker import check, lines_of, transcript_of
from tests.postgres.chaos import World, ids_of
from tests.postgres.machine import Machine
from wiretape.events.core.json_text import dumps
from wiretape.events.emit import emit
from wiretape.events.tape.tape import Reader
from wiretape.proxy.cli.show import event_json, events_of

__all__ = ["Judge"]

#: A restarted machine ships its backlog, and a stream without a writer is sealed when it is read.
_SETTLE_S: Final = 60.0
#: A worker that was killed again and again is started later each time.
_RETRY_S: Final = 60.0


class Judge:
    """Compares what clients got with what every machine answers afterwards."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wrong: list[str] = []
        #: Of all rounds.
        self.streams = 0
        self.frames = 0
        self.events = 0
        self.ended_elsewhere = 0
        self._judged: set[str] = set()

    async def round(self) -> None:
        """Judge the streams of a round, all of which have ended."""
        local = await self._settled()
        tapes: dict[tuple[str, str], bytes] = {}

        async def read(machine: Machine) -> None:
            for stream in local:
                tapes[machine.name, stream] = (await self._got(machine, f"/wiretape/streams/{stream}/tape"))[0]

        async with trio.open_nursery() as nursery:
            for machine in self.world.machines:
                nursery.start_soon(read, machine)
        for stream, (owner, path) in local.items():
            self._one(stream, owner, path.read_bytes(), {m.name: tapes[m.name, stream] for m in self.world.machines})
        self._answers({stream: tapes[owner.name, stream] for stream, (owner, _) in local.items()})
        await self._followers()
        await self._lists(local.keys(), {stream: owner.name for stream, (owner, _) in local.items()}, tapes)
        await self._scopes()
        self._tables()
        self.wrong += self.world.wrong
        self.world.wrong.clear()
        await self._commands(sorted(local), tapes, {stream: owner.name for stream, (owner, _) in local.items()})
        self._judged |= local.keys()
        self.streams += len(local)

    async def _settled(self) -> Mapping[str, tuple[Machine, Path]]:
        """Return the new tapes once the database has sealed them all, as a restart or a reader makes it do."""
        open_, local = ["everything"], dict[str, tuple[Machine, Path]]()
        with trio.move_on_after(_SETTLE_S):
            while open_:
                await trio.sleep(0.1)
                found = [(path, machine) for machine in self.world.machines for path in machine.data.rglob("*.tape")]
                local = {path.stem: (machine, path) for path, machine in found if path.stem not in self._judged}
                known = await trio.to_thread.run_sync(self._sealed)
                open_ = [
                    f"{stream} of {machine.name}" for stream, (machine, _) in local.items() if not known.get(stream)
                ]
                open_ += [f"{path}" for path, _ in found if path.parent.name == "live"]
                open_ += [stream for stream in known if stream not in local and stream not in self._judged]
        self.wrong += [f"not sealed after {_SETTLE_S:g} s: {which}" for which in open_[:5]]
        return local

    def _sealed(self) -> Mapping[str, bool]:
        with suppress(psycopg.Error):
            return dict(self.world.database.sql("SELECT id, sealed IS NOT NULL FROM wiretape.stream"))
        return {}

    # -- tapes --------------------------------------------------------------------------------------------------------

    async def _got(self, machine: Machine, path: str) -> tuple[bytes, bytes]:
        """Return what an operator gets: the body, and all bytes. As clients do, ask again after a reset and a 503."""
        token = (machine.data / "operator.token").read_text().strip()
        status = 0
        with trio.move_on_after(_RETRY_S):
            while True:
                raw = bytearray()
                answer = await machine.get(path, f"Authorization: Bearer {token}", got=raw)
                status = 0 if answer is None else answer.status
                if answer is not None and status == 200 and answer.whole:
                    return answer.body, bytes(raw)
                await trio.sleep(0.1)
        self.wrong.append(f"{machine.name} answers {status} for {path}")
        return b"", b""

    def _one(self, stream: str, owner: Machine, file: bytes, tapes: Mapping[str, bytes]) -> None:
        """Check one stream: whole at home, the same elsewhere, or cut short by another machine."""
        if tapes[owner.name] != file:
            self.wrong.append(f"{owner.name} answers another tape of its own {stream} than is on its disk")
        self.wrong += [f"{stream} at home: {what}" for what in check(file, b"")]
        others = {tape for name, tape in tapes.items() if name != owner.name}
        if len(others) != 1:
            self.wrong.append(f"{stream} differs between the machines that did not write it")
        for tape in others - {file}:
            self.ended_elsewhere += 1
            lines = lines_of(tape)[0]
            if not lines or lines[-1].keys.get("cause") != "crashed":
                self.wrong.append(f"{stream} of {owner.name} is another elsewhere: {len(file)}, {len(tape)} bytes")
            elif not file.startswith(tape[: tape[:-1].rindex(b"\n") + 1]):
                self.wrong.append(f"{stream} of {owner.name} was ended elsewhere after records that it never had")
            elif owner.name not in self.world.interrupted:
                self.wrong.append(f"{stream} was ended elsewhere although {owner.name} was never away")
            self.wrong += [f"{stream} elsewhere: {what}" for what in check(tape, b"")]

    def _answers(self, own: Mapping[str, bytes]) -> None:
        """Check that clients were given nothing that is not on the tape at home."""
        for answer in self.world.answers:
            got = transcript_of(bytes(answer.raw))
            if got is None or got.status != 200:
                continue
            stream = got.headers["x-wiretape-stream"]
            self.frames += got.body.count(b"\n\n")
            if stream not in own:
                self.wrong.append(f"lost: {stream}, of which a client of {answer.machine} got {len(got.body)} bytes")
                continue
            emitted = emit(Reader().feed(own[stream]))
            if not (emitted == got.body if got.whole else emitted.startswith(got.body)):
                self.wrong.append(f"lost: a client of {stream} got bytes that are not on its tape")
            self.wrong += [f"{stream}: {what}" for what in check(own[stream], bytes(answer.raw), left=not got.whole)]

    # -- followers ----------------------------------------------------------------------------------------------------

    async def _followers(self) -> None:
        """Check that each follower got exactly what its machine answers now, as far as it read."""
        finals: dict[tuple[str, str], list[tuple[str, bytes]]] = {}
        for segment in self.world.segments:
            at = f"a follower of {segment.stream} on {segment.machine}"
            if segment.hung:
                self.wrong.append(f"{at} got no end")
            if not (got := ids_of(bytes(segment.raw))):
                continue
            self.events += len(got)
            key = segment.machine, segment.stream
            if key not in finals:
                finals[key] = await self._events(*key)
            due = [event for event in finals[key] if _place(event[0]) > _place(segment.last_id)]
            if got != due[: len(got)]:
                other = next(pair for pair in zip_longest(got, due) if pair[0] != pair[1])
                after = segment.last_id or "the beginning"
                self.wrong.append(f"lost: {at} after {after} got {other[0]!r} instead of {other[1]!r}"[:600])
            answer = transcript_of(bytes(segment.raw))
            cut = b"event: wiretape." in segment.raw
            if answer is not None and answer.whole and not cut and len(got) < len(due):
                self.wrong.append(f"{at} was told the end after {len(got)} of {len(due)} events")

    async def _events(self, machine: str, stream: str) -> list[tuple[str, bytes]]:
        return ids_of((await self._got(self.world.machine(machine), f"/wiretape/streams/{stream}/events"))[1])

    # -- lists, scopes, commands --------------------------------------------------------------------------------------

    async def _lists(
        self, streams: Iterable[str], owners: Mapping[str, str], tapes: Mapping[tuple[str, str], bytes]
    ) -> None:
        """Check that each machine lists each stream once, ended as its tape says."""
        for machine in self.world.machines:
            listed: list[dict[str, Any]] = []
            before: str | None = ""
            while before is not None:
                body, _ = await self._got(machine, f"/wiretape/streams?limit=1000{before and f'&before={before}'}")
                page = json.loads(body or b'{"streams":[],"next":null}')
                listed += page["streams"]
                before = page["next"]
            names = [row["id"] for row in listed]
            self.wrong += [
                f"{machine.name} lists {name} {names.count(name)} times" for name in streams if names.count(name) != 1
            ]
            for row in listed:
                if (tape := tapes.get((machine.name, row["id"]))) and (lines := lines_of(tape)[0]):
                    due = lines[-1].keys.get("ending")
                    if (row["live"], row["ending"]) != (False, due):
                        said = f"live={row['live']} ending={row['ending']}"
                        self.wrong.append(
                            f"{machine.name} lists {row['id']} of {owners[row['id']]} as {said}, not {due}"
                        )

    def _tables(self) -> None:
        """Check that the tables have nothing twice."""
        twice = "SELECT stream FROM wiretape.{} GROUP BY stream, call HAVING count(*) > 1"
        days = "SELECT stream FROM wiretape.block GROUP BY stream HAVING count(DISTINCT day) > 1"
        for sql in (twice.format("call"), twice.format("answer"), days):
            found = {stream for (stream,) in self.world.database.sql(sql)} - self._judged
            self.wrong += [f"doubled: {stream} by {sql}" for stream in found]

    async def _scopes(self) -> None:
        """Check that no machine shows a stream to another caller."""
        answer = next(answer for answer in reversed(self.world.answers) if answer.stream)
        for machine in self.world.machines:
            path = f"/wiretape/streams/{answer.stream}"
            theirs = await machine.get(path, f"Authorization: Bearer {answer.key}")
            others = await machine.get(path, "Authorization: Bearer sk-another")
            if (theirs and theirs.status, others and others.status) != (200, 404):
                self.wrong.append(f"{machine.name}: {theirs} for the caller of {answer.stream}, {others} for another")

    async def _commands(
        self, streams: Sequence[str], tapes: Mapping[tuple[str, str], bytes], owners: Mapping[str, str]
    ) -> None:
        """Check `wiretape show` and `wiretape follow` on a machine without a proxy."""
        stream = self.world.chance.choice(streams)
        elsewhere = next(machine.name for machine in self.world.machines if machine.name != owners[stream])
        shown = await self._command("show", stream, "--tape")
        if shown != tapes[elsewhere, stream]:
            self.wrong.append(f"wiretape show {stream} --tape: {len(shown)} bytes, not those of {elsewhere}")
        due = b"".join(
            dumps(event_json(t, each)) + b"\n" for t, each in events_of(Reader().feed(tapes[elsewhere, stream]))
        )
        if [json.loads(line) for line in (await self._command("follow", stream, "--json")).splitlines()] != [
            json.loads(line) for line in due.splitlines()
        ]:
            self.wrong.append(f"wiretape follow {stream} --json: not the events of {elsewhere}")

    async def _command(self, *arguments: str) -> bytes:
        command = [sys.executable, "-m", "wiretape", *arguments, "--store", self.world.database.url]
        with trio.fail_after(60):
            done = await trio.run_process(
                command,
                cwd=ROOT,
                env=self.world.database.environment,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        if done.returncode:
            self.wrong.append(f"wiretape {' '.join(arguments)}: {done.returncode}: {done.stderr.decode()[:300]}")
        return done.stdout


def _place(id_: str) -> tuple[int, int]:
    record, _, ordinal = id_.partition(".")
    return (int(record), int(ordinal)) if id_ else (-1, -1)
