"""Each checkpoint of each scenario is where a task is cancelled or a client leaves, in turn: V1 to V4, V8 (P21)

A checkpoint is a step of any task of the proxy. At the N-th, for all N until a run has no such step, either all relays
are cancelled (as a hurried shutdown does), or all connections, or the clients leave.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from trio.lowlevel import Task
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.laws.checker import check, transcript_of
from tests.proxy.scripted import Script, chunk, request_of
from tests.proxy.store_cases import stream_of
from tests.support.house import (
    ASKED,
    DONE,
    HEAD,
    House,
    Peer,
    answer,
    at_once,
    call,
    finish,
    house,
    post,
    role,
    text,
    usage,
)
from tests.support.http import Client
from wiretape.events.core.settings import Settings
from wiretape.events.emit import emit
from wiretape.events.tape.record import encode
from wiretape.proxy.relay.relay import Relay
from wiretape.proxy.store.files import INLINE_BYTES_MAX, open_files
from wiretape.proxy.store.store import StreamMissingError
from wiretape.proxy.store.tape_file import Durability
from wiretape.proxy.upstream.connection import Exchange

FULL: Final = os.environ.get("WIRETAPE_LAWS") == "full"
#: Of cancelled connections and leaving clients the default suite takes every fifth checkpoint.
STRIDE: Final = 1 if FULL else 5

FRAMES: Final = (role(), text("hi"), call('{"path":', "write_file"), call('"x"}'), finish("tool_calls"), usage(), DONE)


class Asking:
    """A client, and all that it got."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.raw = b""

    async def read(self, until_s: float = float("inf"), pause_s: float = 0.0) -> None:
        """To the end of the answer, or for so long."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError), trio.move_on_after(until_s):
            while data := await self.client.receive():
                self.raw += data
                whole = transcript_of(self.raw)
                if whole is not None and whole.whole:
                    return
                await trio.sleep(pause_s)

    async def send(self, data: bytes) -> None:
        """Unless the connection has gone."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.client.send(data)


class Stage:
    """The house, and who is in it."""

    def __init__(self, home: House) -> None:
        self.home = home
        self.asking: list[Asking] = []
        self.following: list[Asking] = []

    async def ask(self, request: bytes | None = None, *, capacity: int | None = None) -> Asking:
        """A request is sent."""
        asking = Asking(await self.home.connect(capacity=capacity))
        self.asking.append(asking)
        await asking.send(post() if request is None else request)
        return asking

    def leave(self) -> None:
        """All at once."""
        for asking in [*self.asking, *self.following]:
            asking.client.close()


Play = Callable[[Stage], Awaitable[None]]


async def asks(stage: Stage, request: bytes | None = None, capacity: int | None = None, pause_s: float = 0.0) -> None:
    """One request, read to its end."""
    asking = await stage.ask(request, capacity=capacity)
    await asking.read(pause_s=pause_s)


async def uploads(stage: Stage) -> None:
    head = post(b"", "Transfer-Encoding: chunked", path="/v1/files").replace(b"Content-Length: 0\r\n", b"")
    asking = await stage.ask(head)
    for _ in range(3):
        await asking.send(chunk(b"x" * 50_000))
        await trio.sleep(1)
    await asking.send(b"0\r\n\r\n")
    await asking.read()


async def leaves(stage: Stage) -> None:
    asking = await stage.ask()
    await asking.read(1.5)
    asking.client.close()
    await stage.home.settled()


async def is_followed(stage: Stage) -> None:
    asking = await stage.ask()
    await asking.read(1.5)
    if stage.home.streams:
        follower = Asking(await stage.home.connect())
        stage.following.append(follower)
        path = f"/wiretape/streams/{stage.home.streams[0]}/events"
        await follower.send(post(b"", path=path, method="GET"))
        await asking.read(1)
        asking.client.close()
        await follower.read()


async def is_shut_down(stage: Stage) -> None:
    asking = await stage.ask()
    await asking.read(1.5)
    await stage.home.registry.drain(trio.current_time() + 2)
    await asking.read(1)


