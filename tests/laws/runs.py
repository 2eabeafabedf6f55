"""Plays planned runs of the whole proxy in virtual time, and holds the laws L3, L5, L6 and V1 to V4 and V8 against them

    python -m tests.laws.runs 2000          # what is wrong, and how often each ending and fault came up
    python -m tests.laws.runs 17 --first 4  # runs 4 to 20

The store is one in memory whose writes take their time, and which knows what a reader may have by now (`Written`).
Every byte is looked at when the server hands it to its socket, not when a client reads it: nothing may be there before
it was written, for every reader at any time.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, cast

import trio
import trio.testing

from tests.laws.checker import check, transcript_of
from tests.laws.plans import FAULTS, MANNERS, Asker, Follower, Plan, Reply, planned
from tests.laws.said import payloads
from tests.proxy.scripted import Reset, request_of
from tests.support.house import House, house, post
from tests.support.http import Client
from wiretape.events.emit import Emitter, emit
from wiretape.events.tape.record import Record, encode
from wiretape.proxy.relay import delivery as delivery_module
from wiretape.proxy.relay import relay as relay_module
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import StoreFullError
from wiretape.proxy.upstream.connect import OpenTcp

__all__ = ["Played", "Upstream", "play", "played", "refusing"]

KEEPALIVE: Final = b": keepalive\n\n"
_ENDINGS: Final = (
    *("completed", "truncated", "reset", "stalled", "upstream_error", "refused", "protocol", "limit"),
    *("client_gone", "shutdown", "internal"),
)


class Written(MemoryStore):
    """What a reader may have been given by now; each write takes its time, and one of them may fail."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        #: Emission of what is written, by stream; and what it becomes as soon as the end is decided.
        self.emitted: dict[str, bytes] = {}
        self.closed: dict[str, bytes] = {}
        self.status: dict[str, int] = {}
        self._emitters: dict[str, Emitter] = {}
        self._plan = plan
        self._writes = 0
        self._full: set[str] = set()
        self.failed: set[str] = set()

    async def append(self, stream: str, records: Sequence[Record], row: Any = None) -> int:
        self._writes += 1
        failing = self._plan.failing_write
        if failing is not None and (self._writes == failing[0] or stream in self._full):
            if failing[1]:
                self._full.add(stream)
            self.failed.add(stream)
            self._as_if_ended(stream, "internal")
            raise StoreFullError("no room")
        await trio.sleep(self._plan.write_s)
        if stream in self.failed:  # numbers are missing now, which the store on disk allows (and reports to readers)
            tape = self._tapes[stream]
            tape.records += records
            tape.hidden = records[-1].kind == "end"
            tape.wake()
            written = sum(len(encode(record)) for record in records)
        else:
            written = await super().append(stream, records, row)
        emitter = self._emitters.setdefault(stream, Emitter())
        fresh = b"".join([frame for record in records for frame in emitter.feed(record)])
        self.emitted[stream] = self.emitted.get(stream, b"") + fresh
        if stream in self.failed:
            self._as_if_ended(stream, "internal")
        elif any(record.kind == "body" for record in records):
            heads = [record.keys["status"] for record in self._tapes[stream].records if record.kind == "head"]
            self._as_if_ended(stream, "status" if heads[-1] >= 400 else "framed")
        for record in records:
            if record.kind == "commit":
                self.status[stream] = record.keys["status"]
        return written

    def begun(self, stream: str) -> bool:
        """Whether there is a tape that says whose it is."""
        return stream in self.emitted and self._tapes[stream].records[0].kind == "open"

    def verbatim(self, stream: str) -> bool:
        """Whether it passes as it came."""
        return bool(self._tapes[stream].records[0].keys["profile"] == "transparent")

    def _as_if_ended(self, stream: str, cause: str) -> None:
        """A whole answer is understood as soon as its end is decided; and of a tape that has no room for its end, the
        client gets the end that recovery will write.
        """
        records = self._tapes[stream].records
        end = Record(len(records), 10**17, "end", {"cause": cause, "ending": cause, "flags": []})
        self.closed[stream] = emit([*records, end])


