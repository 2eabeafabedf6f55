"""The command line: every verb, and the one place that joins proxy and replay; what a verb needs, it imports itself

Exit codes: 0 all is well; 1 something is wrong with what was asked about, or it is not there; 2 the command line or the
configuration cannot be understood; 3 it cannot be started or read; 130 interrupted. What a verb finds goes to stdout,
logs and errors to stderr, an error in one line.
"""

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from .common import (
    BAD_USAGE,
    CANNOT_START,
    FOUND_WRONG,
    INTERRUPTED,
    AsJson,
    ConfigFile,
    DataFolder,
    FailedError,
    line_of,
    loaded_from,
    open_streams,
    print_json,
    root_of,
    settle,
    told,
)

if TYPE_CHECKING:
    from wiretape.events.tape.record import Record
    from wiretape.events.tape.tape import Damage

__all__ = ["app", "main"]

app = typer.Typer(
    name="wiretape",
    help="The flight recorder in front of an LLM provider.",
    # Plain help: the same on every terminal and in docs/cli.md, and 0.1 s instead of 0.2 s.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
_config = typer.Typer(help="The configuration as it is in force.", rich_markup_mode=None)
app.add_typer(_config, name="config")


#: What is no option of the command itself may be any setting.
_ANY_SETTING: Final = {"ignore_unknown_options": True, "allow_extra_args": True}

_Upstream = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The provider's base URL, as in https://api.example.com/v1.", show_default=False),
]
_Stream = Annotated[str, typer.Argument(metavar="ID", help="A stream, or the beginning of its id.", show_default=False)]


def main(arguments: list[str] | None = None) -> NoReturn:
    """What `wiretape` runs. Always ends in SystemExit."""
    open_streams()
    if not __debug__:  # what cannot happen would no longer be noticed
        _fail("python -O takes out the assertions that guard the tapes: start without it", CANNOT_START)
    try:
        given = sys.argv[1:] if arguments is None else arguments
        done = _asked(given or ["--help"])
        sys.stdout.flush()
    except typer.TyperException as error:
        _fail(error.format_message(), error.exit_code)
    except BrokenPipeError:  # whoever read us has seen enough
        settle()
        sys.exit(0)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except FailedError as error:
        _fail(str(error), error.code)
    except OSError as error:
        _fail(f"{error.filename or 'the system'}: {error.strerror or error}", CANNOT_START)
    sys.exit(done if isinstance(done, int) else 0)


def _asked(arguments: list[str]) -> object:
    try:
        return app(arguments, standalone_mode=False, prog_name="wiretape")
    except SystemExit as ended:  # typer does that for one reason, a broken pipe, and calls it a failure
        raise BrokenPipeError from ended


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"wiretape: {' '.join(message.split())}", err=True)
    settle()
    sys.exit(code)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"wiretape {version('wiretape')}")
        except PackageNotFoundError:
            typer.echo("wiretape, from its sources")
        raise typer.Exit


