"""What machines with one database agree on, and ask each other: which turn begins where, who reads what."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, Final

import trio

from ...limits import READERS_ASKED_S, SHARED_ANSWER_S, SHARED_LOOK_S
from ..store import UnreachableError
from .connection import Server
from .questions import Pool

__all__ = ["PostgresShared"]

_OnAsked = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]

#: A claim of which nothing came may be taken over: its machine died, or its answer was lost.
_CLAIM: Final = """INSERT INTO wiretape.claim AS held (name, writer) VALUES ($2::text || '/' || $3::int, $1)
    ON CONFLICT (name) DO UPDATE SET writer = excluded.writer, at = now()
    WHERE (held.writer = excluded.writer OR held.at < now() - interval '30 s')
    AND NOT EXISTS (SELECT FROM wiretape.stream WHERE run = $2 AND turn = $3) RETURNING 1"""
_ASK: Final = """INSERT INTO wiretape.signal (writer, stream, what, keys)
    SELECT writer, id, $2, $3 FROM wiretape.stream WHERE id = $1 RETURNING id"""
#: Who asked does not wait for longer; what is to be forgotten is never too old.
_TAKE: Final = """UPDATE wiretape.signal SET taken = true WHERE writer = $1 AND NOT taken
    AND (what = 'forget' OR at > now() - interval '40 s') RETURNING id, what, keys"""
_ANSWER: Final = "UPDATE wiretape.signal SET answer = $2 WHERE id = $1"
#: A machine that was declared dead will not answer what it has not taken.
_ANSWERED: Final = """DELETE FROM wiretape.signal g USING wiretape.stream s WHERE g.id = $1 AND s.id = g.stream
    AND (g.answer IS NOT NULL OR (s.sealed IS NOT NULL AND NOT g.taken)) RETURNING g.answer"""
_DONE: Final = "DELETE FROM wiretape.signal WHERE id = $1"
_LEASE: Final = """INSERT INTO wiretape.reader SELECT unnest($2::text[]), $1, now() + interval '15 s'
    ON CONFLICT (stream, writer) DO UPDATE SET until = excluded.until"""
_LEAVE: Final = "DELETE FROM wiretape.reader WHERE writer = $1 AND stream <> ALL ($2::text[])"
_READ: Final = "SELECT 1 FROM wiretape.reader WHERE stream = $2 AND writer <> $1 AND until > now() LIMIT 1"
_FORGET: Final = """WITH gone AS (DELETE FROM wiretape.stream WHERE id = ANY ($2::text[]) RETURNING id, writer, day),
    a AS (DELETE FROM wiretape.block USING gone WHERE block.day = gone.day AND block.stream = gone.id),
    b AS (DELETE FROM wiretape.call WHERE stream = ANY ($2::text[])),
    c AS (DELETE FROM wiretape.answer WHERE stream = ANY ($2::text[]))
    INSERT INTO wiretape.signal (writer, stream, what, keys)
    SELECT writer, id, 'forget', json_build_object('stream', id)::text FROM gone WHERE writer <> $1"""


class PostgresShared:
    """The agreement of one machine with the others. `writer` returns the id of its writer, 0 while it has none."""

    def __init__(self, server: Server, writer: Callable[[], int]) -> None:
        self.on_asked: _OnAsked | None = None
        self._pool, self._writer = Pool(server), writer
        self._readers, self._lease_at = Counter[str](), -inf

    async def run(self) -> None:
        """Answer other machines and renew leases until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                with suppress(UnreachableError):
                    for asked in await self._ask(_TAKE) if self.on_asked else ():
                        nursery.start_soon(self._answer, *asked)
                    if trio.current_time() >= self._lease_at:
                        self._lease_at = trio.current_time() + (READERS_ASKED_S if self._readers else inf)
                        await self._ask(_LEASE, [*self._readers])
                        await self._ask(_LEAVE, [*self._readers])
                await trio.sleep(SHARED_LOOK_S)

    async def _ask(self, sql: str, *values: Any) -> list[Any]:
        if not self._writer():
            raise UnreachableError("The database has not been reached yet.")
        return await self._pool.ask(sql, (self._writer(), *values))

    async def _answer(self, number: int, what: str, keys: str) -> None:
        assert self.on_asked is not None, "it was there before"
        answer = await self.on_asked(what, json.loads(keys))
        with suppress(UnreachableError):
            if what == "forget":  # the shipper has deleted its copies, too
                await self._pool.ask(_DONE, (number,))
            else:
                await self._pool.ask(_ANSWER, (number, json.dumps(answer)))

    async def claim(self, run: str, turn: int) -> bool:
        """Claim a turn of a run."""
        return bool(await self._ask(_CLAIM, run, turn))

    async def ask(self, stream: str, what: str, keys: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Ask the machine that writes a stream."""
        until = trio.current_time() + SHARED_ANSWER_S
        for (number,) in await self._pool.ask(_ASK, (stream, what, json.dumps(keys))):
            while trio.current_time() < until:
                await trio.sleep(SHARED_LOOK_S / 4)
                for (answer,) in await self._pool.ask(_ANSWERED, (number,)):
                    return json.loads(answer) if answer else None
            await self._pool.ask(_DONE, (number,))
        return None

    async def read_elsewhere(self, stream: str) -> bool:
        """Return whether other machines have leases."""
        with suppress(UnreachableError):
            return bool(await self._ask(_READ, stream))
        return False

    @contextmanager
    def reading(self, stream: str) -> Generator[None]:
        """Hold a lease, which is renewed while it is held."""
        self._readers[stream] += 1
        self._lease_at = -inf
        try:
            yield
        finally:
            self._readers[stream] -= 1
            self._readers, self._lease_at = +self._readers, -inf

    async def forget(self, streams: Sequence[str]) -> None:
        """Remove streams from the database at once, and from other machines once they are up."""
        await self._ask(_FORGET, [*streams])
