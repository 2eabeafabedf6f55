"""`wiretape seal` and `wiretape check`: make fixtures for git from tapes, and check them."""

import os
import sys
from collections.abc import Mapping, Sequence
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    one_line_errors,
    print_json,
    root_of,
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
    """Add `seal` and `check` to the command line."""
    app.command("seal")(_seal)
    app.command("check")(_check)


def _seal(
    tapes: Annotated[list[str], typer.Argument(metavar="TAPE...", help="Tape files or stream ids.")],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The sealed tape to write; - for stdout.")],
    exact: Annotated[bool, typer.Option("--exact", help="Keep every byte. Refused if there are secrets.")] = False,
    allow_secrets: Annotated[bool, typer.Option("--allow-secrets", help="With --exact: keep secrets too.")] = False,
    redact_prompts: Annotated[
        bool, typer.Option("--redact-prompts", help="Keep only hash and length of prompts.")
    ] = False,
    redact_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="Also redact this, for example messages[*].content. Repeatable.", show_default=False
        ),
    ] = None,
    detector: DetectorName = None,
    max_age: Annotated[
        int | None,
        typer.Option(metavar="DAYS", min=1, help="Age at which `check` asks for a new recording.", show_default=False),
    ] = None,
    blobs: Annotated[
        bool, typer.Option("--blobs", help="Move lines of more than 100,000 bytes to FILE.blobs/.")
    ] = False,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Make one sealed tape from recordings.

    Recordings become the streams of one conversation, in order of time. Secrets become placeholders, and ids and times
    that change from one recording to the next are renamed. You can seal a sealed tape again, with stricter rules too.
    """
    if allow_secrets and not exact:
        raise FailedError("--allow-secrets needs --exact: without it secrets are redacted", BAD_USAGE)
    if str(out) != "-":
        refuse_folder(out)
    if blobs and str(out) == "-":
        raise FailedError("--blobs needs an output file", BAD_USAGE)
    if exact and (redact_prompts or redact_path or detector):
        raise FailedError("--exact and redaction exclude each other", BAD_USAGE)
    with one_line_errors():
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
        _report_unreadable(streams, exact=exact)
        _write(out, sealed, blobs=blobs)
        header = parse(sealed, verify=False).header
    result = {"out": str(out), "bytes": len(sealed), **{name: header[name] for name in ("streams", "exact")}}
    if str(out) != "-":
        typer.echo(line_of(result) if json_ else f"{out}: {_described(header, len(sealed))}")


def _described(header: Mapping[str, Any], size: int) -> str:
    """Describe a sealed tape: its streams, its size, and what sealing did to them."""
    done = [word for word in ("redacted", "normalised") if word in header]
    changes = "exact" if header["exact"] else " and ".join(done) or "not exact"
    return f"{header['streams']} stream{'s' * (header['streams'] != 1)}, {size} bytes, {changes}"


def _redaction(paths: Sequence[str], *, prompts: bool, detector: str | None) -> "Redaction":
    from ..redaction.user_rules import Redaction, is_path

    if wrong := [path for path in paths if not is_path(path)]:
        raise FailedError(f"--redact-path: {wrong[0]!r} is not a path such as messages[*].content", BAD_USAGE)
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
    """Return the streams in order of time. Equal times are ordered by content, never by file name."""
    from wiretape.events.tape.record import encode

    from ..seal import in_order

    if len(recordings) > 1:
        recordings.sort(key=lambda recording: [list(map(encode, records)) for records in recording.streams])
    streams = [records for recording in recordings for records in recording.streams]
    return in_order(streams) if len(recordings) > 1 else streams


def _report_unreadable(streams: "Sequence[Sequence[Record]]", *, exact: bool) -> None:
    from ..redaction.body_codec import unreadable

    for one in unreadable(streams):
        kept = "its bytes are kept" if exact else "only its size and hash are kept"
        typer.echo(f"stream {one.stream + 1}: {one}: {kept}", err=True)


def _each_once(names: Sequence[str]) -> Sequence[str]:
    """Refuse a file that is named twice, because its streams would answer twice."""
    seen: dict[str, str] = {}
    for name in names:
        if name == "-":
            raise FailedError("tapes are read from files, not from stdin", BAD_USAGE)
        before = seen.setdefault(str(Path(name).resolve()), name)
        if before is not name:
            raise FailedError(
                f"{name} is the same file as {before}" if name != before else f"{name} is named twice", BAD_USAGE
            )
    return names


def _recording(name: str, data: str | None, config: str | None) -> "Recording":
    """Load a file, or a stream of the data folder."""
    from ..sealed.load import load

    path = Path(name)
    if not path.exists() and path.name == name and not path.suffix:
        path = _of_stream(name, data, config)
    return load(path, verify=False)  # sealing again updates an edited tape


def _of_stream(name: str, data: str | None, config: str | None) -> Path:
    """Find a stream by the start of its id. If no stream matches, report a missing file as other verbs do."""
    from wiretape.proxy.cli.tapes import AmbiguousIdError, NotFoundError, find

    try:
        return find(root_of(data, config), name)
    except AmbiguousIdError:
        raise
    except (FailedError, NotFoundError) as error:
        if isinstance(error, FailedError) and error.code != FOUND_WRONG:  # a wrong configuration
            raise
        raise FailedError(f"{name}: {os.strerror(ENOENT)}. {error}", CANNOT_START) from error


def _write(out: Path, sealed: bytes, *, blobs: bool) -> None:
    """Write the sealed tape and its blobs."""
    from ..sealed.blobs import apart, remove_strays, write_blobs

    if blobs:
        sealed, parts = apart(sealed)
        write_blobs(out.resolve(), parts)
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
    max_bytes: Annotated[int, typer.Option(metavar="N", min=1, help="Report larger files.")] = 1_000_000,
    max_age: Annotated[
        int | None, typer.Option(metavar="DAYS", min=1, help="Report older recordings.", show_default=False)
    ] = None,
    json_: AsJson = False,
) -> None:
    """Check sealed tapes before you commit them.

    Looks for secrets, size, long lines, unknown versions, wrong fold lines, live tapes and age. Prints one line per
    finding; the exit code is 1 if a finding is wrong.
    """
    with one_line_errors():
        from ..check import check_files

        found = check_files(tapes, bytes_max=max_bytes, age_days_max=max_age)
    if json_:
        print_json([each._asdict() | {"file": str(each.file)} for each in found])
    else:
        for each in found:
            typer.echo(str(each))
    if any(each.wrong for each in found):
        raise typer.Exit(FOUND_WRONG)
