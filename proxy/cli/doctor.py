"""`wiretape doctor`: check configuration, data folder, machine and upstreams, with one line per finding."""

import os
import resource
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import httpx
import trio

from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import as_object, parse

from ..config.model import Config, Route, Target
from ..config.urls import request_target, upstream_url
from ..limits import DISK_BYTES_FEW, DISK_BYTES_NONE, DOCTOR_BODY_BYTES_MAX, DOCTOR_TIMEOUT_S, STREAM_DESCRIPTORS
from ..security.headers import masked, to_upstream
from ..server.server import BindError, listening
from ..upstream.errors import RefusedError
from ..upstream.transport import UpstreamTransport, body_of
from .tapes import holder

if TYPE_CHECKING:
    from ..config.load import Loaded

__all__ = ["Check", "State", "examine", "lines", "upstreams"]

State = Literal["ok", "note", "wrong"]

_MARKS: Final[dict[State, str]] = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}


class Check(NamedTuple):
    """One finding."""

    name: str
    state: State
    said: str


def examine(loaded: "Loaded") -> list[Check]:
    """Check everything. The configuration itself has been loaded without error."""
    config = loaded.config
    given = sorted({origin for origin in loaded.origins.values() if origin != "default"})
    checks = [Check("configuration", "ok", f"from {', '.join(given)}" if given else "defaults only")]
    checks += _server(config)
    if config.durability != "none":
        checks += _folder(config.data)
    checks += _descriptors(config)
    if not any(route.targets for route in config.routes.values()):
        return [*checks, Check("upstream", "wrong", "not configured: pass --upstream URL")]
    return checks + trio.run(upstreams, config)