class Wire:
    """One connection of a client, seen where the server hands its bytes over."""

    def __init__(self, client: Client, store: Written, wrong: list[str], *, follows: str = "") -> None:
        self.raw = b""
        self._store = store
        self._wrong = wrong
        #: The stream whose events these are; else the answer's own.
        self._follows = follows
        stream: Any = client.stream
        pipe = stream._incoming
        put: Callable[[bytes | memoryview], int] = pipe.put

        def handed(data: bytes | memoryview) -> int:
            taken = put(data)
            if taken:
                self.raw += bytes(data[:taken])
                self._look()
            return taken

        pipe.put = handed

    def _look(self) -> None:
        """L6, now."""
        if len(self._wrong) > 3:
            return
        answer = transcript_of(self.raw)
        if answer is None or (self._follows and answer.status != 200):
            return
        stream = self._follows or answer.headers.get("x-wiretape-stream", "")
        if not stream:
            return
        if self._follows:
            test = _is_part_of_it if self._store.verbatim(self._follows) else _is_part
        else:
            test = _is_beginning
            ours = answer.status == 503 and stream in self._store.failed
            if self._store.status.get(stream) != answer.status and not ours:
                self._wrong.append(f"L6: {stream} was given the status {answer.status} before it was written")
        written = [each[stream] for each in (self._store.emitted, self._store.closed) if stream in each]
        if not any(test(each, answer.body) for each in written) and not _is_ours(answer.body):
            self._wrong.append(f"L6: {stream} was given bytes that were not written: ...{answer.body[-200:]!r}")


_OURS: Final = (
    b'{"error":{"message":"The tape of this stream cannot be written, so nothing is delivered (on_log_failure = stop)."'
)


def _is_ours(body: bytes) -> bool:
    """Where the log failed before a status was given, the answer cannot be on it; nothing in it is the upstream's."""
    return body[: len(_OURS)] == _OURS[: len(body)]


def _is_beginning(written: bytes, body: bytes) -> bool:
    return written.startswith(body)


def _blocks(body: bytes) -> list[tuple[bytes, bytes]]:
    """What a follower got: (id, block without its id line) of each that is whole; comments of ours left out."""
    found: list[tuple[bytes, bytes]] = []
    for block in body.split(b"\n\n")[:-1]:
        lines = block.split(b"\n")
        names = [line[4:] for line in lines if line.startswith(b"id: ")]
        if block + b"\n\n" != KEEPALIVE and not block.startswith(b"event: wiretape.error"):
            rest = b"\n".join(line for line in lines if not line.startswith(b"id: ")) + b"\n\n"
            found.append((names[0] if names else b"", _unwrapped(rest)))
    return found


def _unwrapped(block: bytes) -> bytes:
    """Bytes that are no frame come in an event of ours."""
    mark = b"event: wiretape.bytes\ndata: "
    if not block.startswith(mark):
        return block
    said = json.loads(block[len(mark) :])
    assert "text" in said, "the runs have no bytes that are not UTF-8"
    return str(said["text"]).encode()


def _is_part(written: bytes, body: bytes) -> bool:
    return b"".join(block for _, block in _blocks(body)) in written.replace(KEEPALIVE, b"")


def _is_part_of_it(written: bytes, body: bytes) -> bool:
    """What passed as it came is followed without stray blank lines, and with ids of ours: compare its payloads."""
    got = [data for event, data in payloads(body) if not event.startswith("wiretape.")]
    return "\0".join(["", *got, ""]) in "\0".join(["", *(data for _, data in payloads(written)), "", ""])


class Upstream:
    """Plays the replies: which one, the mark in the request and the number of its attempt say."""

    def __init__(self, replies: Sequence[Sequence[Reply]]) -> None:
        """`replies`: those of each asker; the last one comes again and again."""
        self._replies = replies
        #: Requests by asker.
        self.requests: Counter[int] = Counter()
        #: Requests on a used connection that closed without an answer: the transport may send them once more.
        self.unanswered = 0
        #: The body of the exchange that an asker's attempts had last.
        self.sent: dict[int, bytes] = {}

    async def serve(self, stream: trio.abc.Stream) -> None:
        used = False
        while request := await request_of(stream):
            number = int(request.partition(b'"user":"a')[2].partition(b'"')[0])
            replies = self._replies[number]
            reply = replies[min(self.requests[number], len(replies) - 1)]
            self.requests[number] += 1
            self.sent[number] = b""
            self.unanswered += used and not reply.head and reply.end != "stall"
            used = True
            if not await self._play(stream, reply, number):
                return

    async def _play(self, stream: trio.abc.Stream, reply: Reply, number: int) -> bool:
        await trio.sleep(reply.before_s)
        if reply.head:
            await stream.send_all(reply.head)
        for piece in reply.pieces:
            await trio.sleep(piece.after_s)
            await stream.send_all(piece.wire)
            self.sent[number] += piece.body
        if reply.end == "rst":
            raise Reset
        if reply.end == "stall":
            await stream.receive_some()
        return reply.end == "final"


