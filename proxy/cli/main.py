"""The command line: every verb of the proxy, and the one place that joins those of the proxy and of replay.

Exit codes: 0 for success; 1 if the command found a problem or something does not exist; 2 for a bad command line or
configuration; 3 if something cannot be started or read; 130 if interrupted. Results go to stdout, logs and errors to
stderr, each error in one line. Each verb imports what it needs when it runs.
"""

import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from wiretape.replay.cli import compare, play, record, seal

from .common import (
    BAD_USAGE,
    CANNOT_START,
    FOUND_WRONG,
    INTERRUPTED,
    AsJson,
    ConfigFile,
    DataFolder,
    FailedError,
    announce,
    echo,
    line_of,
    loaded_from,
    one_line_errors,
    open_streams,
    print_json,
    root_of,
    settle,
)

if TYPE_CHECKING:
    from ..config.model import Config
    from ..store.catalogue_row import StreamRow

__all__ = ["announcement", "app", "main", "warn_of_missing_keys"]

app = typer.Typer(
    name="wiretape",
    help="The flight recorder in front of an LLM provider.",
    # Plain help is the same on every terminal and in docs/cli.md, and takes 0.1 s instead of 0.2 s.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
_config = typer.Typer(help="Show the configuration.", rich_markup_mode=None)
app.add_typer(_config, name="config")

#: Options that a command does not define may be settings.
_ANY_SETTING: Final = {"ignore_unknown_options": True, "allow_extra_args": True}
_STREAM: Final = typer.Argument(metavar="ID", help="The id of a stream or a run, or its beginning.", show_default=False)
_UPSTREAM: Final = typer.Option(
    metavar="URL", help="The provider's base URL, such as https://api.example.com/v1.", show_default=False
)
_HOST: Final = typer.Option(metavar="HOST", help="Where to listen.  [default: 127.0.0.1]", show_default=False)
_PORT: Final = typer.Option(metavar="PORT", help="0 picks a free port.  [default: 8787]", show_default=False)
_PROFILE: Final = typer.Option(
    metavar="strict|transparent", help="What clients receive.  [default: strict]", show_default=False
)
_ON_PARTIAL: Final = typer.Option(
    metavar="error|warn|both", help="How clients learn of a cut stream.  [default: error]", show_default=False
)
_SPEAKS: Final = typer.Option(
    metavar="auto|chat|responses|messages|same",
    help="What the upstream speaks; requests of clients that speak another dialect are crossed.  [default: auto]",
    show_default=False,
)
_CURL: Final = """\
curl -N {base}/chat/completions -H 'Content-Type: application/json' {key}\
-d '{{"model":"gpt-4o-mini","stream":true,"messages":[{{"role":"user","content":"Say hello"}}]}}'"""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run `wiretape` and exit."""
    try:
        open_streams()
        if not __debug__:
            reason = "python -O removes the assertions that protect the tapes; start without it"
            raise FailedError(reason, CANNOT_START)  # noqa: TRY301 - one way out for all
        given = sys.argv[1:] if arguments is None else arguments
        with one_line_errors():
            code = app(given or ["--help"], standalone_mode=False, prog_name="wiretape")
        sys.stdout.flush()
    except typer.TyperException as error:
        _fail(error.format_message(), error.exit_code)
    except (BrokenPipeError, SystemExit):  # the reader has closed the pipe, which typer turns into SystemExit
        settle()
        sys.exit(0)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except FailedError as error:
        _fail(str(error), error.code)
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        _fail("no thread could be started", CANNOT_START)
    except OSError as error:
        _fail(f"{error.filename or 'the system'}: {error.strerror or error}", CANNOT_START)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    echo(f"wiretape: {' '.join(message.split())}", err=True)
    settle()
    sys.exit(code)


def _version(given: bool) -> None:
    if given:
        from importlib.metadata import version

        echo(f"wiretape {version('wiretape')}")
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
    upstream: Annotated[str | None, _UPSTREAM] = None,
    host: Annotated[str | None, _HOST] = None,
    port: Annotated[str | None, _PORT] = None,
    data: DataFolder = None,
    profile: Annotated[str | None, _PROFILE] = None,
    on_partial: Annotated[str | None, _ON_PARTIAL] = None,
    speaks: Annotated[str | None, _SPEAKS] = None,
    config: ConfigFile = None,
) -> None:
    """Serve an upstream and record every stream.

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
        speaks=speaks,
    )
    import trio

    from ..log import Log, stderr_fd
    from ..serve import run

    warn_of_missing_keys(loaded.config)

    def on_ready(url: str) -> None:
        if not announce(announcement(url, loaded.config)):
            log.warn("not_announced", url=url, why="stdout has no reader")

    with closing(Log(stderr_fd(), secrets=loaded.config.secrets)) as log:
        trio.run(partial(run, loaded.config, log=log, on_ready=on_ready))


