"""The control app after the access rules, over the real connection class and a store in memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from tests.proxy.store_cases import CREATED
from tests.support.http import Client, asking, request
from wiretape.events.core.json_text import parse
from wiretape.proxy.api.control import control_app
from wiretape.proxy.api.metrics import Metrics
from wiretape.proxy.api.streams import StreamsApi
from wiretape.proxy.config.model import Config, Key, Secret
from wiretape.proxy.inspector.changes import Changes
from wiretape.proxy.inspector.routes import inspector_routes
from wiretape.proxy.memory import Memory
from wiretape.proxy.relay.app import Application
from wiretape.proxy.relay.delivery import Delivery
from wiretape.proxy.relay.relay import Services
from wiretape.proxy.security.access import Keys
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Store
from wiretape.replay.compare.side_by_side import side_by_side

ME = Keys((), b"salt").caller([(b"authorization", b"Bearer mine")]) or ""
OTHER = Keys((), b"salt").caller([(b"authorization", b"Bearer theirs")]) or ""
OPERATOR_TOKEN = "wiretape_operator_of-these-tests"  # noqa: S105 - of no server
KEY = "a-key-of-this-wiretape-that-is-long-enough"


class Running:
    """The registry as the control app sees it."""

    def __init__(self) -> None:
        self.live: dict[str, Delivery] = {}
        self.draining = False
        self.memory = Memory()

    def rows(self, stream: str) -> None:
        """Return nothing: the store has its rows."""
        del stream


class Said:
    """The error log."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def error(self, event: str, /, **fields: object) -> None:
        self.lines.append((event, fields))


class Answered(NamedTuple):
    """One complete response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body's value."""
        return parse(self.body)


class House:
    """The app and its store, registry and log."""

    def __init__(self, store: Store, *, keys: tuple[Key, ...] = ()) -> None:
        self.store = store
        self.running = cast(Any, Running())
        self.said = Said()
        self.metrics = Metrics(["default"])
        config = Config(data=Path(), hosts=("test",))
        streams = StreamsApi(store, self.running, lambda: CREATED + 60.0)
        self.control = control_app(streams, metrics=self.metrics, log_error=self.said.error)
        self.changes = Changes()
        inspector_routes(self.control, streams, self.changes, side_by_side)
        unused: Any = None  # only Wiretape's own endpoints are requested here
        services = Services(
            config=config,
            store=store,
            transport=unused,
            reaper=unused,
            log=unused,
            wall=lambda: CREATED + 60.0,
            new_id=unused,
        )
        self.app = Application(
            services,
            Keys(keys, b"salt", OPERATOR_TOKEN),
            unused,
            cast(Any, self.control),
            on_refused=lambda answer, _: self.metrics.refused(answer.status),
        )

    def runs(self, stream: str) -> None:
        """Note that a relay still writes to this stream's tape."""
        self.running.live[stream] = None

    async def get(self, path: str, *, key: str = "mine", method: str = "GET", **headers: str) -> Answered:
        """Return the complete response to a request; header names have `_` for `-`."""
        async with self.asking(path, key=key, method=method, **headers) as client:
            answer = await client.response(method=method)
            return Answered(answer.status, {n.decode(): v.decode() for n, v in answer.headers}, answer.body)

    @asynccontextmanager
    async def asking(
        self, path: str, *, key: str = "mine", method: str = "GET", **headers: str
    ) -> AsyncGenerator[Client]:
        """Send a request; leaving the block disconnects."""
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += [f"Authorization: Bearer {key}"] if key else []
        async with asking(self.app, request(method, path, *lines)) as client:
            yield client
            client.close()


@asynccontextmanager
async def house(*, keyed: bool = False) -> AsyncGenerator[House]:
    """Provide the app over an empty store."""
    store = MemoryStore()
    yield House(store, keys=(Key("one", Secret(KEY)),) if keyed else ())
    await store.aclose()


def sse(body: bytes) -> list[tuple[str, bytes]]:
    """Return the id and the other lines of each block."""
    found: list[tuple[str, bytes]] = []
    for block in body.split(b"\n\n")[:-1]:
        lines = block.split(b"\n")
        ids = [line[4:].decode() for line in lines if line.startswith(b"id: ")]
        assert len(ids) <= 1
        found.append(
            (ids[0] if ids else "", b"\n".join(line for line in lines if not line.startswith(b"id: ")) + b"\n\n")
        )
    return found
