"""`wiretape import` and `wiretape export`: recordings of others become tapes, tapes become files of others"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wiretape.proxy.cli.common import BAD_USAGE, AsJson, FailedError, print_json, told

from .output import refuse_folder, write_whole

if TYPE_CHECKING:
    from ..formats.imported import Outcome
    from ..formats.losses import Loss

__all__ = ["FORMAT_NAMES", "add"]

FORMAT_NAMES = ("auto", "sse", "curl", "har", "vcr", "chunks", "aimock", "mitmproxy")


def add(app: typer.Typer) -> None:
    """To the command line."""
    app.command("import")(_import)
    app.command("export")(_export)


def _import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording of another tool.")],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="TAPE", help="The sealed tape.")],
    format_: Annotated[
        str, typer.Option("--format", metavar="NAME", help=f"One of {', '.join(FORMAT_NAMES)}.")
    ] = "auto",
    exact: Annotated[bool, typer.Option("--exact", help="Redact and rename nothing.")] = False,
    json_: AsJson = False,
) -> None:
    """Make a sealed tape of another tool's recording.

    Says what that format could not hold, one line each.
    """
    if format_ not in FORMAT_NAMES:
        raise FailedError(f"--format: one of {', '.join(FORMAT_NAMES)}", BAD_USAGE)
    refuse_folder(out)
    with told():
        from wiretape.events.core.errors import TapeError

        from ..formats.table import read

        try:
            name, outcome = read(file.read_bytes(), format_)
        except TapeError as error:
            raise TapeError(f"{file}: {error}") from error
        write_whole(out, _sealed(outcome, exact=exact))
    endings = [str(records[-1].keys.get("ending")) for records in outcome.streams]
    if json_:
        print_json({"format": name, "tape": str(out), "endings": endings, "lost": _lost(outcome.losses)})
        return
    typer.echo(f"{out}: {len(endings)} from {name} ({', '.join(dict.fromkeys(endings))})")
    _tell(outcome.losses)


def _export(
    tape: Annotated[Path, typer.Argument(metavar="TAPE", help="A live or sealed tape.")],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="Where to.")],
    format_: Annotated[str, typer.Option("--format", metavar="sse|har", help="As what.")],
    stream: Annotated[int | None, typer.Option(min=1, help="Only this one, from 1.", show_default=False)] = None,
    side: Annotated[str, typer.Option("--as", metavar="upstream|client", help="Whose bytes (sse).")] = "upstream",
    json_: AsJson = False,
) -> None:
    """Write a tape as another tool's recording.

    Says what that format cannot hold, one line each.
    """
    if format_ not in ("sse", "har") or side not in ("upstream", "client"):
        raise FailedError("--format is sse or har, and --as is upstream or client", BAD_USAGE)
    if format_ == "har" and side == "client":
        raise FailedError("--as client is for --format sse: HAR holds what the upstream said", BAD_USAGE)
    refuse_folder(out)
    with told():
        from wiretape.events.core.errors import TapeError

        from ..formats.har import to_har
        from ..formats.sse import to_sse
        from ..sealed.load import load

        header, streams = load(tape)
        if stream is not None:
            if stream > len(streams):
                raise TapeError(f"{tape}: it has {len(streams)} streams")
            streams = [streams[stream - 1]]
        if format_ == "sse" and len(streams) > 1:
            raise FailedError(f"{tape} has {len(streams)} streams: --stream chooses one", BAD_USAGE)
        data, losses = to_har(streams, header) if format_ == "har" else to_sse(streams[0], client=side == "client")
        write_whole(out, data)
    if json_:
        print_json({"format": format_, "file": str(out), "bytes": len(data), "lost": _lost(losses)})
        return
    typer.echo(f"{out}: {len(data)} bytes")
    _tell(losses)


def _sealed(outcome: "Outcome", *, exact: bool) -> bytes:
    """Of what another tool wrote nobody knows that it is exact, unless the user says so."""
    from ..seal import EXACT, seal

    before = [outcome.header, {} if exact else {"exact": False}]
    return seal(outcome.streams, EXACT if exact else None, headers=before)


def _lost(losses: "Sequence[Loss]") -> list[dict[str, object]]:
    return [{"code": loss.code, "count": loss.times, "text": loss.text} for loss in losses]


def _tell(losses: "Sequence[Loss]") -> None:
    for loss in losses:
        typer.echo(f"lost: {loss.text}")