def announcement(url: str, config: "Config") -> str:
    """Return lines to copy: the base URL, the variables that most clients read, and a first request."""
    name, route = next(iter(config.routes.items()))  # the default one, if there is one
    base, target = f"{url}/{name}/v1" if name else f"{url}/v1", route.targets[0]
    own, header = "", "Authorization: Bearer"
    if names := [key.name for key in config.keys]:
        value = '"$WIRETAPE_KEY"' if "default" in names else f"...  # the Wiretape key of {' or '.join(names)}"
        own = f"export OPENAI_API_KEY={value}\n"
    elif target.key_header != "authorization":
        header = f"{target.key_header}:"
    needed = bool(names) or target.key is None  # else Wiretape sends the upstream's own
    key = f'-H "{header} $OPENAI_API_KEY" ' if needed else ""
    return f"{base}\nexport OPENAI_BASE_URL={base}\n{own}{_CURL.format(base=base, key=key)}\n"


def warn_of_missing_keys(config: "Config") -> None:
    """Warn of upstreams that get no key: neither one of their own nor the caller's."""
    targets = [target for route in config.routes.values() for target in route.targets if target.key is None]
    if names := ", ".join(dict.fromkeys(each.name for each in targets if config.keys or not each.caller_key)):
        why = "callers send Wiretape's own, which is" if config.keys else "the caller's is"
        cure = "set key_env next to it (or WIRETAPE_UPSTREAM_KEY_ENV) to the name of the key's variable"
        echo(f"wiretape: no key is sent to {names}: {why} not passed on. If a key is needed, {cure}", err=True)


@app.command("demo")
def _demo(*, data: DataFolder = None) -> None:
    """Try it without a provider.

    Records three streams: a text, a tool call, and one that breaks inside a tool call. A scripted upstream and the real
    proxy run inside this process; nothing leaves this machine. The tapes are kept in DIR, or in a new temporary folder.
    """
    from wiretape.replay.cli.demo import run_demo

    as_due = run_demo(Path(data) if data else None)
    if not as_due:
        raise typer.Exit(FOUND_WRONG)


# -- reading ----------------------------------------------------------------------------------------------------------


