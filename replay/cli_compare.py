"""`wiretape diff`, `verify` and `refold`: two tapes, a tape and its upstream, a tape and today's folds"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wiretape.proxy.cli_common import BAD_USAGE, AsJson, FailedError, print_json, told

if TYPE_CHECKING:
    from .difference import Difference
    from .pairs import Compared

__all__ = ["add"]


def add(app: typer.Typer) -> None:
    """To the command line."""
    app.command("diff")(_diff)


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
    from .difference import LEVEL_NAMES

    if level not in LEVEL_NAMES:
        raise FailedError(f"--level: one of {', '.join(LEVEL_NAMES)}", BAD_USAGE)
    with told():
        from .pairs import compared

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
