"""`wiretape seal` and `wiretape check`: tapes become fixtures for git, and fixtures are looked over"""

from pathlib import Path
from typing import Annotated

import typer

from wiretape.proxy.cli_common import told

__all__ = ["add"]


def add(app: typer.Typer) -> None:
    """To the command line."""
    app.command("seal")(_seal)


def _seal(
    tapes: Annotated[list[Path], typer.Argument(metavar="TAPE...", help="Live or sealed tapes, in order.")],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The sealed tape.")],
) -> None:
    """Make one sealed tape of recordings.

    They become the streams of one conversation, in the order given.
    """
    with told():
        from .load import load
        from .seal import seal

        sealed = seal([records for tape in tapes for records in load(tape).streams])
        unfinished = out.with_name(out.name + ".new")
        unfinished.write_bytes(sealed)
        unfinished.replace(out)
