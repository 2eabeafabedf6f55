"""`wiretape seal` and `wiretape check`: tapes become fixtures for git, and fixtures are looked over"""

import os
import sys
from collections.abc import Sequence
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wiretape.proxy.cli.common import (
    BAD_USAGE,
    CANNOT_START,
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

from .output import refuse_folder, write_whole

if TYPE_CHECKING:
    from wiretape.events.tape.record import Record

    from ..redaction.user_rules import Detector, Redaction
    from ..sealed.load import Recording

__all__ = ["DetectorName", "add", "load_detector"]

DetectorName = Annotated[
    str | None,
    typer.Option(
        "--detector",
        metavar="MODULE:FUNCTION",
        help="Also redact the texts that this function returns for a text.",
        show_default=False,
    ),
]


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
    detector: DetectorName = None,
    max_age: Annotated[
        int | None, typer.Option(metavar="DAYS", min=1, help="`check` asks for a new one then.", show_default=False)
    ] = None,
    blobs: Annotated[
        bool, typer.Option("--blobs", help="Put lines of more than 100,000 bytes beside the tape, in FILE.blobs/.")
    ] = False,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Make one sealed tape of recordings.

    They become the streams of one conversation, in order of time. Secrets become placeholders and what changes
    from one recording to the next is renamed; a sealed tape may be sealed again, under stricter rules too.
    """
    if allow_secrets and not exact:
        raise FailedError("--allow-secrets goes with --exact: without it they are redacted", BAD_USAGE)
    if str(out) != "-":
        refuse_folder(out)
    if blobs and str(out) == "-":
        raise FailedError("--blobs needs a file beside which they can lie", BAD_USAGE)
    if exact and (redact_prompts or redact_path or detector):
        raise FailedError("--exact and redaction exclude each other", BAD_USAGE)
    with told():
        from ..seal import Rules, seal
        from ..sealed.load import parse

        recordings = [_recording(name, data, config) for name in _each_once(tapes)]
        streams = _streams(recordings)
        rules = Rules(
            exact=exact,
            secrets_allowed=allow_secrets,
            redaction=_redaction(redact_path or (), prompts=redact_prompts, detector=detector),
            max_age_days=max_age,
        )
        sealed = seal(streams, rules, headers=[recording.header for recording in recordings])
        _tell_unreadable(streams, exact=exact)
        _write(out, sealed, blobs=blobs)
        header = parse(sealed, verify=False).header
    said = {"out": str(out), "bytes": len(sealed), **{name: header[name] for name in ("streams", "exact")}}
    if str(out) != "-":
        exactly = "exact" if header["exact"] else "not exact"
        several = "stream" if header["streams"] == 1 else "streams"
        typer.echo(line_of(said) if json_ else f"{out}: {header['streams']} {several}, {len(sealed)} bytes, {exactly}")


def _redaction(paths: Sequence[str], *, prompts: bool, detector: str | None) -> "Redaction":
    from ..redaction.user_rules import Redaction, is_path

    if wrong := [path for path in paths if not is_path(path)]:
        raise FailedError(f"--redact-path: {wrong[0]!r} is no path, as messages[*].content is one", BAD_USAGE)
    return Redaction(paths=tuple(paths), prompts=prompts, detector=load_detector(detector))


def load_detector(name: str | None) -> "Detector | None":
    """Import the detector of this name, also from the working folder."""
    from ..redaction.user_rules import detector_of

    if name is None:
        return None
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a string for sys.path
    try:
        return detector_of(name)
    except (TypeError, ValueError) as error:
        raise FailedError(f"--detector: {error}", BAD_USAGE) from error
    finally:
        sys.path.pop(0)


def _streams(recordings: "list[Recording]") -> "list[Sequence[Record]]":
    """In order of time; by what they say where they began at once, and not as they were named."""
    from wiretape.events.tape.record import encode

    from ..seal import in_order

    if len(recordings) > 1:
        recordings.sort(key=lambda recording: [list(map(encode, records)) for records in recording.streams])
    streams = [records for recording in recordings for records in recording.streams]
    return in_order(streams) if len(recordings) > 1 else streams


def _tell_unreadable(streams: "Sequence[Sequence[Record]]", *, exact: bool) -> None:
    from ..redaction.body_codec import unreadable

    for one in unreadable(streams):
        kept = "its bytes stay" if exact else "its size and hash are kept, its bytes are not"
        typer.echo(f"stream {one.stream + 1}: {one}: {kept}", err=True)


def _each_once(names: Sequence[str]) -> Sequence[str]:
    """A file that is named twice is a mistake: its streams would answer twice."""
    seen: dict[str, str] = {}
    for name in names:
        if name == "-":
            raise FailedError("tapes are read from files, not from stdin", BAD_USAGE)
        before = seen.setdefault(str(Path(name).resolve()), name)
        if before is not name:
            raise FailedError(f"{name}: the same file as {before}" if name != before else f"{name}: twice", BAD_USAGE)
    return names


def _recording(name: str, data: str | None, config: str | None) -> "Recording":
    """A file, or a stream of the data folder."""
    from ..sealed.load import load

    path = Path(name)
    if not path.exists() and path.name == name and not path.suffix:
        path = _of_stream(name, data, config)
    return load(path, verify=False)  # an edited one is what it is sealed anew for


def _of_stream(name: str, data: str | None, config: str | None) -> Path:
    """Whose id begins so. What is no file either is one that is not there, as it is to every verb that reads files."""
    from wiretape.proxy.cli.tapes import AmbiguousIdError, NotFoundError, find

    try:
        return find(root_of(data, config), name)
    except AmbiguousIdError:
        raise
    except (FailedError, NotFoundError) as error:
        if isinstance(error, FailedError) and error.code != FOUND_WRONG:  # the configuration cannot be understood
            raise
        raise FailedError(f"{name}: {os.strerror(ENOENT)}. {error}", CANNOT_START) from error


def _write(out: Path, sealed: bytes, *, blobs: bool) -> None:
    """Whole, or not at all; into what is no regular file, a pipe or a device, as it goes."""
    from ..sealed.blobs import apart, remove_strays, write_blobs

    if blobs:
        sealed, beside = apart(sealed)
        write_blobs(out.resolve(), beside)
    if str(out) == "-":
        sys.stdout.buffer.write(sealed)
        return
    target = out.resolve()
    write_whole(target, sealed)
    if target.is_file():
        remove_strays(target, sealed)


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
        from ..sealed.check import check_files

        found = check_files(tapes, bytes_max=max_bytes, age_days_max=max_age)
    if json_:
        print_json([each._asdict() | {"file": str(each.file)} for each in found])
    else:
        for each in found:
            typer.echo(str(each))
    if any(each.wrong for each in found):
        raise typer.Exit(FOUND_WRONG)
