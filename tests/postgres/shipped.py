"""A shipper without a proxy, and what the database has of a stream, read as plainly as possible."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import zstandard

from tests.postgres.cluster import Database
from wiretape.proxy.store.files import FileStore, open_files
from wiretape.proxy.store.postgres import server_at
from wiretape.proxy.store.postgres.ship import Shipper

Said = list[tuple[str, dict[str, Any]]]


class Ship:
    """A store of files and its shipper."""

    def __init__(self, files: FileStore, shipper: Shipper, said: Said) -> None:
        self.files, self.shipper, self.said = files, shipper, said

    def heard(self, event: str) -> list[dict[str, Any]]:
        """Return what was logged as this event."""
        return [fields for name, fields in self.said if name == event]


@asynccontextmanager
async def shipping(
    root: Path, database: Database, *, name: str = "a", dead_s: float = 10.0, url: str = "", keep_days: int | None = 7
) -> AsyncGenerator[Ship]:
    """Ship the tapes of a folder while the block runs."""
    said: Said = []
    async with open_files(root, warn=lambda _: None) as files, trio.open_nursery() as nursery:

        def warn(event: str, **fields: object) -> None:
            said.append((event, fields))

        server = server_at(url or database.url)
        shipper = Shipper(server, files, root, name, dead_s=dead_s, keep_days=keep_days, warn=warn)
        nursery.start_soon(shipper.run)
        yield Ship(files, shipper, said)
        nursery.cancel_scope.cancel()


def in_packs(database: Database, stream: str) -> bytes:
    """Return what the packs have of a stream, from its first one on."""
    where = "WHERE (p.hour, p.epoch, p.seq) >= (s.hour, s.epoch, s.seq) AND p.writer = s.writer AND s.id = %s"
    sql = f"SELECT p.body FROM wiretape.pack p, wiretape.stream s {where} ORDER BY p.hour, p.epoch, p.seq"  # noqa: S608
    lines = b""
    for (body,) in database.sql(sql, stream):
        plain = zstandard.decompress(bytes(body))
        while plain:
            head, _, plain = plain.partition(b"\n")
            name, size = head.split()
            if name == stream.encode():
                lines += plain[: int(size)]
            plain = plain[int(size) :]
    return lines


def in_blocks(database: Database, stream: str) -> bytes | None:
    """Return the tape of a sealed stream; None if it is not sealed."""
    rows = database.sql("SELECT day, records FROM wiretape.stream WHERE id = %s AND sealed IS NOT NULL", stream)
    if not rows:
        return None
    ((day, records),) = rows
    lines, at = b"", 0
    sql = "SELECT n, upto, body FROM wiretape.block WHERE day = %s AND stream = %s ORDER BY n"
    for n, upto, body in database.sql(sql, day, stream):
        assert n == at
        lines, at = lines + zstandard.decompress(bytes(body)), upto
    assert at == records == lines.count(b"\n")
    return lines


def tape_in(root: Path, stream: str) -> bytes:
    """Return the local tape."""
    (path,) = root.glob(f"*/{stream}.tape")
    return path.read_bytes()


async def until(holds: Callable[[], Any]) -> Any:
    """Wait until the database, or a shipper, is as expected; the test's own timeout ends it."""
    with trio.fail_after(20):
        while not (found := await trio.to_thread.run_sync(holds)):  # noqa: ASYNC110
            await trio.sleep(0.02)
    return found