@dataclass(slots=True)
class Played:
    """What came of a run."""

    seed: int
    wrong: list[str] = field(default_factory=list[str])
    #: All tapes, one after the other.
    tapes: bytes = b""
    #: (when, what) the clients read of bodies.
    transcripts: list[bytes] = field(default_factory=list[bytes])
    seen: Counter[str] = field(default_factory=Counter[str])


class _Run:
    def __init__(
        self, plan: Plan, home: House, store: Written, upstream: Upstream, played: Played, behind: list[str]
    ) -> None:
        self.plan = plan
        self.home = home
        self.store = store
        self.upstream = upstream
        self.played = played
        self.wires: dict[int, Wire] = {}
        self.left: set[int] = set()
        #: Streams whose client fell behind what is kept in memory.
        self.behind = behind

    # -- clients ------------------------------------------------------------------------------------------------------

    async def ask(self, number: int, asker: Asker) -> None:
        await trio.sleep(asker.at_s)
        client = await self.home.connect(capacity=asker.capacity)
        wire = self.wires[number] = Wire(client, self.store, self.played.wrong)
        await client.send(post(asker.body, *asker.headers))
        manner = asker.manner
        if manner in ("fin", "rst", "half"):
            self.left.add(number)
            pause_s = asker.pause_s if asker.capacity is not None else 0.0
            await self._read(client, trio.current_time() + asker.moment_s, pause_s=pause_s)
            _leave(client, manner)
            return
        if manner == "stuck":
            await self._read(client, trio.current_time() + asker.moment_s)
            await trio.sleep(asker.pause_s)
        elif manner == "behind":
            await trio.sleep(asker.moment_s)
        await self._read(client, inf, pause_s=asker.pause_s if manner == "slow" else 0.0, until=wire)
        client.close()

    async def _read(self, client: Client, until_t: float, *, pause_s: float = 0.0, until: Wire | None = None) -> None:
        try:
            with trio.move_on_at(until_t):
                while await client.receive():
                    await trio.sleep(pause_s)
                    answer = transcript_of(until.raw) if until is not None else None
                    stream: Any = client.stream
                    if answer is not None and answer.whole and not stream._incoming.data:
                        return
        except trio.BrokenResourceError:
            pass

    async def follow(self, asker: Asker, number: int, follower: Follower) -> None:
        await trio.sleep(asker.at_s + follower.join_s)
        if number >= len(self.home.streams):
            self.played.seen["follower: nothing to follow"] += 1
            return
        stream = self.home.streams[number]
        got: list[tuple[bytes, bytes]] = []
        missed = 0
        visits = [*follower.visits, None]
        while visits:
            stay = visits[0]
            wire, status, whole = await self._visit(stream, follower, got, stay)
            if status == 404:  # it had no tape yet when it was looked for
                missed += 1
                if not self.store.begun(stream) and stream not in self.home.registry.live:
                    return  # its tape was never begun, or the write that did it failed
                if missed > 1_000:
                    self.played.wrong.append(f"a follower of {stream} was never let in")
                    return
                await trio.sleep(0.1)
                continue
            visits.pop(0)
            self.played.seen["follower: visit"] += 1
            if status != 200:
                if stay is None:
                    self.played.wrong.append(f"a follower of {stream} was answered {status}")
                continue
            fresh = _blocks(wire)
            while fresh and not fresh[-1][0]:  # after the last that has an id, everything comes again
                fresh.pop()
            got += fresh
            if stay is None:
                await self._check_followed(stream, got, whole=whole)

    async def _visit(
        self, stream: str, follower: Follower, got: list[tuple[bytes, bytes]], stay: float | None
    ) -> tuple[bytes, int, bool]:
        client = await self.home.connect(capacity=follower.capacity)
        wire = Wire(client, self.store, self.played.wrong, follows=stream)
        again = [f"Last-Event-ID: {got[-1][0].decode()}"] if got else []
        await client.send(post(b"", *again, path=f"/wiretape/streams/{stream}/events", method="GET"))
        until_t = inf if stay is None else trio.current_time() + stay
        await self._read(client, until_t, pause_s=follower.pause_s, until=wire)
        _leave(client, "fin" if stay is None else follower.leave)
        answer = transcript_of(wire.raw)
        if answer is None:
            return b"", 200 if stay is not None else 0, False
        return answer.body, answer.status, answer.whole

    async def _check_followed(self, stream: str, got: list[tuple[bytes, bytes]], *, whole: bool) -> None:
        tape = await self.home.tape(stream)
        emitted, followed = emit(tape).replace(KEEPALIVE, b""), b"".join(block for _, block in got)
        if tape[0].keys["profile"] == "transparent":  # stray blank lines, ids of the upstream: compare payloads
            return
        if not (emitted == followed if whole else emitted.startswith(followed)):
            self.played.wrong.append(f"L3: a follower of {stream} has {followed[-300:]!r} of {emitted[-300:]!r}")
        self.played.seen["follower: whole" if whole else "follower: cut"] += 1

    # -- what must hold -----------------------------------------------------------------------------------------------

    async def judge(self) -> None:
        played, home = self.played, self.home
        for stream in home.streams:
            tape = await home.tape(stream)
            lines = b"".join(encode(record) for record in tape)
            played.tapes += lines
            if not tape:
                continue
            if tape[-1].kind == "end":
                self._count(tape)
            elif self.plan.failing_write is None:
                played.wrong.append(f"V1: {stream} has no end")
        for number, wire in self.wires.items():
            await self._judge_asker(number, wire)
        with trio.move_on_after(90) as waited:  # a client that reads nothing is cut after 30 s; what is idle stays
            while home.harness.open or len(home.upstream.still_open) > len(home.transport.pool):  # noqa: ASYNC110
                await trio.sleep(0.1)
        if waited.cancelled_caught:
            played.wrong.append(f"V4: {home.harness.open} clients, {len(home.upstream.still_open)} upstreams are left")
        played.wrong += [f"{level}: {event} {fields}" for level, event, fields in home.log if event == "stream_failed"]
        played.wrong += [f"server: {line}" for line in home.harness.log]

    async def _judge_asker(self, number: int, wire: Wire) -> None:
        played, left = self.played, number in self.left
        played.transcripts.append(wire.raw.partition(b"\r\n\r\n")[2])
        answer = transcript_of(wire.raw)
        stream = answer.headers.get("x-wiretape-stream") if answer is not None else None
        if answer is None or stream is None:
            played.seen["asker: no stream"] += 1
            return
        tape = await self.home.tape(stream)
        if not tape or tape[-1].kind != "end":
            return  # the tape is full: what was shown was held against what was written
        emitted, sent = emit(tape), answer.body
        if not _is_ours(answer.body) and not (emitted == sent if answer.whole else _is_beginning(emitted, answer.body)):
            played.wrong.append(f"L3: {stream} got {sent[-300:]!r}, its tape emits {emitted[-300:]!r}")
        gone = [record.keys["at"] for record in tape if record.kind == "gone"]
        if len(gone) > 1 or any(not sent.startswith(emit(tape[: at + 1])) for at in gone):
            played.wrong.append(f"V8: {stream} was sent less than its gone {gone} says")
        played.seen["asker: whole" if answer.whole else "asker: cut"] += 1
        played.seen["asker: fell behind"] += stream in self.behind
        heads = [record for record in tape if record.kind in ("attempt", "head")]
        known = self.upstream.sent.get(number) if heads and heads[-1].kind == "head" else None
        lines = b"".join(encode(record) for record in tape)
        wrong = check(lines, wire.raw, sent=known, left=left or not answer.whole)
        if stream not in self.store.failed:
            played.wrong += [f"checker: {stream}: {what}" for what in wrong]

    def _count(self, tape: Sequence[Record]) -> None:
        end = tape[-1].keys
        self.played.seen[f"ending: {end['ending']}"] += 1
        for flag in end["flags"]:
            self.played.seen[f"flag: {flag}"] += 1
        if sum(record.kind == "attempt" for record in tape) > 1:
            self.played.seen["attempts: several"] += 1


