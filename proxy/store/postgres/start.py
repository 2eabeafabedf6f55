"""The start of a proxy that shares a database: refuse what cannot work, agree on the salt, join what others have."""

import re
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

import trio

from ...config.model import Config, ConfigError
from ...limits import SALT_BYTES, SOURCE_WAIT_S, STORE_LAST_S
from ...security.access import SALT_FILE, write_whole
from ..files import FileStore
from ..joined import JoinedStore
from ..store import Store, StoreError, UnreachableError
from .connection import RefusedError, Server
from .reading import PostgresSource
from .schema import check
from .shared import PostgresShared
from .ship import Shipper

__all__ = ["agree", "instance_of", "opened"]

#: The first proxy gives its own.
_SALT: Final = """INSERT INTO wiretape.fact AS f VALUES ('salt', $1)
    ON CONFLICT (name) DO UPDATE SET value = f.value RETURNING value"""


@asynccontextmanager
async def opened(
    server: Server,
    files: FileStore,
    own: Store,
    config: Config,
    root: Path,
    warn: Callable[..., None],
    old: Iterable[tuple[Path, FileStore]] = (),
) -> AsyncGenerator[tuple[JoinedStore, Shipper]]:
    """Ship the files until the block is left, and join all that is on this machine with what others have.

    All workers share the data folder `root`. Of `old` folders, which none writes to, the database gets what it lacks.
    """
    await agree(server, root, warn)
    name, dead_s = instance_of(config, root), config.store_dead_s
    shipping = partial(Shipper, server, dead_s=dead_s, keep_days=config.keep.days, warn=warn)
    shipper = shipping(files, config.data, name)
    source = PostgresSource(server, name, dead_s, warn)
    shared = PostgresShared(server, lambda: 0 if shipper.fenced else shipper.fence.writer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shipper.run)
        for folder, store in old:
            nursery.start_soon(_ship_all, shipping(store, folder, instance_of(replace(config, data=folder), root)))
        await nursery.start(source.run)
        nursery.start_soon(shared.run)
        yield JoinedStore(own, source, shared), shipper
        with trio.move_on_after(STORE_LAST_S):
            await shipper.through()
        nursery.cancel_scope.cancel()


async def _ship_all(shipper: Shipper) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shipper.run)
        await shipper.through()
        nursery.cancel_scope.cancel()


async def agree(server: Server, root: Path, warn: Callable[..., None]) -> None:
    """Check the tables, and make the salt of all proxies of the database that of this data folder, too.

    Raise ConfigError for what an operator must change. If the database is away, the salt of the last start counts.
    """
    ours, shared = root / SALT_FILE, root / "store.salt"
    before, salt = (path.read_bytes() if path.exists() else b"" for path in (ours, shared))
    try:
        with trio.fail_after(SOURCE_WAIT_S if salt else inf), closing(await server.connect()) as connection:
            await check(connection)
            ((salt,),) = await connection.execute(_SALT, (salt or before or secrets.token_bytes(SALT_BYTES),))
    except RefusedError as error:
        raise ConfigError(f"store: {error}") from error
    except (UnreachableError, trio.TooSlowError) as error:
        if not salt:
            raise StoreError(f"store: {error} (a first start needs it, for the salt of all proxies)") from error
        warn(
            "store",
            why=f"{str(error) or 'The database does not answer'}; streams are shipped when the database is back",
        )
    if before not in (b"", salt):
        write_whole(kept := root / f"{SALT_FILE}.before", before)
        warn("store", why=f"The store has another salt: callers do not see older streams (the old salt is in {kept})")
    if before != salt or not shared.exists():
        write_whole(ours, salt)
        write_whole(shared, salt)


def instance_of(config: Config, root: Path) -> str:
    """Return the name of this proxy: the configured one or the one kept in the data folder, and the worker."""
    worker, kept = "" if config.data == root else f"-{config.data.name}", root / "instance"
    if config.instance is None and not kept.exists():
        host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:64]
        write_whole(kept, f"{host}-{secrets.token_hex(2)}".encode())
    return (config.instance or kept.read_text("ascii")) + worker
