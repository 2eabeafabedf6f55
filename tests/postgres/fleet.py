"""Machines on one database in front of an upstream whose streams go on until a test lets them end."""

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from tests.laws.checker import lines_of, transcript_of
from tests.postgres.cluster import Database
from tests.postgres.machine import Machine
from tests.proxy.scripted import chunk, listening, request_of
from tests.support.house import ASKED, DONE, HEAD, finish, role, text
from wiretape.events.emit import emit
from wiretape.events.tape.tape import Reader

#: `store_dead_s` of every machine that says nothing else.
DEAD_S: Final = 1.0
KEY: Final = "Authorization: Bearer sk-1"


class Speaking:
    """An upstream whose streams go on until `finish` is set."""

    def __init__(self) -> None:
        self.finish = trio.Event()
        self.pace_s = 0.02

    async def __call__(self, stream: trio.abc.Stream) -> None:
        while await request_of(stream):
            await stream.send_all(HEAD + chunk(role()))
            number = 0
            while not self.finish.is_set():
                await stream.send_all(chunk(text(f"word {number} ")))
                number += 1
                with trio.move_on_after(self.pace_s):
                    await self.finish.wait()
            await stream.send_all(chunk(finish()) + chunk(DONE) + b"0\r\n\r\n")


class Fleet:
    """Machines on one database and their upstream."""

    def __init__(self, database: Database, folder: Path, port: int, speaking: Speaking, nursery: trio.Nursery) -> None:
        self.speaking = speaking
        self.machines: list[Machine] = []
        self._database = database
        self._folder = folder
        self._port = port
        self._nursery = nursery

    async def add(self, name: str, *options: str, **how: Any) -> Machine:
        """Start another machine."""
        dead = () if "--store-dead-s" in options else ("--store-dead-s", str(DEAD_S))
        machine = Machine(name, self._folder, self._database, self._port, *dead, *options, **how)
        self.machines.append(machine)
        await machine.start()
        return machine

    async def stream_on(self, machine: Machine, said: str = "hi") -> tuple[str, bytearray]:
        """Begin a stream that goes on; return its id, and what its client gets as it comes."""
        body = {**ASKED, "messages": [{"role": "user", "content": said}]}
        got = bytearray()
        if self.speaking.finish.is_set():
            self.speaking.finish = trio.Event()
        self._nursery.start_soon(partial(machine.ask, got, KEY, body=body))
        await until_count(got, 3)
        answer = transcript_of(bytes(got))
        assert answer is not None
        return answer.headers["x-wiretape-stream"], got

    async def follow(self, machine: Machine, stream: str) -> bytearray:
        """Follow a stream, again if the machine asks for that; return what comes as it comes."""
        got = bytearray()

        async def follow() -> None:
            answer = await machine.get(f"/wiretape/streams/{stream}/events", KEY, got=got)
            while answer is not None and answer.status == 503:
                got.clear()
                await trio.sleep(0.2)
                answer = await machine.get(f"/wiretape/streams/{stream}/events", KEY, got=got)

        self._nursery.start_soon(follow)
        return got


@asynccontextmanager
async def fleet(database: Database, folder: Path) -> AsyncGenerator[Fleet]:
    """No machine yet; all are stopped afterwards."""
    speaking = Speaking()
    async with trio.open_nursery() as nursery, listening(speaking) as (port, _):
        made = Fleet(database, folder, port, speaking, nursery)
        try:
            with trio.fail_after(150):
                yield made
        finally:
            for machine in made.machines:
                machine.resume()
                machine.kill()
            nursery.cancel_scope.cancel()


async def until(true: Callable[[], bool], within_s: float = 30) -> None:
    """Return once it is true."""
    with trio.fail_after(within_s):
        while not true():  # noqa: ASYNC110 - it happens in another process
            await trio.sleep(0.02)


async def until_count(got: bytearray, words: int) -> None:
    """Return once more than so many words have come."""
    await until(lambda: got.count(b"word") > words)


async def until_shipped(database: Database, stream: str) -> None:
    """Return once the database knows a stream."""
    await until(lambda: database.sql("SELECT 1 FROM wiretape.stream WHERE id = %s", stream) != [])


async def tape_on(machine: Machine, stream: str) -> bytes:
    """Return the tape of a stream as a machine answers it; empty if it has none."""
    answer = await machine.get(f"/wiretape/streams/{stream}/tape", KEY)
    return answer.body if answer is not None and answer.status == 200 and answer.whole else b""


async def ended_on(machine: Machine, stream: str, within_s: float = 30) -> bytes:
    """Return the tape once it has its end there."""
    with trio.fail_after(within_s):
        while True:
            tape = await tape_on(machine, stream)
            lines = lines_of(tape)[0]
            if lines and lines[-1].kind == "end":
                return tape
            await trio.sleep(0.1)


async def metric(machine: Machine, name: str) -> float:
    """Return a metric without labels."""
    answer = await machine.get("/wiretape/metrics", KEY)
    assert answer is not None
    found = re.search(rf"^{name} (\S+)$", answer.body.decode(), re.MULTILINE)
    assert found is not None, f"there is no metric {name}"
    return float(found[1])


async def until_whole(got: bytearray, tape: bytes) -> None:
    """Return once a client has got all that its tape emits, and nothing else."""
    await until(lambda: got.endswith(b"\r\n0\r\n\r\n"))
    answer = transcript_of(bytes(got))
    assert answer is not None
    assert answer.body == emit(Reader().feed(tape))


async def until_same(machine: Machine, stream: str, tape: bytes, within_s: float = 30) -> None:
    """Return once a machine answers exactly this tape."""
    theirs = b""
    with trio.move_on_after(within_s):
        while theirs != tape:
            await trio.sleep(0.1)
            theirs = await tape_on(machine, stream)
    assert theirs == tape


def ending_of(tape: bytes) -> str:
    """Return how it ended."""
    return str(lines_of(tape)[0][-1].keys["ending"])


def cut_short(tape: bytes, whole_tape: bytes) -> bool:
    """Return whether a tape is a beginning of another one, and then an end of its own."""
    return tape != whole_tape and whole_tape.startswith(tape[: tape[:-1].rindex(b"\n") + 1])
