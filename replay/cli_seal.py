"""`wiretape seal` and `wiretape check`: tapes become fixtures for git, and fixtures are looked over"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wiretape.proxy.cli_common import (
    BAD_USAGE,
    FOUND_WRONG,
    AsJson,
    ConfigFile,
    DataFolder,
    FailedError,
    line_of,
    print_json,
    root_of,
    told,
)

if TYPE_CHECKING:
    from .load import Recording

__all__ = ["add"]


def add(app: typer.Typer) -> None:
    """To the command line."""
    app.command("seal")(_seal)
    app.command("check")(_check)


def _seal(
    tapes: Annotated[list[str], typer.Argument(metavar="TAPE...", help="Files of tapes, or ids of streams.")],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The sealed tape; - for stdout.")],
    exact: Annotated[bool, typer.Option("--exact", help="Keep every byte; refused where there are secrets.")] = False,
    allow_secrets: Annotated[bool, typer.Option("--allow-secrets", help="With --exact: all the same.")] = False,
    redact_prompts: Annotated[
        bool, typer.Option("--redact-prompts", help="Keep hash and length of what requests say.")
    ] = False,
    redact_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="Redact this too, as in messages[*].content. Repeatable.", show_default=False
        ),
    ] = None,
    max_age: Annotated[
        int | None, typer.Option(metavar="DAYS", min=1, help="`check` asks for a new one then.", show_default=False)
    ] = None,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Make one sealed tape of recordings.

    They become the streams of one conversation, in order of time. Secrets become placeholders and what changes
    from one recording to the next is renamed; a sealed tape may be sealed again, under stricter rules too.
    """
    if exact and (redact_prompts or redact_path):
        raise FailedError("--exact and redaction exclude each other", BAD_USAGE)
    with told():
        from .load import parse
        from .redact import Redaction
        from .seal import Rules, in_order, seal

        recordings = [_recording(name, data, config) for name in tapes]
        streams = [records for recording in recordings for records in recording.streams]
        if len(recordings) > 1:
            streams = list(in_order(streams))
        rules = Rules(
            exact=exact,
            secrets_allowed=allow_secrets,
            redaction=Redaction(paths=tuple(redact_path or ()), prompts=redact_prompts),
            max_age_days=max_age,
        )
        sealed = seal(streams, rules, headers=[recording.header for recording in recordings])
        _write(out, sealed)
        header = parse(sealed, verify=False).header
    said = {"out": str(out), "bytes": len(sealed), **{name: header[name] for name in ("streams", "exact")}}
    if str(out) != "-":
        exactly = "exact" if header["exact"] else "not exact"
        several = "stream" if header["streams"] == 1 else "streams"
        typer.echo(line_of(said) if json_ else f"{out}: {header['streams']} {several}, {len(sealed)} bytes, {exactly}")


def _recording(name: str, data: str | None, config: str | None) -> "Recording":
    """A file, or a stream of the data folder."""
    from .load import load

    path = Path(name)
    if not path.exists() and path.name == name and not path.suffix:
        from wiretape.proxy.cli_tapes import find

        path = find(root_of(data, config), name)
    return load(path)


def _write(out: Path, sealed: bytes) -> None:
    """Whole, or not at all."""
    if str(out) == "-":
        sys.stdout.buffer.write(sealed)
        return
    unfinished = out.with_name(out.name + ".new")
    unfinished.write_bytes(sealed)
    unfinished.replace(out)


def _check(
    tapes: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Sealed tapes, or folders of them.")],
    *,
    max_bytes: Annotated[int, typer.Option(metavar="N", min=1, help="Larger files are told.")] = 1_000_000,
    max_age: Annotated[
        int | None, typer.Option(metavar="DAYS", min=1, help="Older recordings are told.", show_default=False)
    ] = None,
    json_: AsJson = False,
) -> None:
    """Look sealed tapes over before they are committed.

    Secrets, size, long lines, unknown versions, fold lines that the tape does not come to, live tapes, age. One
    line a finding, and exit code 1 where there is one.
    """
    with told():
        from .check import check_files

        found = check_files(tapes, bytes_max=max_bytes, age_days_max=max_age)
    if json_:
        print_json([each._asdict() | {"file": str(each.file)} for each in found])
    else:
        for each in found:
            typer.echo(str(each))
    if any(each.wrong for each in found):
        raise typer.Exit(FOUND_WRONG)
