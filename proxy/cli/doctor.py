"""`wiretape doctor`: check configuration, data folder, machine and upstreams, with one line per finding."""

import os
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import httpx
import trio

from wiretape.events.core.errors import TapeError, WiretapeError
from wiretape.events.core.json_text import as_object, parse
from wiretape.events.dialects import DIALECTS

from ..config.model import Config, Route, Target
from ..config.urls import base_of, request_target
from ..inspector.page import ADDRESS_FILE
from ..limits import (
    CLOCKS_APART_S,
    DESCRIPTORS_A_STREAM,
    DISK_BYTES_FEW,
    DISK_BYTES_NONE,
    DOCTOR_BODY_BYTES_MAX,
    DOCTOR_TIMEOUT_S,
)
from ..security.access import operator_token
from ..security.headers import masked, to_upstream
from ..server.server import BindError, listening
from ..store.catalogue import Rows, peek
from ..store.folder import LIVE, Folder, folders_in, holder
from ..store.postgres import server_at
from ..store.store import Filter, FolderRefusedError
from ..upstream.connection import RefusedError
from ..upstream.transport import UpstreamTransport
from .tapes import damage_of, tapes_in_folder

if TYPE_CHECKING:
    from ..config.load import Loaded

__all__ = ["Check", "State", "examine", "lines", "store", "upstreams"]

State = Literal["ok", "note", "wrong"]

#: Statuses of a path that a server does not have.
_NO_PATH: Final = (404, 405, 501)
#: Streams whose upstream answered in no dialect that was expected; as many as are counted.
_PROTOCOL: Final = Filter(ending="protocol")
_ALIEN_MAX: Final = 1_000
_RELEASE_AND_TIME: Final = "SELECT current_setting('server_version'), extract(epoch FROM clock_timestamp())::float8"
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
    checks += _machine(config)
    if config.store is not None:
        checks += trio.run(store, config)
    if not config.routes:
        return [*checks, Check("upstream", "note", "not checked, because none is configured: pass --upstream URL")]
    return checks + trio.run(upstreams, config)