async def silent(stream: trio.abc.Stream) -> None:
    await request_of(stream)
    with trio.move_on_after(40) as silence:
        await stream.receive_some()  # its client's leaving
    if silence.cancelled_caught:
        await stream.send_all(HEAD + b"".join(map(chunk, FRAMES)) + b"0\r\n\r\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    play: Play = asks
    scripts: tuple[Script, ...] = (Peer(*FRAMES, every_s=1),)
    how: Mapping[str, Any] = field(default_factory=dict[str, Any])


LONG: Final = text("a" * 3_000)
SCENES: Final = {
    "a stream with a call": Scene(),
    "all of it in one read": Scene(scripts=(at_once(*FRAMES),)),
    "all of it in one read, for a slow client": Scene(
        play=partial(asks, capacity=1_000, pause_s=0.1), scripts=(at_once(*[LONG] * 3, finish(), DONE),)
    ),
    "a call that is held": Scene(how={"settings": Settings(on_partial="warn")}),
    "a call that is cut": Scene(scripts=(Peer(*FRAMES[:3], every_s=1, end="fin"),)),
    "the transparent profile": Scene(how={"settings": Settings(profile="transparent")}),
    "a plain answer": Scene(
        play=partial(asks, request=post({**ASKED, "stream": False})), scripts=(answer(200, b'{"choices":[]}'),)
    ),
    "an exchange": Scene(
        play=partial(asks, request=post(b"", path="/v1/models", method="GET")), scripts=(answer(200, b'{"data":[]}'),)
    ),
    "an upload": Scene(play=uploads, scripts=(answer(200, b"ok"),)),
    "again after a reset": Scene(scripts=(*[Peer(role(), end="rst")] * 2, Peer(*FRAMES, every_s=1))),
    "every attempt fails": Scene(scripts=(answer(429, b'{"error":{"message":"no"}}', "Retry-After: 1"),)),
    "keepalives": Scene(scripts=(silent,)),
    "a client that leaves, and is drained for": Scene(play=leaves, how={"route": {"on_client_gone": "drain"}}),
    "a follower": Scene(play=is_followed),
    "a shutdown": Scene(play=is_shut_down),
    "a slow client": Scene(play=partial(asks, capacity=1_000, pause_s=0.1), scripts=(Peer(*[LONG] * 3, DONE),)),
}


class Nth(trio.abc.Instrument):
    """Acts when tasks of the proxy have had the floor so many times."""

    def __init__(self, nth: int, act: Callable[[], None]) -> None:
        self.left = nth
        self._act = act

    def before_task_step(self, task: Task) -> None:
        if task.name.startswith("wiretape."):
            self.left -= 1
            if self.left == 0:
                self._act()


def acts(victim: str, stage: Stage) -> Callable[[], None]:
    """What happens at the checkpoint."""
    home = stage.home
    if victim == "the clients leave":
        return stage.leave
    if victim == "relays":

        def cancel() -> None:
            registry: Any = home.registry
            registry.draining = True
            registry._nursery.cancel_scope.cancel()

        return cancel
    scopes: list[trio.CancelScope] = []
    handle = home.harness.server.handle

    async def scoped(stream: Any) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await handle(stream)

    server: Any = home.harness.server
    server.handle = scoped

    def cancel_all() -> None:
        for scope in scopes:
            scope.cancel()

    return cancel_all


async def cancelled_at(nth: int, scene: Scene, victim: str) -> bool:
    """Whether there was such a checkpoint; fails where anything is not as it must be."""
    async with house(*scene.scripts, check=False, **scene.how) as home:
        tasks = trio.lowlevel.current_statistics().tasks_living
        stage = Stage(home)
        instrument = Nth(nth, acts(victim, stage))
        trio.lowlevel.add_instrument(instrument)
        with trio.fail_after(4_000):
            await scene.play(stage)
            await wait_all_tasks_blocked()  # who left at once may have a stream that only begins now
            await home.settled()
        trio.lowlevel.remove_instrument(instrument)
        stage.leave()
        await left(home, tasks)
        for asking in stage.asking:
            await judge(home, asking)
        for stream in home.streams:
            await ended_once(home, stream)
        assert [line for line in home.harness.log if "Nursery is closed" not in line] == []
        failed = [(event, fields) for _, event, fields in home.log if event == "stream_failed"]
        assert failed == []
        return instrument.left <= 0


async def left(home: House, tasks: int) -> None:
    """V4, two seconds after the ending."""
    with trio.move_on_after(2):
        while (  # noqa: ASYNC110
            home.harness.open
            or len(home.upstream.still_open) > len(home.transport.pool)
            or trio.lowlevel.current_statistics().tasks_living > tasks + len(home.transport.pool)
        ):
            await trio.sleep(0.05)
    assert not home.registry.live, "V4: a stream is left"
    assert home.harness.open == 0, "V4: a client's connection is left"
    assert len(home.upstream.still_open) == len(home.transport.pool), "V4: an upstream's connection is left"
    # The upstream plays each connection in a task of its own; those that are idle stay.
    assert trio.lowlevel.current_statistics().tasks_living <= tasks + len(home.transport.pool), "V4: a task is left"


async def tape_of(home: House, stream: str) -> list[Any]:
    """Nothing where it was never begun."""
    try:
        return await home.tape(stream)
    except StreamMissingError:
        return []


async def ended_once(home: House, stream: str) -> None:
    """V1."""
    tape = await tape_of(home, stream)
    assert not tape or [record.n for record in tape if record.kind == "end"] == [len(tape) - 1]


async def judge(home: House, asking: Asking) -> None:
    """V1 to V3 and V8."""
    got = transcript_of(asking.raw)
    if got is None or "x-wiretape-stream" not in got.headers:
        return
    tape = await tape_of(home, got.headers["x-wiretape-stream"])
    if not tape:
        assert got.status >= 500, "nothing is delivered that has no tape"
        return
    sent = got.body
    assert emit(tape) == sent if got.whole else emit(tape).startswith(sent)
    assert check(b"".join(encode(record) for record in tape), asking.raw, left=not got.whole) == []


@pytest.mark.slow
@pytest.mark.case("P21")
@pytest.mark.parametrize("victim", ["relays", "connections", "the clients leave"])
@pytest.mark.parametrize("scene", SCENES)
async def test_every_checkpoint(scene: str, victim: str, autojump_clock: MockClock) -> None:
    nth = 1
    while await cancelled_at(nth, SCENES[scene], victim):
        nth += 1 if victim == "relays" else STRIDE
    assert nth > 8, "the sweep has seen hardly anything"  # a short answer has eleven


@pytest.mark.parametrize("durability", ["process", "disk"])
@pytest.mark.parametrize("size", [10, 2 * INLINE_BYTES_MAX])
async def test_an_append_that_is_cancelled_is_whole(tmp_path: Path, size: int, durability: Durability) -> None:
    """Else the end that follows a cancel would have a gap before it, or bytes that its client never got."""
    batches = stream_of("s1", reads=3, body=b'{"x":"%b"}' % (b"x" * size))
    async with open_files(tmp_path, durability=durability, warn=lambda _: None) as store:
        await store.create("s1")
        for batch in batches:
            with trio.CancelScope() as scope:
                scope.cancel()
                await store.append("s1", batch)
        assert [record async for each in store.read("s1") for record in each] == [
            record for batch in batches for record in batch
        ]


async def test_a_cancel_that_writes_no_end_is_found(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    async def nothing(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Relay, "_finish_anyhow", nothing)
    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        await cancelled_at(15, SCENES["a stream with a call"], "relays")


async def test_a_connection_that_is_left_open_is_found(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def nothing(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Exchange, "aclose", nothing)
    left_open = pytest.RaisesExc(AssertionError, match="an upstream's connection is left")
    with pytest.RaisesGroup(left_open, flatten_subgroups=True):
        await cancelled_at(25, SCENES["a stream with a call"], "relays")
