"""`wiretape import` and `wiretape export`: convert recordings of other tools to tapes and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wiretape.proxy.cli.common import BAD_USAGE, AsJson, FailedError, one_line_errors, print_json

from .output import refuse_folder, write_whole

if TYPE_CHECKING:
    from collections import Counter

__all__ = ["FORMAT_NAMES", "add"]

FORMAT_NAMES = ("auto", "sse", "curl", "har", "vcr", "chunks", "aimock")


def add(app: typer.Typer) -> None:
    """Add `import` and `export` to the command line."""
    app.command("import")(_import)
    app.command("export")(_export)


def _import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The other tool's recording.")],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="TAPE", help="The sealed tape to write.")],
    format_: Annotated[
        str, typer.Option("--format", metavar="NAME", help=f"{', '.join(FORMAT_NAMES[:-1])} or {FORMAT_NAMES[-1]}.")
    ] = "auto",
    exact: Annotated[bool, typer.Option("--exact", help="Keep every byte: no redaction, no renaming.")] = False,
    json_: AsJson = False,
) -> None:
    """Convert another tool's recording to a sealed tape.

    Prints one line for everything that its format cannot hold.
    """
    if format_ not in FORMAT_NAMES:
        raise FailedError(f"--format must be one of {', '.join(FORMAT_NAMES)}, not {format_}", BAD_USAGE)
    refuse_folder(out)
    with one_line_errors():
        from wiretape.events.core.errors import TapeError

        from ..formats.table import read
        from ..seal import EXACT, seal

        try:
            name, outcome = read(file.read_bytes(), format_)
        except TapeError as error:
            raise TapeError(f"{file}: {error}") from error
        # Another tool's recording counts as exact only if the user says so.
        headers = [outcome.header, {} if exact else {"exact": False}]
        write_whole(out, seal(outcome.streams, EXACT if exact else None, headers=headers))
    endings = [str(records[-1].keys.get("ending")) for records in outcome.streams]
    shown = {"format": name, "tape": str(out), "endings": endings}
    _report(shown, f"{out}: {len(endings)} from {name} ({', '.join(dict.fromkeys(endings))})", outcome.losses, json_)


def _export(
    tape: Annotated[Path, typer.Argument(metavar="TAPE", help="A live or sealed tape.")],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The file to write.")],
    format_: Annotated[str, typer.Option("--format", metavar="sse|har", help="The format to write.")],
    stream: Annotated[
        int | None, typer.Option(min=1, help="Only this stream, counted from 1.", show_default=False)
    ] = None,
    side: Annotated[
        str, typer.Option("--as", metavar="upstream|client", help="The upstream's bytes or the client's (sse only).")
    ] = "upstream",
    json_: AsJson = False,
) -> None:
    """Convert a tape to another tool's recording.

    Prints one line for everything that its format cannot hold.
    """
    if format_ not in ("sse", "har") or side not in ("upstream", "client"):
        raise FailedError("--format must be sse or har, and --as must be upstream or client", BAD_USAGE)
    if format_ == "har" and side == "client":
        raise FailedError("--as client works with --format sse only: HAR holds the upstream's bytes", BAD_USAGE)
    refuse_folder(out)
    with one_line_errors():
        from wiretape.events.core.errors import TapeError

        from ..formats.har import to_har
        from ..formats.streams import to_sse
        from ..formats.table import EXPORTS
        from ..sealed.load import load

        header, streams = load(tape)
        if stream is not None:
            if stream > len(streams):
                raise TapeError(f"{tape} has only {len(streams)} streams")
            streams = [streams[stream - 1]]
        if format_ == "sse" and len(streams) > 1:
            raise FailedError(f"{tape} has {len(streams)} streams: choose one with --stream", BAD_USAGE)
        data, losses = to_har(streams, header) if format_ == "har" else to_sse(streams[0], client=side == "client")
        write_whole(out, data)
        losses.update({code: len(streams) for code in EXPORTS[format_].always})
    _report({"format": format_, "file": str(out), "bytes": len(data)}, f"{out}: {len(data)} bytes", losses, json_)


def _report(shown: Mapping[str, object], line: str, losses: "Counter[str]", as_json: bool) -> None:
    """Print the result of a conversion, and everything that is lost."""
    from ..formats.exchange import LOSSES

    if as_json:
        lost = [{"code": code, "count": count, "text": LOSSES[code]} for code, count in sorted(losses.items())]
        print_json({**shown, "lost": lost})
        return
    typer.echo(line)
    for code, count in sorted(losses.items()):
        typer.echo(f"lost: {LOSSES[code]}" + (f" ({count} times)" if count > 1 else ""))
