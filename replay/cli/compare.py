"""`wiretape diff`, `verify` and `recheck`."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    one_line_errors,
    print_json,
)

from .seal import one_path

if TYPE_CHECKING:
    from wiretape.proxy.config.model import Secret

    from ..compare.compare import Compared, Difference

__all__ = ["app"]

app = typer.Typer()

_All = Annotated[bool, typer.Option("--all", help="Show every difference, not only the first.")]


@app.command("diff")
def _diff(
    a: TapeName,
    b: TapeName,
    *,
    level: Annotated[str, typer.Option(metavar="content|bytes", help="What to compare.")] = "content",
    all_: _All = False,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Compare two recordings.

    Prints the first difference, preferring one that would break a client. Folders are compared tape by tape, by name.
    Exit code 0: the same. 1: only benign differences. 2: at least one breaking difference.
    """
    from ..compare.compare import LEVELS, compare_paths

    if (known := LEVELS.get(level)) is None:
        raise FailedError("--level must be one of content, bytes", BAD_USAGE)
    with one_line_errors():
        mine, other = (one_path(name, data, config, folders=True) for name in (a, b))
        found = compare_paths(mine, other, known)
    code = max((one.verdict for one in found), default=0)
    if json_:
        print_json({"level": known, "verdict": code, "tapes": [_json(one, whole=all_) for one in found]})
    else:
        _print(found, whole=all_)
    raise typer.Exit(code)


def _json(one: "Compared", *, whole: bool) -> dict[str, Any]:
    shown = [difference.to_json() for difference in (one.differences if whole else one.first)]
    return {"name": one.name, "verdict": one.verdict, "count": len(one.differences), "differences": shown}


def _print(found: "list[Compared]", *, whole: bool) -> None:
    for one in found:
        shown: list[Difference] = list(one.differences if whole else one.first)
        name = f"{one.name}: " if len(found) > 1 else ""
        for difference in shown:
            echo(name + one.line(difference))
        if len(one.differences) > len(shown):
            echo(f"{name}and {len(one.differences) - len(shown)} more (--all)")
    if not any(one.differences for one in found):
        echo(f"the same{f', {len(found)} tapes' if len(found) > 1 else ''}")


@app.command("verify")
def _verify(
    tape: TapeName,
    *,
    live: Annotated[str, typer.Option("--live", metavar="URL", help="Base URL of the upstream.")],
    key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the upstream's key.")
    ] = None,
    due: Annotated[bool, typer.Option("--due", help="Only if the tape is older than the limit in its header.")] = False,
    all_: _All = False,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Compare a tape with its live upstream.

    Sends the requests of the tape and compares shapes: JSON paths and types, the order of kinds, status and ending,
    never values. Exit code 0: the same. 1: only new paths. 2: at least one difference that would break a client.
    """
    from wiretape.proxy.config.urls import UrlError, checked

    try:
        checked(live, allow_plain_http=False)
    except UrlError as error:
        raise FailedError(f"--live {error}", BAD_USAGE) from error
    with one_line_errors():
        import trio

        from ..compare.compare import Compared
        from ..compare.verify import verify
        from ..sealed.files import age_of, load

        recording = load(one_path(tape, data, config))
        age = age_of(recording.header, datetime.now(UTC).date())
        asked = not due or age.due
        differences = trio.run(verify, recording, live, _secret(key_env)) if asked else []
    one = Compared(Path(tape).name, differences)
    if json_:
        print_json({**_json(one, whole=all_), "asked": asked, "age_days": age.days, "age_limit_days": age.limit_days})
    elif not asked:
        echo(f"not due: recorded {age.days} days ago, the limit is {age.limit_days}")
    else:
        _print([one], whole=all_)
        if age.due and age.limit_days is not None:
            echo(f"recorded {age.days} days ago, the limit is {age.limit_days}: record it again")
    raise typer.Exit(one.verdict)


def _secret(name: str | None) -> "Secret | None":
    from wiretape.proxy.config.model import Secret

    if name is None:
        return None
    if not os.environ.get(name):
        raise FailedError(f"--key-env: environment variable {name} is not set", BAD_USAGE)
    return Secret(os.environ[name])


@app.command("recheck")
@app.command("refold", hidden=True)
def _recheck(
    tapes: TapeNames,
    *,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Run today's repairs over old tapes.

    Compares the results with the summary of a sealed tape, or with the ending and flags of a live one.
    Exit code 1 if anything changed or could not be read.
    """
    with one_line_errors():
        from wiretape.proxy.cli.tapes import paths_of

        from ..compare.recheck import recheck_paths

        checked = recheck_paths([path for name in tapes for path in paths_of(name, data, config, folders=True)])
    changed, unreadable = (sum(bool(getattr(one, name)) for one in checked) for name in ("differences", "error"))
    streams = sum(one.streams for one in checked)
    summary = f"{len(checked)} tapes, {streams} streams, {changed} changed, {unreadable} unreadable"
    if json_:
        files = [
            {**one._asdict(), "path": str(one.path), "differences": [each.to_json() for each in one.differences]}
            for one in checked
            if one.differences or one.error
        ]
        print_json({"summary": summary, "files": files})
    else:
        for line in (line for one in checked for line in one.lines()):
            echo(line)
        echo(summary)
    if changed or unreadable:
        raise typer.Exit(FOUND_WRONG)
