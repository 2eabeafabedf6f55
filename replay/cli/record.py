"""`wiretape record`: run a command through a proxy and seal its LLM traffic."""

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wiretape.proxy.cli.common import (
    BAD_USAGE,
    FOUND_WRONG,
    ConfigFile,
    FailedError,
    echo,
    loaded_from,
    one_line_errors,
)

from .seal import DetectorName, load_detector, seal_streams

if TYPE_CHECKING:
    from wiretape.proxy.config.load import Loaded
    from wiretape.proxy.config.model import Config

    from ..seal import Rules

__all__ = ["app"]

app = typer.Typer()

#: The name of a run's folder, so that its tapes are found if it was killed.
_PREFIX: Final = "wiretape-record-"
_SETTINGS: Final = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


@app.command("record", context_settings=_SETTINGS, options_metavar="[OPTIONS] -- COMMAND...")
def _record(
    context: typer.Context,
    *,
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="The provider's base URL. Default: as configured.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="The sealed tape or its folder. Default: named by command and time."
        ),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Keep every byte: no redaction, no renaming.")] = False,
    detector: DetectorName = None,
    port: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="A fixed port, for clients that read a file. Default: a free one."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="strict|transparent", help="What the command receives.  [default: transparent]"),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Also keep the live tapes in this folder.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Run a command and record its LLM traffic.

    Starts a proxy on a free port, sets OPENAI_BASE_URL, ANTHROPIC_BASE_URL and similar variables for the command, and
    seals its streams in order when it ends. The exit code is the command's own, or 1 if nothing was recorded. Takes
    the options of `serve`, in the form --idle-s=60.
    """
    settings, command = _split(context.args)
    if not command:
        raise FailedError("no command: wiretape record [OPTIONS] -- COMMAND...", BAD_USAGE)
    if exact and detector:
        raise FailedError("--exact and --detector exclude each other", BAD_USAGE)
    detect = load_detector(detector)
    context.args = settings
    loaded = loaded_from(
        config,
        context,
        upstream=upstream,
        profile=profile,
        host="127.0.0.1",
        port=port or "0",
        data=data or tempfile.gettempdir(),
    )
    with one_line_errors():
        from ..redaction.user_rules import Redaction
        from ..seal import Rules

        rules = Rules(exact=exact, redaction=Redaction(detector=detect))
        code = _recorded(loaded, command, out, Path(data) if data else None, rules)
    if code:
        raise typer.Exit(code)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split arguments into settings for the proxy and the command."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        if "=" not in arguments[at]:
            raise FailedError(
                f"{arguments[at]} is not an option of record; write settings as {arguments[at]}=VALUE", BAD_USAGE
            )
        at += 1
    command = list(arguments[at:])
    return list(arguments[:at]), command[1:] if command[:1] == ["--"] else command


def _recorded(loaded: "Loaded", command: Sequence[str], out: Path | None, data: Path | None, rules: "Rules") -> int:
    """Record, seal, and return the exit code. The run's folder stays if its tapes could not be sealed."""
    from wiretape.proxy.cli.tapes import tapes_of

    from ..sealed.files import write_whole
    from .recording import recorded, to_record

    folder = data or Path(tempfile.mkdtemp(prefix=_PREFIX))
    config = to_record(loaded.config, folder, loaded.origins)
    before = frozenset(tapes_of(folder))
    if out is None or out.is_dir():
        name = f"{Path(command[0]).stem or 'command'}-{time.strftime('%Y%m%d-%H%M%S')}.tape"
        out = Path(name) if out is None else out / name
    try:
        status, refused = _run(config, command)
        streams, damaged = recorded(folder, before)
        if streams:
            sealed = seal_streams(streams, rules)
            out.parent.mkdir(parents=True, exist_ok=True)
            write_whole(out, sealed)
    except BaseException:
        if tapes_of(folder).keys() - before:
            _say(f"not sealed; the live tapes stay in {folder}")
        elif data is None:
            shutil.rmtree(folder)
        raise
    for reason in damaged:
        _say(f"skipped and kept: {reason}")
    if data is None and not damaged:
        shutil.rmtree(folder)
    each = ", ".join(f"{count} with status {status}" for status, count in sorted(refused.items()))
    reasons = f"requests that the proxy refused: {each}" if each else ""
    if not streams:
        why = f"{command[0]} sent no request to the proxy (see docs/guides/record.md, Clients)"
        _say(f"nothing was recorded: {reasons or why}")
        return status or FOUND_WRONG
    endings = Counter(str(records[-1].keys.get("ending", "live")) for records in streams)
    counts = ", ".join(f"{count} {ending}" for ending, count in endings.items())
    plural = "s" if len(streams) > 1 else ""
    _say(f"{out}: {len(streams)} stream{plural} ({counts})" + (f"; {reasons}" if reasons else ""))
    return status or (FOUND_WRONG if damaged else 0)


def _run(config: "Config", command: Sequence[str]) -> tuple[int, Mapping[str, int]]:
    """Run the command; return its exit code, and the requests that the proxy refused by status."""
    import trio

    from wiretape.proxy.log import Log, stderr_fd

    from .recording import run

    def on_ready(url: str) -> None:
        _say(f"{url} records into {config.data} while {command[0]} runs")

    with closing(Log(stderr_fd(), level="error", secrets=config.secrets)) as log:
        return trio.run(partial(run, config, command, log=log, environ=os.environ, on_ready=on_ready))


def _say(text: str) -> None:
    echo(f"wiretape: {text}", err=True)