def lines(checks: list[Check]) -> Iterator[str]:
    """Yield the findings as lines for a terminal."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{_MARKS[check.state]}  {check.name:<{width}}  {check.said}"


# -- this machine -----------------------------------------------------------------------------------------------------


def _machine(config: Config) -> Iterator[Check]:
    where = f"{config.host} port {config.port}"
    if holder(config.data) is not None:
        yield Check("address", "ok", f"{where}, not tried because a server is running")
    else:
        try:
            for sock in listening(config.host, config.port):
                sock.close()
            yield Check("address", "ok", f"{where} is free")
        except BindError as error:
            yield Check("address", "wrong", str(error))
    if config.durability != "none":
        yield from _folder(config.data)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = config.streams_max * DESCRIPTORS_A_STREAM
    if soft == resource.RLIM_INFINITY or soft >= needed:
        yield Check("descriptors", "ok", "unlimited" if soft == resource.RLIM_INFINITY else str(soft))
    else:
        enough = f"{soft}: enough for {soft // DESCRIPTORS_A_STREAM} streams at once"
        yield Check("descriptors", "note", f"{enough}, but streams_max is {config.streams_max} (ulimit -n {needed})")


def _folder(root: Path) -> Iterator[Check]:
    if not root.exists():
        above = next(parent for parent in root.absolute().parents if parent.exists())
        writable = os.access(above, os.W_OK | os.X_OK)
        said = "does not exist yet and will be created" if writable else f"cannot be created: {above} is not writable"
        yield Check("data folder", "ok" if writable else "wrong", f"{root} {said}")
        return
    try:
        Folder.refuse_unsafe(root)
        with tempfile.TemporaryFile(dir=root):
            pass
    except (OSError, FolderRefusedError) as error:
        why = f"{root} cannot be written: {error.strerror}" if isinstance(error, OSError) else str(error)
        yield Check("data folder", "wrong", why)
        return
    if root.stat().st_mode & 0o077:
        yield Check("data folder", "note", f"{root} is accessible to others: run chmod 700 on it")
    else:
        yield Check("data folder", "ok", str(root))
    pid = holder(root)
    yield Check("lock", "ok", "free" if pid is None else f"held by a server (pid {pid or 'unknown'})")
    files, free = os.statvfs(root), shutil.disk_usage(root).free
    if files.f_files and not files.f_favail:
        yield Check("disk", "wrong", "no new files can be created (out of inodes)")
    else:
        state: State = "wrong" if free < DISK_BYTES_NONE else "note" if free < DISK_BYTES_FEW else "ok"
        yield Check("disk", state, f"{free / 2**30:.1f} GiB free")
    for folder in folders_in(root):
        yield from _tapes(folder, "tapes" if folder == root else f"tapes {folder.name}")


def _tapes(root: Path, name: str) -> Iterator[Check]:
    """Read every tape of a folder that no server writes to."""
    count, cut, damaged, held = 0, 0, list[str](), holder(root) is not None
    known = peek(root, Rows.streams) or frozenset[str]()
    tapes = tapes_in_folder(root)
    for stream, path in tapes.items():
        is_live = path.parent.name == LIVE
        with suppress(FileNotFoundError, TapeError):  # it expired meanwhile, or a later version wrote it
            if held and is_live:
                continue
            damage, ended = damage_of(path)
            count += 1
            cut += not ended and is_live and not damage
            if damage or not (ended or is_live):
                damaged.append(stream)
    said = f"{len(damaged)} of {count} damaged: {_some(damaged)} (wiretape show ID says where)"
    yield Check(name, "wrong", said) if damaged else Check(name, "ok", f"{count - cut} intact")
    if gone := sorted(known - tapes.keys()):
        yield Check(name, "wrong", f"{len(gone)} in the catalogue, but gone or not a file: {_some(gone)}")
    alien = [row for row in peek(root, lambda rows: rows.page(_PROTOCOL, _ALIEN_MAX)) or () if row.dialect]
    if alien:
        route = f"[routes.{alien[0].route}]" if alien[0].route else "the default route"
        said = f"{len(alien)} ended as protocol, the last one on {route}: {_some([row.stream for row in alien])}"
        yield Check(name, "note", f"{said}. If the upstream speaks another dialect, set `speaks`")
    if cut:
        yield Check(name, "note", f"{cut} without an end, of a server that was killed; the next start recovers them")


def _some(streams: list[str]) -> str:
    return ", ".join([*streams[:3], *(["..."] if len(streams) > 3 else [])])


# -- the shared store -------------------------------------------------------------------------------------------------


async def store(config: Config) -> list[Check]:
    """Ask the database as a start does, for its time, and the server of this data folder how far it is."""
    assert config.store is not None
    try:
        server = server_at(config.store)
        from ..store.postgres.schema import VERSION, check

        with closing(await server.connect()) as connection:
            await check(connection)
            began = time.time()
            ((release, now),) = await connection.execute(_RELEASE_AND_TIME)
            ahead_s = (began + time.time()) / 2 - now
    except WiretapeError as error:
        return [Check("store", "wrong", str(error)), *_shipping(config.data)]
    checks = [Check("store", "ok", f"PostgreSQL {release}, tables of version {VERSION}, may create partitions")]
    if abs(ahead_s) > CLOCKS_APART_S:
        said = f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'after'} the database's"
        checks.append(Check("clock", "note", f"{said}, so lists of several machines are out of order"))
    return [*checks, *_shipping(config.data)]


def _shipping(root: Path) -> Iterator[Check]:
    """Read the metrics of the server that holds the data folder."""
    if holder(root) is None or not (root / ADDRESS_FILE).is_file():
        yield Check("shipping", "note", "unknown, because no server is running")
        return
    url = (root / ADDRESS_FILE).read_text(encoding="ascii") + "/wiretape/metrics"
    headers = {"Authorization": f"Bearer {operator_token(root)}"}
    try:
        text = httpx.get(url, headers=headers, timeout=DOCTOR_TIMEOUT_S, trust_env=False).text
    except httpx.HTTPError as error:
        yield Check("shipping", "wrong", f"the running server does not answer: {error}")
        return
    found = {name: float(value) for name, value in re.findall(r"^wiretape_ship_(\w+) (\S+)$", text, re.MULTILINE)}
    if not found:
        yield Check("shipping", "wrong", "the running server has no store: restart it with --store")
    elif found["fenced"]:
        yield Check("shipping", "wrong", "off: another proxy has the same name, so give each its own --instance")
    else:
        away = "" if found["connected"] else ", waiting for the database"
        yield Check("shipping", "note" if away else "ok", f"lag {found['lag_seconds']:.1f} s{away}")


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
        try:
            found[number] = await _upstream(transport, *targets[number], own_key=bool(config.keys))
        except (WiretapeError, trio.TooSlowError) as error:
            said = str(error)
            if isinstance(error, trio.TooSlowError):
                said = f"did not answer within {DOCTOR_TIMEOUT_S:g} s"
            elif isinstance(error, RefusedError) and error.cause == "tls":
                said += " (for a private certificate authority set ca_file)"
            said = masked(said.encode("utf-8", "replace"), config.secrets).decode("utf-8", "replace")
            found[number] = [Check(f"upstream {targets[number][1].name}", "wrong", said)]

    async with trio.open_nursery() as nursery:
        for number in range(len(targets)):
            nursery.start_soon(look, number)
    await transport.aclose()
    return [check for checks in found for check in checks]


async def _upstream(transport: UpstreamTransport, route: Route, target: Target, *, own_key: bool) -> list[Check]:
    status, _ = await _get(transport, target, b"/models")
    state: State = "ok"
    if status in (401, 403) and target.key is not None:
        state, said = "wrong", f"rejects the configured key ({status} for /models)"
    elif status in (401, 403) and (own_key or not target.caller_key):
        state, said = "wrong", f"requires a key ({status} for /models), and gets none: set key_env for it"
    elif status in (401, 403):
        said = f"reachable, requires a key from the client ({status} for /models without one)"
    elif status >= 500:
        state, said = "wrong", f"reachable, but answers {status} for /models"
    elif status == 404:
        state, said = "note", "reachable, but has no /models (404): check the path of the base URL"
    else:
        said = f"reachable ({status} for /models)"
    checks = [Check(f"upstream {target.name}", state, said)]
    if target.speaks in DIALECTS and status < 500 and (wrong := await _other_dialect(transport, target)):
        checks.append(Check(checks[0].name, "wrong", wrong))
    if not route.hermes and status < 500 and await _is_hermes(transport, target):
        where = f"in [routes.{route.name}]" if route.name else "at the top"
        said = f"is a hermes-agent: set `hermes = true` {where} of wiretape.toml to use its tool events"
        checks.append(Check(checks[0].name, "note", said))
    return checks


async def _other_dialect(transport: UpstreamTransport, target: Target) -> str:
    """Return what is wrong if an upstream has no path for the dialect that its setting names.

    The probe is an empty object, which every server refuses before it calls a model.
    """
    statuses: dict[str, int] = {}
    for name, dialect in DIALECTS.items():
        with suppress(WiretapeError, trio.TooSlowError):
            statuses[name], _ = await _ask(transport, target, b"POST", dialect.path, b"{}")
    status = statuses.get(target.speaks)
    if status not in _NO_PATH:
        return ""
    others = " and ".join(name for name, other in statuses.items() if other not in _NO_PATH and other < 500)
    path = DIALECTS[target.speaks].path.decode()
    hint = f"it speaks {others}" if others else "check the path of the base URL"
    return f"speaks = {target.speaks} is set, but it has no {path} ({status}): {hint}"


async def _is_hermes(transport: UpstreamTransport, target: Target) -> bool:
    """Recognise hermes-agent by its capability document (clients.md 7.5), or by its health page without a key."""
    try:
        status, body = await _get(transport, target, b"/capabilities")
        if status == 401:
            _, body = await _get(transport, target, b"/health")
            return as_object(parse(body)).get("platform") == "hermes-agent"
    except (WiretapeError, trio.TooSlowError):
        return False
    return status == 200 and {"features", "endpoints"} <= as_object(parse(body)).keys()


async def _get(transport: UpstreamTransport, target: Target, tail: bytes) -> tuple[int, bytes]:
    return await _ask(transport, target, b"GET", tail, b"")


async def _ask(
    transport: UpstreamTransport, target: Target, method: bytes, tail: bytes, content: bytes
) -> tuple[int, bytes]:
    """Return the status and the beginning of the body."""
    given = [(b"accept", b"application/json"), *(((b"content-type", b"application/json"),) if content else ())]
    headers, path = to_upstream(given, target, own_key=False), request_target(target, tail, b"")
    request = transport.addressed(base_of(target.url).origin, method, path, headers, content)
    with trio.fail_after(DOCTOR_TIMEOUT_S):
        head, body = await transport.exchange(request)
        async with aclosing(body):
            held = bytearray()
            while len(held) < DOCTOR_BODY_BYTES_MAX and (read := await body.receive()) is not None:
                held += read.data
    return head.status, bytes(held)
