"""`wiretape seal`, `check`, `import` and `export`: make fixtures for git, check them, convert those of other tools."""

import os
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wiretape.proxy.cli.common import (
    BAD_USAGE,
    FOUND_WRONG,
    AsJson,
    ConfigFile,
    DataFolder,
    FailedError,
    TapeName,
    TapeNames,
    echo,
    line_of,
    one_line_errors,
    print_json,
)

if TYPE_CHECKING:
    from collections import Counter

    from wiretape.events.tape.record import Record
    from wiretape.events.tape.tape import Damage

    from ..redaction.user_rules import Detector
    from ..seal import Rules
    from ..sealed.files import Recording

__all__ = ["FORMAT_NAMES", "DetectorName", "app", "load_detector", "one_path", "refuse_folder", "seal_streams"]

app = typer.Typer()

FORMAT_NAMES = ("auto", "sse", "curl", "har", "vcr", "aimock")

DetectorName = Annotated[
    str | None,
    typer.Option(
        "--detector", metavar="MODULE:FUNCTION", help="Also redact the texts that this function returns for a text."
    ),
]


@app.command("seal")
def _seal(
    tapes: TapeNames,
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The sealed tape to write; - for stdout.")],
    exact: Annotated[bool, typer.Option("--exact", help="Keep every byte. Refused if there are secrets.")] = False,
    allow_secrets: Annotated[bool, typer.Option("--allow-secrets", help="With --exact: keep secrets too.")] = False,
    redact_prompts: Annotated[
        bool, typer.Option("--redact-prompts", help="Keep only hash and length of prompts.")
    ] = False,
    redact_path: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Also redact this, for example messages[*].content. Repeatable."),
    ] = None,
    detector: DetectorName = None,
    max_age: Annotated[
        int | None, typer.Option(metavar="DAYS", min=1, help="Age at which `check` asks for a new recording.")
    ] = None,
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
    if exact and (redact_prompts or redact_path or detector):
        raise FailedError("--exact and redaction exclude each other", BAD_USAGE)
    if str(out) != "-":
        refuse_folder(out)
    with one_line_errors():
        from ..redaction.user_rules import Redaction, is_path
        from ..seal import Rules
        from ..sealed.files import write_whole

        paths = tuple(redact_path or ())
        if wrong := [path for path in paths if not is_path(path)]:
            raise FailedError(f"--redact-path: {wrong[0]!r} is not a path such as messages[*].content", BAD_USAGE)
        redaction = Redaction(paths=paths, prompts=redact_prompts, detector=load_detector(detector))
        rules = Rules(exact=exact, secrets_allowed=allow_secrets, redaction=redaction, max_age_days=max_age)
        sealed = _sealed(_recordings(tapes, data, config), rules)
        if str(out) == "-":
            sys.stdout.buffer.write(sealed)
        else:
            write_whole(out, sealed)
            _report(out, sealed, as_json=json_)


def _report(out: Path, sealed: bytes, *, as_json: bool) -> None:
    from ..sealed.files import parse

    header = parse(sealed, verify=False).header
    if as_json:
        result = {"out": str(out), "bytes": len(sealed), "streams": header["streams"], "exact": header["exact"]}
        echo(line_of(result))
        return
    done = [word for word in ("redacted", "normalised") if word in header]
    changes = "exact" if header["exact"] else " and ".join(done) or "not exact"
    plural = "s" if header["streams"] != 1 else ""
    echo(f"{out}: {header['streams']} stream{plural}, {len(sealed)} bytes, {changes}")


def refuse_folder(out: Path) -> None:
    """Raise `FailedError` if no file can be written there, before any work is done for it."""
    if out.is_dir() or not out.parent.is_dir():
        raise FailedError(f"{out}: {'is a folder' if out.is_dir() else 'its folder does not exist'}", BAD_USAGE)


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


def _recordings(names: Sequence[str], data: str | None, config: str | None) -> "list[Recording]":
    """Load what the names mean. Refuse a tape that is named twice: its streams would answer twice."""
    from wiretape.proxy.cli.tapes import paths_of

    from ..sealed.files import load

    seen: dict[str, str] = {}
    for name in names:
        for path in paths_of(name, data, config):
            if (real := os.path.realpath(path)) in seen:
                twice = f"{name} is the same tape as {seen[real]}" if seen[real] != name else f"{name} is named twice"
                raise FailedError(twice, BAD_USAGE)
            seen[real] = name
    return [load(Path(real), verify=False) for real in seen]  # sealing again updates an edited tape


def one_path(name: str, data: str | None, config: str | None, *, folders: bool = False) -> Path:
    """Return the one tape that a name means."""
    from wiretape.proxy.cli.tapes import paths_of

    found = paths_of(name, data, config, folders=folders)
    if len(found) > 1:
        raise FailedError(f"{name} means {len(found)} tapes: make them one with `wiretape seal` first", BAD_USAGE)
    return found[0]


def _sealed(recordings: "list[Recording]", rules: "Rules") -> bytes:
    """Seal the streams in order of time. Equal times are ordered by content, never by file name."""
    from wiretape.events.tape.record import encode

    from ..seal import in_order

    if len(recordings) > 1:
        recordings.sort(key=lambda recording: [list(map(encode, records)) for records in recording.streams])
    streams = [records for recording in recordings for records in recording.streams]
    streams = in_order(streams) if len(recordings) > 1 else streams
    return seal_streams(streams, rules, headers=[recording.header for recording in recordings])