def lines(checks: list[Check]) -> Iterator[str]:
    """Yield the findings as lines for a terminal."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{_MARKS[check.state]}  {check.name:<{width}}  {check.said}"


# -- this machine -----------------------------------------------------------------------------------------------------


def _server(config: Config) -> Iterator[Check]:
    where = f"{config.host} port {config.port}"
    if holder(config.data) is not None:
        yield Check("address", "ok", f"{where}, not tried because a server is running")
        return
    try:
        sockets = listening(config.host, config.port)
    except BindError as error:
        yield Check("address", "wrong", str(error))
        return
    for sock in sockets:
        sock.close()
    yield Check("address", "ok", f"{where} is free")


def _folder(root: Path) -> Iterator[Check]:
    if not root.exists():
        above = next(parent for parent in root.absolute().parents if parent.exists())
        writable = os.access(above, os.W_OK | os.X_OK)
        said = "does not exist yet and will be created" if writable else f"cannot be created: {above} is not writable"
        yield Check("data folder", "ok" if writable else "wrong", f"{root} {said}")
        return
    try:
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        yield Check("data folder", "wrong", f"{root} cannot be written: {error.strerror}")
        return
    if root.stat().st_mode & 0o077:
        yield Check("data folder", "note", f"{root} is accessible to others: run chmod 700 on it")
    else:
        yield Check("data folder", "ok", str(root))
    pid = holder(root)
    yield Check("lock", "ok", "free" if pid is None else f"held by a server (pid {pid or 'unknown'})")
    yield _room(root)


def _room(root: Path) -> Check:
    free = shutil.disk_usage(root).free
    files = os.statvfs(root)
    if files.f_files and not files.f_favail:
        return Check("disk", "wrong", "no new files can be created (out of inodes)")
    state: State = "wrong" if free < DISK_BYTES_NONE else "note" if free < DISK_BYTES_FEW else "ok"
    return Check("disk", state, f"{free / 2**30:.1f} GiB free")


def _descriptors(config: Config) -> Iterator[Check]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = config.streams_max * STREAM_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        yield Check(
            "descriptors",
            "note",
            f"{soft}: enough for {soft // STREAM_DESCRIPTORS} streams at once, but streams_max is {config.streams_max}"
            f" (ulimit -n {needed})",
        )
    else:
        yield Check("descriptors", "ok", "unlimited" if soft == resource.RLIM_INFINITY else str(soft))


# -- upstreams --------------------------------------------------------------------------------------------------------


async def upstreams(config: Config) -> list[Check]:
    """Ask every upstream for its models, all at the same time."""
    targets = [(route, target) for route in config.routes.values() for target in route.targets]
    found: list[list[Check]] = [[] for _ in targets]
    try:
        transport = UpstreamTransport(config.upstream)
    except OSError as error:  # ssl.SSLError is one
        return [Check("upstreams", "wrong", f"the certificates cannot be read: {error}")]

    async def look(number: int) -> None:
        found[number] = await _upstream(transport, config, *targets[number])

    async with trio.open_nursery() as nursery:
        for number in range(len(targets)):
            nursery.start_soon(look, number)
    await transport.aclose()
    return [check for checks in found for check in checks]


async def _upstream(transport: UpstreamTransport, config: Config, route: Route, target: Target) -> list[Check]:
    name = f"upstream {target.name or route.name}".strip()
    ask = partial(_get, transport, target)
    try:
        status, _ = await ask(b"/models")
    except (WiretapeError, trio.TooSlowError) as error:
        return [Check(name, "wrong", _safe(config, _unreachable(error)))]
    checks = [_answered(name, status, target)]
    if not route.hermes and status < 500 and await _is_hermes(ask):
        where = f"in [routes.{route.name}]" if route.name else "at the top"
        said = f"is a hermes-agent: set `hermes = true` {where} of wiretape.toml to use its tool events"
        checks.append(Check(name, "note", said))
    return checks


def _answered(name: str, status: int, target: Target) -> Check:
    if status in (401, 403):
        if target.key is not None:
            return Check(name, "wrong", f"rejects the configured key ({status} for /models)")
        return Check(name, "ok", f"reachable, requires a key from the client ({status} for /models without one)")
    if status >= 500:
        return Check(name, "wrong", f"reachable, but answers {status} for /models")
    if status == 404:
        return Check(name, "note", "reachable, but has no /models (404): check the path of the base URL")
    return Check(name, "ok", f"reachable ({status} for /models)")


def _unreachable(error: BaseException) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"did not answer within {DOCTOR_TIMEOUT_S:g} s"
    if isinstance(error, RefusedError) and error.cause == "tls":
        return f"{error} (for a private certificate authority set ca_file)"
    return str(error)


async def _is_hermes(ask: Callable[[bytes], Awaitable[tuple[int, bytes]]]) -> bool:
    """Recognise hermes-agent by its capability document (clients.md 7.5), or by its health page without a key."""
    try:
        status, body = await ask(b"/capabilities")
        if status == 401:
            _, body = await ask(b"/health")
            return as_object(parse(body)).get("platform") == "hermes-agent"
    except (WiretapeError, trio.TooSlowError):
        return False
    said: dict[str, Any] = as_object(parse(body))
    return status == 200 and "features" in said and "endpoints" in said


async def _get(transport: UpstreamTransport, target: Target, tail: bytes) -> tuple[int, bytes]:
    """Return the status and the beginning of the body."""
    request = httpx.Request(
        "GET",
        upstream_url(target, tail, b""),
        headers=to_upstream([(b"accept", b"application/json")], target, own_key=False),
        extensions={"target": request_target(target, tail, b"")},
    )
    with trio.fail_after(DOCTOR_TIMEOUT_S):
        response = await transport.handle_async_request(request)
        async with body_of(response) as body:
            held = bytearray()
            while len(held) < DOCTOR_BODY_BYTES_MAX and (read := await body.receive()) is not None:
                held += read.data
    return response.status_code, bytes(held)


def _safe(config: Config, text: str) -> str:
    return masked(text.encode("utf-8", "replace"), config.secrets).decode("utf-8", "replace")
