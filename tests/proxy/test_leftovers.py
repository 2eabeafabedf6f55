"""A finished exchange leaves nothing for the garbage collector, and nothing that adds up."""

import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import FrameType
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import Reset, Script, request_of
from tests.support.house import DONE, House, Peer, answer, call, finish, house, post, role, text
from wiretape.proxy.config.model import Keep
from wiretape.proxy.store.memory import MemoryStore

_WORDS: Final = (role(), text("hi"), text(" you"), finish(), DONE)
_OOPS: Final = b'{"error":{"message":"oops"}}'
_DOWNLOAD: Final = b"x" * 300_000

Exchange = Callable[[House], Awaitable[None]]


async def _refuses_and_resets(stream: trio.abc.Stream) -> None:
    """So that a connection which waited is found broken, and all attempts fail."""
    await request_of(stream)
    await stream.send_all(b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}")
    await request_of(stream)
    raise Reset


async def _asks(home: House) -> None:
    await home.ask()


async def _asks_thrice(home: House) -> None:
    """On one connection."""
    client = await home.connect()
    for _ in range(3):
        await client.send(post())
        await client.response()
    client.close()


async def _leaves(home: House) -> None:
    client = await home.connect()
    await client.send(post())
    await client.response(until=lambda answered: len(answered.pieces) >= 2)
    client.close()


async def _uploads(home: House) -> None:
    await home.ask(b"x" * 300_000, path="/v1/files")


async def _downloads(home: House) -> None:
    await home.ask(b"", path="/v1/files/1/content", method="GET")


_KINDS: Final[Mapping[str, tuple[Script, Exchange]]] = {
    "text": (Peer(*_WORDS, every_s=1), _asks),
    "a burst": (Peer(*_WORDS), _asks),
    "three on one connection": (Peer(*_WORDS), _asks_thrice),
    "a call": (Peer(call("{", "f"), call("}"), finish("tool_calls"), DONE), _asks),
    "cut in a call": (Peer(role(), call("{", "f"), end="fin"), _asks),
    "reset": (Peer(role(), text("hi"), end="rst", every_s=0.1), _asks),
    "no attempt is left": (_refuses_and_resets, _asks),
    "no answer": (Peer(head=b"", end="fin"), _asks),
    "an error": (answer(400, _OOPS), _asks),
    "an error in the stream": (Peer(text("hi"), b"data: %b\n\n" % _OOPS), _asks),
    "no JSON": (answer(200, b"<html>", kind="text/html"), _asks),
    "silence": (Peer(head=b"", end="stall"), _asks),
    "silence in the middle": (Peer(role(), text("hi"), text("ho"), every_s=10_000), _asks),
    "the client leaves": (Peer(*_WORDS, every_s=1), _leaves),
    "an upload": (answer(200, b"{}"), _uploads),
    "a download": (answer(200, _DOWNLOAD), _downloads),
}


async def _once(home: House, exchange: Exchange) -> None:
    """Over in all its parts, and forgotten by the house and its store."""
    await exchange(home)
    await home.settled()
    await trio.sleep(0.1)
    await home.store.expire(0, Keep(bytes=0))
    home.answers.clear()
    home.streams.clear()
    home.log.clear()
    home.harness.ends.clear()
    home.upstream.opened.clear()


def _ours(thing: object) -> str | None:
    """What the proxy, or the protocol below it, made; a pair of trio's memory streams holds itself."""
    if isinstance(thing, FrameType):
        return f"frame of {thing.f_code.co_qualname}" if "/proxy/" in thing.f_code.co_filename else None
    kind = type(thing)
    return kind.__qualname__ if kind.__module__.partition(".")[0] in ("wiretape", "hypercorn", "h11") else None


#: Of these in every run.
_QUICK: Final = frozenset({"text", "cut in a call", "the client leaves"})


@pytest.mark.parametrize(
    "kind", [kind if kind in _QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in _KINDS]
)
async def test_finished_exchange_leaves_no_reference_cycles(autojump_clock: MockClock, kind: str) -> None:
    """A hundred objects a stream waited for the collector, which comes at other times than their memory is needed."""
    script, exchange = _KINDS[kind]
    async with house(script, store=MemoryStore(), check=False) as home:
        await _once(home, exchange)
        gc.freeze()  # or each collection would look at all that the suite has imported and left
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await _once(home, exchange)
            await _once(home, exchange)
            gc.collect()
            left = Counter(name for thing in gc.garbage if (name := _ours(thing)) is not None)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.unfreeze()
            gc.enable()
        assert left == {}