@app.command("ls")
def _list(
    *,
    model: Annotated[str | None, typer.Option(help="Only this model.", show_default=False)] = None,
    route: Annotated[str | None, typer.Option(help="Only this route.", show_default=False)] = None,
    ending: Annotated[str | None, typer.Option(help="Only this ending.", show_default=False)] = None,
    live: Annotated[bool, typer.Option("--live", help="Only streams that have not ended.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="List runs instead of streams.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000, help="Maximum number of rows.")] = 20,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """List streams, the latest first.

    Works while a server runs.
    """
    from typing import get_args

    from wiretape.events.core.model import Ending

    if ending is not None and live:
        raise FailedError("--ending and --live exclude each other", BAD_USAGE)
    if ending is not None and ending not in get_args(Ending):
        raise FailedError(f"--ending: must be one of {', '.join(get_args(Ending))}", BAD_USAGE)
    if runs and (live or ending is not None):
        raise FailedError("--runs excludes --ending and --live, which are about one stream", BAD_USAGE)
    root = root_of(data, config)
    from ..store.store import Filter
    from .show import console, row_json, streams, table_of

    rows = streams(root, Filter(model=model, route=route, ending="" if live else ending, runs=runs), limit)
    if runs and rows:
        _print_runs(root, rows, json_=json_)
    elif json_:
        print_json([row_json(row) for row in rows])
    elif rows:
        console().print(table_of(rows))
    else:
        echo(f"no such {'runs' if runs else 'streams'} in {root}", err=True)


def _print_runs(root: Path, rows: "list[StreamRow]", *, json_: bool) -> None:
    from ..runs.api import run_json
    from .runs import read_run, runs_table
    from .show import console

    runs = [(run, bool(wrong)) for _, run, wrong in (read_run(root, row.run or "") for row in rows)]
    if json_:
        print_json([run_json(run) for run, _ in runs])
    else:
        console().print(runs_table(rows, runs))


@app.command("show")
def _show(
    stream: Annotated[str, _STREAM],
    *,
    events: Annotated[bool, typer.Option("--events", help="Print every event.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the bytes emitted for the client.")] = False,
    tape: Annotated[bool, typer.Option("--tape", help="Print the tape.")] = False,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Show one stream, or one run.

    Prints its ending, warnings, attempts, tools, text, timing, usage and repairs; of a run its state, the calls that it
    waits for, its output, usage and streams.
    """
    if events + raw + tape > 1 or (json_ and (raw or tape)):
        raise FailedError("--events, --raw and --tape exclude each other; --raw and --tape exclude --json", BAD_USAGE)
    root = root_of(data, config)
    if stream.startswith("run_"):
        _show_run(root, stream, how="events" if events else "raw" if raw else "tape" if tape else "", json_=json_)
        return
    from wiretape.events.emit import Summariser, emit

    from .show import console, event_json, event_line, events_of, find, read_tape, summary_view

    path = find(root, stream)
    if tape:
        sys.stdout.buffer.write(path.read_bytes())
        return
    records, damage, live = read_tape(path)
    for at, reason in damage:
        echo(f"wiretape: {path}: byte {at}: {reason}", err=True)
    if raw:
        sys.stdout.buffer.write(emit(records))
        return
    if events:
        for t, event in events_of(records):
            echo(line_of(event_json(t, event)) if json_ else event_line(t, event))
    else:
        from ..api.streams import summary_json
        from ..store.catalogue import peek
        from ..store.catalogue_row import NO_FATES

        fates = peek(root, lambda rows: rows.fates(path.stem, time.time())) or NO_FATES
        summarised = Summariser().feed(*records)
        summary = summary_json(path.stem, summarised, live=live, whole=True, damage=damage, fates=fates)
        if json_:
            print_json(summary)
        else:
            console().print(summary_view(summary))
    if damage:
        raise typer.Exit(FOUND_WRONG)


def _show_run(root: Path, prefix: str, *, how: str, json_: bool) -> None:
    from ..runs.api import run_json
    from .runs import event_of, find_run, read_run, run_view, turns_of
    from .show import console

    run_id = find_run(root, prefix)
    if how == "tape":
        for path in turns_of(root, run_id):
            sys.stdout.buffer.write(path.read_bytes())
        return
    frames, run, wrong = read_run(root, run_id)
    if how == "raw":
        sys.stdout.buffer.write(b"".join(frames))
    elif how == "events":
        for frame in frames:
            echo(line_of(event_of(frame)))
    elif json_:
        print_json(run_json(run))
    else:
        console().print(run_view(run))
    _report(wrong)


def _report(wrong: list[str]) -> None:
    """Print what is wrong with tapes, and exit with 1 if anything is."""
    for line in wrong:
        echo(f"wiretape: {line}", err=True)
    if wrong:
        raise typer.Exit(FOUND_WRONG)


@app.command("follow")
def _follow(
    stream: Annotated[str, _STREAM], *, data: DataFolder = None, config: ConfigFile = None, json_: AsJson = False
) -> None:
    """Print a stream or a run as it arrives, until it ends.

    With --json prints its events, one per line. A run that waits for tools has not ended.
    """
    root = root_of(data, config)
    if stream.startswith("run_"):
        from .runs import RunText, event_of, find_run, follow_run

        text, wrong = RunText(), list[str]()
        for each in map(event_of, follow_run(root, find_run(root, stream), wrong)):
            echo(line_of(each) + "\n" if json_ else text.add(each), nl=False)
        _report(wrong)
        return
    from .show import TapeFollower, TextView, event_json, events_of, find

    with closing(TapeFollower(find(root, stream))) as tape:
        view = TextView()
        for t, event in events_of(tape.records()):
            echo(line_of(event_json(t, event)) + "\n" if json_ else view.add(event), nl=False)
    for at, reason in tape.damage:
        echo(f"wiretape: {stream}: byte {at}: {reason}", err=True)
    if not tape.ended:
        raise FailedError(tape.missing_end, FOUND_WRONG)
    if tape.damage:
        raise typer.Exit(FOUND_WRONG)


# -- maintenance ------------------------------------------------------------------------------------------------------


@app.command("reindex")
def _reindex(*, data: DataFolder = None, config: ConfigFile = None, json_: AsJson = False) -> None:
    """Rebuild the catalogue from the tapes.

    Stop the server first.
    """
    root = root_of(data, config)
    from ..store.catalogue import reindex
    from ..store.folder import Folder

    with closing(Folder(root)) as folder:
        count = reindex(folder)
    if json_:
        echo(line_of({"data": str(root), "streams": count}))
    else:
        echo(f"{count} streams in {root / 'catalogue.db'}")


@app.command("doctor", context_settings=_ANY_SETTING)
def _doctor(
    context: typer.Context,
    *,
    upstream: Annotated[str | None, _UPSTREAM] = None,
    data: DataFolder = None,
    config: ConfigFile = None,
    json_: AsJson = False,
) -> None:
    """Check configuration, storage, every tape and upstreams.

    Exits with 1 if it finds a problem. Takes the options of `serve`.
    """
    loaded = loaded_from(config, context, upstream=upstream, data=data)
    from .doctor import examine, lines

    found = examine(loaded)
    if json_:
        print_json([check._asdict() for check in found])
    else:
        echo("\n".join(lines(found)))
    if any(check.state == "wrong" for check in found):
        raise typer.Exit(FOUND_WRONG)


@_config.command("show", context_settings=_ANY_SETTING)
def _config_show(
    context: typer.Context, *, data: DataFolder = None, config: ConfigFile = None, json_: AsJson = False
) -> None:
    """Print every setting and its source.

    Secrets are masked. Takes the options of `serve`.
    """
    loaded = loaded_from(config, context, serving=False, data=data)
    from .show import console, settings_table

    if json_:
        print_json([row._asdict() for row in loaded.rows])
    else:
        console().print(settings_table(loaded.rows))


# -- recordings -------------------------------------------------------------------------------------------------------

for module in (record, seal, play, compare):
    app.add_typer(module.app)

if __name__ == "__main__":
    main()