def _leave(client: Client, how: str) -> None:
    with suppress(OSError):  # the connection has been cut
        {"fin": client.close, "rst": client.rst, "half": client.fin}[how]()


# -- playing ----------------------------------------------------------------------------------------------------------


@contextmanager
def _bounds(plan: Plan, behind: list[str]) -> Generator[None]:
    """Bounds that these short streams can reach, and a note of who falls behind."""
    delivery: Any = delivery_module
    relay: Any = relay_module
    publish = delivery.Delivery.publish
    window, most = delivery.WINDOW_BYTES_MAX, relay.STREAM_BYTES_MAX

    def noted(self: Any, *given: Any, **how: Any) -> None:
        before = self._behind
        publish(self, *given, **how)
        if self._behind and not before:
            behind.append(self.stream)

    delivery.WINDOW_BYTES_MAX, relay.STREAM_BYTES_MAX = plan.window, plan.stream_bytes_max
    delivery.Delivery.publish = noted
    try:
        yield
    finally:
        delivery.WINDOW_BYTES_MAX, relay.STREAM_BYTES_MAX = window, most
        delivery.Delivery.publish = publish


def refusing(home: House, refusals: list[bool]) -> None:
    """Refuse the connections that this list marks; each one takes its first member."""
    transport: Any = home.transport
    connector = transport._connector
    open_tcp: OpenTcp = connector._open_tcp

    async def refusing(host: str, port: int) -> trio.abc.Stream:
        if refusals and refusals.pop(0):
            await trio.lowlevel.checkpoint()
            raise ConnectionRefusedError("nobody is there")
        return await open_tcp(host, port)

    connector._open_tcp = refusing


