"""`wiretape otel`: send what is recorded to an OpenTelemetry collector."""

import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import BAD_USAGE, FOUND_WRONG, ConfigFile, DataFolder, FailedError, echo, loaded_from, root_of

if TYPE_CHECKING:
    from wiretape.events.tape.record import Record

    from ..config.model import Config
    from ..config.otel import Collector

__all__ = ["app"]

app = typer.Typer(help="Send what is recorded to OpenTelemetry.", rich_markup_mode=None)


@app.command("backfill")
def _backfill(
    *,
    since: Annotated[str, typer.Option(metavar="TIME", help="Not before: 12h or 2d ago, or a time.")],
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The collector; by default the configured one.", show_default=False),
    ] = None,
    data: DataFolder = None,
    config: ConfigFile = None,
) -> None:
    """Export the streams that have ended since then.

    Works while a server runs. All ids come from the streams, so a stream that is exported again is the same trace.
    """
    settings = loaded_from(config, serving=False).config
    from ..config.model import ConfigError
    from ..config.otel import collector_of
    from ..store.query import QueryError, parse_query

    try:
        (begin,) = parse_query(f'since:"{since}"', time.time()).which.terms[0].values
        collector = collector_of(settings, os.environ, endpoint)
    except (ConfigError, QueryError) as error:
        raise FailedError(str(error), BAD_USAGE) from error
    if collector is None:
        raise FailedError("No collector: use --endpoint, or set otel_endpoint", BAD_USAGE)
    import trio

    from .tapes import tapes_of

    tapes = tapes_of(root_of(data, config))
    written = {stream: path.stat().st_mtime for stream, path in tapes.items() if path.exists()}
    recent = [name for name, at in written.items() if at >= begin]
    refused = trio.run(_send, sorted(recent, key=written.__getitem__), tapes, collector, settings)
    echo(f"{len(recent) - refused} streams sent to {collector.url}" + (f", {refused} refused" if refused else ""))
    if refused:
        raise typer.Exit(FOUND_WRONG)


async def _send(streams: list[str], tapes: Mapping[str, Path], collector: "Collector", settings: "Config") -> int:
    """Send these streams, and return how many the collector refused."""
    from ..config.model import UpstreamSettings
    from ..limits import OTEL_BATCH_BYTES
    from ..log import Log, stderr_fd
    from ..store.store import StreamMissingError
    from ..store.tape_file import records_of
    from ..telemetry.export import Sender, part_of
    from ..upstream.transport import UpstreamTransport

    async def read(stream: str) -> "AsyncGenerator[list[Record]]":
        if stream not in tapes:
            raise StreamMissingError(stream)
        yield list(records_of(tapes[stream]))

    transport, parts = UpstreamTransport(UpstreamSettings(ca_file=settings.upstream.ca_file)), dict[str, bytes]()
    with closing(Log(stderr_fd())) as log:
        sender = Sender(collector, transport, log)
        for stream in streams:
            parts[stream] = await part_of(stream, read, collector)
            if sum(map(len, parts.values())) >= OTEL_BATCH_BYTES or stream == streams[-1]:
                await sender.deliver(parts)
                parts = {}
    await transport.aclose()
    return sender.refused
