"""`wiretape diff`, `verify` and `refold`: two tapes, a tape and its upstream, a tape and today's folds"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wiretape.proxy.cli.common import BAD_USAGE, FOUND_WRONG, AsJson, FailedError, print_json, told

if TYPE_CHECKING:
    from wiretape.proxy.config.secrets import Secret

    from ..compare.difference import Difference
    from ..compare.pairs import Compared

__all__ = ["add"]


def add(app: typer.Typer) -> None:
    """To the command line."""
    app.command("diff")(_diff)
    app.command("verify")(_verify)
    app.command("refold")(_refold)


def _diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A tape, or a folder of tapes.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    *,
    level: Annotated[str, typer.Option(metavar="fold|shape|bytes|clock", help="What counts.")] = "fold",
    all_: Annotated[bool, typer.Option("--all", help="Every difference, not only the first.")] = False,
    json_: AsJson = False,
) -> None:
    """Compare two recordings.

    Prints the first difference: one that breaks a reader before one that does not. Folders are compared tape by tape,
    by name. Exit code 0 the same, 1 benign differences alone, 2 breaking ones.
    """
    from ..compare.difference import LEVEL_NAMES

    if level not in LEVEL_NAMES:
        raise FailedError(f"--level: one of {', '.join(LEVEL_NAMES)}", BAD_USAGE)
    with told():
        from ..compare.pairs import compared

        found = compared(a, b, level)  # type: ignore[arg-type] # checked above
    code = max((one.verdict for one in found), default=0)
    if json_:
        print_json({"level": level, "verdict": code, "tapes": [_json(one, whole=all_) for one in found]})
    else:
        _print(found, whole=all_)
    raise typer.Exit(code)


def _json(one: "Compared", *, whole: bool) -> dict[str, Any]:
    shown = one.differences if whole else one.first
    said = [difference.to_json() for difference in shown]
    return {"name": one.name, "verdict": one.verdict, "count": len(one.differences), "differences": said}


def _print(found: "list[Compared]", *, whole: bool) -> None:
    for one in found:
        shown: list[Difference] = list(one.differences if whole else one.first)
        name = f"{one.name}: " if len(found) > 1 else ""
        for difference in shown:
            typer.echo(name + one.line(difference))
        if len(one.differences) > len(shown):
            typer.echo(f"{name}and {len(one.differences) - len(shown)} more (--all)")
    if not any(one.differences for one in found):
        typer.echo(f"the same{f', {len(found)} tapes' if len(found) > 1 else ''}")


def _verify(
    tape: Annotated[Path, typer.Argument(metavar="TAPE", help="A recording.")],
    *,
    live: Annotated[str, typer.Option("--live", metavar="URL", help="Base URL of the upstream that is asked.")],
    key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable that holds its key.", show_default=False)
    ] = None,
    due: Annotated[bool, typer.Option("--due", help="Only if it is older than the age limit in its header.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Every difference, not only the first.")] = False,
    json_: AsJson = False,
) -> None:
    """Ask a live upstream again and compare shapes.

    Sends the requests of the tape, one after the other, and compares what comes back with the recording: JSON paths
    and types, the order of kinds, status and ending, never values. Exit code 0 the same, 1 something new, 2 something
    that breaks its readers.
    """
    from wiretape.proxy.config.url import UrlError, checked

    try:
        checked(live, allow_plain_http=False)
    except UrlError as error:
        raise FailedError(f"--live {error}", BAD_USAGE) from error
    with told():
        from ..compare.pairs import Compared
        from ..compare.verify import age_of, run_verified
        from ..sealed.load import load

        recording = load(tape)
        age = age_of(recording.header, datetime.now(UTC).date())
        asked = not due or age.due
        differences = run_verified(recording, live, _secret(key_env)) if asked else []
    one = Compared(tape.name, differences)
    if json_:
        print_json({**_json(one, whole=all_), "asked": asked, "age_days": age.days, "age_limit_days": age.limit_days})
    elif not asked:
        typer.echo(f"not due: recorded {age.days} days ago, and its limit is {age.limit_days}")
    else:
        _print([one], whole=all_)
        if age.due and age.limit_days is not None:
            typer.echo(f"recorded {age.days} days ago, and its limit is {age.limit_days}: record it again")
    raise typer.Exit(one.verdict)


def _secret(name: str | None) -> "Secret | None":
    from wiretape.proxy.config.secrets import Secret

    if name is None:
        return None
    if not os.environ.get(name):
        raise FailedError(f"--key-env: there is no variable {name}", BAD_USAGE)
    return Secret(os.environ[name])


def _refold(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR|FILE...", help="Tapes, and folders of tapes.")],
    *,
    write: Annotated[bool, typer.Option("--write", help="Seal those that changed anew.")] = False,
    json_: AsJson = False,
) -> None:
    """Run today's repairs and folds over old tapes.

    Compares what comes of them with what they say of themselves: a sealed tape its fold lines, a live one the ending
    and flags of its end, and what the catalogue of its data folder says. Exit code 1 where something changed or could
    not be read.
    """
    with told():
        from ..compare.recheck import refold_paths

        refolding = refold_paths(paths, write=write)
    if json_:
        files = [
            {**one._asdict(), "path": str(one.path), "differences": [each.to_json() for each in one.differences]}
            for one in refolding.files
            if one.differences or one.error
        ]
        print_json({"summary": refolding.summary, "seconds": refolding.seconds, "files": files})
    else:
        for line in (line for one in refolding.files for line in one.lines()):
            typer.echo(line)
        typer.echo(refolding.summary)
    if refolding.changed or refolding.unreadable:
        raise typer.Exit(FOUND_WRONG)