@asynccontextmanager
async def _opened(plan: Plan, store: Written, upstream: Upstream) -> AsyncGenerator[House]:
    async with house(upstream.serve, settings=plan.settings, route=plan.route, store=store, check=False) as home:
        refusing(home, [reply.fault == "refused" for asker in plan.askers for reply in asker.replies])
        yield home


async def _play(plan: Plan, played: Played) -> None:
    store, upstream = Written(plan), Upstream([asker.replies for asker in plan.askers])
    behind: list[str] = []
    with trio.fail_after(20_000), _bounds(plan, behind):
        async with _opened(plan, store, upstream) as home:
            run = _Run(plan, home, store, upstream, played, behind)
            async with trio.open_nursery() as nursery:
                for number, asker in enumerate(plan.askers):
                    nursery.start_soon(run.ask, number, asker)
                    for follower in asker.followers:
                        nursery.start_soon(run.follow, asker, number, follower)
                if plan.shutdown is not None:
                    at_s, drain_s = plan.shutdown
                    nursery.start_soon(_shut_down, home, at_s, drain_s)
            await home.settled()
            await run.judge()


async def _shut_down(home: House, at_s: float, drain_s: float) -> None:
    await trio.sleep(at_s)
    await home.registry.drain(trio.current_time() + drain_s)


def play(plan: Plan) -> Played:
    """One run. Its order of tasks is a function of the seed (a private switch of trio, pinned by a test)."""
    core: Any = sys.modules["trio._core._run"]
    kept = core._r, core._ALLOW_DETERMINISTIC_SCHEDULING
    core._r, core._ALLOW_DETERMINISTIC_SCHEDULING = random.Random(plan.seed), True  # noqa: S311
    result = Played(plan.seed)
    for asker in plan.askers:
        result.seen[f"manner: {asker.manner}"] += 1
        result.seen.update(f"fault: {reply.fault}" for reply in asker.replies)
    try:
        trio.run(_play, plan, result, clock=trio.testing.MockClock(autojump_threshold=0))
    except Exception as error:  # noqa: BLE001 - it is reported with its seed
        result.wrong.append(f"the run failed: {_deepest(error)!r}")
    finally:
        core._r, core._ALLOW_DETERMINISTIC_SCHEDULING = kept
    return result


def _deepest(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def played(seed: int, *, twice: bool = True) -> Played:
    """The run of this number; played again, it must come out the same."""
    result = play(planned(seed))
    if twice:
        again = play(planned(seed))
        if (again.tapes, again.transcripts) != (result.tapes, result.transcripts):
            result.wrong.append("the same seed gave another tape")
    return result


def _least(count: int) -> dict[str, int]:
    """How often each must have come up in so many runs, so that nothing was forgotten."""
    names = [*(f"fault: {name}" for name in FAULTS), *(f"manner: {name}" for name in MANNERS)]
    return {**dict.fromkeys(names, count // 40), **{f"ending: {name}": count // 100 for name in _ENDINGS}}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(say: Callable[[str], None] = _say) -> int:
    """Runs by the number; 1 where anything is wrong."""
    count = int(sys.argv[1])
    first = int(sys.argv[3]) if sys.argv[2:3] == ["--first"] else 0
    seen: Counter[str] = Counter()
    failed = 0
    with ProcessPoolExecutor() as processes:
        for result in processes.map(played, range(first, first + count), chunksize=10):
            seen += result.seen
            failed += bool(result.wrong)
            for what in result.wrong[:3]:
                say(f"seed {result.seed}: {what}")
    for name, times in sorted(seen.items()):
        say(f"{times:8,} {name}")
    missing = [name for name, least in _least(count).items() if seen[name] < least]
    say(f"{count} runs, each twice: {failed} failed; too seldom: {', '.join(missing) or 'nothing'}")
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