@app.callback()
def _top(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version


# -- serving ----------------------------------------------------------------------------------------------------------


@app.command("serve", context_settings=_ANY_SETTING)
def _serve(
    context: typer.Context,
    *,
    upstream: _Upstream = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Where to listen.  [default: 127.0.0.1]", show_default=False)
    ] = None,
    port: Annotated[
        str | None, typer.Option(metavar="PORT", help="0 takes a free one.  [default: 8787]", show_default=False)
    ] = None,
    data: DataFolder = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="strict|transparent", help="What clients get.  [default: strict]", show_default=False),
    ] = None,
    on_partial: Annotated[
        str | None,
        typer.Option(
            metavar="error|warn|both", help="How they hear of a cut stream.  [default: error]", show_default=False
        ),
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Serve an upstream and tape every stream.

    Prints the base URL, an export line and a curl line; logs go to stderr. Every setting of docs/configuration.md is an
    option here: --idle-s 60 is idle_s = 60.
    """
    loaded = loaded_from(
        config,
        context,
        upstream=upstream,
        host=host,
        port=port,
        data=data,
        profile=profile,
        on_partial=on_partial,
    )
    with told():
        from .serve import serve_until_told

        serve_until_told(loaded.config)


@app.command("demo")
def _demo(*, data: DataFolder = None, json_: AsJson = False) -> None:
    """Show it without any provider.

    Three streams: a text, a tool call, and one that dies in the middle of a tool call. A scripted upstream and the
    real proxy run inside; nothing leaves this machine. The tapes stay in DIR, else in a new temporary folder.
    """
    with told():
        from wiretape.replay.cli.demo import run_demo

        as_due = run_demo(Path(data) if data else None, as_json=json_)
    if not as_due:
        raise typer.Exit(FOUND_WRONG)


# -- reading ----------------------------------------------------------------------------------------------------------


@app.command("ls")
def _list(
    *,
    model: Annotated[str | None, typer.Option(help="Only this model.", show_default=False)] = None,
    route: Annotated[str | None, typer.Option(help="Only this route.", show_default=False)] = None,
    ending: Annotated[str | None, typer.Option(help="Only this ending.", show_default=False)] = None,
    live: Annotated[bool, typer.Option("--live", help="Only those that have not ended.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000, help="At most so many.")] = 20,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """List streams, the latest first.

    Also while a server runs.
    """
    from typing import get_args

    from wiretape.events.core.model import Ending

    if ending is not None and (live or ending not in get_args(Ending)):
        raise FailedError(
            "--ending and --live exclude each other" if live else f"--ending: one of {', '.join(get_args(Ending))}",
            BAD_USAGE,
        )
    root = root_of(data, config)
    with told():
        from ..store.store import Filter
        from .tapes import streams

        rows = streams(root, Filter(model=model, route=route, ending="" if live else ending), limit)
        from .show import console, row_json, table_of

        if json_:
            print_json([row_json(row) for row in rows])
        elif rows:
            console().print(table_of(rows))
        else:
            typer.echo(f"no such streams in {root}", err=True)


@app.command("show")
def _show(
    stream: _Stream,
    *,
    events: Annotated[bool, typer.Option("--events", help="Every event of it.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The bytes that the client got.")] = False,
    tape: Annotated[bool, typer.Option("--tape", help="The tape itself.")] = False,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Show one stream.

    Its ending, warnings, attempts, tools, text, timing, usage and repairs.
    """
    if events + raw + tape > 1 or (json_ and (raw or tape)):
        raise FailedError(
            "--events, --raw and --tape exclude each other, and --raw and --tape take no --json", BAD_USAGE
        )
    root = root_of(data, config)
    with told():
        from .tapes import find, read_tape

        path = find(root, stream)
        if tape:
            sys.stdout.buffer.write(path.read_bytes())
            return
        records, damage = read_tape(path)
        for at, reason in damage:
            typer.echo(f"wiretape: {path}: byte {at}: {reason}", err=True)
        if raw:
            from wiretape.events.emission.emit import emit

            sys.stdout.buffer.write(emit(records))
            return
        from .show import event_json, event_line, events_of

        if events:
            for t, event in events_of(records):
                typer.echo(line_of(event_json(t, event)) if json_ else event_line(t, event))
        else:
            _summary(root, path, records, damage, as_json=json_)
    if damage:
        raise typer.Exit(FOUND_WRONG)


def _summary(root: Path, path: Path, records: "list[Record]", damage: "list[Damage]", *, as_json: bool) -> None:
    from wiretape.events.emission.summarise import Summariser

    from ..api.summary import summary_json
    from ..store.catalogue import peek_fates
    from .show import console, summary_view
    from .tapes import without_end

    fates = peek_fates(root, path.stem, time.time())
    said = summary_json(path.stem, Summariser().feed(*records), whole=True, damage=damage, fates=fates)
    if as_json:
        print_json(said)
    else:
        console().print(summary_view(said, without_end(path)))


@app.command("follow")
def _follow(stream: _Stream, *, data: DataFolder = None, config: ConfigFile = None, json_: AsJson = False) -> None:
    """Print a stream while it comes.

    Ends with it. With --json its events, one a line.
    """
    root = root_of(data, config)
    with told():
        from .show import TextView, event_json, events_of
        from .tapes import TapeFollower, find, holder

        with closing(TapeFollower(find(root, stream))) as tape:
            view = TextView()
            records = (record for batch in tape.follow(lambda: holder(root) is not None) for record in batch)
            for t, event in events_of(records):
                said = line_of(event_json(t, event)) + "\n" if json_ else view.add(event)
                if said:
                    typer.echo(said, nl=False)
        for at, reason in tape.damage:
            typer.echo(f"wiretape: {stream}: byte {at}: {reason}", err=True)
        if not tape.ended:
            raise FailedError(tape.missing_end, FOUND_WRONG)


# -- keeping ----------------------------------------------------------------------------------------------------------


@app.command("reindex")
def _reindex(*, data: DataFolder = None, config: ConfigFile = None, json_: AsJson = False) -> None:
    """Build the catalogue anew from the tapes.

    Not while a server runs.
    """
    root = root_of(data, config)
    with told():
        from ..store.catalogue import reindex as build
        from ..store.folder import Folder

        folder = Folder(root)
        try:
            count = build(folder)
        finally:
            folder.close()
    typer.echo(
        line_of({"data": str(root), "streams": count}) if json_ else f"{count} streams in {root / 'catalogue.db'}"
    )


@app.command("doctor", context_settings=_ANY_SETTING)
def _doctor(
    context: typer.Context,
    *,
    upstream: _Upstream = None,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Look for what is wrong.

    Configuration, data folder, limits of this machine, and each upstream. Exit code 1 where something is
    wrong. Takes the options of `serve`.
    """
    loaded = loaded_from(config, context, upstream=upstream, data=data)
    with told():
        from .doctor import examine, lines

        found = examine(loaded)
    if json_:
        print_json([check._asdict() for check in found])
    else:
        typer.echo("\n".join(lines(found)))
    if any(check.state == "wrong" for check in found):
        raise typer.Exit(FOUND_WRONG)


@_config.command("show", context_settings=_ANY_SETTING)
def _config_show(
    context: typer.Context, *, data: DataFolder = None, config: ConfigFile = None, json_: AsJson = False
) -> None:
    """Each setting and where it came from.

    Secrets are masked. Takes the options of `serve`.
    """
    loaded = loaded_from(config, context, serving=False, data=data)
    from ..config.show import rows

    if json_:
        print_json([row._asdict() for row in rows(loaded)])
        return
    from .show import console, settings_table

    console().print(settings_table(rows(loaded)))


# -- recordings -------------------------------------------------------------------------------------------------------


def _add_recordings() -> None:
    """The verbs of replay/: each file adds its own, and imports what they need when they run."""
    from wiretape.replay.cli import compare as cli_compare
    from wiretape.replay.cli import formats as cli_formats
    from wiretape.replay.cli import play as cli_play
    from wiretape.replay.cli import record as cli_record
    from wiretape.replay.cli import seal as cli_seal

    for verbs in (cli_record, cli_seal, cli_play, cli_compare, cli_formats):
        verbs.add(app)


_add_recordings()

if __name__ == "__main__":
    main()
