"""`wiretape db`: the PostgreSQL database that several proxies share."""

from typing import Annotated

import typer

from .common import BAD_USAGE, ConfigFile, FailedError, echo, loaded_from

__all__ = ["app"]

_STORE = typer.Option(metavar="URL", help="The database; by default the configured one.", show_default=False)

app = typer.Typer(help="Prepare a PostgreSQL database for several proxies.", rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Keep `migrate` a command of its own, although it is the only one."""


@app.command("migrate")
def _migrate(*, store: Annotated[str | None, _STORE] = None, config: ConfigFile = None) -> None:
    """Create or upgrade the tables.

    Can be repeated at any time. Needs a user that may create a schema in the database; serve as the same user.
    """
    url = loaded_from(config, serving=False, store=store).config.store
    if url is None:
        raise FailedError("No database: use --store URL, or set WIRETAPE_STORE", BAD_USAGE)
    import trio

    from ..store.postgres import server_at

    server = server_at(url)

    async def migrated() -> tuple[int, int]:
        from ..store.postgres.schema import migrate

        connection = await server.connect()
        try:
            return await migrate(connection)
        finally:
            connection.close()

    before, version = trio.run(migrated)
    echo(f"schema wiretape: version {version}" + (f" (was {before})" if before < version else ", nothing to do"))