def seal_streams(
    streams: "Sequence[Sequence[Record]]", rules: "Rules", *, headers: Sequence[Mapping[str, object]] = ()
) -> bytes:
    """Seal these streams, and report bodies that no rule can read on stderr."""
    from ..redaction.plain_text import unreadable
    from ..seal import seal

    sealed = seal(streams, rules, headers=headers)
    for one in unreadable(streams):
        kept = "its bytes are kept" if rules.exact else "only its size and hash are kept"
        echo(f"stream {one.stream + 1}: {one}: {kept}", err=True)
    return sealed


@app.command("check")
def _check(
    tapes: TapeNames,
    *,
    max_bytes: Annotated[int, typer.Option(metavar="N", min=1, help="Report larger files.")] = 1_000_000,
    max_age: Annotated[int | None, typer.Option(metavar="DAYS", min=1, help="Report older recordings.")] = None,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Check sealed tapes before you commit them.

    Looks for secrets, size, long lines, unknown versions, wrong fold lines, live tapes and age. Prints one line per
    finding; the exit code is 1 if a finding is wrong.
    """
    with one_line_errors():
        from wiretape.proxy.cli.tapes import paths_of

        from ..check import check_files

        paths = [path for name in tapes for path in paths_of(name, data, config, folders=True)]
        found = check_files(paths, bytes_max=max_bytes, age_days_max=max_age)
    if json_:
        print_json([each._asdict() | {"file": str(each.file)} for each in found])
    else:
        for each in found:
            echo(str(each))
    if any(each.wrong for each in found):
        raise typer.Exit(FOUND_WRONG)


# -- other tools ------------------------------------------------------------------------------------------------------


@app.command("import")
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
        from ..sealed.files import contents, write_whole

        try:
            name, outcome = read(contents(file), format_)
        except TapeError as error:
            raise TapeError(f"{file}: {error}") from error
        # Another tool's recording counts as exact only if the user says so.
        headers = [outcome.header, {} if exact else {"exact": False}]
        write_whole(out, seal(outcome.streams, EXACT if exact else None, headers=headers))
    endings = [str(records[-1].keys.get("ending")) for records in outcome.streams]
    shown = {"format": name, "tape": str(out), "endings": endings}
    _print_losses(
        shown, f"{out}: {len(endings)} from {name} ({', '.join(dict.fromkeys(endings))})", outcome.losses, json_
    )


@app.command("export")
def _export(
    tape: TapeName,
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The file to write.")],
    format_: Annotated[str, typer.Option("--format", metavar="sse|har|html|otlp", help="The format to write.")],
    stream: Annotated[int | None, typer.Option(min=1, help="Only this stream, counted from 1.")] = None,
    side: Annotated[
        str, typer.Option("--as", metavar="upstream|client", help="The upstream's bytes or the client's (sse only).")
    ] = "upstream",
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Convert a tape to another tool's recording.

    Prints one line for everything that its format cannot hold.
    """
    if format_ not in ("sse", "har", "html", "otlp") or side not in ("upstream", "client"):
        raise FailedError("--format must be sse, har, html or otlp, and --as must be upstream or client", BAD_USAGE)
    if format_ != "sse" and side == "client":
        raise FailedError("--as client works with --format sse only", BAD_USAGE)
    refuse_folder(out)
    with one_line_errors():
        from wiretape.events.core.errors import TapeError

        from ..formats.har import to_har
        from ..formats.html import to_html
        from ..formats.otlp import to_otlp
        from ..formats.table import EXPORTS, to_sse
        from ..sealed.files import load, write_whole
        from .reading import streams_named

        path = one_path(tape, data, config)
        damage: list[Damage] = []
        if format_ in ("sse", "har"):  # recordings, which a damaged tape is not
            header, streams = load(path)
        else:
            found = [each for _, each in streams_named([str(path)], data, config)]
            header, streams, damage = {}, [each.records for each in found], [*chain(*(each.damage for each in found))]
        if stream is not None:
            if stream > len(streams):
                raise TapeError(f"{tape} has only {len(streams)} streams")
            streams = [streams[stream - 1]]
        if format_ in ("sse", "html") and len(streams) > 1:
            raise FailedError(f"{tape} has {len(streams)} streams: choose one with --stream", BAD_USAGE)
        if format_ == "har":
            made, losses = to_har(streams, header)
        elif format_ == "otlp":
            made, losses = to_otlp(streams)
        elif format_ == "html":
            made, losses = to_html(path.name, streams[0], damage)
        else:
            made, losses = to_sse(streams[0], client=side == "client")
        losses.update({code: len(streams) for code in EXPORTS[format_].always})
        write_whole(out, made)
        for at, reason in damage:
            echo(f"wiretape: {path}: byte {at}: {reason}", err=True)
    _print_losses({"format": format_, "file": str(out), "bytes": len(made)}, f"{out}: {len(made)} bytes", losses, json_)


def _print_losses(shown: Mapping[str, object], line: str, losses: "Counter[str]", as_json: bool) -> None:
    """Print the result of a conversion, and everything that is lost."""
    from ..formats.exchange import LOSSES

    if as_json:
        lost = [{"code": code, "count": count, "text": LOSSES[code]} for code, count in sorted(losses.items())]
        print_json({**shown, "lost": lost})
        return
    echo(line)
    for code, count in sorted(losses.items()):
        echo(f"lost: {LOSSES[code]}" + (f" ({count} times)" if count > 1 else ""))
